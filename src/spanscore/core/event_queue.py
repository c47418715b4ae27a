"""EventQueue: the bounded way from the application's threads to the span thread; its clock, and the pace of both threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic_ns, process_time_ns, sleep, thread_time_ns, time_ns
from typing import Any, Final, Generic, TypeVar

# --- clock ----------------------------------------------------------------------------------------------------------

# The clock by which units wait: nanoseconds since the epoch, by the wall clock when the process began, and steady from
# there.
#
# A wall clock steps: an hour back, and what was to wait a second would wait an hour. Spans keep the wall clock's times.

_AHEAD_NS: Final = time_ns() - monotonic_ns()


def steady_ns() -> int:
    """Return the time; never less than before."""
    return monotonic_ns() + _AHEAD_NS


# --- gil ------------------------------------------------------------------------------------------------------------

# A busy thread of ours yields the GIL to the application's threads in between. Otherwise each of these that released it, for a
# system call as short as an event loop's poll of its sockets, would wait a switch interval (5 ms) to get it back.

TURN_NS: Final = 2_000_000
"""A turn costs the application two waits for a thread to wake and its caches: with 1 ms a tenth more of what a chain pays. A
longer one is a larger share of the GIL where the application wants all of it: with 4 ms a burst of a thousand waits 0.1 s more.
"""


class _Worked(threading.local):
    began_ns = 0
    rest_s: Callable[[], float] | None = None


_turn = _Worked()


def begin_turn() -> None:
    """Say that this thread has just slept, so that its first ``yield_gil`` is not one at once."""
    _turn.began_ns = monotonic_ns()


def rest_after_turns(rest_s: Callable[[], float]) -> None:
    """Have this thread rest after each of its turns, for as many seconds as it is told then."""
    _turn.rest_s = rest_s


def yield_gil() -> None:
    """Let the GIL go for a moment, if this thread has worked for two milliseconds since it last did. Else 0.2 µs."""
    if monotonic_ns() - _turn.began_ns >= TURN_NS:
        sleep(0.0 if _turn.rest_s is None else _turn.rest_s())
        begin_turn()


# --- duty cycle -----------------------------------------------------------------------------------------------------

# A queue is there to take up a burst. While the application wants the CPU, and what waits has room, our threads together
# work for a tenth of the time; the fuller it gets the more, and without a rest when it is full, when the application is
# idle, or when somebody waits for us. So a burst is scored after it rather than against it.

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


# --- event queue ----------------------------------------------------------------------------------------------------

# An append to a deque and, when the span thread sleeps, one wake-up: no lock is held, nothing blocks. The first event into
# an empty event queue wakes the thread, which then gathers for a moment before it reads: each wake-up costs the application
# a turn of the GIL and its warm caches, so it is paid once a batch and not once an event: with batches of a quarter of a
# second a busy chain pays a tenth to a fifth less than with those of a tenth.

_To = TypeVar("_To")
"""Who reads an event: a receiver, of which this floor knows nothing."""


class EventQueue(Generic[_To]):
    """A deque with two bounds and a sleeping reader.

    Args:
        soft: events from which on new units are refused (``admits`` is False).
        soft_bytes: of their content, roughly, likewise.
        batch: events that end the gathering early.
        batch_bytes: of their content, likewise: what is heavy does not wait for company.
        gather_s: how long the reader gathers after its first event, seconds.

    Past four times either, events are dropped: ``put`` returns False and the caller marks the unit incomplete.

    Attributes:
        abandoned: nobody waits for its reader any more.
    """

    def __init__(
        self,
        *,
        soft: int,
        soft_bytes: int = 64_000_000,
        batch: int = 8_192,
        batch_bytes: int = 8_000_000,
        gather_s: float = 0.25,
    ) -> None:
        self.soft = soft
        self._hard = 4 * soft
        self._soft_bytes = soft_bytes
        self._hard_bytes = 4 * soft_bytes
        self._batch = batch
        self._batch_bytes = batch_bytes
        self._gather_s = gather_s
        self._events: deque[tuple[_To, Any, int]] = deque()
        self.abandoned = False
        self._urgent: deque[Any] = deque()
        self._bytes = 0  # no lock: what a race loses is set right whenever the event queue is empty
        self._wake = threading.Event()
        self._asleep = False
        self._full = threading.Event()
        self._gathering = False
        self._nudged = False
        self._start: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._events)

    def admits(self) -> bool:
        """Whether a new unit may come in."""
        return len(self._events) + len(self._urgent) < self.soft and self._bytes < self._soft_bytes

    def is_full(self) -> bool:
        """Whether a hard bound was reached."""
        return len(self._events) >= self._hard or self._bytes >= self._hard_bytes

    def fill(self) -> float:
        """Return what waits as a part of what may, before its reader should hurry: half of what is admitted, two batches."""
        return max(2 * len(self._events) / self.soft, self._bytes / (2 * self._batch_bytes))

    def put(self, to: _To, event: Any, size_bytes: int = 0, *, must: bool = False) -> bool:
        """Append an event, O(1), never blocking. False: a hard bound was reached and the event is dropped.

        Args:
            to: who is to be handed the event.
            size_bytes: bytes of its content, roughly.
            must: never dropped, for what begins a unit or ends it: units are bounded where they are admitted.
        """
        events = self._events
        if not must and self.is_full():
            return False
        self._bytes += size_bytes
        events.append((to, event, size_bytes))
        if self._asleep:  # a lost race here is found by the reader, which looks again before it sleeps
            self.rouse()
        elif self._gathering and (len(events) >= self._batch or self._bytes >= self._batch_bytes):
            self._gathering = False
            self._full.set()
        return True

    def abandon(self) -> None:
        """Forget the events that its reader has not taken: it is gone, stuck, or out of time. Any thread."""
        self.abandoned = True
        self._events = deque()

    def post(self, item: Any) -> None:
        """Hand over a command of ours, read at once: unbounded here because it is bounded where it is made."""
        self._urgent.append(item)
        self.nudge()

    def leave(self, item: Any) -> None:
        """Hand over something of ours that is read with the next batch (scores): no wake-up for each."""
        self._urgent.append(item)
        self.rouse()

    def rouse(self) -> None:
        """Wake the reader if it sleeps: there will be something to read, or to look at by the clock."""
        if self._asleep:
            self._asleep = False
            self._wake.set()
            if self._start is not None:
                start, self._start = self._start, None
                start()

    def start_with_next(self, start: Callable[[], None]) -> None:
        """Have the next event call ``start``: no thread could be started to read."""
        self._start, self._asleep = start, True

    def nudge(self) -> None:
        """Wake the reader now, without gathering."""
        self._nudged = True
        self._gathering = False
        self._full.set()
        self._wake.set()

    def wait(self, timeout_s: float | None) -> None:
        """Sleep until something arrives (then gather) or the timeout passes. Reader only.

        Under traffic the reader only gathers, by the clock: no event pays for a wake-up. After a quiet moment it sleeps.
        """
        if not self._gather(timeout_s) and not self._nudged and (timeout_s is None or timeout_s > self._gather_s):
            self._asleep = True
            if not self._events and not self._urgent:
                self._wake.wait(timeout_s)
            self._asleep = False
            self._wake.clear()
            if not self._nudged:
                self._gather(timeout_s)
        self._nudged = False

    def _gather(self, timeout_s: float | None) -> bool:
        """Wait for a batch, a nudge or the moment's end; return whether there is something to read."""
        self._gathering = True
        if len(self._events) < self._batch and self._bytes < self._batch_bytes and not self._nudged:
            self._full.wait(self._gather_s if timeout_s is None else min(self._gather_s, timeout_s))
        self._gathering = False
        self._full.clear()
        return bool(self._events or self._urgent)

    def take(self) -> tuple[_To, Any, int] | None:
        """Return whose the oldest event is, the event and its size; None without one. Reader only."""
        events = self._events  # for good: they may just be abandoned
        if not events:
            return None
        entry = events.popleft()
        self._bytes = self._bytes - entry[2] if events else 0
        return entry

    def take_posted(self) -> Any | None:
        """Return the oldest posted item, None without one. Reader only."""
        return self._urgent.popleft() if self._urgent else None
