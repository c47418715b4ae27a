"""The stage: a real scorer before the real Collector of ``integrations/collector``, with Prometheus, Phoenix and Zipkin.

application ─ OTLP ─▶ Collector ─ remote write ─▶ Prometheus
             │                 └─ OTLP ─────────▶ Phoenix
             └─ Zipkin JSON ────────────────────▶ Zipkin      (tag search as in Jaeger, which cannot run here)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from langchain_core.runnables import RunnableLambda
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.zipkin.json import ZipkinExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.line import Failing, Grounded, Slow, model, rag
from tests.servers.phoenix import Phoenix
from tests.servers.prometheus import Prometheus
from tests.servers.server import free_port, poll
from tests.servers.zipkin import Zipkin

from spanscore import OnlineScorer
from spanscore.judges.record import record
from spanscore.metrics import AspectCritic, BaseMetric, Faithfulness, Finding
from spanscore.model.score import JudgeCall
from spanscore.testing import ScriptedJudge

INTEGRATIONS = Path(__file__).parents[2] / "integrations"
SERVICE = "support-bot"
HARMLESS_VERDICTS = (1, 0, 1, 1)
"""One round: one of four is a fail."""
ROUNDS = 3
ARRIVES_WITHIN_S = 40.0


class Priced(BaseMetric):
    """Asks a model whose price is known, and whose first try fails now and then."""

    name = "priced"
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self) -> None:
        self._asked = 0

    async def measure(self, sample: Any) -> Finding:
        self._asked += 1
        if self._asked % 2:
            record(JudgeCall(step="price", model="judge-small", duration_s=0.3, error_type="rate_limited"))
        call = JudgeCall(
            step="price", model="judge-small", input_tokens=300, output_tokens=20, cost_usd=0.0004, duration_s=0.8
        )
        record(call)
        return Finding(value=0.25 + 0.5 * (self._asked % 2))


class Referenced(BaseMetric):
    """Needs what no sample here has."""

    name = "referenced"
    requires = {"single_turn": ("reference",)}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=1.0)


@dataclass(frozen=True, slots=True)
class Stage:
    """What the tests ask.

    Attributes:
        scorer: still open, so that gauges have values.
    """

    prometheus: Prometheus
    phoenix: Phoenix
    zipkin: Zipkin
    scorer: OnlineScorer


@contextmanager
def staged(
    folder: Path, *, prometheus: ModuleType, collector: ModuleType, phoenix: Phoenix, zipkin: Zipkin
) -> Iterator[Stage]:
    """Set the stage, play some rounds of traffic, and wait until it has arrived."""
    with prometheus.running(folder / "prometheus") as store, _carrying(folder, collector, store, phoenix) as endpoint:
        tracers, meters = _providers(endpoint, zipkin)
        scorer = OnlineScorer(
            _metrics(), tracer_provider=tracers, meter_provider=meters, rates={"grounded": 0.5}, hold=2
        )
        try:
            for _ in range(ROUNDS):
                _play(scorer)
                meters.force_flush()  # a point in time of its own: increase() wants two
            poll(lambda: _arrived(store, meters), deadline_s=ARRIVES_WITHIN_S, what="growing sums in Prometheus")
            yield Stage(store, phoenix, zipkin, scorer)
        finally:
            scorer.shutdown(timeout=5)
            tracers.shutdown()
            meters.shutdown()


@contextmanager
def _carrying(folder: Path, collector: ModuleType, store: Prometheus, phoenix: Phoenix) -> Iterator[str]:
    http, health = free_port(), free_port()
    environment = {
        "OTLP_HTTP_LISTEN": f"127.0.0.1:{http}",
        "OTLP_GRPC_LISTEN": f"127.0.0.1:{free_port()}",
        "HEALTH_LISTEN": f"127.0.0.1:{health}",
        "TRACES_OTLP_ENDPOINT": phoenix.url,
        "PROMETHEUS_WRITE_URL": store.remote_write,
        "DECISION_WAIT": "1s",
        "BATCH_TIMEOUT": "100ms",
    }
    folder = folder / "collector"
    folder.mkdir()
    config = INTEGRATIONS / "collector" / "otelcol.yaml"
    with collector.running(folder, config, environment=environment, health=health):
        yield f"http://127.0.0.1:{http}"


def _providers(endpoint: str, zipkin: Zipkin) -> tuple[TracerProvider, MeterProvider]:
    resource = Resource.create({"service.name": SERVICE})
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    tracers.add_span_processor(SimpleSpanProcessor(ZipkinExporter(endpoint=zipkin.spans_endpoint)))
    exporter = OTLPMetricExporter(f"{endpoint}/v1/metrics")
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=1_000)
    return tracers, MeterProvider([reader], resource=resource, shutdown_on_exit=False)


def _metrics() -> list[BaseMetric]:
    verdicts = [
        {"step": "critique", "output": {"reason": "read", "verdict": verdict}} for verdict in HARMLESS_VERDICTS * ROUNDS
    ]
    harmless = AspectCritic(ScriptedJudge(verdicts), name="harmless", definition="Is the response free of harm?")
    return [
        harmless,
        Faithfulness(ScriptedJudge()),  # its judge has nothing to say: judge_error
        Grounded(),
        Slow(2.5, "late"),  # later than the hold: an evaluation span beside a pending unit
        Failing(ValueError("broken"), "broken"),
        Priced(),
        Referenced(),
    ]


def _play(scorer: OnlineScorer) -> None:
    """One round of traffic: a chain, a chain without documents, a bare model call, a run without an answer."""
    config: dict[str, Any] = {"callbacks": [scorer.handler]}
    rag().invoke("What is the capital of France?", config=config)
    (RunnableLambda(lambda question: f"Paris, {question}").with_config(run_name="small_talk")).invoke(
        "hi", config=config
    )
    model().invoke("What is the capital of France?", config=config, model="answerer-1")
    rag("Berlin is the capital of France.").invoke("What is the capital of France?", config=config)
    scorer.flush(10)


def _arrived(store: Prometheus, meters: MeterProvider) -> bool:
    meters.force_flush()
    return bool(store.query("sum(increase(spanscore_scored_total[1m])) > 0"))


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every panel that asks something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the committed dashboards, uid → JSON."""
    files = sorted((INTEGRATIONS / "grafana" / "dashboards").glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
