"""Chooses the TracerProvider, MeterProvider and LoggerProvider of a scorer: the application's, or spanscore's own."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from opentelemetry import metrics, trace

from spanscore import semconv
from spanscore.core.log import log_once
from spanscore.core.threads import SerialThread, before_fork, call_in_child, gevent_monkey, start_daemon
from spanscore.outputs.exporters import (
    SIGNALS,
    BuiltProviders,
    QuietExporter,
    Signal,
    has_endpoint,
    is_off,
    is_sent_by_default,
    otel_environment,
    sdk_disabled,
)
from spanscore.outputs.provider_introspection import provider_behind
from spanscore.outputs.scope import scope, version
from spanscore.outputs.spans_file import SpansFile

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

Origin = Literal["given", "global", "own", "none"]

NO_METRICS = (
    "no metrics, so no alerts: set a MeterProvider, or call scorer.serve_metrics(9464), in a pod with host='0.0.0.0'"
)
IN_POD_ONLY = (
    "the metrics are served only on this pod's loopback address, where Prometheus cannot read them: "
    'serve_metrics: {port: 9464, host: "0.0.0.0"}'
)
NO_LOGS = "no provider is set"
DELTA = (
    "metrics are sent as delta: the rules need cumulative; the Collector file of integrations/collector makes them so"
)

_log = logging.getLogger("spanscore")


class ScrapePage(Protocol):
    """A page that serves the metrics to Prometheus."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine, or pod, can reach the page."""


class ProviderRow(NamedTuple):
    """One line of ``describe()``, about the provider of one signal.

    Attributes:
        what: the signal: ``traces``, ``metrics`` or ``logs``.
        which: origin of the provider: ``given`` as argument, ``global``, ``own``, ``none``, or ``served`` to Prometheus.
        endpoint: destination of spanscore's own exporter, without credentials; empty for providers of the application.
        last: result of the last export with its time, or the reason for sending nothing; empty for providers of the
            application.
    """

    what: str
    which: str
    endpoint: str
    last: str

    def replace_by_page(self, url: str) -> ProviderRow:
        """Return the row; for absent metrics, a row about the page at ``url``. An empty ``url`` means no page."""
        if not url or self.what != "metrics" or self.which != "none":
            return self
        return self._replace(which="served", endpoint=url, last="")


@dataclass(frozen=True, slots=True)
class ResolvedProvider:
    """The provider of one signal.

    Attributes:
        which: origin of the provider.
        exporter: exporter of spanscore's own provider; None for another provider, or if exports are off.
        note: reason for sending nothing; empty if something is sent.
    """

    what: Signal
    provider: Any
    which: Origin
    exporter: QuietExporter | None = None
    note: str = ""

    @property
    def is_exported(self) -> bool:
        """Whether spanscore's own exporter sends to a backend that accepts this signal."""
        return self.exporter is not None and not self.exporter.unsupported

    def flush(self) -> bool:
        """Flush, without a deadline. For spanscore's own provider, return whether everything was delivered."""
        return self._delivers(getattr(self.provider, "force_flush", lambda: True))

    def close(self) -> bool:
        """Shut down, without a deadline, after exporting the waiting items. Return whether everything was delivered."""
        return self._delivers(self.provider.shutdown)

    def row(self) -> ProviderRow:
        """Return the row for ``describe()``."""
        if self.exporter is None:
            return ProviderRow(self.what, self.which, "", self.note)
        place = "" if self.exporter.last_ok else self.exporter.readable_place()
        last = f"not needed: {place}" if place else self.exporter.last()
        return ProviderRow(self.what, self.which, self.exporter.endpoint, last)

    def sends_deltas(self) -> bool:
        """Return whether counters are exported as differences (delta temporality); False if this is not visible.

        The SDK has no public attribute for it. Readers and exporters of the SDK keep their argument under this private name.
        """
        config = getattr(self.provider, "_sdk_config", None)
        readers = getattr(self.provider, "_metric_readers", None) or getattr(config, "metric_readers", None) or ()
        preferred = [getattr(reader, "_preferred_temporality", None) or {} for reader in readers]
        return any(
            kind.__name__ == "ObservableCounter" and temporality.name == "DELTA"
            for temporalities in preferred
            for kind, temporality in temporalities.items()
        )

    def _delivers(self, send: Callable[[], Any]) -> bool:
        failures = self.exporter.failures if self.exporter else 0
        try:
            succeeded = send() is not False
        except Exception as error:  # noqa: BLE001  (the SDK raises if a metric reader exceeds its time)
            _log.debug("%s were not all sent: %s", self.what, error)
            return False
        if self.exporter is None:
            return succeeded
        if self.exporter.unsupported:
            return self.what != "traces"  # do not wait for metrics and logs that the backend rejects
        return succeeded and self.exporter.has_delivered_since(failures)


def no_provider(what: Signal, note: str = "") -> ResolvedProvider:
    """Return a provider that exports nothing. For metrics and logs, it uses a provider that the application sets later."""
    if sdk_disabled():
        note = "OTEL_SDK_DISABLED=true"
    elif is_off(what):
        note = f"OTEL_{what.upper()}_EXPORTER=none"
    if what == "traces":
        return ResolvedProvider(what, trace.NoOpTracerProvider(), "none", note=note)
    return ResolvedProvider(what, _of_api(what), "none", note=note or (NO_METRICS if what == "metrics" else NO_LOGS))


def _of_api(what: Signal) -> Any:
    """Return the global provider of the OpenTelemetry API, which may be a proxy or a no-op."""
    if what == "traces":
        return trace.get_tracer_provider()
    if what == "metrics":
        return metrics.get_meter_provider()
    from opentelemetry import _logs

    return _logs.get_logger_provider()


EXIT_TIMEOUT_S = 4.0
"""Deadline of spanscore's exit hook, which runs if the application never called ``shutdown``. A whole exit may take 5 s."""
WARM_UP_TIMEOUT_S = 5.0
"""Longest wait for the imports of ``warm_up``, which take 0.1 to 0.3 s; after that the caller imports them itself."""
FORK_TIMEOUT_S = 2.0
"""Longest delay of a fork during imports of exporters. Without it a child may inherit a locked import lock, and hang."""

UNREACHABLE_S = 1.5
"""Longest wait of a shutdown for an unreachable backend: the exporter tries again after some 1 s."""
_INTERRUPT_S = 0.5
"""Longest wait for the end of an interrupted export."""
_LOOK_S = 0.02
"""Interval of the check for a stuck export, because the exporters do not report it."""


class Providers:
    """The three providers of one scorer, chosen once. For each signal, the first of these:

    - the provider that was given as argument,
    - for traces, the provider of the spans to be scored, if another instrumentation makes them,
    - the provider that the application has set globally, which spanscore never sets or replaces,
    - a private provider that exports over OTLP, as ``OTEL_*`` variables configure it.

    The choice is made when the first root starts, so that an application may set its providers after it made the scorer.

    The SDK's flush and shutdown have no deadline: with a dead Collector they take 20 to 30 s. So they run on a helper thread,
    and callers wait for them with a deadline.

    Args:
        tracer_provider: used instead of the global one; None = the global one, otherwise a private one.
        meter_provider: used instead of the global one; None = the global one, otherwise a private one, but only with a private
            tracer provider or if ``OTEL_EXPORTER_OTLP_*`` is set.
        logger_provider: as ``meter_provider``, for logs.
        service_name: ``service.name`` of private providers; None = ``OTEL_SERVICE_NAME``.
        spans_file: also gets every span of the tracers; None = no such file.

    Attributes:
        read_otherwise: signal → function that returns the place at which the signal can be read without an export, as a clause;
            empty = no such place. Without a function for the signal, the spans file is such a place. If there is a place, a
            failed export to the default endpoint loses nothing.
        on_metrics_exported: called when our own exporter has exported collected metrics, or a Prometheus server has read them,
            on the thread of the collection.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        service_name: str | None = None,
        spans_file: SpansFile | None = None,
    ) -> None:
        self.spans_file = spans_file
        self.read_otherwise: dict[Signal, Callable[[], str]] = {}
        self.on_metrics_exported: Callable[[], object] = object
        self._observed: Any = None  # provider of the spans to be scored, if another instrumentation makes them
        self._arguments = {"traces": tracer_provider, "metrics": meter_provider, "logs": logger_provider}
        self._service_name = service_name
        self._lock = Lock()
        self._chosen: dict[Signal, ResolvedProvider] | None = None
        self._tracers: dict[str, Tracer] = {}
        self._logger: Logger | None = None
        self._warming: Thread | None = None
        self._parts: BuiltProviders | None = None
        self._helper = SerialThread("spanscore-flush")
        self._current: ResolvedProvider | None = None  # the provider that the helper thread flushes or closes now
        self._results: list[bool] = []  # results of the providers before it
        self._closed = False
        version()  # reads files; here, because scopes are made during the first request
        weakref.finalize(self, self._helper.stop).atexit = False
        before_fork(self, Providers._await_warm_up)
        call_in_child(self, Providers._begin_in_child)

    def warm_up(self) -> None:
        """Import and build on a background thread the parts of a private provider, if one is likely. Does not block.

        Without it the first request would take 70 ms or more longer.
        """
        if self._warming is None and self._chosen is None:
            self._warming = start_daemon(self._build_ahead, "spanscore-warm-up")

    def resolve(self, live_span: Any = None) -> None:
        """Choose the providers, once, when the first root starts. Never raises. Later calls return immediately.

        Args:
            live_span: the first span, if another instrumentation makes the spans to be scored; its provider is used unless a
                tracer provider was given. None = spanscore makes the spans.
        """
        if self._chosen is None:
            if self._warming is not None:
                self._warming.join(WARM_UP_TIMEOUT_S)
            with self._lock:
                if self._chosen is None:
                    if live_span is not None and self._arguments["traces"] is None:
                        self._observed = provider_behind(live_span)
                    self._chosen = self._choose()

    @property
    def is_own(self) -> bool:
        """Whether the tracer provider is a private one; False before ``resolve``."""
        return self._chosen is not None and self._chosen["traces"].which == "own"

    @property
    def tracer_provider(self) -> TracerProvider:
        """The tracer provider in use. Chooses the providers at first use."""
        provider: TracerProvider = self._provider("traces")
        return provider

    @property
    def meter_provider(self) -> MeterProvider:
        """The meter provider in use. Chooses the providers at first use."""
        provider: MeterProvider = self._provider("metrics")
        return provider

    def tracer(self, name: str = semconv.SCOPE) -> Tracer:
        """Return the tracer of a scope. Chooses the providers at first use."""
        tracer = self._tracers.get(name)
        if tracer is None:  # kept, because the SDK before 1.45 makes a new tracer, with an id generator, at each call
            tracer = self._provider("traces").get_tracer(*scope(name))
            if self.spans_file is not None:
                tracer = self.spans_file.attach_to(tracer)
            tracer = self._tracers.setdefault(name, tracer)
        return tracer

    def meter(self) -> Meter:
        """Return spanscore's meter, one object per provider. Chooses the providers at first use."""
        provider = self._provider("metrics")
        meter = _meters.get(id(provider))
        if meter is None:  # a proxy returns a new meter with new instruments at each call, so the first one is kept
            meter = _meters.setdefault(id(provider), provider.get_meter(*scope()))
            weakref.finalize(provider, _meters.pop, id(provider), None).atexit = False
        return meter

    def logger(self) -> Logger:
        """Return spanscore's OpenTelemetry logger. Chooses the providers at first use."""
        if self._logger is None:  # kept, because a proxy returns a new logger at each call
            self._logger = self._provider("logs").get_logger(*scope())
        return self._logger

    def service_name(self) -> str:
        """Return ``service.name`` of the tracer provider in use, or of the one that would be chosen now. Chooses nothing."""
        chosen = self._find("traces") if self._chosen is None else self._chosen["traces"]
        attributes = getattr(getattr(chosen and chosen.provider, "resource", None), "attributes", {})
        name = attributes.get("service.name")
        return str(name or BuiltProviders(self._service_name).resource.attributes["service.name"])

    def resource(self) -> Mapping[str, Any]:
        """Return the resource attributes of the tracer provider in use. Chooses the providers at first use."""
        attributes: Mapping[str, Any] = getattr(getattr(self.tracer_provider, "resource", None), "attributes", {})
        return attributes

    def force_flush(self, timeout_s: float) -> bool:
        """Send the waiting items. Blocks for at most ``timeout_s``, and not for an unreachable backend.

        An exporter of spanscore that could not connect retries for up to 10 s; the flush does not wait for that.

        Returns:
            Whether everything was delivered in time, except for signals that can be read otherwise. For a provider of the
            application, it is the SDK's result, which is True even if an export failed.
        """
        return self._chosen is None or self._await_delivery(self._helper.do(self._flush_all), timeout_s)

    def start_flush_of_spans(self) -> Future[bool]:
        """Start to send the waiting spans. Does not block. The hold releases further spans after each such flush."""
        return self._helper.do(self._flush_spans)

    def exports_metrics(self) -> bool:
        """Return whether spanscore's own exporter sends the metrics to a backend that accepts them."""
        return any(chosen.what == "metrics" and chosen.is_exported for chosen in self._own())

    def start_flush_of_metrics(self) -> Future[bool]:
        """Start to export the sums by spanscore's own exporter; the result is False without one. Does not block."""
        return self._helper.do(self._flush_metrics)

    def shutdown(self, timeout_s: float) -> bool:
        """Send the waiting items, and shut down only spanscore's own providers. Blocks for at most ``timeout_s``.

        An unreachable backend is tried once more; then it is abandoned, within ``UNREACHABLE_S``.

        Returns:
            Whether everything was delivered in time; True if all providers are the application's.
        """
        own = self._own()
        if self._closed or not own:
            self._helper.stop()
            return True
        self._closed = True
        atexit.unregister(self._at_exit)
        delivered = self._await_delivery(self._helper.do(self._close_all), timeout_s, stuck_wait_s=UNREACHABLE_S)
        exporters = [chosen.exporter for chosen in own if chosen.exporter is not None]
        for exporter in exporters:
            exporter.shutdown()  # ends an export that waits for its next try
        until_s = monotonic() + _INTERRUPT_S
        while any(exporter.is_sending for exporter in exporters) and monotonic() < until_s:
            sleep(_LOOK_S)  # so that the last results include the interrupted exports
        self._helper.stop()
        return delivered

    def describe(self) -> list[ProviderRow]:
        """Return one row per signal, for ``status()``."""
        if self._chosen is not None:
            return [chosen.row() for chosen in self._chosen.values()]
        which = {what: "none" if argument is None else "given" for what, argument in self._arguments.items()}
        return [ProviderRow(what, which[what], "", "chosen when the first run starts") for what in SIGNALS]

    def notes(self, served: ScrapePage | None = None) -> list[str]:
        """Return notes on the metrics for ``status()``; ``served``: the page that Prometheus reads; None = no page."""
        metrics = None if self._chosen is None else self._chosen["metrics"]
        if metrics is None:
            return []
        if served is None:
            return [DELTA] if metrics.sends_deltas() else []
        is_sent = metrics.which != "none" and (metrics.which != "own" or has_endpoint())
        is_unread = not is_sent and served.is_loopback and semconv.KUBERNETES_ENV in os.environ
        return [IN_POD_ONLY] if is_unread else []

    def mention_lacking_metrics(self, served: ScrapePage | None = None) -> None:
        """Log, at most hourly, that alerts cannot work, because the metrics are not readable, or not by the rules."""
        is_unread = served is None and any(row.last == NO_METRICS for row in self.describe())
        for note in (*([NO_METRICS] if is_unread else ()), *self.notes(served)):
            log_once(note, note, level=logging.INFO if note == DELTA else logging.WARNING)

    def _provider(self, what: Signal) -> Any:
        self.resolve()
        assert self._chosen is not None  # resolve always chooses
        return self._chosen[what].provider

    def _own(self) -> list[ResolvedProvider]:
        return [chosen for chosen in (self._chosen or {}).values() if chosen.which == "own"]

    # The next four are methods, because the helper thread merges equal tasks that wait.

    def _flush_all(self) -> bool:
        return self._deliver((self._chosen or {}).values(), ResolvedProvider.flush)

    def _flush_spans(self) -> bool:
        return self._chosen is None or self._deliver([self._chosen["traces"]], ResolvedProvider.flush)

    def _flush_metrics(self) -> bool:
        own = [chosen for chosen in self._own() if chosen.what == "metrics"]
        return bool(own) and self._deliver(own, lambda chosen: chosen.flush() and chosen.is_exported)

    def _close_all(self) -> bool:
        return self._deliver(self._own(), ResolvedProvider.close)

    def _deliver(self, providers: Iterable[ResolvedProvider], send: Callable[[ResolvedProvider], bool]) -> bool:
        """Send the items of each provider, also after a failure; return whether all succeed. On the helper thread.

        Signals that can be read otherwise come last.
        """
        self._results = results = []
        for self._current in sorted(providers, key=_is_read_otherwise):
            results.append(send(self._current))
        self._current = None
        return all(results)

    def _await_delivery(self, future: Future[bool], timeout_s: float, *, stuck_wait_s: float = 0.0) -> bool:
        """Wait for a result, or until the export in progress is stuck and ``stuck_wait_s`` have passed."""
        began = monotonic()
        while (left_s := began + timeout_s - monotonic()) > 0:
            if wait([future], min(left_s, _LOOK_S)).done:
                return future.result()
            current = self._current
            is_stuck = current is not None and current.exporter is not None and current.exporter.unreachable
            if is_stuck and monotonic() - began >= stuck_wait_s:
                return self._is_rest_optional(future)
        return future.done() and future.result()

    def _is_rest_optional(self, future: Future[bool]) -> bool:
        """Return whether only signals that can be read otherwise are not delivered yet."""
        current = self._current
        if current is None or not _is_read_otherwise(current):
            return False
        if future.running() and all(self._results):  # the other signals came first
            return True
        every = (self._chosen or {}).values()
        return all(chosen.which == "none" or _is_read_otherwise(chosen) for chosen in every)

    def _choose(self) -> dict[Signal, ResolvedProvider]:
        missing = self._missing_signals()
        if missing and (self._parts is None or self._parts.environment != otel_environment()):
            self._parts = BuiltProviders(self._service_name)  # no parts were built ahead, or only for other variables
        chosen = {
            what: self._build(what) if what in missing else self._find(what) or no_provider(what) for what in SIGNALS
        }
        self._helper.start()  # now, because no thread can be started at interpreter exit (from Python 3.12 on)
        if any(provider.which == "own" for provider in chosen.values()):
            atexit.register(self._at_exit)
        return chosen

    def _missing_signals(self) -> list[Signal]:
        """Return the signals for which spanscore must build a provider.

        If the application has a tracer provider and names no endpoint, it exports in its own way, and spanscore builds no
        provider.
        """
        if sdk_disabled():
            return []
        missing = [what for what in SIGNALS if self._find(what) is None]
        if "traces" not in missing and not has_endpoint():
            return []
        return [what for what in missing if what == "traces" or not is_off(what)]

    def _find(self, what: Signal) -> ResolvedProvider | None:
        if self._arguments[what] is not None:
            return ResolvedProvider(what, self._arguments[what], "given")
        if what == "traces" and self._observed is not None:
            return ResolvedProvider(what, self._observed, "given")
        provider = _of_api(what)
        is_proxy = type(provider).__module__.startswith("opentelemetry.") and "Proxy" in type(provider).__name__
        return None if is_proxy else ResolvedProvider(what, provider, "global")

    def _build(self, what: Signal) -> ResolvedProvider:
        assert self._parts is not None  # made before any signal is built
        try:
            provider, exporter = self._parts.provider(what), self._parts.exporter(what)
        except Exception as error:  # noqa: BLE001  (a wrong OTEL_ variable must not break the application's first request)
            _log.warning("%s are not exported, because no exporter could be built: %s", what, error)
            return no_provider(what, f"no exporter could be built: {error}")
        if exporter is not None:
            exporter.readable_place = partial(self._readable_place, what)
            if what == "metrics":
                exporter.on_success = lambda: self.on_metrics_exported()  # noqa: PLW0108  (the attribute may change later)
        note = "" if exporter else f"OTEL_{what.upper()}_EXPORTER=none"
        return ResolvedProvider(what, provider, "own", exporter, note)

    def _readable_place(self, what: Signal) -> str:
        if not is_sent_by_default(what):
            return ""
        in_file = "" if self.spans_file is None else self.spans_file.readable_place(metrics=what == "metrics")
        return self.read_otherwise[what]() if what in self.read_otherwise else in_file

    def _build_ahead(self) -> None:
        parts = BuiltProviders(self._service_name)
        try:
            for what in self._missing_signals():
                parts.exporter(what)
            _ = parts.resource
        except Exception:  # noqa: BLE001  (``resolve`` meets the same error again, and logs it)
            return
        self._parts = parts

    def _at_exit(self) -> None:
        self.shutdown(EXIT_TIMEOUT_S)

    def _await_warm_up(self) -> None:
        if self._warming is not None:
            self._warming.join(FORK_TIMEOUT_S)

    def _begin_in_child(self) -> None:
        """Continue without the parent's threads; the chosen providers stay."""
        self._lock, self._warming, self._current = Lock(), None, None
        if self._parts is not None:
            self._parts.begin_instance()
        # Not under gevent: starting a greenlet lets the parent's other greenlets run in a child that is about to exec.
        if self._chosen is not None and not self._closed and gevent_monkey() is None:
            self._helper.start()


def _is_read_otherwise(chosen: ResolvedProvider) -> bool:
    """Return whether the signal can be read without an export, so that a missing export loses nothing."""
    return chosen.exporter is not None and bool(chosen.exporter.readable_place())


_meters: dict[int, Meter] = {}
"""``id`` of a meter provider → spanscore's meter. Logfire's provider is not hashable."""
