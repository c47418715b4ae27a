"""Units that no rate would take are told at the door, where their root tells it in the same request: most traces come whole.

Of their spans the ids are kept, as more of the unit may have come before, or come yet. Their bytes, which nobody will read, are
gone before anybody waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from spanscore.codec.wire import WireSpan
from spanscore.units.traces import TraceTable

__all__ = ["UnsampledUnit", "add_unsampled", "sorted_out"]

_Claimable = tuple[WireSpan, bool]
_NO_UNIT: Final = list[tuple[bytes, bytes]]()
"""What spans are of that are not claimed, with nothing claimed above them."""


class UnsampledUnit(NamedTuple):
    """What came of one unit in one request.

    Attributes:
        root: its top-most span.
        below: span id and parent's id of each claimed span below it.
    """

    root: WireSpan
    below: list[tuple[bytes, bytes]]


def sorted_out(
    spans: Iterable[_Claimable], may: Callable[[WireSpan], bool]
) -> tuple[list[UnsampledUnit], list[_Claimable]]:
    """Return what of a request is of unsampled units, and all other spans.

    Args:
        spans: each with whether it is claimed, parents before children: what comes the other way round is of the others.
        may: whether a unit may be scored, by its root.
    """
    unsampled, others = list[UnsampledUnit](), list[_Claimable]()
    traces = dict[bytes, dict[bytes, list[tuple[bytes, bytes]]]]()  # trace → span → what is below its unit's root
    for entry in spans:
        span, claimed = entry
        trace_id, span_id, parent_id, is_remote, _, _ = span
        known = traces.get(trace_id)
        if known is None:
            known = traces[trace_id] = {}
        below = _NO_UNIT if is_remote or not parent_id else known.get(parent_id)
        if below is not None and below is not _NO_UNIT:
            known[span_id] = below
            if claimed:
                below.append((span_id, parent_id))
                continue
        elif below is _NO_UNIT and not claimed:
            known[span_id] = _NO_UNIT
        elif below is _NO_UNIT and not may(span):
            unit = UnsampledUnit(span, [])
            known[span_id] = unit.below
            unsampled.append(unit)
            continue
        others.append(entry)
    return unsampled, others


def add_unsampled(table: TraceTable, units: Sequence[UnsampledUnit], now_ns: int) -> None:
    """Have a table know the spans of unsampled units."""
    for root, below in units:
        table.add(root, claimed=True, now_ns=now_ns)
        if not table.adopts(root, [span_id for span_id, _ in below]):
            for span_id, parent_id in below:
                span = WireSpan(root.trace_id, span_id, parent_id, False, b"", root.origin)
                table.add(span, claimed=True, now_ns=now_ns)
