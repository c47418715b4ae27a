"""BriefUnits: units that came whole in one request and that no rate takes, each all there is of its trace.

Nearly every unit is one, so what is known of it is what came: only when more of its trace comes is it worth an ``OpenTrace``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from spanscore.codec.wire import WireSpan
from spanscore.model.outcome import Outcome
from spanscore.model.span import UnitKey
from spanscore.units.trace_books import PastUnits
from spanscore.units.trace_nodes import NO_LINKS, SPAN_BYTES, ClosedUnit, unit_key

__all__ = ["BriefUnit", "BriefUnits"]

_NOT_SAMPLED: Final = Outcome.NOT_SAMPLED
_closed: Callable[[type[ClosedUnit], tuple[object, ...]], ClosedUnit] = tuple.__new__
_brief: Callable[[type[BriefUnit], tuple[object, ...]], BriefUnit] = tuple.__new__
"""Half of what the constructors of named tuples take."""


class BriefUnit(NamedTuple):
    """A unit, as it came.

    Attributes:
        root: its top-most span.
        ids: of its claimed spans.
        arrival: when it came, as ``OpenTrace`` counts it.
        last_ns: when it came.
        bytes: of its root, and 400.
    """

    root: WireSpan
    ids: Mapping[bytes, bytes]
    arrival: int
    last_ns: int
    bytes: int

    @property
    def key(self) -> UnitKey:
        """Its name everywhere else."""
        return unit_key(self.root)


class BriefUnits:
    """Those of which nothing more has come, in the order in which they came.

    Args:
        past: remembers those that are over.
    """

    def __init__(self, past: PastUnits) -> None:
        self._past = past
        self._units: OrderedDict[bytes, BriefUnit] = OrderedDict()

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, trace_id: bytes) -> bool:
        return trace_id in self._units

    def __iter__(self) -> Iterator[BriefUnit]:
        return iter(self._units.values())

    def add(self, root: WireSpan, ids: Mapping[bytes, bytes], arrival: int, now_ns: int) -> int:
        """Keep a unit and return its bytes; 0: more is known of its trace, and it is not kept."""
        trace_id, _, _, _, raw, _ = root
        if trace_id in self._units or self._past.knows(trace_id):
            return 0
        size = len(raw) + SPAN_BYTES
        self._units[trace_id] = _brief(BriefUnit, (root, ids, arrival, now_ns, size))
        return size

    def take(self, trace_id: bytes) -> BriefUnit | None:
        """Return the unit of a trace, and forget it; None where there is none."""
        return self._units.pop(trace_id, None)

    def over(self, last_ns: int) -> list[ClosedUnit]:
        """Return those that came by then, and forget them."""
        units, closed = self._units, list[ClosedUnit]()
        for root, _, _, came_ns, size in units.values():
            if came_ns > last_ns:
                break
            closed.append(_closed(ClosedUnit, (root, (), _NOT_SAMPLED, 0, size, NO_LINKS)))
        for _ in closed:
            units.popitem(last=False)
        self._past.drop([unit[0] for unit in closed])
        return closed
