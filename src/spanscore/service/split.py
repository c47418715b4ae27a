"""A request of which spans are kept → the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from spanscore.core.codecs.otlp_request import WireSpan
from spanscore.core.codecs.otlp_scan import RequestSkeleton

__all__ = ["rest_of"]


def rest_of(body: bytes, kept: Iterable[WireSpan]) -> bytes | None:
    """Return a request without these of its spans, all else in it as it came; None where no span is left.

    What we would not take, and fields that we do not know, are the backend's to judge: they go on.
    """
    gone = {span.raw for span in kept}
    request = RequestSkeleton.FromString(body)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            _remove(scope_spans.spans, lambda raw: raw in gone)
        _remove(resource_spans.scope_spans, lambda scope_spans: not scope_spans.spans)
    _remove(request.resource_spans, lambda resource_spans: not resource_spans.scope_spans)
    return request.SerializeToString() if request.resource_spans else None


def _remove(values: Any, is_gone: Callable[[Any], bool]) -> None:
    """Remove values of a field, each for itself: to put all others in again costs five times as much."""
    for index in [index for index, value in enumerate(values) if is_gone(value)][::-1]:
        del values[index]
