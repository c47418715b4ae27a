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
from spanscore.wiring.durable import close_spool

if TYPE_CHECKING:
    from spanscore.monitoring.scrape_endpoint import ScrapeEndpoint


class ShutdownOnce:
    """The shutdown of a scorer, which runs once; further calls wait for its end.

    Args:
        earlier: the parent's shutdown, in a forked child; if it had begun at the fork, the child counts as shut down.
            None = not in a forked child.

    Attributes:
        begun: whether the shutdown has begun.
    """

    def __init__(self, earlier: ShutdownOnce | None = None) -> None:
        self.begun: bool = earlier is not None and earlier.begun
        self._result: bool = earlier is not None and earlier._result
        self._lock = threading.RLock()  # a signal handler that shuts down may interrupt its holder
        self._over = threading.Event()
        self._thread = 0
        if self.begun:
            self._over.set()  # the thread that ran it is in the parent

    def run(self, end: Callable[[], bool], timeout_s: float) -> bool:
        """Call ``end``, unless a call has done so; then ``wait``."""
        with self._lock:
            first, self.begun = not self.begun, True
        if first:
            self._thread = threading.get_ident()
            try:
                self._result = end()
            finally:  # also if a signal's SystemExit interrupts it
                self._over.set()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the shutdown, and return its result; False if it does not end in time."""
        if self._thread == threading.get_ident() and not self._over.is_set():
            return False  # a signal handler inside the first call would wait for itself
        return self._over.wait(timeout_s) and self._result


EXIT_TIMEOUT_S = 5.0
"""Maximum seconds of an interpreter exit, exporters included; the scorers of a process share them."""
_TEARDOWN_S = 0.5
"""Part of that time that Python itself needs after the exit hooks, to drop modules and threads that hang."""
_CHECK_S = 0.01
"""Seconds between two checks whether the held spans are exported."""
_STOP_S = 0.5
"""Maximum seconds for cancelled workers to end: they need milliseconds, unless a judge blocks the loop."""
_MAX_IDLE_WAIT_S: Final = 600.0
"""Seconds for which a closed scorer waits for running runs, and then for their scores."""
_END_CHECK_S: Final = 0.05
"""Seconds between two checks whether a run is in progress."""
_UNREFERENCED: Final = (
    "an OnlineScorer without references was shut down, after its units were scored: make one scorer per process and keep it,"
    " not one per request"
)

_exit_deadline_s: float | None = None
"""Time of the monotonic clock at which the shutdowns of all scorers must have ended, at exit; None before the exit."""


def drain(pipeline: Pipeline, timeout_s: float) -> bool:
    """Export held spans, finish active units as far as the time allows, and settle all others as ``shutdown``.

    Returns:
        Whether every ended unit was scored and exported in time.
    """
    until = monotonic() + timeout_s

    def remaining_s(least: float = 0.0) -> float:
        return max(least, until - monotonic())

    for receiver in pipeline.receivers:
        receiver.close()
    if pipeline.judge_check is not None:
        pipeline.judge_check.stop()
    thread = pipeline.span_thread
    pipeline.engine.hand_back(remaining_s())
    is_over = Event()  # set at the end of this function: a span thread that was blocked must not start then
    responded = thread.call(lambda: None if is_over.is_set() else _start_drain(pipeline), 0.9 * remaining_s())
    complete = responded and thread.flush(remaining_s())
    if not responded:
        pipeline.event_queue.abandon()
        responded = thread.call(lambda: None, remaining_s(_STOP_S))  # the thread may be slow, and not blocked
    (pipeline.dispatcher or pipeline.engine).stop(max(min(remaining_s(), _STOP_S), 0.1))
    if responded:  # otherwise an exporter blocks the thread, and no other thread may use its parts
        thread.call(lambda: _end_unfinished(pipeline), remaining_s(0.2))
        thread.call(pipeline.sinks.shutdown, remaining_s(0.2))
    if pipeline.collector is not None:
        pipeline.collector.finish(remaining_s(0.2))
    pipeline.outboxes.close(max(remaining_s() / 2, 0.2))  # a receiver may hang, and the spool needs time, too
    close_spool(pipeline.queue, pipeline.export_confirmation, remaining_s(0.2))
    thread.stop(remaining_s(0.2))
    if pipeline.providers.spans_file is not None:
        pipeline.providers.spans_file.finish(remaining_s(0.2))
    is_over.set()
    _settle_open_units(pipeline)
    return complete


def _settle_open_units(pipeline: Pipeline) -> None:
    """Give every unit without an outcome the outcome ``shutdown``."""
    for ledger in (pipeline.ledger, *pipeline.inner_ledgers().values()):
        for key in ledger.open_units():
            ledger.settle_all(key, Outcome.SHUTDOWN)
    for population in (pipeline.sessions, *pipeline.sources):
        population.end_open()
    if pipeline.feedback is not None:
        pipeline.feedback.give_up()
    pipeline.event_queue.abandon()
    for _ in range(sum(receiver.unread_count() for receiver in pipeline.receivers)):
        pipeline.ledger.record_rejected(Outcome.SHUTDOWN)  # the span thread has not read the start of these units


def export_held_spans(pipeline: Pipeline, finish_ended: Callable[[int], None], timeout_s: float) -> None:
    """Export held spans now, at the pace, while the scorer goes on. Blocks for at most ``timeout_s``.

    ``finish_ended`` is called first, with the time in nanoseconds: receivers pass on their ended units.
    """
    until = monotonic() + timeout_s

    def release() -> None:
        now_ns = pipeline.span_thread.now_ns()
        finish_ended(now_ns)
        pipeline.units.tick(now_ns)  # parks the units that receivers have just passed on
        pipeline.units.export_held_spans()

    responded = pipeline.span_thread.call(release, timeout_s)
    queued = pipeline.hold.queued
    while responded and pipeline.hold.ended < queued and monotonic() < until:
        pipeline.span_thread.call(lambda: None, _CHECK_S)  # after each call the thread ends spans at its pace
        sleep(_CHECK_S)


def _start_drain(pipeline: Pipeline) -> None:
    """End running units and conversations, and export held spans. Call on the span thread."""
    now_ns = pipeline.span_thread.now_ns()
    for receiver in pipeline.receivers:
        pipeline.units.give_up(receiver.drain(now_ns), now_ns)
    pipeline.units.tick(now_ns)
    pipeline.sessions.end_all()
    pipeline.units.export_held_spans()
    pipeline.hold.flush_ready(now_ns)


def _end_unfinished(pipeline: Pipeline) -> None:
    """Settle all units that are not scored, and export all spans. Call on the span thread."""
    now_ns = pipeline.span_thread.now_ns()
    for receiver in pipeline.receivers:
        receiver.drain(now_ns)  # units that arrived while receivers closed
    pipeline.sample_observers.give_up()
    pipeline.units.give_up(list(pipeline.units.hold.in_flight), now_ns)
    pipeline.sessions.give_up()
    pipeline.revisions.give_up()
    pipeline.hold.flush_ready(now_ns, unpaced=True)


class MetricsPage:
    """The page that ``serve_metrics`` serves to Prometheus, until the end of the scorer; at most one. Thread-safe.

    Attributes:
        endpoint: the served page; None while no page is served.
        unready: text with which ``/readyz`` answers 503 from its first request on; empty if this process may get work.
    """

    def __init__(self, pipeline: Pipeline, closing: ShutdownOnce, unready: str = "") -> None:
        self._pipeline = pipeline
        self._closing = closing
        self.endpoint: ScrapeEndpoint | None = None
        self.unready = unready
        self._lock = threading.RLock()  # a signal handler that shuts down may interrupt its holder

    @property
    def url(self) -> str:
        """The URL of the page; empty while no page is served."""
        return "" if self.endpoint is None else self.endpoint.url

    def serve(self, others: Sequence[Any], *, port: int, host: str) -> int:
        """Begin to serve the instruments of the scorer, and those of ``others``; return the port.

        Raises:
            ConfigurationError: the address cannot be opened, or the scorer serves already, is shut down or has no instruments.
        """
        with self._lock:
            if self._pipeline.telemetry is None:
                raise ConfigurationError("there are no metrics to serve: outputs.instruments is false")
            if self._closing.begun:
                raise ConfigurationError("the scorer is shut down: serve_metrics() comes at the start")
            if self.endpoint is not None:
                raise ConfigurationError(f"the metrics are being served already, on port {self.endpoint.port}")
            from spanscore.monitoring.scrape_endpoint import ScrapeEndpoint

            name, sums = self._pipeline.providers.service_name, [self._pipeline.telemetry, *others]
            self.endpoint = ScrapeEndpoint(
                name, sums, port=port, host=host, unready=self.unready, on_scrape=self._note_scrape
            )
            return self.endpoint.port

    def _note_scrape(self) -> None:
        if where := self.url:
            self._pipeline.providers.read_otherwise["metrics"] = lambda: f"read at {where}"
        self._pipeline.providers.on_metrics_exported()

    def close(self) -> None:
        """Stop serving."""
        with self._lock:
            if self.endpoint is not None:
                self.endpoint.close()
                self.endpoint = None

    def close_in_child(self) -> None:
        """Close the child's copy of the socket, because the parent serves the page. The child may serve another page."""
        self._pipeline.providers.read_otherwise.pop("metrics", None)
        if self.endpoint is not None:
            self.endpoint.close_in_child()


class LifetimeToken:
    """An object that only a scorer and its handler reference. When it is collected, no further unit is possible."""


class Lifecycle:
    """Starts the parts of a scorer with its first unit, and ends them. Thread-safe.

    ``OnlineScorer`` and its handler reference this object, which references neither. When the application drops its last
    reference to both, a thread ends the parts (``end_when_idle``).

    Attributes:
        closing: the one shutdown.
        page: the page that ``serve_metrics`` serves.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.closing = ShutdownOnce()
        self.page = MetricsPage(pipeline, self.closing)
        shutdown = weakref.WeakMethod(self.shutdown)

        def at_exit() -> None:
            global _exit_deadline_s  # noqa: PLW0603  (a process exits once)
            _exit_deadline_s = _exit_deadline_s or monotonic() + EXIT_TIMEOUT_S - _TEARDOWN_S
            if (call := shutdown()) is not None:  # None: the scorer was collected
                call(max(0.2, _exit_deadline_s - monotonic()))

        self._at_exit = at_exit
        self._is_started = self._is_ending = False
        self._lock = threading.RLock()  # a signal handler that shuts down may interrupt its holder
        call_in_child(self, Lifecycle._begin_in_child)

    def ready(self, span: Any = None) -> None:
        """Prepare for a root: choose the providers, register the exit hook after theirs, start the span thread.

        ``span`` is a span of the provider that exports the unit's spans; None if unknown.
        """
        if not self._is_started:
            with self._lock:
                if not self._is_started:
                    self._pipeline.providers.resolve(live_span=span)
                    if self._pipeline.telemetry is not None:
                        self._pipeline.providers.mention_lacking_metrics(self.page.endpoint)
                    self._pipeline.watch_for_shutdown()
                    atexit.register(self._at_exit)
                    if self._pipeline.export_confirmation is not None:
                        self._pipeline.engine.begin()
                    self._is_started = True
        self._pipeline.span_thread.ensure()

    def flush(self, timeout: float) -> bool:
        """Wait for ended units; see ``OnlineScorer.flush``."""
        if self.closing.begun:
            return self.closing.wait(timeout)
        until = monotonic() + timeout
        out = self._pipeline.span_thread.flush(timeout)
        if out and self._pipeline.dispatcher is not None:
            out = self._pipeline.dispatcher.flush(max(0.0, until - monotonic()))
        if self._pipeline.providers.spans_file is not None:  # first, because the exporters are needed if it fails
            self._pipeline.providers.spans_file.flush(max(0.0, until - monotonic()))
        if out and self._pipeline.providers.is_own:
            out = self._pipeline.providers.force_flush(max(0.0, until - monotonic()))
        if self._pipeline.collector is not None:
            self._pipeline.collector.flush(max(0.0, until - monotonic()))
        self._pipeline.outboxes.flush(max(0.0, until - monotonic()))
        return out

    def shutdown(self, timeout: float = EXIT_TIMEOUT_S) -> bool:
        """End the parts; see ``OnlineScorer.shutdown``."""
        until = monotonic() + timeout
        return self.closing.run(lambda: self._end(until), timeout)

    def end_when_idle(self, runs: Callable[[], object] | None = None) -> None:
        """Accept no further unit, and shut down on another thread when all units are scored. Does not block.

        ``runs`` returns whether runs are in progress, which are recorded to their end; None if the scorer was
        garbage-collected.
        """
        if self.closing.begun or self._is_ending:
            return
        self._is_ending = True
        if runs is None and self._is_started:
            log_once("unreferenced scorer", _UNREFERENCED)
        self._pipeline.close_receivers()
        self.page.close()
        start_daemon(self._end_when_idle, "spanscore-end", runs or bool)  # ``bool()`` is False: no run is in progress

    def _begin_in_child(self) -> None:
        """Make the parts anew, in a forked child. If a shutdown had begun before the fork, the scorer stays shut down."""
        self._lock = threading.RLock()
        self.closing = ShutdownOnce(self.closing)
        self.page.close_in_child()
        self.page = MetricsPage(self._pipeline, self.closing, self.page.unready)
        if self.closing.begun:
            self._pipeline.closed = True
        self._pipeline.begin_in_child()

    def _end_when_idle(self, runs: Callable[[], object]) -> None:
        until = monotonic() + _MAX_IDLE_WAIT_S
        while runs() and not self.closing.begun and monotonic() < until:
            sleep(_END_CHECK_S)
        self.flush(_MAX_IDLE_WAIT_S)
        self.shutdown()

    def _end(self, until: float) -> bool:
        self._pipeline.close_receivers()
        self._pipeline.is_shutting_down = True
        complete = drain(self._pipeline, (until - monotonic()) * 0.6)
        self._pipeline.close()
        self.page.close()
        exported = self._pipeline.providers.shutdown(max(0.1, until - monotonic()))
        atexit.unregister(self._at_exit)
        return exported and complete
