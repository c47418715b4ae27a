"""People's labels correct a judge's pass rate, then teach it: a new evaluator version, a notice of it, and no page that quality
fell.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from langchain_core.runnables import RunnableLambda
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.cli.test_tune import answer
from tests.end_to_end.test_alert import SCRAPE, SHORTENED
from tests.metrics.kit.classroom import Pupil, labels, polite
from tests.servers import prometheus
from tests.servers.openai_api import OpenAIServer
from tests.servers.server import free_port, poll
from typer.testing import CliRunner

from spanscore import OnlineScorer
from spanscore.cli.main import app
from spanscore.config.monitoring import AlertSettings
from spanscore.core.codecs.otlp import json_line
from spanscore.core.sample import AnnotatedSample, SingleTurnSample
from spanscore.monitoring.rules import RULES, rule_files

BASELINE, MIN_DROP = 0.7, 0.1
"""The judge's mean before the fit; people's mean is .45, and so is the fitted judge's: by the numbers, a drop."""
LABELS = labels(160)
WITHIN_S = 90.0
ENOUGH = 200
"""Scores in the longest window: an alert on this drop asks for half as many."""
NEW_SERIES = "SpanscoreNewEvaluatorVersion"

CORRECTED = r"corrected by 160 human labels.*?: (\d+) % \((\d+) % to (\d+) %\); by the judge alone it is (\d+) %"

pytestmark = [pytest.mark.server, pytest.mark.timeout(480)]


class Desk:
    """The application: it answers as the labelled samples do, one after the other, and is scraped."""

    def __init__(self, config: Path, port: int) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource.create({"service.name": "desk"}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.scorer = OnlineScorer.from_config(config, tracer_provider=provider)
        self.scorer.serve_metrics(port)
        said = {
            one.sample.user_input: one.sample.response for one in LABELS if isinstance(one.sample, SingleTurnSample)
        }
        self._chain, self._questions = RunnableLambda(said.__getitem__), itertools.cycle(said)

    def ask(self) -> None:
        """Answer the next question."""
        self._chain.invoke(next(self._questions), config={"callbacks": [self.scorer.handler]})

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Answer some twenty questions a second."""
        over = Event()

        def asking() -> None:
            while not over.wait(0.05):
                self.ask()

        thread = Thread(target=asking, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class Story:
    """The parts of the story in the order of their creation.

    Attributes:
        config: of the judge as it was.
        taught: results of the judge that loads the fitted prompts.
        spans: exported spans of the application that answered each labelled question once.
    """

    def __init__(self, folder: Path, judge_url: str) -> None:
        self.folder = folder
        self.fitted = folder / "fitted.json"
        self.config = self._configured("spanscore.yaml", judge_url)
        self.taught = self._configured("taught.yaml", judge_url, prompts={"file": str(self.fitted)})
        self.spans, self.labels = folder / "spans.jsonl", folder / "labels.jsonl"

    def run(self, *arguments: Any) -> str:
        """Run the command line, and return its output."""
        done = CliRunner().invoke(app(arguments[0]), [*map(str, arguments)])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    def answer_all(self) -> None:
        """Answer each labelled question once; its spans and its labels become files."""
        desk = Desk(self.config, free_port())
        for _ in LABELS:
            desk.ask()
        assert desk.scorer.flush(60)
        desk.scorer.shutdown(10)
        spans = desk.exporter.get_finished_spans()
        self.spans.write_text(json_line(spans))
        units = sorted((span for span in spans if span.parent is None), key=lambda span: span.start_time or 0)
        self.labels.write_text("\n".join(map(_line, LABELS, units)))

    def _configured(self, name: str, judge_url: str, **parameters: Any) -> Path:
        judge = {"model": "openai:pupil", "base_url": judge_url, "api_key_env": "JUDGE_KEY"}
        critic = {"name": "polite", "definition": "The response is polite.", **parameters}
        path = self.folder / name
        path.write_text(json.dumps({"judge": judge, "metrics": [{"aspect_critic": critic}]}))
        return path


def _line(label: AnnotatedSample, unit: Any) -> str:
    assert label.sample is not None
    ids = {"trace_id": f"{unit.context.trace_id:032x}", "span_id": f"{unit.context.span_id:016x}"}
    return json.dumps({**label.sample.model_dump(exclude_none=True), "human": label.human, **ids})


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with OpenAIServer(answer) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGE_KEY", "none")
        made = Story(tmp_path_factory.mktemp("fitted"), server.url)
        made.answer_all()
        yield made


def test_labels_of_live_answers_correct_the_pass_rate_on_the_report_page(story: Story) -> None:
    calibration, page = story.folder / "calibration.json", story.folder / "report.html"
    people = 100 * sum(bool(one.human) for one in LABELS) / len(LABELS)

    story.run("calibrate", story.labels, "-m", "polite", "--scores", story.spans, "--out", calibration)
    story.run("report", story.spans, "--calibration", calibration, "--out", page)

    match = re.search(CORRECTED, page.read_text(encoding="utf-8").replace("\u00a0", " "))
    assert match is not None
    rate, low, high, raw = map(int, match.groups())
    assert low < people < high < raw
    assert abs(rate - people) < 3


def test_a_judge_that_labels_have_taught_is_a_new_series_and_no_drop(
    story: Story, prometheus: Any, tmp_path: Path
) -> None:
    story.run("tune", story.config, story.labels, "-m", "polite", "--candidates", "4", "--out", story.fitted)
    fitted = json.loads(story.fitted.read_text())
    assert fitted["kept"], fitted

    ports, rules = (free_port(), free_port()), {"rules.yml": _rules()}
    with prometheus.running(tmp_path, _scraping(ports), rules) as watch:
        before = _mean_of(fitted["evaluator_version_before"], story.config, ports[0], watch)
        reported: list[dict[str, Any]] = []
        after = _mean_of(
            fitted["evaluator_version"],
            story.taught,
            ports[1],
            watch,
            until=lambda: _noticed(watch, reported) and bool(watch.query(_a_drop_of_any_series())),
        )
        dropped = watch.query('count_over_time(ALERTS{alertname="SpanscoreQualityDrop"}[15m])')

    assert after < BASELINE - MIN_DROP < before
    assert ": version 3+" in reported[0]["annotations"]["description"]
    assert dropped == []


def _mean_of(
    evaluator_version: str,
    config: Path,
    port: int,
    watch: prometheus.Prometheus,
    until: Callable[[], bool] = lambda: True,
) -> float:
    """Run the application by a configuration until there are scores enough to alert on, and return their mean."""
    desk, found = Desk(config, port), [0.0]

    def enough() -> bool:
        noticed = until()  # asked each time: a notice ends by itself
        found[0] = _recorded(watch, "mean", evaluator_version)
        return _recorded(watch, "n_eff", evaluator_version) > ENOUGH and noticed

    try:
        with desk.busy():
            poll(enough, deadline_s=WITHIN_S, what=f"{ENOUGH} scores by {config.name}, and what is to be told of them")
    finally:
        desk.scorer.shutdown(10)
    return found[0]


def _recorded(watch: prometheus.Prometheus, what: str, evaluator_version: str) -> float:
    of = f'gen_ai_evaluation_name="polite",spanscore_evaluator_version="{evaluator_version}",window="40s"'
    found = watch.query(f"spanscore:{what}{{{of}}}")
    return float(found[0]["value"][1]) if found else 0.0


def _noticed(watch: prometheus.Prometheus, alerts: list[dict[str, Any]]) -> bool:
    alerts += [one for one in watch.alerts() if one["labels"]["alertname"] == NEW_SERIES and one["state"] == "firing"]
    return bool(alerts)


def _scraping(ports: Sequence[int]) -> str:
    """Return a Prometheus configuration that scrapes the application, whichever of its releases runs."""
    targets = [{"targets": [f"127.0.0.1:{port}"]} for port in ports]
    return json.dumps({"global": SCRAPE, "scrape_configs": [{"job_name": "desk", "static_configs": targets}]})


def _rules() -> str:
    alerts = {"polite": AlertSettings(baseline=BASELINE, min_drop=MIN_DROP, false_alarm_every=3_600.0)}
    return rule_files(alerts, [polite(Pupil())], SHORTENED)[RULES]


def _a_drop_of_any_series() -> str:
    """Return the apparent drop, as if it were one of a watched evaluator version."""
    rules = [rule for group in yaml.safe_load(_rules())["groups"] for rule in group["rules"]]
    (drop,) = (rule["expr"] for rule in rules if rule.get("record") == "spanscore:dropped")
    evidence, _, watched = str(drop).rpartition("\nand on")
    assert "spanscore:watched" in watched
    return evidence
