"""Reads texts and documents from values in any form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spanscore.core.codecs.media import is_marker
from spanscore.core.codecs.messages import is_message, message_text, role_of, text_message
from spanscore.core.codecs.text import as_text, from_wire, safe_text

# --- texts ----------------------------------------------------------------------------------------------------------

CONTEXT_KEYS = ("context", "contexts", "documents", "docs", "source_documents")
"""Keys under which an application stores retrieved documents. Questions and answers are not searched under them."""
_DEPTH = 4
"""Levels of a structure that are read."""
_NO_WORD = re.compile(r"[\W_]")


def texts_under_keys(value: Any, keys: Sequence[str], read: Callable[[Any], str | None]) -> Iterator[str]:
    """Yield the text that ``read`` finds in each value under these keys of a dict; empty for a message."""
    if isinstance(value, dict) and not is_message(value):
        texts = (read(value[key]) for key in keys if value.get(key) is not None)
        yield from (text for text in texts if text is not None)


def scalar_text(value: Any) -> str | None:
    """Return a text, number or boolean as text; None for a structure."""
    return as_text(value) if isinstance(value, (str, int, float)) else None


def text_of(value: Any) -> str | None:
    """Return the text of a value: of its last message, its text blocks or its key ``text`` or ``content``, otherwise its JSON.

    None for None, and for a message without a text.
    """
    if value is None:
        return None
    last = value[-1] if are_messages(value) else value
    if is_message(last):
        return message_text(last)
    joined = _join_blocks(value)
    inner = value.get("text", value.get("content")) if isinstance(value, dict) else joined
    return as_text(inner if isinstance(inner, str) else value)


def with_message_texts(value: Any) -> Any:
    """Return a value with each message replaced by its text."""
    if is_message(value):
        return message_text(value)
    if isinstance(value, dict):
        return {key: with_message_texts(inner) for key, inner in value.items()}
    return [with_message_texts(inner) for inner in value] if isinstance(value, list) else value


def texts_by_path(value: Any, depth: int = _DEPTH) -> dict[str, str]:
    """Return key path → text for each text in ``depth`` levels of dicts. A message under a key counts as its text.

    Empty texts, images, items of lists (``texts_in_lists`` has these), opaque dicts and values under ``CONTEXT_KEYS`` are left
    out.
    """
    if not isinstance(value, Mapping) or depth <= 0 or _is_opaque(value):
        return {}
    texts: dict[str, str] = {}
    for key, inner in value.items():
        if key in CONTEXT_KEYS:
            continue
        text = _text_or_none(inner)
        if text is None:
            texts |= {f"{key}.{path}": leaf for path, leaf in texts_by_path(inner, depth - 1).items()}
        elif text.strip() and not is_marker(text):
            texts[key] = text
    return texts


def texts_in_lists(value: Any, depth: int = _DEPTH) -> list[str]:
    """Return the texts in lists of a structure, as in ``{"jokes": ["…"]}``; for a text the text itself.

    Opaque dicts and values under ``CONTEXT_KEYS`` are left out.
    """
    if isinstance(value, str):
        return [value] if value.strip() and not is_marker(value) else []
    if depth <= 0:
        return []
    inside = _containers(value) if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for inner in inside for text in texts_in_lists(inner, depth - 1)]


def has_text_records(value: Any, depth: int = _DEPTH) -> bool:
    """Return whether lists contain dicts with texts, as in ``[{"question": "…"}, …]``.

    Opaque dicts and values under ``CONTEXT_KEYS`` are left out.
    """
    if depth <= 0:
        return False
    if isinstance(value, Mapping):
        return any(has_text_records(inner, depth - 1) for inner in _containers(value))
    return isinstance(value, list) and any(
        texts_by_path(inner) or has_text_records(inner, depth - 1) for inner in value
    )


def contains_words(text: str, part: str) -> bool:
    """Return whether a text contains another as whole words: ``When`` does not contain ``en``."""
    part = part.strip()
    at = text.find(part) if part else -1
    while at >= 0:
        end = at + len(part)
        if not (_is_inside_word(text, at) or _is_inside_word(text, end)):
            return True
        at = text.find(part, _end_of_word(text, at) if part[0].isalnum() else at + 1)
    return False


def are_messages(value: Any) -> bool:
    """Return whether a value is a non-empty list of messages."""
    return isinstance(value, list) and bool(value) and all(is_message(item) for item in value)


def as_messages(value: Any) -> list[dict[str, Any]]:
    """Return a list of messages, or of pairs of role and text, as messages; ``[]`` for other values."""
    items = value if isinstance(value, list) else []
    messages = [message for item in items if (message := _message(item)) is not None]
    return messages if len(messages) == len(items) else []


def is_pair_of_texts(value: Any) -> bool:
    """Return whether a value is a list of two texts, such as ``["user", "…"]``."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value)  # noqa: PLR2004


def _message(item: Any) -> dict[str, Any] | None:
    role = role_of(item[0]) if is_pair_of_texts(item) else None
    if role is not None:
        return text_message(role, item[1])
    return item if is_message(item) else None


def _end_of_word(text: str, at: int) -> int:
    """Return the end of the word at a position. A search that continued inside the word would take a minute for ``aaaa…``."""
    end = _NO_WORD.search(text, at)
    return len(text) if end is None else end.start()


def _is_inside_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


def _text_or_none(value: Any) -> str | None:
    """Return the text of a text, a message or content blocks; None for any other value."""
    if isinstance(value, str):
        return safe_text(value)
    if is_message(value):
        return message_text(value)
    return _join_blocks(value) if isinstance(value, list) and all(map(_is_block, value)) else None


def _join_blocks(value: Any) -> str | None:
    """Return a list of texts and text blocks as one text; None for other values and an empty list."""
    if not isinstance(value, list) or not value or not all(isinstance(item, str) or _is_block(item) for item in value):
        return None
    return "".join(item if isinstance(item, str) else item["text"] for item in value)


def _containers(value: Mapping[str, Any]) -> list[Any]:
    """Return the lists and dicts in a dict that is not opaque, except those under ``CONTEXT_KEYS``."""
    if _is_opaque(value):
        return []
    return [inner for key, inner in value.items() if key not in CONTEXT_KEYS and isinstance(inner, (list, dict))]


def _is_opaque(value: Mapping[str, Any]) -> bool:
    """Return whether a dict is LangChain's document, a message, or the codec's form of an unknown object (``{"type": …}``)."""
    return "page_content" in value or is_message(value) or value.keys() <= {"type", "size"}


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


# --- documents ------------------------------------------------------------------------------------------------------

# Documents in the forms that applications and retrievers use: texts, dicts with a text, lists of these, JSON.

_TEXT_KEYS: Final = ("page_content", "content", "text", "document", "chunk")
_NESTED_DOCUMENTS: Final = ("documents", "docs", "results", "context")
_WRAPPED_DOCUMENT: Final = ("document", "node")
_DOCUMENT_KEYS: Final = frozenset({"id", "score", *_TEXT_KEYS})
"""Keys by which a dict without a text is recognised as a document."""


@dataclass(frozen=True, slots=True)
class RetrievedDocument:
    """One retrieved document.

    Attributes:
        content: text of the document; None = its span does not have the text.
        id: id in its store; None = the store gives no id.
    """

    content: str | None
    id: str | int | None = None


def documents_in(value: Any, depth: int = 3) -> list[RetrievedDocument] | None:
    """Return the documents in ``depth`` nested levels of a value; None for a value in an unknown form.

    A text, a message or a dict with a text is a document. An empty text or list is a retrieval without a result, ``[]``. A list
    may have documents without a text; its items in an unknown form are left out.
    """
    if isinstance(value, str):
        return [RetrievedDocument(safe_text(value))] if value else []
    if depth <= 0:
        return None
    if isinstance(value, Mapping):
        return _document(value, depth)
    return _documents_of_list(value, depth) if isinstance(value, (list, tuple)) else None


def retrieved_in(items: Sequence[Any]) -> list[RetrievedDocument]:
    """Return the documents of a retriever's items. An item may hold several documents, or none: an empty text or list.

    An item in an unknown form is one document. If it is a text, that is the document's text; other values give no text.
    """
    return [document for item in items for document in _documents_of_item(item)]


def _documents_of_item(item: Any) -> list[RetrievedDocument]:
    """Return the documents of one item; a document may be JSON text, because a span's lists can only have texts."""
    value = from_wire(item) if isinstance(item, str) and item.startswith("{") else item
    documents = documents_in(value)
    if documents is None and isinstance(item, str):
        return _without_text(value) or [RetrievedDocument(safe_text(item))]
    return [RetrievedDocument(None, _id_in(value))] if documents is None else documents


def _documents_of_list(values: Sequence[Any], depth: int) -> list[RetrievedDocument] | None:
    read = (_without_text(item) if (inner := documents_in(item, depth - 1)) is None else inner for item in values)
    documents = [inner for inner in read if inner is not None]
    return [document for inner in documents for document in inner] if documents or not values else None


def _without_text(value: Any) -> list[RetrievedDocument] | None:
    """Return a list with the document, for a dict that is a document without a text; None for other values."""
    is_document = isinstance(value, Mapping) and not is_message(value) and not _DOCUMENT_KEYS.isdisjoint(value)
    return [RetrievedDocument(None, _id_in(value))] if is_document else None


def _document(value: Mapping[str, Any], depth: int) -> list[RetrievedDocument] | None:
    if is_message(value):
        said = message_text(value)
        return None if said is None else [RetrievedDocument(said)]
    text = _text_in(value)
    if text is not None:
        return [RetrievedDocument(safe_text(text), _id_in(value))]
    inner = next((value[key] for key in _NESTED_DOCUMENTS if isinstance(value.get(key), (list, tuple, str))), None)
    return _document_inside(value, depth) if inner is None else documents_in(inner, depth - 1)


def _text_in(document: Mapping[str, Any]) -> str | None:
    """Return the text of a document or its content blocks; None without a text. An empty ``page_content`` gives ``""``."""
    if document.get("page_content") == "":
        return ""
    text = next((document[key] for key in _TEXT_KEYS if document.get(key) and isinstance(document[key], str)), None)
    content = document.get("content")
    return text_of(content) if text is None and content and isinstance(content, (list, dict)) else text


def _document_inside(value: Mapping[str, Any], depth: int) -> list[RetrievedDocument] | None:
    """Return the document inside a result: ``{"node": {"text": …}, "score": …}``."""
    inner = next((value[key] for key in _WRAPPED_DOCUMENT if isinstance(value.get(key), Mapping)), None)
    documents = None if inner is None else documents_in(inner, depth - 1)
    return documents and [
        replace(document, id=_id_in(value) if document.id is None else document.id) for document in documents
    ]


def _id_in(document: Any) -> str | int | None:
    value = document.get("id") if isinstance(document, Mapping) else None
    if isinstance(value, bool) or value in (None, ""):
        return None
    return value if isinstance(value, int) else as_text(value)
