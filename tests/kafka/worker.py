"""Workers of a topic: in this process, with their exports in memory; and as separate processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.servers.kafka import Kafka
from tests.servers.server import poll

from spanscore import OnlineScorer, semconv
from spanscore.config.reading import read_settings
from spanscore.service.kafka_source import KafkaSource

METRIC = "tests.service.metrics:Answered"


class Worker:
    """A scorer, the source that feeds it, and the scores that it has emitted."""

    def __init__(self, file: Path) -> None:
        self.emitted = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.emitted))
        self.scorer = OnlineScorer.from_config(file, tracer_provider=provider)
        self.source = KafkaSource(self.scorer, read_settings(file).settings)

    @property
    def scored(self) -> list[str]:
        """The traces of its scores, as they came."""
        return [format(span.context.trace_id, "032x") for span in self.evaluations]

    @property
    def evaluations(self) -> list[Any]:
        """The spans of its scores, as they came."""
        spans = self.emitted.get_finished_spans()
        return [
            span
            for span in spans
            if span.instrumentation_scope.name == semconv.SCOPE and semconv.EVALUATION_NAME in span.attributes
        ]

    @property
    def outcomes(self) -> dict[str, int]:
        (counts,) = self.scorer.status().outcomes.values()
        return {str(outcome): units for outcome, units in counts.items() if units}

    @property
    def eligible(self) -> int:
        (counts,) = self.scorer.status().eligible.values()
        return counts

    def until(self, condition: Callable[[], object], what: str = "", within_s: float = 30) -> None:
        poll(condition, deadline_s=within_s, what=f"{what}; {self.outcomes} {self.source.state()}")

    def end(self, drain_s: float = 10.0) -> None:
        """Drain, as a signal has a worker do."""
        self.source.pause()
        self.scorer.shutdown(drain_s)
        self.source.commit()


def configured(folder: Path, broker: Kafka, topic: str, name: str = "spanscore.yaml", **more: Any) -> Path:
    """Return a configuration that reads a topic, and closes units soon."""
    section = {"brokers": [broker.brokers], "topic": topic, "group": f"{topic}-workers", **more.pop("kafka", {})}
    units = {"idle_timeout": "300ms", **more.pop("units", {})}
    file = folder / name
    file.write_text(yaml.safe_dump({"metrics": [METRIC], "kafka": section, "units": units, **more}))
    return file


@contextmanager
def working(file: Path, wait_s: float = 30.0) -> Iterator[Worker]:
    """Yield a worker that reads; drained at the end."""
    worker = Worker(file)
    try:
        worker.source.start(wait_s)
        yield worker
    finally:
        worker.end()
