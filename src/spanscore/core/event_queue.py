"""``EventQueue``: the bounded queue from the application's threads to the span thread, with a clock and a duty cycle."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from time import monotonic_ns, process_time_ns, sleep, thread_time_ns, time_ns
from typing import Any, Final, Generic, TypeVar

# --- clock ----------------------------------------------------------------------------------------------------------

# The clock for waiting units: nanoseconds since the epoch, set by the wall clock when the process began, and steady since.
#
# A wall clock can be set back by an hour; a unit that waits for a second would then wait for an hour. Spans keep the wall
# clock's times.

_AHEAD_NS: Final = time_ns() - monotonic_ns()


def steady_ns() -> int:
    """Return the steady time, nanoseconds since the epoch; never less than before."""
    return monotonic_ns() + _AHEAD_NS


# --- gil ------------------------------------------------------------------------------------------------------------

# A busy thread of spanscore yields the GIL to the application's threads after each turn. Otherwise an application thread that
# released the GIL, even for a short poll of its sockets, would wait a switch interval (5 ms) to get the GIL back.

TURN_NS: Final = 2_000_000
"""Length of a turn. Each turn costs the application two thread wake-ups and its warm caches. With 1 ms, the overhead of a chain
is a tenth higher. A longer turn takes more of a contended GIL.
"""


class _Worked(threading.local):
    began_ns = 0
    rest_s: Callable[[], float] | None = None


_turn = _Worked()


def begin_turn() -> None:
    """Start a new turn, because this thread has just slept."""
    _turn.began_ns = monotonic_ns()


def rest_after_turns(rest_s: Callable[[], float]) -> None:
    """Make this thread rest after each of its turns, for ``rest_s()`` seconds."""
    _turn.rest_s = rest_s


def yield_gil() -> None:
    """End the turn if it is over (``TURN_NS``): release the GIL, and rest as ``rest_after_turns`` computes.

    The check costs 0.2 µs.
    """
    if monotonic_ns() - _turn.began_ns >= TURN_NS:
        sleep(0.0 if _turn.rest_s is None else _turn.rest_s())
        begin_turn()


# --- duty cycle -----------------------------------------------------------------------------------------------------

# A queue absorbs a burst. While the application uses the CPU and the queues have room, our threads together work for a tenth
# of the time, and each for more as its own queue fills. A thread does not rest while the fill of its queue is 0.9 or more. No
# thread rests while the application is idle, or a caller waits. So a burst is scored after it ends, and is not slowed down.

_WINDOW_NS: Final = 50_000_000
"""Minimum length of the window over which the application's load is measured."""
_LEAST: Final = 0.1
"""Lowest share of the time for all working threads of spanscore together: each contends for the GIL with the application."""
_ROOMY, _CROWDED = 0.5, 0.9
"""Fill of a queue: up to the first value, the application's load alone decides its thread's share; from the second, it is 1."""
_LONGEST_S: Final = 0.1
"""Longest rest, seconds. A turn that would need a longer rest raises the share above the lowest share."""


class DutyCycle:
    """Shares the CPU between the threads of one scorer and its application. Thread-safe.

    Attributes:
        yields_cpu: whether there is an application to yield to: a process that only scores has none.
    """

    def __init__(self) -> None:
        self.yields_cpu = False
        self._lock = threading.Lock()
        self._waiting = 0
        self._ours_ns = 0  # no lock: a lost addition is that of one turn
        self._at_work: set[Turns] = set()  # in this window
        self._threads = 1  # our working threads in the previous window
        self._busy = 0.0
        self._looked = self._clocks()

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Suspend all rests while the caller waits for our work."""
        with self._lock:
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    @property
    def at_ease(self) -> bool:
        """Whether there is an application to yield to, and no caller waits."""
        return self.yields_cpu and not self._waiting

    def turns(self, fill: Callable[[], float]) -> Turns:
        """Return the turns of one thread.

        Args:
            fill: returns the fill of the thread's queue; from 0.9 on, the thread does not rest; may exceed 1.
        """
        return Turns(self, fill)

    def add_cpu_time(self, turns: Turns, cpu_ns: int) -> None:
        """Add a thread's time on the CPU, nanoseconds."""
        self._ours_ns += cpu_ns
        self._at_work.add(turns)

    def work_share(self, fill: float) -> float:
        """Return the share of the time that one thread may work now, (0, 1]."""
        hurry = min(max((fill - _ROOMY) / (_CROWDED - _ROOMY), 0.0), 1.0)
        # The fourth power gives the lowest share of one thread at a load of 0.44 already.
        calm = max((1.0 - self._application()) ** 4, _LEAST / self._threads)
        return calm + (1.0 - calm) * hurry

    def _application(self) -> float:
        """Return the application's load, [0, 1]: its CPU time, on all cores, by the time in which our threads did not work."""
        now, before = self._clocks(), self._looked
        window_ns, all_ns, ours_ns = (later - earlier for later, earlier in zip(now, before, strict=True))
        if window_ns >= _WINDOW_NS:
            self._looked = now
            left_ns = max(window_ns - ours_ns, window_ns // 10)  # otherwise two of our threads might leave nothing
            self._busy = min(max((all_ns - ours_ns) / left_ns, 0.0), 1.0)
            self._threads, self._at_work = max(len(self._at_work), 1), set()
        return self._busy

    def _clocks(self) -> tuple[int, int, int]:
        """Return the time, the CPU time of the whole process, and that of our threads, nanoseconds."""
        return monotonic_ns(), process_time_ns(), self._ours_ns


@dataclass(slots=True, eq=False)
class Turns:
    """The turns of one thread."""

    _cycle: DutyCycle
    _fill: Callable[[], float]
    _cpu_ns: float = inf

    def rest_s(self) -> float:
        """Return the rest that is due for the work since the last rest, seconds; 0 = no rest."""
        cpu_ns = thread_time_ns()
        self._cpu_ns = min(self._cpu_ns, cpu_ns)  # the first call counts no work
        worked_ns = int(cpu_ns - self._cpu_ns)
        if worked_ns < TURN_NS:
            return 0.0
        self._cpu_ns = cpu_ns
        self._cycle.add_cpu_time(self, worked_ns)
        if not self._cycle.at_ease:
            return 0.0
        return min(worked_ns / 1e9 * (1.0 / self._cycle.work_share(self._fill()) - 1.0), _LONGEST_S)


# --- event queue ----------------------------------------------------------------------------------------------------

# A put appends to a deque and wakes the span thread if it sleeps, without waiting for it. A put that wakes it takes the lock
# of an event; after a failed start, one put starts the thread. The first event in an empty event queue wakes the thread,
# which then gathers events for a moment before it reads. Each wake-up costs the application a turn of the GIL and its warm
# caches, so there is one per batch, not one per event. With batches of 0.25 s, the overhead of a busy chain is a tenth to a
# fifth lower than with batches of 0.1 s.

_To = TypeVar("_To")
"""Type of an event's receiver. This package must not import the receiver's class."""


class EventQueue(Generic[_To]):
    """A deque with two bounds and a sleeping reader.

    Args:
        soft_events: number of events from which on new units are rejected (``admits`` is False).
        soft_bytes: approximate bytes of content from which on new units are rejected.
        batch: number of events that ends the gathering early.
        batch_bytes: approximate bytes of content that end the gathering early.
        gather_s: seconds for which the reader gathers after its first event.

    Beyond four times ``soft_events`` or ``soft_bytes``, events are dropped: ``put`` returns False, and the caller marks the
    unit incomplete.

    Attributes:
        abandoned: whether the reader has been abandoned.
        size_bytes: approximate bytes of content of the waiting events.
        asleep: whether the reader sleeps until an item arrives or a timer is due.
    """

    def __init__(
        self,
        *,
        soft_events: int,
        soft_bytes: int = 64_000_000,
        batch: int = 8_192,
        batch_bytes: int = 8_000_000,
        gather_s: float = 0.25,
    ) -> None:
        self.soft_events = soft_events
        self._hard = 4 * soft_events
        self._soft_bytes = soft_bytes
        self._hard_bytes = 4 * soft_bytes
        self._batch = batch
        self._batch_bytes = batch_bytes
        self._gather_s = gather_s
        self._events: deque[tuple[_To, Any, int]] = deque()
        self.abandoned = False
        self._urgent: deque[Any] = deque()
        self.size_bytes = 0  # no lock: an error of a race is corrected whenever the event queue is empty
        self._wake = threading.Event()
        self.asleep = False
        self._full = threading.Event()
        self._gathering = False
        self._nudged = False
        self._start: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._events)

    def admits(self) -> bool:
        """Whether a new unit may come in."""
        return len(self._events) + len(self._urgent) < self.soft_events and self.size_bytes < self._soft_bytes

    def is_full(self) -> bool:
        """Whether a hard bound was reached."""
        return len(self._events) >= self._hard or self.size_bytes >= self._hard_bytes

    def fill(self) -> float:
        """Return the fill: 1 at half of ``soft_events``, or at two batches of bytes; may exceed 1."""
        return max(2 * len(self._events) / self.soft_events, self.size_bytes / (2 * self._batch_bytes))

    def put(self, to: _To, event: Any, size_bytes: int = 0, *, never_drop: bool = False) -> bool:
        """Append an event, O(1), without waiting for the reader. Returns False if a hard bound was reached: it is dropped.

        Args:
            size_bytes: approximate bytes of the event's content.
            never_drop: keep the event above the bounds, because it begins or ends a unit; ``admits`` bounds the units.
        """
        events = self._events
        if not never_drop and self.is_full():
            return False
        self.size_bytes += size_bytes
        events.append((to, event, size_bytes))
        if self.asleep:  # the reader looks again before it sleeps, and so detects a lost race
            self.rouse()
        elif self._gathering and (len(events) >= self._batch or self.size_bytes >= self._batch_bytes):
            self._gathering = False
            self._full.set()
        return True

    def abandon(self) -> None:
        """Drop the unread events, because the reader has ended, hangs, or is out of time. Thread-safe."""
        self.abandoned = True
        self._events = deque()

    def post(self, item: Any) -> None:
        """Append a command that is read immediately. There is no bound here, because the sources of commands are bounded."""
        self._urgent.append(item)
        self.nudge()

    def post_with_batch(self, item: Any) -> None:
        """Append an item that is read with the next batch, such as a score, so that not every item wakes the reader."""
        self._urgent.append(item)
        self.rouse()

    def rouse(self) -> None:
        """Wake the reader if it sleeps, because an item or a timer will be due."""
        if self.asleep:
            self.asleep = False
            self._wake.set()
            if self._start is not None:
                start, self._start = self._start, None
                start()

    def start_with_next(self, start: Callable[[], None]) -> None:
        """Make the next event call ``start``, because no reader thread could be started."""
        self._start, self.asleep = start, True

    def nudge(self) -> None:
        """Wake the reader now, without gathering."""
        self._nudged = True
        self._gathering = False
        self._full.set()
        self._wake.set()

    def wait(self, timeout_s: float | None) -> None:
        """Sleep until an event arrives (then gather), or the timeout passes, plus up to twice ``gather_s``. Reader only.

        While events keep coming, the reader waits ``gather_s`` at a time, so that no event has to wake it. If none came in
        that time, the reader sleeps until the next event. ``timeout_s=None``: no timeout.
        """
        if not self._gather(timeout_s) and not self._nudged and (timeout_s is None or timeout_s > self._gather_s):
            self.asleep = True
            if not self._events and not self._urgent:
                self._wake.wait(timeout_s)
            self.asleep = False
            self._wake.clear()
            if not self._nudged:
                self._gather(timeout_s)
        self._nudged = False

    def _gather(self, timeout_s: float | None) -> bool:
        """Wait for a batch, a nudge or the end of the gathering time; return whether there is an item to read."""
        self._gathering = True
        if len(self._events) < self._batch and self.size_bytes < self._batch_bytes and not self._nudged:
            self._full.wait(self._gather_s if timeout_s is None else min(self._gather_s, timeout_s))
        self._gathering = False
        self._full.clear()
        return bool(self._events or self._urgent)

    def take(self) -> tuple[_To, Any, int] | None:
        """Return the oldest event with its receiver and size; None if there is no event. Call on the reader's thread."""
        events = self._events  # a local reference: ``abandon`` may replace the deque
        if not events:
            return None
        entry = events.popleft()
        self.size_bytes = self.size_bytes - entry[2] if events else 0
        return entry

    def take_posted(self) -> Any | None:
        """Return the oldest item of ``post`` or ``post_with_batch``, or None. Call on the reader's thread."""
        return self._urgent.popleft() if self._urgent else None
