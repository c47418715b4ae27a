"""Tempo's HTTP API → whole traces: a search by TraceQL lists ids, each trace is asked for alone.

Its JSON is OTLP's but for its outermost name, and its ids are base64, as protobuf's own JSON has them (Tempo 2.x; both forms
are read).
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import unhexlify
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final

from spanscore.core.codecs.otlp_request import UnreadableRequest, from_json, taken_apart
from spanscore.sources.asking import NotThere, StoreClient, Unanswered
from spanscore.sources.stored import StoredTrace, Unread
from spanscore.sources.windows import listed

__all__ = ["TempoStore"]

_IDS: Final = {"traceId": 32, "spanId": 16, "parentSpanId": 16}
"""Id → its hex digits."""
_CUT: Final = "the store left out some of its spans, as it is too large"


class TempoStore:
    """Asks one Tempo.

    Args:
        client: of its API.
        query: what its search takes: ``q``, in TraceQL, or ``tags``.
        start_s: since the epoch; likewise ``end_s``.
    """

    lost: Sequence[str] = ()

    def __init__(self, client: StoreClient, query: Mapping[str, str], start_s: float, end_s: float) -> None:
        self._client = client
        self._query = dict(query)
        self._start_s, self._end_s = start_s, end_s
        self._v2: bool | None = None

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Yield the traces that are found."""
        for trace_id in listed(self._start_s, self._end_s, self._ids, where=f"at {self._client.url}"):
            yield trace_id if isinstance(trace_id, Unread) else self._trace(trace_id)

    def _ids(self, start_s: float, end_s: float, limit: int) -> Sequence[bytes]:
        stretch = {"start": str(int(start_s)), "end": str(ceil(end_s)), "limit": str(limit)}
        return self._client.ask("/api/search", {**self._query, **stretch}, _ids_of)

    def _trace(self, trace_id: bytes) -> StoredTrace | Unread:
        try:
            request = self._asked(trace_id.hex())
            if request is None:
                return Unread(f"trace {trace_id.hex()}", _CUT)
            return StoredTrace(trace_id, taken_apart(from_json(request)).spans)
        except (Unanswered, UnreadableRequest) as error:
            return Unread(f"trace {trace_id.hex()}", str(error))

    def _asked(self, trace_id: str) -> str | None:
        """Ask the API v2, which says whether a trace is whole (None: it is not); Tempo before 2.7 has none."""
        if self._v2 is not False:
            try:
                request = self._client.ask(f"/api/v2/traces/{trace_id}", {}, _request)
            except NotThere:
                if self._v2:
                    raise
            else:
                self._v2 = True
                return request
        request = self._client.ask(f"/api/traces/{trace_id}", {}, _request)
        self._v2 = False
        return request


def _ids_of(answer: Any) -> Sequence[bytes]:
    return [unhexlify(trace["traceID"].zfill(32)) for trace in answer.get("traces") or ()]


def _resource_spans(answer: Mapping[str, Any]) -> list[Any]:
    trace = answer.get("trace", answer)
    found: list[Any] = trace["resourceSpans"] if "resourceSpans" in trace else trace["batches"]
    return found


def _request(answer: Mapping[str, Any]) -> str | None:
    """Return the trace as an OTLP request; None: the store left out some of its spans."""
    resource_spans = _resource_spans(answer)
    for scope_spans in (one for resource in resource_spans for one in resource.get("scopeSpans") or ()):
        for span in scope_spans.get("spans") or ():
            for holder in (span, *(span.get("links") or ())):
                holder.update({name: _hex(holder[name], digits) for name, digits in _IDS.items() if name in holder})
    return None if answer.get("status") == "PARTIAL" else json.dumps({"resourceSpans": resource_spans})


def _hex(given: str, digits: int) -> str:
    return given if len(given) in (0, digits) else b64decode(given).hex()
