"""Context variables: the conversation and the references a request brings along, and "this is a judge's call"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from typing import Any

_expected: ContextVar[Mapping[str, Any] | None] = ContextVar("spanscore_expected", default=None)
_session: ContextVar[str | None] = ContextVar("spanscore_session", default=None)
_judging: ContextVar[bool] = ContextVar("spanscore_judging", default=False)

current_expectation = _expected.get
"""What the surrounding ``references(...)`` blocks gave, None outside of any."""

current_session = _session.get
"""The id that the innermost surrounding ``session(...)`` block gave, None outside of any."""

is_judging = _judging.get
"""Whether the current call is a judge's, which nothing of ours may capture."""


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
    """Give references to every run that starts inside the block; inner blocks add to outer ones.

    They never travel through run metadata, which LangGraph persists in its checkpoints.

    Example:
        >>> with references(reference="Paris"):
        ...     chain.invoke("What is the capital of France?")  # doctest: +SKIP
    """
    references = {
        "reference": reference,
        "reference_contexts": _listed(reference_contexts),
        "reference_context_ids": _listed(reference_context_ids),
        "reference_topics": _listed(reference_topics),
        "reference_tool_calls": _listed(reference_tool_calls),
        "rubrics": dict(rubrics) if rubrics is not None else None,
    }
    present = {name: value for name, value in references.items() if value is not None}
    token = _expected.set({**(_expected.get() or {}), **present})
    try:
        yield
    finally:
        _undo(_expected, token)


@contextmanager
def session(session_id: str) -> Iterator[None]:
    """Make every run that starts inside the block a turn of this conversation, whatever its metadata say.

    It is ``gen_ai.conversation.id`` on their spans, as the redactor leaves it. An inner block wins over an outer one.

    Args:
        session_id: the conversation's id, not empty.

    Raises:
        TypeError: it is no text, or an empty one.

    Example:
        >>> with session("order-4711"):
        ...     chain.invoke("Where is it?")  # doctest: +SKIP
    """
    token = _session.set(checked_session(session_id))
    try:
        yield
    finally:
        _undo(_session, token)


def _undo(variable: ContextVar[Any], token: Token[Any]) -> None:
    with suppress(
        ValueError
    ):  # a generator that ends in another context, as web frameworks run them: nothing is set there
        variable.reset(token)


def checked_session(session_id: Any) -> str:
    """Return the id of a conversation.

    Raises:
        TypeError: it is no text, or an empty one.
    """
    if not isinstance(session_id, str) or not session_id:
        raise TypeError(
            f"a session's id is a text that is not empty, not {type(session_id).__name__} {session_id!r:.40}"
        )
    return str(session_id)


@contextmanager
def judging() -> Iterator[None]:
    """Mark everything inside as a judge's call: the handler and ``install()`` leave it alone."""
    token = _judging.set(True)
    try:
        yield
    finally:
        _judging.reset(token)


def _listed(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)
