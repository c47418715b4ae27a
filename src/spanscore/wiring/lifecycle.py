"""Starts the parts of a scorer with the first unit, and ends them once, at shutdown or exit; serves the metrics page."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Sequence
from threading import Event
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from spanscore.core.log import log_once
from spanscore.core.score import Outcome
from spanscore.core.threads import call_in_child, start_daemon
from spanscore.errors import ConfigurationError
from spanscore.wiring.build import Pipeline
from spanscore.wiring.spool import leave_spool

if TYPE_CHECKING:
    from spanscore.monitoring.scrape_endpoint import ScrapeEndpoint


class ShutdownOnce:
    """The shutdown of a scorer, which happens once; further calls wait for it.

    Args:
        earlier: the shutdown in the parent of a forked child; if it had begun at the fork, the child counts as shut down.

    Attributes:
        begun: whether the shutdown has begun.
    """

    def __init__(self, earlier: ShutdownOnce | None = None) -> None:
        self.begun: bool = earlier is not None and earlier.begun
        self._whole: bool = earlier is not None and earlier._whole
        self._lock = threading.RLock()  # a signal handler that shuts down may interrupt its holder
        self._over = threading.Event()
        self._thread = 0
        if self.begun:
            self._over.set()  # the thread that ran it is in the parent

    def once(self, end: Callable[[], bool], timeout_s: float) -> bool:
        """Call ``end``, the first time; then wait for it like ``wait``."""
        with self._lock:
            first, self.begun = not self.begun, True
        if first:
            self._thread = threading.get_ident()
            try:
                self._whole = end()
            finally:  # also if a signal's SystemExit interrupts it
                self._over.set()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> bool:
        """Return the result of the shutdown; False if it is not over in time."""
        if self._thread == threading.get_ident() and not self._over.is_set():
            return False  # a signal handler inside the first call would wait for itself
        return self._over.wait(timeout_s) and self._whole


EXIT_TIMEOUT_S = 5.0
"""Maximum duration of an interpreter exit, exporters included; the scorers of a process share it."""
_TEARDOWN_S = 0.5
"""Part of that time that Python itself needs after the hooks, to drop modules and threads that hang."""

_until: float | None = None


_LOOK_S = 0.01
_STOP_S = 0.5
"""Time for cancelled workers to end: milliseconds, unless a judge blocks the loop."""


def drain(line: Pipeline, timeout_s: float) -> bool:
    """Export held spans, finish the units that are being scored within the deadline, and settle all others as ``shutdown``.

    Returns:
        Whether every ended unit was scored and exported in time.
    """
    until = monotonic() + timeout_s

    def remaining_s() -> float:
        return max(0.0, until - monotonic())

    for receiver in line.receivers:
        receiver.close()
    if line.judge_check is not None:
        line.judge_check.stop()
    thread = line.span_thread
    line.engine.hand_back(remaining_s())
    is_over = Event()
    released = thread.call(lambda: None if is_over.is_set() else _release(line), 0.9 * remaining_s())
    whole = released and thread.flush(remaining_s())
    if not released:
        line.event_queue.abandon()
        released = thread.call(lambda: None, max(remaining_s(), _STOP_S))  # the thread may be slow instead of blocked
    (line.handover or line.engine).stop(max(min(remaining_s(), _STOP_S), 0.1))
    if released:  # otherwise the thread is stuck in an exporter, and its parts must not be touched
        thread.call(lambda: _give_up(line), max(remaining_s(), 0.2))
        thread.call(line.sinks.shutdown, max(remaining_s(), 0.2))
    if line.collector is not None:
        line.collector.finish(max(remaining_s(), 0.2))
    line.outboxes.close(max(remaining_s() / 2, 0.2))  # a receiver may hang, and the spool needs time, too
    leave_spool(line.queue, line.delivery, max(remaining_s(), 0.2))
    thread.stop(max(remaining_s(), 0.2))
    if line.providers.spans_file is not None:
        line.providers.spans_file.finish(max(remaining_s(), 0.2))
    is_over.set()
    _count_the_rest(line)
    return whole


def _count_the_rest(line: Pipeline) -> None:
    """Count every unit without an outcome as ``shutdown``."""
    for ledger in (line.ledger, *line.inner_ledgers().values()):
        for key in ledger.open_units():
            ledger.settle_all(key, Outcome.SHUTDOWN)
    for population in (line.sessions, *line.sources):
        population.end_open()
    if line.feedback is not None:
        line.feedback.give_up()
    line.event_queue.abandon()
    for _ in range(sum(receiver.unread_count() for receiver in line.receivers)):
        line.ledger.record_rejected(Outcome.SHUTDOWN)  # the span thread has not read their start


def export_held_spans(line: Pipeline, first: Callable[[int], None], timeout_s: float) -> None:
    """Export held spans now, at the pace, while the scorer goes on. Blocks for at most ``timeout_s``.

    ``first`` is called with the time in nanoseconds, to make receivers hand on ended units.
    """
    until = monotonic() + timeout_s

    def release() -> None:
        now_ns = line.span_thread.now_ns()
        first(now_ns)
        line.units.tick(now_ns)  # parks just handed-on units
        line.units.export_held_spans()

    released = line.span_thread.call(release, timeout_s)
    queued = line.hold.queued
    while released and line.hold.ended < queued and monotonic() < until:
        line.span_thread.call(lambda: None, _LOOK_S)  # after each call the thread ends spans at its pace
        sleep(_LOOK_S)


def _release(line: Pipeline) -> None:
    now_ns = line.span_thread.now_ns()
    for receiver in line.receivers:
        line.units.give_up(receiver.drain(now_ns), now_ns)
    line.units.tick(now_ns)
    line.sessions.end_all()
    line.units.export_held_spans()
    line.hold.flush_ready(now_ns)


def _give_up(line: Pipeline) -> None:
    now_ns = line.span_thread.now_ns()
    for receiver in line.receivers:
        receiver.drain(now_ns)  # units that arrived while receivers closed
    line.keeping.give_up()
    line.units.give_up(list(line.units.hold.in_flight), now_ns)
    line.sessions.give_up()
    line.revisions.give_up()
    line.hold.flush_ready(now_ns, unpaced=True)


class MetricsPage:
    """The page that ``serve_metrics`` serves to Prometheus, until the end of the scorer; at most one. Thread-safe.

    Attributes:
        endpoint: None while no page is served.
        unready: reason why this process should get no work when the page begins to answer; empty if it may get work.
    """

    def __init__(self, line: Pipeline, closing: ShutdownOnce, unready: str = "") -> None:
        self._line = line
        self._closing = closing
        self.endpoint: ScrapeEndpoint | None = None
        self.unready = unready
        self._lock = threading.RLock()  # a signal handler that shuts down may interrupt its holder

    @property
    def url(self) -> str:
        """The URL of the page; empty while no page is served."""
        return "" if self.endpoint is None else self.endpoint.url

    def serve(self, beside: Sequence[Any], *, port: int, host: str) -> int:
        """Begin to serve the scorer's instruments, and the additional instruments; return the port.

        Raises:
            ConfigurationError: the address cannot be opened, or the scorer serves already, is shut down or has no instruments.
        """
        with self._lock:
            if self._line.telemetry is None:
                raise ConfigurationError("there are no metrics to serve: attach leaves out 'instruments'")
            if self._closing.begun:
                raise ConfigurationError("the scorer is shut down: serve_metrics() comes at the start")
            if self.endpoint is not None:
                raise ConfigurationError(f"the metrics are being served already, on port {self.endpoint.port}")
            from spanscore.monitoring.scrape_endpoint import ScrapeEndpoint

            name, sums = self._line.providers.service_name, [self._line.telemetry, *beside]
            self.endpoint = ScrapeEndpoint(
                name, sums, port=port, host=host, unready=self.unready, on_scrape=self._note_scrape
            )
            return self.endpoint.port

    def _note_scrape(self) -> None:
        if where := self.url:
            self._line.providers.read_otherwise["metrics"] = lambda: f"read at {where}"
        self._line.providers.on_metrics_exported()

    def close(self) -> None:
        """Stop serving."""
        with self._lock:
            if self.endpoint is not None:
                self.endpoint.close()
                self.endpoint = None

    def leave_to_parent(self) -> None:
        """Close the child's copy of the socket, because the parent serves the page. The child may serve another page."""
        self._line.providers.read_otherwise.pop("metrics", None)
        if self.endpoint is not None:
            self.endpoint.close_in_child()


_LONGEST_S: Final = 600.0
"""Seconds for which a closed scorer waits for running runs, and then for their scores."""
_END_CHECK_S: Final = 0.05
_UNREFERENCED: Final = (
    "an OnlineScorer without references was shut down, after its units were scored: make one scorer per process and keep it,"
    " not one per request"
)


class Holder:
    """An object that a scorer and its handler reference: when it is collected, no further unit is possible."""


class Lifecycle:
    """Starts the parts of a scorer with its first unit, and ends them. Thread-safe.

    ``OnlineScorer`` and its handler reference it, and it references neither. When the application references neither, a thread
    ends the parts (``end_when_idle``).

    Attributes:
        closing: the one shutdown.
        page: the page that ``serve_metrics`` serves.
    """

    def __init__(self, line: Pipeline) -> None:
        self._line = line
        self.closing = ShutdownOnce()
        self.page = MetricsPage(line, self.closing)
        shutdown = weakref.WeakMethod(self.shutdown)

        def at_exit() -> None:
            global _until  # noqa: PLW0603  (a process exits once)
            _until = _until or monotonic() + EXIT_TIMEOUT_S - _TEARDOWN_S
            if (call := shutdown()) is not None:  # None: the scorer was collected
                call(max(0.2, _until - monotonic()))

        self._at_exit = at_exit
        self._is_ready = self._is_ending = False
        self._lock = threading.RLock()  # a signal handler that shuts down may interrupt its holder
        call_in_child(self, Lifecycle._begin_in_child)

    def ready(self, span: Any = None) -> None:
        """Prepare for a root: choose the providers, register the exit hook after theirs, start the span thread.

        ``span`` is of the provider that exports the unit's spans; None if unknown.
        """
        if not self._is_ready:
            with self._lock:
                if not self._is_ready:
                    self._line.providers.resolve(live_span=span)
                    if self._line.telemetry is not None:
                        self._line.providers.mention_lacking_metrics(self.page.endpoint)
                    self._line.watch_for_shutdown()
                    atexit.register(self._at_exit)
                    if self._line.delivery is not None:
                        self._line.engine.begin()
                    self._is_ready = True
        self._line.span_thread.ensure()

    def flush(self, timeout: float) -> bool:
        """Wait for ended units; see ``OnlineScorer.flush``."""
        if self.closing.begun:
            return self.closing.wait(timeout)
        until = monotonic() + timeout
        out = self._line.span_thread.flush(timeout)
        if out and self._line.handover is not None:
            out = self._line.handover.flush(max(0.0, until - monotonic()))
        if self._line.providers.spans_file is not None:  # first, because the exporters are needed if it fails
            self._line.providers.spans_file.flush(max(0.0, until - monotonic()))
        if out and self._line.providers.is_own:
            out = self._line.providers.force_flush(max(0.0, until - monotonic()))
        if self._line.collector is not None:
            self._line.collector.flush(max(0.0, until - monotonic()))
        self._line.outboxes.flush(max(0.0, until - monotonic()))
        return out

    def shutdown(self, timeout: float = EXIT_TIMEOUT_S) -> bool:
        """End the parts; see ``OnlineScorer.shutdown``."""
        until = monotonic() + timeout
        return self.closing.once(lambda: self._end(until), timeout)

    def end_when_idle(self, runs: Callable[[], object] | None = None) -> None:
        """Accept no further unit, and shut down on another thread when all units are scored. Does not block.

        ``runs`` returns whether runs are in progress, which are recorded to their end; None if the scorer was collected.
        """
        if self.closing.begun or self._is_ending:
            return
        self._is_ending = True
        if runs is None and self._is_ready:
            log_once("unreferenced scorer", _UNREFERENCED)
        self._line.close_receivers()
        self.page.close()
        start_daemon(self._end_when_idle, "spanscore-end", runs or bool)  # ``bool()`` is False: no run is in progress

    def _begin_in_child(self) -> None:
        """Make the parts anew, in a forked child. A scorer with a shutdown begun before the fork stays shut down."""
        self._lock = threading.RLock()
        self.closing = ShutdownOnce(self.closing)
        self.page.leave_to_parent()
        self.page = MetricsPage(self._line, self.closing, self.page.unready)
        if self.closing.begun:
            self._line.closed = True
        self._line.begin_in_child()

    def _end_when_idle(self, runs: Callable[[], object]) -> None:
        until = monotonic() + _LONGEST_S
        while runs() and not self.closing.begun and monotonic() < until:
            sleep(_END_CHECK_S)
        self.flush(_LONGEST_S)
        self.shutdown()

    def _end(self, until: float) -> bool:
        self._line.close_receivers()
        self._line.over = True
        whole = drain(self._line, (until - monotonic()) * 0.6)
        self._line.close()
        self.page.close()
        delivered = self._line.providers.shutdown(max(0.1, until - monotonic()))
        atexit.unregister(self._at_exit)
        return delivered and whole
