"""Retrieved documents → OpenInference's flat attributes: Phoenix drops those of the GenAI form that have no score."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from spanscore import semconv

__all__ = ["flat_documents"]

MOST_DOCUMENTS: Final = 20
"""Of three attributes each: the SDK keeps 128 per span, drops the oldest past that, and warns on stderr about each."""
_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {"id": str, "content": str, "score": (float, int)}


def flat_documents(documents: Any, room: int | None) -> dict[str, Any]:
    """Return the first documents, at most 20, as flat attributes; of each, what is there of its id, text and score.

    Args:
        documents: the value of ``gen_ai.retrieval.documents``; anything else has none.
        room: attributes that the span may still take; a document goes whole or not at all. None = no limit.
    """
    flat: dict[str, Any] = {}
    for position, document in enumerate(islice(documents, MOST_DOCUMENTS) if isinstance(documents, list) else ()):
        prefix = f"{semconv.OPENINFERENCE_DOCUMENTS}{position}.document."
        known = {name: document.get(name) for name in _KINDS}
        attributes = {prefix + name: value for name, value in known.items() if isinstance(value, _KINDS[name])}
        if room is not None and len(flat) + len(attributes) > room:
            break
        flat |= attributes
    return flat
