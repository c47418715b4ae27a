"""A run's input and output, each one value, parsed → the content of a span, by its operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.stored_sample import documents_of, side, tool_answer, unfolded
from spanscore.dialects.translations.chats import answers_in, prompts_in
from spanscore.dialects.translations.python_text import value_of

__all__ = ["content_of", "object_in", "parsed", "retrieved_by", "text_or_none"]

_NONE: Final = frozenset({"null", '"null"', "None", "'None'"})
"""How instrumentations write that there is no value, where a whole input or output stands."""


def parsed(value: Any) -> Any:
    """Return the structure that a text holds; text that happens to be JSON (``5``, ``true``) stays text."""
    known = value_of(value)
    return known if isinstance(known, (dict, list)) else value


def object_in(value: Any) -> Any:
    """Return the object that a text holds, as JSON or as Python shows it; any other text, a list as well, as it is."""
    known = value_of(value)
    return known if isinstance(known, dict) else value


def text_or_none(value: Any) -> Any:
    """Return None for the text by which an instrumentation writes None as a whole input or output; any other value as it is."""
    return None if isinstance(value, str) and value in _NONE else value


def content_of(operation: str, given: Any, gave: Any) -> dict[str, Any]:
    """Return the content attributes of a span of an operation that was given one value and gave another; None = none."""
    return _READERS.get(operation, _run)(text_or_none(given), text_or_none(gave))


def _run(given: Any, gave: Any) -> dict[str, Any]:
    return {
        **side(object_in(given), semconv.INPUT_MESSAGES, semconv.INPUT_VALUE),
        **side(gave, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE),
    }


def _model(given: Any, gave: Any) -> dict[str, Any]:
    asked, said = ([] if given is None else prompts_in(given)), ([] if gave is None else answers_in(gave))
    return {semconv.INPUT_MESSAGES: asked or None, semconv.OUTPUT_MESSAGES: said or None}


def _tool(given: Any, gave: Any) -> dict[str, Any]:
    result, documents, _ = tool_answer(gave)
    return {
        semconv.TOOL_CALL_ARGUMENTS: unfolded(given),
        semconv.TOOL_CALL_RESULT: result,
        semconv.RETRIEVAL_DOCUMENTS: documents or None,
    }


def _retrieval(given: Any, gave: Any) -> dict[str, Any]:
    query = given["query"] if isinstance(given, dict) and "query" in given else given
    found = gave["documents"] if isinstance(gave, dict) and "documents" in gave else gave
    return {
        semconv.RETRIEVAL_QUERY: query if isinstance(query, str) else None,
        semconv.RETRIEVAL_DOCUMENTS: retrieved_by(unfolded(found)),
    }


def retrieved_by(shown: Any) -> list[Any] | None:
    """Return what a retriever returned, unfolded, as a list of documents, in whatever form they are; None if it is no document.

    A document in a form that no reader knows stays in the list: it was retrieved, and its text is unknown.
    """
    single: list[Any] | None = [shown] if shown and isinstance(shown, (str, dict)) else None
    items = shown if isinstance(shown, list) else single
    return items and [document for item in items for document in documents_of(item) or [item]]


_READERS: Final[Mapping[str, Callable[[Any, Any], dict[str, Any]]]] = {
    **dict.fromkeys(semconv.MODEL_OPERATIONS, _model),
    semconv.EXECUTE_TOOL: _tool,
    semconv.RETRIEVAL: _retrieval,
}
"""Operation → what makes its content; any other is a run."""
