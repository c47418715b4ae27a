"""Units that no rate would take are told at the door, where their root tells it in the same request: most traces come whole.

Of their spans the ids are kept, as more of the unit may have come before, or come yet. Their bytes, which nobody will read, are
not even copied out of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from spanscore.core.codecs.otlp_request import Origin, Taken, WireSpan, kept
from spanscore.core.codecs.otlp_scan import SpanPlace
from spanscore.pipeline.traces import TraceTable
from spanscore.receivers.otlp.claims import Mark

__all__ = ["Sorting", "UnsampledUnit", "add_unsampled"]

_Ids = dict[bytes, bytes]
_NO_UNIT: Final = _Ids()
"""What spans are of that are not claimed, with nothing claimed above them."""


class UnsampledUnit(NamedTuple):
    """What came of one unit in one request.

    Attributes:
        root: its top-most span, as it came or without its bytes.
        ids: span id → parent's id of its claimed spans, parents before children.
    """

    root: WireSpan
    ids: dict[bytes, bytes]


_unit: Callable[[type[UnsampledUnit], tuple[WireSpan, _Ids]], UnsampledUnit] = tuple.__new__
"""Half of what the constructor of a named tuple takes."""


class Sorting:
    """The spans of one request → what is of unsampled units, and all others.

    Args:
        taken: the request.
        dropped: returns of the root of a unit what is kept of it, if nobody scores that; None where somebody may.

    Attributes:
        unsampled: units that are told to be so.
        others: each with whether it is claimed, the last one first.
        read_spans: how many were read.
        ours: how many are ours, of which nothing is read.
        traces: of claimed spans.
        beside: traces of other spans.
        size: bytes of the claimed spans in ``others``.
        roots: how many claimed ones begin a unit for sure.
        unclaimed: spans.
    """

    def __init__(
        self,
        taken: Taken,
        dropped: Callable[[bytes, SpanPlace, Origin], WireSpan | None],
    ) -> None:
        self._body = taken.body
        self._dropped = dropped
        self._alone: dict[bytes, _Ids] = {}  # trace → the ids of its unit, as long as all that is read of it is of that
        self._mixed: dict[bytes, dict[bytes, _Ids]] = {}  # any other trace → span → the ids of what it is of
        self.unsampled: list[UnsampledUnit] = []  # not list[…](), which takes six times as long
        self.others: list[tuple[WireSpan, bool]] = []
        self.traces: set[bytes] = set()
        self.beside: set[bytes] = set()
        self.read_spans = self.ours = self.roots = self.unclaimed = self.size = 0

    def read(self, origin: Origin, places: Sequence[SpanPlace], marked: Mark | None, mostly: bytes = b"") -> None:
        """Read spans from the last to the first: they come as they end, children before their parents.

        Args:
            origin: whose they are.
            places: where they stand.
            marked: tells claimed ones; None = all are.
            mostly: what most claimed ones hold, and no other does; empty = nothing is.
        """
        alone, body, last_trace_id, ids = self._alone, self._body, b"", None
        find = body.find
        self.read_spans += len(places)
        for place in reversed(places):
            trace_id, span_id, parent_id, is_remote, start, end, _ = place
            claimed = (
                marked is None
                or (mostly != b"" and find(mostly, start, end) >= 0)
                or marked(body, start, end) is not None
            )
            if trace_id is not last_trace_id:
                last_trace_id, ids = trace_id, alone.get(trace_id)
            if ids is not None and claimed and parent_id in ids and not is_remote and span_id not in ids:
                ids[span_id] = parent_id
            else:
                self._look_closer(place, origin, claimed=claimed)
                last_trace_id = b""

    def _look_closer(self, place: SpanPlace, origin: Origin, *, claimed: bool) -> None:
        """Read a span that is not just one more of the one unsampled unit of its trace."""
        trace_id, span_id, parent_id, is_remote, start, end, _ = place
        above = _NO_UNIT if is_remote or not parent_id else self._above(trace_id, parent_id)
        (self.traces if claimed else self.beside).add(trace_id)
        self.unclaimed += not claimed
        self.roots += claimed and (is_remote or not parent_id)
        if above is None:
            pass
        elif above is not _NO_UNIT:
            self._list_ids(trace_id)[span_id] = above
            if claimed and span_id not in above:
                above[span_id] = parent_id
                return
        elif not claimed:
            self._list_ids(trace_id)[span_id] = _NO_UNIT
        elif (root := self._dropped(self._body, place, origin)) is not None:
            self._begin(root, trace_id, span_id, parent_id)
            return
        self.others.append((kept(self._body, place, origin), claimed))
        self.size += claimed * (end - start)

    def _begin(self, root: WireSpan, trace_id: bytes, span_id: bytes, parent_id: bytes) -> None:
        ids = {span_id: parent_id}
        self.unsampled.append(_unit(UnsampledUnit, (root, ids)))
        if trace_id in self._alone or trace_id in self._mixed:
            self._list_ids(trace_id)[span_id] = ids
        else:
            self._alone[trace_id] = ids

    def _above(self, trace_id: bytes, parent_id: bytes) -> _Ids | None:
        """Return the ids of what a span is of; None where its parent is not known."""
        ids = self._alone.get(trace_id)
        if ids is not None:
            return ids if parent_id in ids else None
        ids_by_span = self._mixed.get(trace_id)
        return None if ids_by_span is None else ids_by_span.get(parent_id)

    def _list_ids(self, trace_id: bytes) -> dict[bytes, _Ids]:
        """Return what is known of the spans of a trace, one by one."""
        ids = self._alone.pop(trace_id, None)
        if ids is not None:
            self._mixed[trace_id] = dict.fromkeys(ids, ids)
        return self._mixed.setdefault(trace_id, {})


def add_unsampled(table: TraceTable, units: Sequence[UnsampledUnit], now_ns: int) -> None:
    """Have a table know the spans of unsampled units."""
    for root, ids in units:
        if table.begins(root, ids, now_ns):
            continue
        table.add(root, claimed=True, now_ns=now_ns)
        for span_id, parent_id in [*ids.items()][1:]:
            span = WireSpan(root.trace_id, span_id, parent_id, False, b"", root.origin)
            table.add(span, claimed=True, now_ns=now_ns)
