"""Where the demo's telemetry goes: kept in memory, and to an OTLP backend when one is named. Nothing else is contacted."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from spanscore import semconv
from spanscore.core.threads import start_daemon
from spanscore.errors import ConfigurationError
from spanscore.outputs.exporters import SIGNALS, quiet_otlp_exporter, sdk_disabled

__all__ = ["SERVICE", "Tracing", "in_stretch"]

SERVICE = "spanscore-demo"
_WAIT_S = 8.0
"""Longest wait for each of a backend's signals."""

_stretch: ContextVar[str | None] = ContextVar("spanscore_demo_stretch", default=None)


@contextmanager
def in_stretch(name: str) -> Iterator[None]:
    """Mark the roots that start inside the block, as an application marks its release."""
    token = _stretch.set(name)
    try:
        yield
    finally:
        _stretch.reset(token)


class Tracing:
    """The three providers of the demo, as an application would set them up.

    Args:
        seed: of the trace and span ids: the same seed, the same ids, and so the same sampling decisions.
        otlp: base URL of an OTLP/HTTP backend; None = nothing leaves the process.

    Raises:
        ConfigurationError: ``otlp`` is no URL, or ``OTEL_SDK_DISABLED`` switches tracing off.
    """

    def __init__(self, seed: int, otlp: str | None = None) -> None:
        if sdk_disabled():
            raise ConfigurationError("OTEL_SDK_DISABLED is true, which switches all tracing off; unset it for the demo")
        self._memory = InMemorySpanExporter()
        self.exporters = {} if otlp is None else _exporters(otlp)
        resource = Resource.create({"service.name": SERVICE})
        self.tracer_provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=SeededIds(seed), shutdown_on_exit=False
        )
        self.tracer_provider.add_span_processor(_MarkStretch())
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._memory))
        readers, logs = [], LoggerProvider(resource=resource, shutdown_on_exit=False)
        if self.exporters:
            self.tracer_provider.add_span_processor(BatchSpanProcessor(self.exporters["traces"]))
            readers = [PeriodicExportingMetricReader(self.exporters["metrics"], export_interval_millis=5_000)]
            logs.add_log_record_processor(BatchLogRecordProcessor(self.exporters["logs"]))
        self.meter_provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self.logger_provider = logs

    def spans(self) -> list[ReadableSpan]:
        """Return what has been exported so far, in the order in which it ended."""
        return list(self._memory.get_finished_spans())

    def flush(self) -> None:
        """Send what is waiting; waits for a slow backend, but not for long."""
        if self.exporters:
            _together([provider.force_flush for provider in self._providers()])

    def list_undelivered(self) -> list[str]:
        """Return the signals of which the backend lacks a part; it need not take metrics or events, as a Jaeger does not."""
        needed = (what for what in self.exporters if what == "traces" or not self.exporters[what].unsupported)
        return [what for what in needed if not self.exporters[what].delivered_since(0)]

    def close(self) -> None:
        """Send what is left and end; a backend that has failed is not waited for."""
        for exporter in self.exporters.values():
            if exporter.last_ok is False:
                exporter.shutdown()
        _together([provider.shutdown for provider in self._providers()])

    def _providers(self) -> tuple[Any, ...]:
        return self.tracer_provider, self.meter_provider, self.logger_provider


class SeededIds(IdGenerator):
    """Trace and span ids out of a seed.

    Roots are started on the application's thread, all other spans on another: a root's span id is drawn from the dice of the
    trace ids, so that which thread is faster makes no difference.
    """

    def __init__(self, seed: int) -> None:
        self._traces, self._spans = random.Random(f"traces/{seed}"), random.Random(f"spans/{seed}")
        self._root = threading.local()

    def generate_trace_id(self) -> int:
        """Return the next trace id."""
        self._root.starts = True
        return self._traces.getrandbits(128) or 1

    def generate_span_id(self) -> int:
        """Return the next span id: of the root whose trace id this thread has just drawn, else of a child."""
        starts, self._root.starts = getattr(self._root, "starts", False), False
        return (self._traces if starts else self._spans).getrandbits(64) or 1


class _MarkStretch(SpanProcessor):
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        stretch = _stretch.get()
        if stretch is not None and span.parent is None:
            span.set_attribute(semconv.DEMO_STRETCH, stretch)


def _exporters(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError(
            f"--otlp is {url!r}; it is the base URL of an OTLP/HTTP backend: http://localhost:4318"
        )
    at = {what: f"{url.rstrip('/')}/v1/{what}" for what in SIGNALS}
    return {what: quiet_otlp_exporter(what, to, endpoint=to, timeout=5) for what, to in at.items()}


def _together(calls: Sequence[Callable[[], object]]) -> None:
    """Make calls that know no deadline side by side, and wait for them for a while: a dead backend takes half a minute."""
    for thread in [start_daemon(_quietly, "spanscore-demo-end", call) for call in calls]:
        if thread is not None:
            thread.join(_WAIT_S)


def _quietly(end: Any) -> None:
    with suppress(Exception):  # the SDK raises for readers out of time; the exporter has kept why
        end()
