"""Documents in whatever form applications and retrievers have them: texts, dicts with a text, lists of these, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spanscore.core.codecs.messages import is_message, message_text
from spanscore.core.codecs.text import as_text, from_wire, safe_text
from spanscore.dialects.texts import text_of

__all__ = ["Retrieved", "documents_in", "retrieved_in"]

_TEXT_KEYS: Final = ("page_content", "content", "text", "document", "chunk")
_NESTED_DOCUMENTS: Final = ("documents", "docs", "results", "context")
_WRAPPED_DOCUMENT: Final = ("document", "node")
_MARKS: Final = frozenset({"id", "score", *_TEXT_KEYS})
"""Keys by which a dict without a text is seen to be a document."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """One retrieved document.

    Attributes:
        content: the text of the document; None = its span does not hold the text.
        id: as its store gives it, None where it gives none.
    """

    content: str | None
    id: str | int | None = None


def documents_in(value: Any, depth: int = 3) -> list[Retrieved] | None:
    """Return the documents a value holds: documents, texts, lists of them, a text alone; None where it holds none.

    An empty text or list is a retrieval that found nothing: ``[]``. A list may hold documents without a text.
    """
    if isinstance(value, str):
        return [Retrieved(safe_text(value))] if value else []
    if depth <= 0:
        return None
    if isinstance(value, Mapping):
        return _document(value, depth)
    return _listed(value, depth) if isinstance(value, (list, tuple)) else None


def retrieved_in(items: Sequence[Any]) -> list[Retrieved]:
    """Return the documents of a retriever: every item is a document, and an item in an unknown form is one without text."""
    return [document for item in items for document in _retrieved(item)]


def _retrieved(item: Any) -> list[Retrieved]:
    """Return the documents of one item; a document may be JSON text, as a span's list can hold nothing but texts."""
    value = from_wire(item) if isinstance(item, str) and item.startswith("{") else item
    found = documents_in(value)
    if found is None and isinstance(item, str):
        return _without_text(value) or [Retrieved(safe_text(item))]
    return [Retrieved(None, _id_in(value))] if found is None else found


def _listed(values: Sequence[Any], depth: int) -> list[Retrieved] | None:
    read = (_without_text(item) if (inner := documents_in(item, depth - 1)) is None else inner for item in values)
    found = [inner for inner in read if inner is not None]
    return [document for inner in found for document in inner] if found or not values else None


def _without_text(value: Any) -> list[Retrieved] | None:
    """Return a dict that is a document without a text as one; None for any other value."""
    is_document = isinstance(value, Mapping) and not is_message(value) and not _MARKS.isdisjoint(value)
    return [Retrieved(None, _id_in(value))] if is_document else None


def _document(value: Mapping[str, Any], depth: int) -> list[Retrieved] | None:
    if is_message(value):
        said = message_text(value)
        return None if said is None else [Retrieved(said)]
    text = _text_in(value)
    if text is not None:
        return [Retrieved(safe_text(text), _id_in(value))]
    inner = next((value[key] for key in _NESTED_DOCUMENTS if isinstance(value.get(key), (list, tuple, str))), None)
    return _wrapped(value, depth) if inner is None else documents_in(inner, depth - 1)


def _text_in(document: Mapping[str, Any]) -> str | None:
    """Return the text of a document, which may be content blocks; None if it is empty, except a page of LangChain's."""
    if document.get("page_content") == "":
        return ""
    text = next((document[key] for key in _TEXT_KEYS if document.get(key) and isinstance(document[key], str)), None)
    content = document.get("content")
    return text_of(content) if text is None and content and isinstance(content, (list, dict)) else text


def _wrapped(value: Mapping[str, Any], depth: int) -> list[Retrieved] | None:
    """Return the document inside a result: ``{"node": {"text": …}, "score": …}``."""
    inner = next((value[key] for key in _WRAPPED_DOCUMENT if isinstance(value.get(key), Mapping)), None)
    documents = None if inner is None else documents_in(inner, depth - 1)
    return documents and [replace(one, id=_id_in(value) if one.id is None else one.id) for one in documents]


def _id_in(document: Any) -> str | int | None:
    value = document.get("id") if isinstance(document, Mapping) else None
    if isinstance(value, bool) or value in (None, ""):
        return None
    return value if isinstance(value, int) else as_text(value)
