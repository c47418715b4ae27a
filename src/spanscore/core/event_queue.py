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

# Waiting times are measured by the monotonic clock, as nanoseconds since the epoch: the wall clock gives the start when this
# module is imported. If the wall clock is set back by an hour later, a unit that waits for a second still waits for a second.
# The times of spans are those of the wall clock.

_MONOTONIC_ZERO_NS: Final = time_ns() - monotonic_ns()
"""Time at which the monotonic clock was zero, nanoseconds since the epoch."""


def steady_ns() -> int:
    """Return the steady time, nanoseconds since the epoch; never less than before."""
    return monotonic_ns() + _MONOTONIC_ZERO_NS


# --- gil ------------------------------------------------------------------------------------------------------------

# A busy thread of spanscore works in turns of 2 ms, and yields the GIL to the application's threads after each turn. Otherwise
# an application thread that released the GIL, even for a short poll of its sockets, would wait a switch interval (5 ms) to get
# the GIL back.

TURN_NS: Final = 2_000_000
"""Length of a turn. Each turn costs the application two thread wake-ups and its warm caches. With 1 ms, the overhead of a chain
is a tenth higher. A longer turn takes more of a contended GIL.
"""


class _Turn(threading.local):
    """The present turn of this thread.

    Attributes:
        began_ns: start of the turn, nanoseconds of the monotonic clock.
        rest_s: returns the seconds of the rest after the turn; None = the thread only yields the GIL.
    """

    began_ns = 0
    rest_s: Callable[[], float] | None = None


_turn = _Turn()


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

# The duty cycle is the share of the time in which a thread works. While the application uses the CPU and the queues have room,
# spanscore's threads together work for a tenth of the time, and a thread works for more as its own queue fills. So the queues
# absorb a burst of the application, and its units are scored after it. A thread does not rest if
#
# - its queue's fill is 0.9 or more,
# - the application is idle, or
# - a caller waits for spanscore's work.

_WINDOW_NS: Final = 50_000_000
"""Minimum length of the window over which the application's load is measured."""
_LEAST: Final = 0.1
"""Lowest share of the time for all working threads of spanscore together: each contends for the GIL with the application."""
_ROOMY, _CROWDED = 0.5, 0.9
"""Up to the first fill of its queue, a thread's share depends only on the application's load; from the second fill on, the
share is 1.
"""
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
        self._waiting_callers = 0
        self._own_cpu_ns = 0  # no lock: a lost addition is that of one turn
        self._working: set[Turns] = set()  # in this window
        self._threads = 1  # working threads of spanscore in the previous window
        self._load = 0.0  # of the application, in the previous window
        self._window_start = self._read_clocks()

    @contextmanager
    def suspend_rests(self) -> Iterator[None]:
        """Suspend all rests while the caller waits for spanscore's work."""
        with self._lock:
            self._waiting_callers += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting_callers -= 1

    @property
    def has_rests(self) -> bool:
        """Whether there is an application to yield to, and no caller waits."""
        return self.yields_cpu and not self._waiting_callers

    def rest_s(self, turns: Turns, worked_ns: int) -> float:
        """Return the rest that is due after a thread's work on the CPU, seconds; 0 = no rest."""
        self._own_cpu_ns += worked_ns
        self._working.add(turns)
        if not self.has_rests:
            return 0.0
        urgency = min(max((turns.fill() - _ROOMY) / (_CROWDED - _ROOMY), 0.0), 1.0)
        # The fourth power gives the lowest share of one thread at a load of 0.44 already.
        base = max((1.0 - self._application_load()) ** 4, _LEAST / self._threads)
        share = base + (1.0 - base) * urgency  # of the time that the thread may work now
        return min(worked_ns / 1e9 * (1.0 / share - 1.0), _LONGEST_S)

    def _application_load(self) -> float:
        """Return the application's load, [0, 1]: its CPU time, on all cores, per time without work of our threads."""
        now = self._read_clocks()
        window_ns, process_ns, own_ns = (end - start for end, start in zip(now, self._window_start, strict=True))
        if window_ns >= _WINDOW_NS:
            self._window_start = now
            remaining_ns = max(window_ns - own_ns, window_ns // 10)  # two threads may work for longer than the window
            self._load = min(max((process_ns - own_ns) / remaining_ns, 0.0), 1.0)
            self._threads, self._working = max(len(self._working), 1), set()
        return self._load

    def _read_clocks(self) -> tuple[int, int, int]:
        """Return the time, the CPU time of the process, and the CPU time of spanscore's threads, nanoseconds."""
        return monotonic_ns(), process_time_ns(), self._own_cpu_ns


@dataclass(slots=True, eq=False)
class Turns:
    """The work and the rests of one thread.

    Attributes:
        cycle: shares the CPU between this thread and the others.
        fill: returns the fill of the thread's queue, which may exceed 1; from 0.9 on, the thread does not rest.
    """

    cycle: DutyCycle
    fill: Callable[[], float]
    _rested_at_ns: float = inf

    def rest_s(self) -> float:
        """Return the rest that is due for the work since the last rest, seconds; 0 = no rest."""
        cpu_ns = thread_time_ns()
        self._rested_at_ns = min(self._rested_at_ns, cpu_ns)  # work before the first call does not count
        worked_ns = int(cpu_ns - self._rested_at_ns)
        if worked_ns < TURN_NS:
            return 0.0
        self._rested_at_ns = cpu_ns
        return self.cycle.rest_s(self, worked_ns)


# --- event queue ----------------------------------------------------------------------------------------------------

# ``put`` appends to a deque, and never waits for the span thread. The first event in an empty event queue wakes the thread,
# which then gathers events for a moment before it reads them. Each wake-up costs the application a turn of the GIL and its
# warm caches, so the thread wakes once per batch, not once per event. With batches of 0.25 s, the overhead of a busy chain is
# a tenth to a fifth lower than with batches of 0.1 s.

_To = TypeVar("_To")
"""Type of an event's receiver. This package must not import the receiver's class."""


@dataclass(eq=False, repr=False, kw_only=True)
class EventQueue(Generic[_To]):
    """Bounded first-in, first-out queue of events, with a sleeping reader; and a second queue of urgent items.

    Above the soft bounds no new unit is admitted. Above the hard bounds, which are four times the soft ones, events are
    dropped: ``put`` returns False, and the caller marks the unit incomplete.

    Attributes:
        soft_events: soft bound of the number of events.
        soft_bytes: soft bound of the events' content, approximate bytes.
        batch: number of events that ends the gathering early.
        batch_bytes: approximate bytes of content that end the gathering early.
        gather_s: seconds for which the reader gathers after its first event.
        size_bytes: approximate bytes of content of the waiting events.
        asleep: whether the reader sleeps until an item arrives or a timer is due.
    """

    soft_events: int
    soft_bytes: int = 64_000_000
    batch: int = 8_192
    batch_bytes: int = 8_000_000
    gather_s: float = 0.25

    def __post_init__(self) -> None:
        self._hard, self._hard_bytes = 4 * self.soft_events, 4 * self.soft_bytes
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
        return len(self._events) + len(self._urgent) < self.soft_events and self.size_bytes < self.soft_bytes

    def is_full(self) -> bool:
        """Whether a hard bound is reached."""
        return len(self._events) >= self._hard or self.size_bytes >= self._hard_bytes

    def fill(self) -> float:
        """Return the fill: 1 at half of ``soft_events``, or at two batches of bytes; may exceed 1."""
        return max(2 * len(self._events) / self.soft_events, self.size_bytes / (2 * self.batch_bytes))

    def put(self, to: _To, event: Any, size_bytes: int = 0, *, never_drop: bool = False) -> bool:
        """Append an event, O(1), without waiting for the reader. Return False if the event is dropped.

        Args:
            to: the event's receiver.
            size_bytes: approximate bytes of the event's content.
            never_drop: whether the event is kept above the hard bounds, because it begins or ends a unit; ``admits`` bounds
                the units.
        """
        events = self._events
        if not never_drop and self.is_full():
            return False
        self.size_bytes += size_bytes
        events.append((to, event, size_bytes))
        if self.asleep:  # the reader checks the queue again before it sleeps, and so detects a lost race
            self.wake_sleeper()
        elif self._gathering and (len(events) >= self.batch or self.size_bytes >= self.batch_bytes):
            self._gathering = False
            self._full.set()
        return True

    def abandon(self) -> None:
        """Drop the unread events, because the reader has ended, hangs, or is out of time. Thread-safe."""
        self.abandoned = True
        self._events = deque()

    def post(self, item: Any) -> None:
        """Append an urgent item, which is read immediately. There is no bound, because its sources are bounded."""
        self._urgent.append(item)
        self.nudge()

    def post_with_batch(self, item: Any) -> None:
        """Append an urgent item, such as a score, that is read with the next batch, because each wake-up has a cost."""
        self._urgent.append(item)
        self.wake_sleeper()

    def wake_sleeper(self) -> None:
        """Wake the reader if it sleeps. The reader then gathers events before it reads."""
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
        """Make the reader read now, without gathering."""
        self._nudged = True
        self._gathering = False
        self._full.set()
        self._wake.set()

    def wait(self, timeout_s: float | None) -> None:
        """Sleep until an event arrives (then gather), or the timeout passes, plus up to twice ``gather_s``. Reader only.

        While events keep coming, the reader waits ``gather_s`` at a time, so that no event has to wake it. If none came in
        that time, the reader sleeps until the next event. ``timeout_s=None``: no timeout.
        """
        if not self._gather(timeout_s) and not self._nudged and (timeout_s is None or timeout_s > self.gather_s):
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
        if len(self._events) < self.batch and self.size_bytes < self.batch_bytes and not self._nudged:
            self._full.wait(self.gather_s if timeout_s is None else min(self.gather_s, timeout_s))
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
