"""``SpanThread``, the one thread that creates spans, ends them and calls sinks; ``ShutdownWatch`` observes a provider's end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import NamedTuple

from opentelemetry.sdk.trace import SpanProcessor

from spanscore.core.event_queue import DutyCycle, EventQueue, Turns, begin_turn, rest_after_turns, steady_ns, yield_gil
from spanscore.core.log import log_internal_error
from spanscore.core.span import UnitKey
from spanscore.core.threads import start_daemon
from spanscore.pipeline.sessions import SessionPipeline
from spanscore.pipeline.tracker import UnitTracker
from spanscore.protocols import Receiver


class ShutdownWatch(SpanProcessor):
    """Reports the shutdown of its provider. spanscore adds no other processor to an application's provider."""

    def __init__(self, on_shutdown: Callable[[], None]) -> None:
        self._on_shutdown = on_shutdown

    def shutdown(self) -> None:
        """Report the shutdown, after which held spans cannot be exported."""
        self._on_shutdown()


_MAX_PAUSE_S = 10.0
"""Maximum seconds between two checks of due work while units are in flight."""
_EVENTS_PER_CHECK = 500
"""Events between two checks of due work, because a thread that yields may take seconds to read a full event queue."""


class _Flush(NamedTuple):
    """A call of ``flush`` that waits.

    Attributes:
        keys: units for which it waits; units that are exported are removed.
        done: set when no unit is left.
        last: the unit among ``keys`` that ended last; while it is in flight, the others need no check. None = unknown.
    """

    keys: set[UnitKey]
    done: threading.Event
    last: UnitKey | None


@dataclass(eq=False, repr=False)
class SpanThread:
    """The one thread that creates spans, ends them and calls sinks, so that a slow exporter delays neither application nor
    loop.

    The thread reads the event queue and drives receivers and units. It starts on first use, and is a daemon.

    Attributes:
        event_queue: events, each with its receiver.
        receivers: receivers, each called on each tick.
        units: called on each tick after the receivers.
        sessions: called on each tick after the units.
        duty: shares the CPU between the thread and the application.
        prepare: called first on the thread, for work that would delay the constructor or the first request.
        now_ns: returns nanoseconds since the epoch, without steps.
    """

    event_queue: EventQueue[Receiver]
    receivers: Sequence[Receiver]
    units: UnitTracker
    _: KW_ONLY
    sessions: SessionPipeline
    duty: DutyCycle
    prepare: Callable[[], None] = lambda: None
    now_ns: Callable[[], int] = steady_ns

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._flushes: list[_Flush] = []

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def ensure(self) -> None:
        """Start the thread if it has not been started; if that fails, the next event tries again. Thread-safe; cheap."""
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._stopping:
                    self._thread = start_daemon(self._run, "spanscore-spans")
            if self._thread is None and not self._stopping:
                self.event_queue.start_with_next(self.ensure)

    def flush(self, timeout_s: float) -> bool:
        """Wait until each unit that has ended by now is scored and exported. Do not call on the span thread."""
        if len(self.event_queue):
            self.ensure()
        if not self.alive:
            return not len(self.event_queue)
        done = threading.Event()
        with self.duty.suspend_rests():
            self.event_queue.post(lambda: self._flushes.append(_Flush(self._in_flight(), done, None)))
            return done.wait(timeout_s)

    def call(self, work: Callable[[], None], timeout_s: float) -> bool:
        """Call a function on the span thread after all events so far, and wait. Returns False if it does not end in time."""
        if not self.alive:
            self._call_safely(work)
            return True
        done = threading.Event()

        def call_and_set() -> None:
            try:
                work()
            finally:
                done.set()

        with self.duty.suspend_rests():
            self.event_queue.post(call_and_set)
            return done.wait(timeout_s)

    def run_later(self, work: Callable[[], None]) -> None:
        """Call a function on the span thread with the next batch of events, or at once while a ``flush`` waits. Thread-safe."""
        if self._flushes:
            self.event_queue.post(work)
        else:
            self.event_queue.post_with_batch(work)

    def read_events(self) -> None:
        """Read the events that are in the queue now. Has an effect only on the span thread."""
        if self._thread is threading.current_thread():
            self._read(len(self.event_queue))

    def stop(self, timeout_s: float) -> bool:
        """End the thread after the events in the queue. Returns False if it hangs in an exporter or a processor."""
        self._stopping = True
        self.event_queue.nudge()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        with self.duty.suspend_rests():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._call_safely(self.prepare)
        rest_after_turns(Turns(self.duty, self.event_queue.fill).rest_s)
        while not self._stopping:
            self.event_queue.wait(self.timeout_s())
            begin_turn()
            self.tick()

    def tick(self) -> None:
        """Handle events and posted functions, and do the due work. Call on the span thread, or in a test without it."""
        posted = [*iter(self.event_queue.take_posted, None)]
        events = len(self.event_queue)
        while events > _EVENTS_PER_CHECK:
            self._read(_EVENTS_PER_CHECK)
            self._tick_units(self._tick_receivers())
            events -= _EVENTS_PER_CHECK
        self._read(events)
        now_ns = self._tick_receivers()
        for work in posted:
            self._call_safely(work)
            yield_gil()
        self._tick_units(now_ns)
        self._wake_flushes()

    def _read(self, events: int) -> None:
        take, clock = self.event_queue.take, self.now_ns
        for _ in range(events):
            entry = take()
            if entry is not None:
                receiver, event, _ = entry
                try:
                    receiver.handle(event, clock())
                except BaseException as error:  # noqa: BLE001  (inlined ``_call_safely``, which would be one more call per event)
                    log_internal_error("keep track of a unit", error)
            yield_gil()

    def _tick_receivers(self) -> int:
        now_ns = self.now_ns()
        for receiver in self.receivers:
            self._call_safely(partial(receiver.tick, now_ns))
        return now_ns

    def _tick_units(self, now_ns: int) -> None:
        self._call_safely(lambda: self.units.tick(now_ns))
        self._call_safely(lambda: self.sessions.tick(now_ns))

    def _call_safely(self, work: Callable[[], None]) -> None:
        """Call a function. An exception is logged, and does not end the thread."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001  (an exporter of the application may raise SystemExit)
            log_internal_error("keep track of a unit", error)

    def timeout_s(self) -> float | None:
        """Return the seconds until the next due work, from 0.001 to 10; None without due work and units in flight."""
        times = [self.units.next_due_ns(), self.sessions.next_due_ns()]
        times += [receiver.next_due_ns() for receiver in self.receivers]
        due = [time_ns for time_ns in times if time_ns is not None]
        if due:
            return min(max(0.001, (min(due) - self.now_ns()) / 1e9), _MAX_PAUSE_S)
        return _MAX_PAUSE_S if self.units.hold.in_flight else None

    def _in_flight(self) -> set[UnitKey]:
        return self.units.unexported_units().union(
            self.sessions.in_flight(), *(receiver.in_flight() for receiver in self.receivers)
        )

    def _wake_flushes(self) -> None:
        """Wake callers of ``flush`` whose units are exported. All units are checked only if a caller's last unit is."""
        if parts := self.units.take_parts():  # callers that wait for a topmost span wait for the units below it
            for keys, _, _ in self._flushes:
                keys.update(*(parts[key] for key in keys & parts.keys()))
        ended = self.units.hold.in_flight
        if all(flush.last in ended for flush in self._flushes):
            return
        in_flight, waiting = self._in_flight(), list[_Flush]()
        for flush in self._flushes:
            if keys := flush.keys & in_flight:
                last = next((key for key in reversed(ended) if key in keys), None)
                waiting.append(_Flush(keys, flush.done, last))
            else:
                flush.done.set()
        self._flushes = waiting
