"""Live runs that a replay must find again: their exports, decisions, names and scores."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from opentelemetry.sdk.resources import Resource
from tests.live import QUESTION, a_trace, rag
from typer.testing import CliRunner

from spanscore import OnlineScorer, semconv
from spanscore.cli.main import app
from spanscore.core.codecs.otlp import json_line, read_spans
from spanscore.core.span import SpanData

CONFIG = """\
judge: {model: lexical}
metrics: [faithfulness, response_relevancy]
sampling:
  rate: 0.3
  rules:
    - {when: {metadata: {user_tier: gold}}, rate: 0.7, name: gold}
    - {when: {slower_than: 30ms}, rate: 0.9, name: slow}
    - {when: {status: error}, rate: 0.8, name: failed}
    - {when: {any_error: true}, rate: 0.75, name: inside}
capture: {metadata: [user_tier], content: true, score_failed: true}
"""
"""Rules on metadata, duration, status, and on errors of steps that have no span; a judge that costs nothing."""
SERVICE = "replayed-bot"
UNITS, FEW = 200, 40

Scored = dict[tuple[int, int, str], dict[str, Any]]


@dataclass(frozen=True)
class LiveRuns:
    """The results of live runs.

    Attributes:
        spans: that left, evaluations included.
        scored: values of each evaluation span that must be found again.
    """

    spans: list[Any]
    scored: Scored

    def lines(self, *, scores: bool) -> list[str]:
        """Return a line per span, as they came; ``scores``: those of evaluations, too."""
        return [json_line([span]) for span in self.spans if scores or span.instrumentation_scope.name != semconv.SCOPE]


def configuration(folder: Path, more: str = "") -> Path:
    """Return a file with the configuration."""
    file = folder / "spanscore.yaml"
    file.write_text(CONFIG + more)
    return file


def asking(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, more: str = "") -> Path:
    """Return a configuration with a judge model at this address."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    file = folder / "asking.yaml"
    judge = f"judge: {{model: openai:gpt-x, base_url: '{url}'}}"
    file.write_text(f"{judge}\nmetrics: [faithfulness]\ncapture: {{score_failed: true}}\n{more}")
    return file


def live_runs(config: Path, units: int) -> LiveRuns:
    """Run so many units through a scorer: a fifth gold, a tenth each slow, failed, and failed inside."""
    trace = a_trace(resource=Resource({"service.name": SERVICE}))
    scorer = OnlineScorer.from_config(config, tracer_provider=trace.provider)
    for number in range(units):
        metadata = {"user_tier": "gold" if number % 5 == 0 else "free", "unlisted": number}
        with suppress(ZeroDivisionError):
            _chain(number).invoke(QUESTION, config={"callbacks": [scorer.handler], "metadata": metadata})
        if number % 100 == 0:
            assert scorer.flush(30)
    assert scorer.flush(30)
    assert scorer.shutdown(5)
    return LiveRuns(trace.spans, scored_in(span for span in read_spans(map(_line, trace.evaluations))))


def scored_in(spans: Iterable[SpanData]) -> Scored:
    """Return the content of evaluation spans: by unit and metric the ids, the decision, and the score."""
    result = (
        *(semconv.SCORE_ID, semconv.SCORE_REVISION, semconv.SAMPLING_THRESHOLD, semconv.SAMPLING_RULE, semconv.OUTCOME),
        *(
            semconv.EVALUATION_SCORE_VALUE,
            semconv.EVALUATION_SCORE_LABEL,
            semconv.EVALUATOR_VERSION,
            semconv.METRIC_VERSION,
        ),
    )
    return {
        (span.trace_id, span.parent_id or 0, span.attributes[semconv.EVALUATION_NAME]): {
            "span_id": span.span_id,
            "at": (span.start_ns, span.end_ns),
            "probability": span.attributes.get(semconv.PROBABILITY + span.attributes[semconv.EVALUATION_NAME]),
            **{name: span.attributes.get(name) for name in result},
        }
        for span in spans
        if span.scope == semconv.SCOPE
    }


def replayed(config: Path, source: str, *more: str) -> dict[str, Any]:
    """Return the output of the command."""
    done = CliRunner().invoke(app("replay"), ["replay", str(config), source, "--json", *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _chain(number: int) -> Any:
    if number % 10 == 1:
        return rag() | RunnableLambda(_slowly)
    if number % 10 == 2:
        return rag() | RunnableLambda(_failing)
    return rag() | RunnableLambda(_failing).with_fallbacks([RunnableLambda(str)]) if number % 10 == 3 else rag()


def _slowly(answer: str) -> str:
    time.sleep(0.035)
    return answer


def _failing(answer: str) -> str:
    return str(1 / 0)


def _line(span: Any) -> str:
    return json_line([span])
