"""Lanes: no judge that hangs fills the queue for the metrics that ask another.

Metrics whose judges are one account share a lane: when it is slow or away, units wait in the queue for all of them. A lane
takes no further unit once it holds three times as many places as are free, so that one alone fills at most three quarters of
the queue, two that share no unit three sevenths each, and there is always something left for the others. That is the dynamic
threshold by which switches share their memory between ports (Choudhury and Hahne, "Dynamic Queue Length Thresholds for
Shared-Memory Packet Switches", 1998), with α = 3. Where there is one lane only, the whole queue is its.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Final

from spanscore.core.span import UnitKey

__all__ = ["Lanes"]

_ALPHA: Final = 3
"""A quarter of 1,000 places is what 250 units a second, each scored within a second, need beside a judge that hangs."""
_BYTES_COUNT: Final = 4
"""Content that waits is memory of the application's: a quarter of what may wait is as much as may wait for its sake."""
_AT_ONCE: Final = 16
"""The part of the places that those may take which come at once, as it is not known how large they are."""


@dataclass(slots=True)
class _Held:
    units: int = 0
    size_bytes: int = 0

    def add(self, units: int, size_bytes: int) -> None:
        self.units += units
        self.size_bytes += size_bytes


@dataclass(eq=False, repr=False)
class Lanes:
    """Which metrics a unit still finds room for in the queue. Owned by the span thread.

    Attributes:
        of: metric → its lane.
        capacity: places of the queue.
        max_bytes: of the queue.
        under_way: metric → units with a place of which its score is to come.
    """

    of: Mapping[str, Hashable]
    _: KW_ONLY
    capacity: Callable[[], int]
    max_bytes: float = inf

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._all = _Held()
        self._lanes: dict[Hashable, _Held] = {lane: _Held() for lane in self.of.values()}
        self._open: dict[UnitKey, tuple[int, dict[str, None]]] = {}
        self.under_way: Counter[str] = Counter()

    def with_room(self, metrics: Collection[str]) -> list[str]:
        """Return those of the metrics whose lane has room for one more unit."""
        if len(self._lanes) == 1:
            return list(metrics)
        full = {lane for lane, held in self._lanes.items() if self._is_full(held)}
        return [name for name in metrics if self.of[name] not in full]

    def room(self) -> int:
        """Return how many units that wait elsewhere may come now, without one finding a lane full. Any thread; a moment's."""
        if self._all.size_bytes > self.max_bytes / 2:  # how large the next ones are is not known yet
            return 0
        capacity = self.capacity()
        most = capacity if len(self._lanes) == 1 else capacity * _ALPHA // (_ALPHA + 1)
        return int(max(0, min(most - self._all.units, max(1, capacity // _AT_ONCE))))

    def fill(self) -> float:
        """Return how full the fullest lane is, for who is in no hurry; bytes count fourfold. Any thread; a moment's."""
        capacity, queue = self.capacity(), self._all
        parts = [queue.units / capacity, _BYTES_COUNT * queue.size_bytes / self.max_bytes]
        if len(self._lanes) > 1:
            free = max(1, capacity - queue.units)
            parts += (held.units / (_ALPHA * free) for held in self._lanes.values())
        return max(parts)

    def enter(self, key: UnitKey, metrics: Collection[str], size_bytes: int) -> None:
        """Note a unit that has a place in the queue, for as long as a score of it is to come."""
        self._open[key] = size_bytes, {}
        self._all.add(1, size_bytes)
        self.join(key, metrics)

    def join(self, key: UnitKey, metrics: Collection[str]) -> None:
        """Note further scores that are to come of such a unit."""
        size_bytes, open_ones = self._open[key]
        metrics = [name for name in metrics if name in self.of]  # another process may have chosen one of its own
        new = self._lanes_of(metrics) - self._lanes_of(open_ones)
        for name in metrics:
            open_ones[name] = None
            self.under_way[name] += 1
        for lane in new:
            self._lanes[lane].add(1, size_bytes)

    def settle(self, key: UnitKey, metrics: Collection[str]) -> None:
        """Note that scores of a unit are in."""
        size_bytes, left = self._open[key]
        before = self._lanes_of(left)
        done = left.keys() & metrics
        for name in done:
            del left[name]
            self.under_way[name] -= 1
        for lane in before - self._lanes_of(left):
            self._lanes[lane].add(-1, -size_bytes)

    def leave(self, key: UnitKey) -> None:
        """Note that a unit has given its place back."""
        if key in self._open:
            if left := self._open[key][1]:
                self.settle(key, [*left])
            size_bytes, _ = self._open.pop(key)
            self._all.add(-1, -size_bytes)

    def _is_full(self, held: _Held) -> bool:
        free, free_bytes = self.capacity() - self._all.units, self.max_bytes - self._all.size_bytes
        return held.units > 0 and (held.units >= _ALPHA * free or held.size_bytes >= _ALPHA * free_bytes)

    def _lanes_of(self, metrics: Collection[str]) -> set[Hashable]:
        return {self.of[name] for name in metrics}
