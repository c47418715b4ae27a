"""The stage: a real scorer before the real Collector of ``integrations/collector``, with Prometheus and three trace stores.

application ─ OTLP ─▶ Collector ─ remote write ─▶ Prometheus
             │                 └─ OTLP ─────────▶ Phoenix
             ├─ OTLP ───────────────────────────▶ Jaeger
             └─ Zipkin JSON ────────────────────▶ Zipkin
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import yaml
from langchain_core.runnables import RunnableLambda
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.zipkin.json import ZipkinExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.capture.otlp.results import logs, result
from tests.live import Failing, Grounded, model, rag
from tests.servers.jaeger import Jaeger
from tests.servers.phoenix import Phoenix
from tests.servers.prometheus import Prometheus
from tests.servers.server import free_port, poll
from tests.servers.zipkin import Zipkin

from spanscore import OnlineScorer, semconv
from spanscore.capture.otlp.external_scores import results_in_logs
from spanscore.config import Budget, Capture, Collect, Compare, JudgeSettings, Outputs, Sampling, Units
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall
from spanscore.errors import JudgeUnavailable
from spanscore.judges import judge
from spanscore.judges.ask import REPAIR_STEP
from spanscore.judges.records import record
from spanscore.metrics import AspectCritic, BaseMetric, Category, Faithfulness, Finding
from spanscore.outputs.aggregates import GaugeReading
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.testing import ScriptedJudge

INTEGRATIONS = Path(__file__).parents[2] / "integrations"
SERVICE = "support-bot"
HARMLESS_VERDICTS = (1, 0, 1, 1)
"""One round: one of four is a fail."""
ROUNDS = 3
HOLD_S = 2.0
ASKABLE = ("tags", "filter", "expression")
ARRIVES_WITHIN_S = 40.0
OF_A_WORKER = {
    semconv.SPOOL_DEPTH: lambda: 12,
    semconv.SPOOL_BYTES: lambda: 70_000,
    semconv.SPOOL_OLDEST: lambda: 30.0,
    semconv.SPOOL_DEAD_LETTERS: lambda: 0,
    semconv.WORKER_DROPPED: lambda: 1,
    semconv.WORKER_SKIPPED: lambda: 0,
    semconv.REDELIVERED: lambda: 0,
}
"""Further metrics of a worker with a spool and a topic: the stage has neither."""
LAG = {
    partition: GaugeReading(((semconv.PARTITION, partition),), {semconv.WORKER_LAG: 40, semconv.WORKER_TIME_LAG: 3.5})
    for partition in "01"
}
_HARMLESS = 'sum(spanscore_quality_count{gen_ai_evaluation_name="harmless"})'


class Priced(BaseMetric):
    """Calls a model with a known price; its first attempt fails now and then."""

    name = "priced"
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self) -> None:
        self._asked = 0

    async def measure(self, sample: Any) -> Finding:
        self._asked += 1
        if self._asked % 2:
            record(JudgeCall(step="price", model="judge-small", duration_s=0.3, error_type="judge_unavailable"))
        call = JudgeCall(
            step="price", model="judge-small", input_tokens=300, output_tokens=20, cost_usd=0.0004, duration_s=0.8
        )
        record(call)
        return Finding(value=0.25 + 0.5 * (self._asked % 2))


class Moody:
    """A judge that is away at its first question, and cannot be read at its second."""

    model = "moody"

    def __init__(self) -> None:
        self._asked = 0

    async def ask(self, prompt: Prompt) -> Reply:
        verdict = json.dumps({"reason": "read", "verdict": 1})
        if prompt.step == REPAIR_STEP:
            return Reply(text=json.dumps({"text": verdict}))
        self._asked += 1
        if self._asked == 1:
            raise JudgeUnavailable("moody is away")
        return Reply(text="I would rather not say." if self._asked == 2 else verdict)


class Late(Grounded):
    """Ends later than the hold in the first round: an evaluation span next to a pending unit."""

    async def measure(self, sample: Any) -> Finding:
        if len(self._seen) < 2:
            await asyncio.sleep(2 * HOLD_S)
        return await super().measure(sample)


class Referenced(BaseMetric):
    """Needs a field that no sample here has."""

    name = "referenced"
    requires = {"single_turn": ("reference",)}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=1.0)


@dataclass(frozen=True, slots=True)
class Stage:
    """The servers and queries of the tests.

    Attributes:
        written: gets its series by remote write from the Collector.
        scraped: gets them from the scorer's own endpoint.
        scorer: still open, so that gauges have values.
    """

    written: Prometheus
    scraped: Prometheus
    phoenix: Phoenix
    jaeger: Jaeger
    zipkin: Zipkin
    scorer: OnlineScorer

    def prometheus(self, ingestion: str) -> Prometheus:
        """Return the Prometheus with one kind of ingestion: ``written`` or ``scraped``."""
        return {"written": self.written, "scraped": self.scraped}[ingestion]


@contextmanager
def staged(
    folder: Path, *, prometheus: ModuleType, collector: ModuleType, phoenix: Phoenix, jaeger: Jaeger, zipkin: Zipkin
) -> Iterator[Stage]:
    """Set the stage, play some rounds of traffic, and wait until it has arrived."""
    with ExitStack() as stack:
        written = stack.enter_context(prometheus.running(folder / "written", rules=rules()))
        stores = {"TRACES_OTLP_ENDPOINT": phoenix.url, "PROMETHEUS_WRITE_URL": written.remote_write}
        endpoint = stack.enter_context(carrying(folder / "collector", collector, stores))
        tracers, meters = _providers(endpoint, jaeger, zipkin)
        scorer = OnlineScorer(
            _metrics(),
            tracer_provider=tracers,
            meter_provider=meters,
            service_name=SERVICE,
            sampling=Sampling(rates={"grounded": 0.5}),
            outputs=Outputs(hold=HOLD_S),
            judge=JudgeSettings(budget=[Budget(calls=100_000, per="1h")], trace=True),
            capture=Capture(content=True),
            compare=Compare(by="release"),
            collect=Collect(when=["polite=fail", "grounded<0.5"], out=folder / "cases.jsonl"),
        )
        receivers_of(scorer).otlp_spans(Units())  # it has instruments of its own
        pipeline_of(scorer).telemetry.gauges.update(OF_A_WORKER)
        pipeline_of(scorer).source_points = lambda: LAG
        for end in (meters.shutdown, tracers.shutdown, lambda: scorer.shutdown(timeout=5)):
            stack.callback(end)
        config = scrape_config(scorer.serve_metrics(0))
        scraped = stack.enter_context(prometheus.running(folder / "scraped", config, rules()))
        with OnlineScorer([Grounded("brief")], tracer_provider=tracers, meter_provider=meters) as whole:
            rag().invoke("What is the capital of France?", config={"callbacks": [whole.handler]})
            whole.flush(10)  # the one unit with all scores
        for round_ in range(1, ROUNDS + 1):
            _play(scorer)
            for store in (written, scraped):  # each sees every round separately: increase() needs two points in time
                _wait_for(store, _HARMLESS, round_ * len(HARMLESS_VERDICTS))
        for store in (written, scraped):
            poll(lambda store=store: _ruled(store), deadline_s=ARRIVES_WITHIN_S, what="what the rules record")
        yield Stage(written, scraped, phoenix, jaeger, zipkin, scorer)


def scrape_config(port: int) -> str:
    """Return the project's scrape configuration, in a hurry and for this port; rules and Alertmanager are left out."""
    tree = yaml.safe_load((INTEGRATIONS / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    tree["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    tree["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    return yaml.safe_dump({name: tree[name] for name in ("global", "storage", "scrape_configs")}, sort_keys=False)


@contextmanager
def carrying(
    folder: Path, collector: ModuleType, to: Mapping[str, str], config: str = "otelcol.yaml", *changes: Path
) -> Iterator[str]:
    """Run the Collector of ``integrations/collector`` with short waits, and yield its OTLP address.

    Args:
        folder: for its output.
        collector: the module of its server.
        to: variables of its configuration: ``TRACES_OTLP_ENDPOINT``, ``PROMETHEUS_WRITE_URL``.
        config: which one of that folder.
        changes: files on top of it.
    """
    folder.mkdir(exist_ok=True)
    http, health = free_port(), free_port()
    environment = {
        "OTLP_HTTP_LISTEN": f"127.0.0.1:{http}",
        "OTLP_GRPC_LISTEN": f"127.0.0.1:{free_port()}",
        "HEALTH_LISTEN": f"127.0.0.1:{health}",
        "DECISION_WAIT": "1s",
        "BATCH_TIMEOUT": "100ms",
        **to,
    }
    configs = (INTEGRATIONS / "collector" / config, *changes)
    with collector.running(folder, *configs, environment=environment, health=health):
        yield f"http://127.0.0.1:{http}"


def _providers(endpoint: str, jaeger: Jaeger, zipkin: Zipkin) -> tuple[TracerProvider, MeterProvider]:
    resource = Resource.create({"service.name": SERVICE})
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(jaeger.traces_endpoint)))
    tracers.add_span_processor(SimpleSpanProcessor(ZipkinExporter(endpoint=zipkin.spans_endpoint)))
    exporter = OTLPMetricExporter(f"{endpoint}/v1/metrics")
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=1_000)
    return tracers, MeterProvider([reader], resource=resource, shutdown_on_exit=False)


def _metrics() -> list[BaseMetric]:
    verdicts = [
        {"step": "critique", "output": {"reason": "read", "verdict": verdict}} for verdict in HARMLESS_VERDICTS * ROUNDS
    ]
    gated = judge(ScriptedJudge(verdicts), queue_timeout=60.0)  # an account, as every chat model has
    harmless = AspectCritic(gated, name="harmless", definition="Is the response free of harm?")
    return [
        harmless,
        Faithfulness(ScriptedJudge()),  # its judge has no answer left: judge_error
        Grounded(),
        Late("late"),
        Failing(ValueError("broken"), "broken"),
        Priced(),
        Referenced(),
        Category("lexical", name="intent", categories={"refund": "Money back.", "other": "Anything else."}),
        AspectCritic("lexical", name="capitals", definition="A city is told.", applies_when="it asks for a capital"),
        AspectCritic(
            judge(Moody(), max_attempts=2, cache="memory"), name="polite", definition="Is the response polite?"
        ),
    ]


def rules() -> dict[str, str]:
    """Return the committed rule files, name → text, evaluated each second."""
    found = {}
    for file in sorted((INTEGRATIONS / "prometheus").glob("*rules.yml")):
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        for group in tree["groups"]:
            group["interval"] = "1s"
        found[file.name] = yaml.safe_dump(tree, sort_keys=False)
    return found


def _ruled(store: Prometheus) -> bool:
    """Return whether every rule was evaluated since the traffic arrived."""
    return all(rule["health"] != "unknown" for rule in store.rules()) and bool(
        not store.rules() or store.query('count({__name__=~"spanscore:.+"})')
    )


def _wait_for(store: Prometheus, expression: str, value: float) -> None:
    poll(
        lambda: [float(found["value"][1]) for found in store.query(expression)] == [value],
        deadline_s=ARRIVES_WITHIN_S,
        what=f"{expression} to be {value}",
    )


def _play(scorer: OnlineScorer) -> None:
    """One round of traffic: a chain with feedback from a person, a chain without documents, a bare model call, a run without an
    answer.
    """
    config: dict[str, Any] = {"callbacks": [scorer.handler]}
    run_id = uuid4()
    old, new = ({**config, "metadata": {"release": name}} for name in ("1.4", "1.5"))
    rag().invoke("What is the capital of France?", config={**old, "run_id": run_id})
    unit = scorer.unit_id(run_id)
    assert unit is not None
    for thumb in (False, True):  # a changed vote
        scorer.feedback(unit.trace_id, thumb, span_id=unit.span_id)
    (RunnableLambda(lambda question: f"Paris, {question}").with_config(run_name="small_talk")).invoke(
        "hi", config=config
    )
    model().invoke("What is the capital of France?", config=config, model="answerer-1")
    rag("Berlin is the capital of France.").invoke("What is the capital of France?", config=new)
    body = logs(result("tone", 0.75, "calm"), result("tone", 0.25))  # as others judge
    external = receivers_of(scorer).otlp_spans(Units()).external
    assert external is not None
    external.read_logs(results_in_logs(body))
    scorer.flush(10)


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every panel that asks something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the committed dashboards, uid → JSON."""
    files = sorted((INTEGRATIONS / "grafana" / "dashboards").glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def expressions(integration: str) -> list[str]:
    """Return the searches in the README of an integration: the code of the tables headed tags, filter or expression."""
    text = (INTEGRATIONS / integration / "README.md").read_text(encoding="utf-8")
    found: list[str] = []
    column = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            column = None
        elif column is None:
            column = next((n for n, cell in enumerate(cells) if cell in ASKABLE), len(cells))
        elif column < len(cells) and cells[column].startswith("`"):
            found.append(cells[column].strip("`").replace("\\|", "|"))
    return found
