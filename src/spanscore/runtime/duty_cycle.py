"""DutyCycle: what part of the time our threads work in an application's process.

A queue is there to take up a burst. While the application wants the CPU, and what waits has room, our threads together work for
a tenth of the time; the fuller it gets the more, and without a rest when it is full, when the application is idle, or when
somebody waits for us. So a burst is scored after it rather than against it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic_ns, process_time_ns, thread_time_ns
from typing import Final

from spanscore.runtime.gil import TURN_NS

__all__ = ["DutyCycle", "Turns"]

_WINDOW_NS: Final = 50_000_000
"""Over this long at least it is looked how busy the application is."""
_LEAST: Final = 0.1
"""Of the time, of all our threads that are at work: each waits for the GIL, and the application for each."""
_ROOMY, _CROWDED = 0.5, 0.9
"""Up to the first, as a part of what may wait, nothing hurries; from the second on everything does."""
_LONGEST_S: Final = 0.1


class DutyCycle:
    """How our threads of one scorer share the CPU with its application. Any thread.

    Attributes:
        gives_way: whether there is an application to give way to: a process that only scores has none.
    """

    def __init__(self) -> None:
        self.gives_way = False
        self.reset()

    def reset(self) -> None:
        """Forget the times, and who waits: in a forked child."""
        self._lock = threading.Lock()
        self._waiting = 0
        self._ours_ns = 0  # no lock: an addition that a race loses is a turn of some fifty in a window
        self._at_work: set[Turns] = set()  # in this window
        self._threads = 1  # of ours, in the one before
        self._busy = 0.0
        self._looked = self._clocks()

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Have nothing rest while the caller waits for what we do."""
        with self._lock:
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    @property
    def at_ease(self) -> bool:
        """Whether there is somebody to give way to, and nobody who waits."""
        return self.gives_way and not self._waiting

    def turns(self, fill: Callable[[], float]) -> Turns:
        """Return the turns of one thread; ``fill``: what waits there, as a part of what may."""
        return Turns(self, fill)

    def worked(self, one: Turns, cpu_ns: int) -> None:
        """Note for how long a thread of ours was on the CPU."""
        self._ours_ns += cpu_ns
        self._at_work.add(one)

    def share(self, fill: float) -> float:
        """Return the part of the time that one thread may work now, (0, 1]."""
        hurry = min(max((fill - _ROOMY) / (_CROWDED - _ROOMY), 0.0), 1.0)
        calm = max((1.0 - self._application()) ** 4, _LEAST / self._threads)
        return calm + (1.0 - calm) * hurry

    def _application(self) -> float:
        """Return how busy the rest of the process is, [0, 1]: for which part of the time that we left it was on a core."""
        now, before = self._clocks(), self._looked
        window_ns, all_ns, ours_ns = (one - other for one, other in zip(now, before, strict=True))
        if window_ns >= _WINDOW_NS:
            self._looked = now
            left_ns = max(window_ns - ours_ns, window_ns // 10)  # else two threads of ours might leave none
            self._busy = min(max((all_ns - ours_ns) / left_ns, 0.0), 1.0)
            self._threads, self._at_work = max(len(self._at_work), 1), set()
        return self._busy

    def _clocks(self) -> tuple[int, int, int]:
        """Return the time, that of the whole process on the CPU, and ours."""
        return monotonic_ns(), process_time_ns(), self._ours_ns


class Turns:
    """One thread's part in it: that one's which asks, and in a forked child its successor's."""

    def __init__(self, cycle: DutyCycle, fill: Callable[[], float]) -> None:
        self._cycle = cycle
        self._fill = fill
        self._cpu_ns = inf

    def rest_s(self) -> float:
        """Return for how long to rest after what this thread has done since it last did, seconds; 0 = go on."""
        cpu_ns = thread_time_ns()
        self._cpu_ns = min(self._cpu_ns, cpu_ns)  # a new thread's clock begins anew
        worked_ns = int(cpu_ns - self._cpu_ns)
        if worked_ns < TURN_NS:
            return 0.0
        self._cpu_ns = cpu_ns
        self._cycle.worked(self, worked_ns)
        if not self._cycle.at_ease:
            return 0.0
        return min(worked_ns / 1e9 * (1.0 / self._cycle.share(self._fill()) - 1.0), _LONGEST_S)
