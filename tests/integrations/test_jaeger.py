"""Jaeger warns of no span of spanscore: none is corrected, outside its parent or repeated."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.live import QUESTION, Failing, Grounded, Held, rag
from tests.servers.jaeger import Jaeger, Traces

from spanscore import OnlineScorer, SingleTurnSample, metric
from spanscore.config import Outputs, Units

pytestmark = pytest.mark.server

SERVICE = "harbour"
SAMPLE = SingleTurnSample(user_input=QUESTION, response="Paris.", retrieved_contexts=["Paris."])
PLAYED = 5
"""Traces: a chain, an agent, a failure, a sample by hand, and a request with two such and two chains that take no time."""


@tool
def tide(port: str) -> str:
    """Tell the tide."""
    return f"high in {port}"


class Pilot(GenericFakeChatModel):
    """Returns the scripted messages, and accepts tools."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


def _agent() -> Any:
    call = {"name": "tide", "args": {"port": "Brest"}, "id": "1"}
    said = iter([AIMessage("", tool_calls=[call]), AIMessage("High.")])
    return create_agent(Pilot(messages=said), [tide], name="pilot")


@metric
def found_paris(sample: Any) -> bool:
    """Whether an answer, or the question of a retriever, is about France."""
    return sample.response is not None or "France" in sample.user_input


def _breaks(_: str) -> str:
    raise ValueError("broken")


def _play(scorer: OnlineScorer, provider: TracerProvider) -> None:
    config: Any = {"callbacks": [scorer.handler]}
    rag().invoke(QUESTION, config=config)
    _agent().invoke({"messages": [("user", "When is high tide in Brest?")]}, config=config)
    with suppress(ValueError):
        RunnableLambda(_breaks).invoke(QUESTION, config=config)
    scorer.submit(SAMPLE)
    with provider.get_tracer("app").start_as_current_span("POST /chat"):
        scorer.submit(SAMPLE)
        scorer.submit(SAMPLE)
        for _ in range(2):
            RunnableLambda(str.upper).invoke("", config=config)


@pytest.fixture(scope="module")
def traces(jaeger: Jaeger) -> Traces:
    """All that Jaeger holds of the service: scores in time, late ones, failed ones, and such that have no value."""
    provider = TracerProvider(resource=Resource({"service.name": SERVICE}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(jaeger.traces_endpoint)))
    late = threading.Event()
    metrics = [Grounded(), Failing(ValueError("no"), "failing"), Failing(None, "undefined"), Held(late, "late")]
    with OnlineScorer(metrics, tracer_provider=provider, outputs=Outputs(hold=0.2)) as scorer:
        _play(scorer, provider)
        assert not scorer.flush(1)
        late.set()
        assert scorer.flush(10)
    provider.shutdown()
    return jaeger.search(SERVICE, {}, lambda traces: len(traces) == PLAYED)


def _spans(traces: Traces) -> list[dict[str, Any]]:
    return [span for trace in traces for span in trace["spans"]]


def test_jaeger_warns_of_no_span(traces: Traces) -> None:
    warned = [(span["operationName"], span["warnings"]) for span in _spans(traces) if span["warnings"]]

    assert warned == []
    assert [trace["warnings"] for trace in traces if trace["warnings"]] == []


def test_jaeger_holds_no_span_twice(traces: Traces) -> None:
    times = Counter((span["traceID"], span["spanID"]) for span in _spans(traces))

    assert set(times.values()) == {1}


def test_every_kind_of_score_is_among_what_jaeger_was_sent(jaeger: Jaeger, traces: Traces) -> None:
    evaluations = Counter(span["operationName"] for span in _spans(traces) if span["operationName"].startswith("eval"))

    assert evaluations.keys() >= {f"evaluation {name}" for name in ("grounded", "failing", "undefined", "late")}
    assert evaluations["evaluation late"] == 4  # units with contexts: the chain and the samples
    assert len(jaeger.search(SERVICE, {"spanscore.status": "pending"})) == 3  # two of them are in one request


def test_jaeger_finds_a_retriever_span_by_its_own_verdict(jaeger: Jaeger) -> None:
    service = f"{SERVICE}-inner"
    provider = TracerProvider(resource=Resource({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(jaeger.traces_endpoint)))
    units = Units(also=[{"kind": "retriever", "metrics": ["found_paris"]}])
    with OnlineScorer([found_paris], tracer_provider=provider, units=units) as scorer:
        for question in (QUESTION, "Where is Rome?"):
            rag().invoke(question, config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)
    provider.shutdown()

    everything = jaeger.search(service, {}, lambda traces: len(traces) == 2)
    tags = {"gen_ai.operation.name": "retrieval", "spanscore.verdict": "fail"}
    (trace,) = jaeger.search(service, tags, lambda traces: len(traces) == 1)

    (root,) = [span for span in trace["spans"] if not span["references"]]
    assert _tag(root, "spanscore.verdict") == "pass"
    (retriever,) = [span for span in trace["spans"] if span["operationName"].startswith("retrieval")]
    assert _tag(retriever, "spanscore.evaluation.source") == "inner"
    assert [span["warnings"] for span in _spans(everything) if span["warnings"]] == []


def _tag(span: dict[str, Any], key: str) -> Any:
    return next((tag["value"] for tag in span["tags"] if tag["key"] == key), None)
