"""Real SDK providers that keep their data in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs import export as logs
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanscore.core.job import UnitCounts
from spanscore.core.score import Outcome
from spanscore.outputs.http_sink import Destination, Message
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.providers import Providers

_KEPT = "InMemoryLogRecordExporter" if hasattr(logs, "InMemoryLogRecordExporter") else "InMemoryLogExporter"
"""Its name before 1.39."""


@dataclass
class Memory:
    """A tracer, a meter and a logger provider, given to ``Providers``."""

    tracer_provider: TracerProvider = field(default_factory=lambda: TracerProvider(shutdown_on_exit=False))
    span_exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    log_exporter: Any = field(default_factory=getattr(logs, _KEPT))
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.span_exporter))
        self.logger_provider = LoggerProvider(shutdown_on_exit=False)
        self.logger_provider.add_log_record_processor(logs.SimpleLogRecordProcessor(self.log_exporter))
        self.meter_provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.providers = Providers(self.tracer_provider, self.meter_provider, self.logger_provider)

    def open_outbox(self, destination: Destination) -> Memory:
        return self

    def put(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.span_exporter.get_finished_spans()

    @property
    def events(self) -> list[Any]:
        return [record.log_record for record in self.log_exporter.get_finished_logs()]

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
        """Collect, and return the data points of a metric by their sorted attributes."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            tuple(sorted((point.attributes or {}).items())): point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        }

    def values(self, name: str) -> dict[tuple[tuple[str, Any], ...], float]:
        return {key: point.value for key, point in self.points(name).items()}


class FixedCounts:
    """A ledger that never changes."""

    def __init__(self, **eligible: int) -> None:
        self._eligible = eligible

    def count_units(self) -> UnitCounts:
        ended: dict[tuple[str, Outcome, str | None], int] = {
            (name, Outcome.SCORED, None): count for name, count in self._eligible.items()
        }
        return UnitCounts(dict(self._eligible), ended, dict.fromkeys(self._eligible, 0), {})


def telemetry_of(memory: Memory, **options: Any) -> Telemetry:
    return Telemetry(memory.providers.meter(), FixedCounts(), **options)
