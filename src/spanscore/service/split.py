"""A request of which spans are kept → the rest of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spanscore.codec.skeleton import RequestSkeleton
from spanscore.codec.wire import WireSpan

__all__ = ["rest_of"]


def rest_of(body: bytes, kept: Iterable[WireSpan]) -> bytes | None:
    """Return a request without these of its spans, all else in it as it came; None where no span is left.

    What we would not take, and fields that we do not know, are the backend's to judge: they go on.
    """
    gone = {span.raw for span in kept}
    request = RequestSkeleton.FromString(body)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            spans = scope_spans.spans
            for index in [index for index, raw in enumerate(spans) if raw in gone][::-1]:
                del spans[index]  # each for itself: to put all others in again costs five times as much
        _remove_empty(resource_spans.scope_spans, "spans")
    _remove_empty(request.resource_spans, "scope_spans")
    return request.SerializeToString() if request.resource_spans else None


def _remove_empty(messages: Any, field: str) -> None:
    """Remove what has nothing left in a field."""
    whole = [message for message in messages if getattr(message, field)]
    if len(whole) < len(messages):
        kept = [message.SerializeToString() for message in whole]
        del messages[:]
        for raw in kept:
            messages.add().MergeFromString(raw)
