"""Context variables: the conversation and the references of a request, and the mark of judge calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_expected: ContextVar[Mapping[str, Any] | None] = ContextVar("spanscore_expected", default=None)
_session: ContextVar[str | None] = ContextVar("spanscore_session", default=None)
_judging: ContextVar[bool] = ContextVar("spanscore_judging", default=False)

current_expectation = _expected.get
"""Returns the merged arguments of the surrounding ``references(...)`` blocks; None outside of such a block."""

current_session = _session.get
"""Returns the id of the innermost surrounding ``session(...)`` block, None outside of such a block."""

is_judging = _judging.get
"""Returns whether the current call is made by a judge: spanscore captures no run inside such a call."""


@contextmanager
def references(
    *,
    reference: str | None = None,
    reference_contexts: Sequence[str] | None = None,
    reference_context_ids: Sequence[str | int] | None = None,
    reference_topics: Sequence[str] | None = None,
    reference_tool_calls: Sequence[Mapping[str, Any]] | None = None,
    rubrics: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Add references to every run that starts inside the block; an inner block adds to the outer block.

    References are never in run metadata, which LangGraph persists in its checkpoints.

    Args:
        reference: the right answer, or the intended result of a conversation.
        reference_contexts: the texts that the retrieval should find.
        reference_context_ids: ids of the documents that the retrieval should find.
        reference_topics: allowed topics of a conversation.
        reference_tool_calls: expected tool calls, in order.
        rubrics: grade or criterion → description.

    Example:
        >>> with references(reference="Paris"):
        ...     chain.invoke("What is the capital of France?")  # doctest: +SKIP
    """
    references = {
        "reference": reference,
        "reference_contexts": _list_of(reference_contexts),
        "reference_context_ids": _list_of(reference_context_ids),
        "reference_topics": _list_of(reference_topics),
        "reference_tool_calls": _list_of(reference_tool_calls),
        "rubrics": dict(rubrics) if rubrics is not None else None,
    }
    present = {name: value for name, value in references.items() if value is not None}
    with set_inside(_expected, {**(current_expectation() or {}), **present}):
        yield


@contextmanager
def session(session_id: str) -> Iterator[None]:
    """Make every run that starts inside the block a turn of this conversation, whatever the runs' metadata state.

    The id is ``gen_ai.conversation.id`` on their spans, after the redactor. An inner block overrides an outer one.

    Args:
        session_id: the conversation's id, not empty.

    Raises:
        TypeError: the id is not a text, or empty.

    Example:
        >>> with session("order-4711"):
        ...     chain.invoke("Where is it?")  # doctest: +SKIP
    """
    with set_inside(_session, checked_session(session_id)):
        yield


def checked_session(session_id: Any) -> str:
    """Return the id of a conversation as a plain text.

    Raises:
        TypeError: the id is not a text, or empty.
    """
    if not isinstance(session_id, str) or not session_id:
        raise TypeError(f"a session id must be a non-empty text, not {type(session_id).__name__} {session_id!r:.40}")
    return str(session_id)


@contextmanager
def set_inside(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable a value inside the block, and in tasks started there."""
    token = variable.set(value)
    try:
        yield
    finally:
        with suppress(ValueError):  # web frameworks may end a generator in another context, which has no such value
            variable.reset(token)


def judging() -> AbstractContextManager[None]:
    """Mark all calls inside the block as a judge's: the handler and ``install()`` ignore them."""
    return set_inside(_judging, True)


def _list_of(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)
