"""The last units: as a sampling rule sees them, for ``scorer.preview()``; and whole, for ``scorer.explain()``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from time import time_ns
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from spanscore.core.log import is_a
from spanscore.core.span import SamplingContext, Unit

__all__ = ["RecentUnit", "RecentUnits", "WholeUnits"]

_KEPT: Final = 1_000
"""Units: 0.3 kB each, 0.5 kB with listed metadata and a model (measured)."""
_LONGEST: Final = 200
"""Characters of a text among their metadata."""
_MOST_WHOLE: Final = 100
_MOST_BYTES: Final = 4_000_000
_SPAN_BYTES: Final = 2_000
"""What a span takes beside its content."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_METADATA: Final = SamplingContext._fields.index("metadata")


class RecentUnit(NamedTuple):
    """A closed unit.

    Attributes:
        facts: of its metadata those that are listed; None where one of these is too large to be kept. A unit that nobody
            followed is None also in what its children would tell.
        closed_ns: since the epoch; None of one of which nothing is known but its ids.
    """

    facts: SamplingContext
    closed_ns: int | None


@dataclass(eq=False, repr=False)
class RecentUnits:
    """Keeps what is there already, and nothing of content. Any thread: each step is one of a deque's.

    Attributes:
        metadata: keys of which the values are kept, texts, numbers and booleans; all else may be large, or anybody's object.
        kept: units.
        clock: nanoseconds since the epoch.
    """

    metadata: Sequence[str] = ()
    _: KW_ONLY
    kept: int = _KEPT
    clock: Callable[[], int] = time_ns

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._units: deque[tuple[SamplingContext, int | None, bool]] = deque(maxlen=self.kept)

    def followed(self, facts: SamplingContext) -> None:
        """Remember a unit of which all is known."""
        self._units.append((self._listed(facts), self.clock(), True))

    def skipped(self, facts: SamplingContext) -> SamplingContext:
        """Remember a unit that was not followed, as it could not be taken; return what is kept of it."""
        kept = self._listed(facts)
        self._units.append((kept, self.clock(), False))
        return kept if kept.metadata is not None else kept._replace(metadata=_NOTHING)

    def excluded(self, facts: SamplingContext) -> None:
        """Remember a unit of which no more is known than when it began."""
        self._units.append((facts, None, True))

    def units(self) -> list[RecentUnit]:
        """Return them, the oldest first."""
        return [
            RecentUnit(facts if followed else facts._replace(tool_calls=None, models=None, scores=None), closed_ns)
            for facts, closed_ns, followed in self._units.copy()
        ]

    def _listed(self, facts: SamplingContext) -> SamplingContext:
        """Return facts with the metadata that are kept; ``_replace`` takes three times as long."""
        return SamplingContext._make((*facts[:_METADATA], self._kept_of(facts.metadata), *facts[_METADATA + 1 :]))

    def _kept_of(self, metadata: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if metadata is None:
            return None
        if not self.metadata:
            return _NOTHING
        listed = {key: metadata[key] for key in self.metadata if key in metadata}
        return listed if all(map(_is_small, listed.values())) else None


class WholeUnits:
    """Keeps the last units with their spans, 100 with 4 MB at most. ``units`` is any thread's: a copy of a deque."""

    def __init__(self) -> None:
        self._units: deque[tuple[Unit, int]] = deque()
        self._bytes = 0

    def keep(self, unit: Unit, size_bytes: int) -> None:
        """Keep a unit, unless it alone is above the bound; ``size_bytes``: of its content, roughly."""
        size = size_bytes + _SPAN_BYTES * len(unit.spans)
        if size <= _MOST_BYTES:
            self._units.append((unit, size))
            self._bytes += size
        while self._bytes > _MOST_BYTES or len(self._units) > _MOST_WHOLE:
            self._bytes -= self._units.popleft()[1]

    def units(self) -> list[Unit]:
        """Return them, the oldest first."""
        return [unit for unit, _ in self._units.copy()]


def _is_small(value: Any) -> bool:
    if is_a(value, str):
        return str.__len__(value) <= _LONGEST
    return value is None or is_a(value, int, float)
