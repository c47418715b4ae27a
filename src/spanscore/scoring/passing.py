"""Passing: units between the moment in which they are chosen and the one in which they outlive the process, or have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from spanscore.core.span import Unit, UnitKey

__all__ = ["Passing"]

_Pass: TypeAlias = tuple[UnitKey, int]


class _SafeMark(NamedTuple):
    units: set[_Pass]
    told: Callable[[], None]


class Passing:
    """Which units are on their way to a queue that outlives the process, and who waits for them. Any thread."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._lock = threading.Lock()
        self._units: set[_Pass] = set()
        self._waiters: list[_SafeMark] = []

    def begin(self, units: Iterable[Unit]) -> None:
        """Note units that were chosen."""
        with self._lock:
            self._units |= {_pass_of(unit) for unit in units}

    def over(self, unit: Unit) -> None:
        """Note that a unit is safe, or has ended."""
        transit = _pass_of(unit)
        with self._lock:
            self._units.discard(transit)
            for waiter in self._waiters:
                waiter.units.discard(transit)
            safe = [waiter for waiter in self._waiters if not waiter.units]
            if safe:
                self._waiters = [waiter for waiter in self._waiters if waiter.units]
        for waiter in safe:
            waiter.told()

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call it when all that are on their way now are no more; at once where none is."""
        with self._lock:
            if waits := bool(self._units):
                self._waiters.append(_SafeMark({*self._units}, callback))
        if not waits:
            callback()


def _pass_of(unit: Unit) -> _Pass:
    return unit.ledger_key, unit.revision
