"""Inner units are the same by every receiver: the same spans, with the same decisions and ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.live import EXTERNAL, a_line, run_rag
from tests.stored.live_runs import replayed, scored_in

from spanscore import ScoringSpanProcessor, metric, semconv
from spanscore.config import Capture, Rule, RuleCondition, Sampling, Units
from spanscore.core.codecs.otlp import json_line, read_spans
from spanscore.core.codecs.otlp_request import parse_request
from spanscore.scorer import receivers_of
from spanscore.stored.replay import Journal

RUNS = 40
ALSO = [{"kind": "retriever", "rate": 0.6}, {"kind": "chat", "rate": 0.5}]
SAMPLING = Sampling(rate=0.3, rules=[Rule(when=RuleCondition(status="error"), rate=0.7, name="failed")])
OPTIONS: dict[str, Any] = {"units": Units(also=ALSO, idle_timeout=0), "sampling": SAMPLING}


@metric
def polite(sample) -> bool:
    return True


def scored(spans: Sequence[Any]) -> dict[Any, Any]:
    """Return (trace, span, metric) of each score → id and threshold."""
    found = scored_in(read_spans(map(json_line, ([span] for span in spans))))
    return {at: (score[semconv.SCORE_ID], score[semconv.SAMPLING_THRESHOLD]) for at, score in found.items()}


def of_application(trace: Any) -> list[Any]:
    return [span for span in trace.spans if span.instrumentation_scope.name != semconv.SCOPE]


@contextmanager
def called() -> Iterator[Any]:
    """Runs of the callback."""
    with a_line(polite, capture=Capture(content=True), **OPTIONS) as (scorer, trace):
        run_rag(scorer, RUNS)
        yield trace


@contextmanager
def traced() -> Iterator[Any]:
    """Spans of another instrumentation, by the processor."""
    with a_line(polite, **OPTIONS) as (scorer, trace):
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(ScoringSpanProcessor(scorer, SimpleSpanProcessor(exporter)))
        tracer = provider.get_tracer(EXTERNAL)
        for _ in range(RUNS):
            with tracer.start_as_current_span("invoke_agent a", attributes=_agent()):
                with tracer.start_as_current_span("retrieval docs", attributes=_retrieval()):
                    pass
                with tracer.start_as_current_span("chat m", attributes=_chat()):
                    pass
        assert scorer.flush(20)
        for span in exporter.get_finished_spans():
            trace.exporter.export([span])
        yield trace


def _agent() -> dict[str, Any]:
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a", **_texts()}


def _chat() -> dict[str, Any]:
    return {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **_texts()}


def _texts() -> dict[str, Any]:
    return {
        "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"Why?"}]}]',
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"So."}]}]',
    }


def _retrieval() -> dict[str, Any]:
    documents = '[{"id":"1","content":"It is so."}]'
    return {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.query.text": "Why?",
        "gen_ai.retrieval.documents": documents,
    }


SOURCES = {"callback": called, "processor": traced}


@pytest.mark.parametrize("source", SOURCES)
def test_the_same_spans_over_otlp_have_the_same_scores(source: str) -> None:
    with SOURCES[source]() as trace, a_line(polite, **OPTIONS) as (scorer, other):
        receivers_of(scorer).otlp_spans(OPTIONS["units"]).accept(
            parse_request(encode_spans(of_application(trace)).SerializeToString())
        )
        assert scorer.flush(20)

        live = scored(trace.evaluations)
        assert scored(other.evaluations) == live
        kinds = {span.attributes.get(semconv.UNIT_KIND) for span in trace.evaluations}
        assert kinds == {None, "retriever", "chat"}


@pytest.mark.parametrize("source", SOURCES)
def test_a_replay_finds_the_same_inner_units(source: str, tmp_path: Path) -> None:
    config = _configuration(tmp_path)
    with SOURCES[source]() as trace:
        (tmp_path / "spans.jsonl").write_text("".join(json_line([span]) for span in of_application(trace)))
        replayed(config, str(tmp_path / "spans.jsonl"), "--out", str(tmp_path / "out"))

        journal = Journal.spans(tmp_path / "out" / "scores.jsonl")
        found = {
            at: (score[semconv.SCORE_ID], score[semconv.SAMPLING_THRESHOLD]) for at, score in scored_in(journal).items()
        }
        assert found == scored(trace.evaluations)


def test_a_replay_does_not_score_again_what_the_store_has(tmp_path: Path) -> None:
    config = _configuration(tmp_path)
    with called() as trace:
        (tmp_path / "spans.jsonl").write_text("".join(json_line([span]) for span in trace.spans))

        replay = replayed(config, str(tmp_path / "spans.jsonl"), "--out", str(tmp_path / "out"))

    assert replay["outcomes"] == {}


def _configuration(folder: Path) -> Path:
    file = folder / "spanscore.yaml"
    file.write_text(
        "metrics: ['tests.wiring.test_inner_receivers:polite']\n"
        "units: {also: [{kind: retriever, rate: 0.6}, {kind: chat, rate: 0.5}]}\n"
        "sampling: {rate: 0.3, rules: [{when: {status: error}, rate: 0.7, name: failed}]}\n"
    )
    return file
