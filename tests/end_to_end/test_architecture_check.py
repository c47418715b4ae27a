"""The architecture check, over a real trace store: Phoenix, with a loopback receiver in front that counts span ids."""

from __future__ import annotations

from collections import Counter

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.live import Grounded, Library, Slow
from tests.servers.otlp import OtlpReceiver

from spanscore import OnlineScorer
from spanscore.config import Outputs

TEXTS = ("first question", "second question", "Paris", "France", "edited", "late answer")


def answer_with_documents(inputs):
    """A chain step that returns its working state, as applications do."""
    documents = Library().invoke(inputs["question"])
    return {"documents": documents, "messages": [HumanMessage(inputs["question"]), AIMessage("Paris it is")]}


def edit(result, messages):
    result["documents"][0].page_content = "edited"
    result["messages"][1].content = "edited"
    result.clear()
    messages.append(HumanMessage("edited"))


@pytest.mark.server
@pytest.mark.timeout(180)
def test_scores_of_the_original_text_reach_a_real_store_each_span_once(phoenix):
    with OtlpReceiver(forward_to=phoenix.url) as receiver:
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{receiver.endpoint}/v1/traces")))
        metric, late = Grounded(), Slow(1.5, name="late")
        scorer = OnlineScorer([metric], tracer_provider=provider)
        slow_scorer = OnlineScorer([late], tracer_provider=provider, outputs=Outputs(hold=0.2))

        with provider.get_tracer("app").start_as_current_span("POST /chat") as ambient:
            for question in ("first question", "second question"):
                messages = [HumanMessage(question)]
                inputs = {"question": question, "messages": messages}
                result = RunnableLambda(answer_with_documents).invoke(inputs, config={"callbacks": [scorer.handler]})
                edit(result, messages)
                provider.force_flush()
        RunnableLambda(answer_with_documents).invoke({"question": "late"}, config={"callbacks": [slow_scorer.handler]})
        assert scorer.flush(10)
        assert slow_scorer.flush(10)
        provider.force_flush()

        trace_id = ambient.get_span_context().trace_id
        stored = phoenix.spans(trace_id, lambda spans: len(spans) == 7)
        late_trace = next(s.trace_id for s in receiver.spans if s.name == "evaluation late")
        late_stored = phoenix.spans(late_trace, lambda spans: len(spans) == 3)
        scorer.shutdown()
        slow_scorer.shutdown()
        provider.shutdown()

    assert [(s.user_input, s.response) for s in metric.seen] == [
        ("first question", "Paris it is"),
        ("second question", "Paris it is"),
    ]
    roots = [s for s in stored if s["name"].startswith("invoke_workflow")]
    assert len(roots) == 2
    assert all(s["attributes"]["spanscore.score.grounded"] == 1.0 for s in roots)
    assert all(s["attributes"]["spanscore.status"] == "scored" for s in roots)
    by_name = {s["name"]: s["attributes"] for s in late_stored}
    assert by_name["invoke_workflow answer_with_documents"]["spanscore.status"] == "pending"
    assert by_name["evaluation late"]["spanscore.score.late"] == 1.0
    assert not [text for text in TEXTS for s in receiver.spans if text in str(dict(s.attributes))]
    assert max(Counter(s.span_id for s in receiver.spans).values()) == 1
