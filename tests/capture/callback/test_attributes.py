"""The attributes of a captured span, for readers of both conventions."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor
from tests.capture.callback.tree import captured
from tests.core.codecs.test_sdk import ended
from tests.live import CONTEXT, QUESTION, Grounded, a_line, a_trace, model, rag

from spanscore import SingleTurnSample, semconv
from spanscore.config import Capture, Outputs, Sampling
from spanscore.core.codecs.sdk import span_data

FLAT = "retrieval.documents."


class Shelf(BaseRetriever):
    """Returns the requested number of documents."""

    found: list[Document]

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return self.found


def shelf(documents: int) -> Shelf:
    return Shelf(found=[Document(f"text {n}", id=f"doc-{n}", metadata={"score": n / 64}) for n in range(documents)])


@tool
def look_up(key: str) -> str:
    """Look a key up."""
    return key


def kinds(run: Any) -> dict[str, str]:
    return {span.name: span.attributes.get("openinference.span.kind") for span in run.spans}


@pytest.mark.parametrize("content", [False, True])
def test_every_span_tells_openinferences_kind(content: bool) -> None:
    def answer(question: str) -> str:
        look_up.invoke({"key": "a"})
        return question

    with captured(capture=Capture(content=content)) as run:
        (RunnableLambda(answer) | rag()).invoke(QUESTION, config=run.config(run_name="support"))

    assert kinds(run) == {
        "invoke_workflow support": "CHAIN",
        "execute_tool look_up": "TOOL",
        "retrieval Library": "RETRIEVER",
        "chat GenericFakeChatModel": "LLM",
    }


def test_steps_are_chains_and_agents_agents() -> None:
    agents = pytest.importorskip("langchain.agents")
    with captured(capture=Capture(all_runs=True)) as run:
        agents.create_agent(model(), name="clerk").invoke({"messages": [HumanMessage("hi")]}, config=run.config())

    found = kinds(run)
    assert found.pop("invoke_agent clerk") == "AGENT"
    assert found.pop("chat GenericFakeChatModel") == "LLM"
    assert found
    assert set(found.values()) == {"CHAIN"}


def test_the_span_of_a_submitted_sample_is_a_chain() -> None:
    with a_line() as (scorer, trace):
        scorer.submit(SingleTurnSample(user_input=QUESTION, response="Paris", retrieved_contexts=["Paris"]))
        assert scorer.flush(5)

    (span,) = trace.named("sample")
    assert span.attributes["openinference.span.kind"] == "CHAIN"


def test_a_root_that_outlives_its_scorer_has_its_kind() -> None:
    with a_line() as (scorer, trace):
        chain = RunnableLambda(lambda _: scorer.shutdown(timeout=2))
        chain.invoke("x", config={"callbacks": [scorer.handler]})

    (root,) = trace.roots
    assert (root.attributes["spanscore.outcome.grounded"], root.attributes["openinference.span.kind"]) == (
        "shutdown",
        "CHAIN",
    )


def test_every_name_on_a_span_is_one_that_semconv_knows() -> None:
    def answer(question: str) -> str:
        look_up.invoke({"key": "a"})
        return str(rag().invoke(question))

    with captured(
        Grounded(),
        Grounded("dear"),
        sampling=Sampling(rates={"dear": 0.0}),
        capture=Capture(content=True, all_runs=True),
    ) as run:
        config = run.config(metadata={"thread_id": "t"})
        RunnableLambda(answer).invoke(QUESTION, config=config)
        model().invoke(QUESTION, config=config)
        shelf(3).invoke(QUESTION, config=config)

    known = {value for value in vars(semconv).values() if isinstance(value, str)}
    families = tuple(name for name in known if name.endswith("."))
    names = {name for span in run.trace.spans for name in span.attributes}
    assert {name for name in names - known if not name.startswith(families)} == set()


# --- retrieved documents ------------------------------------------------------------------------------------------


def flat(span: Any) -> dict[str, Any]:
    return {name: value for name, value in span.attributes.items() if name.startswith(FLAT)}


def test_retrieved_documents_are_written_flat_too_with_what_is_there_of_them() -> None:
    found = [Document("a", id="1", metadata={"score": 0.5}), Document("[b]"), Document("c", metadata={"score": "high"})]
    with captured(capture=Capture(content=True)) as run:
        Shelf(found=found).invoke(QUESTION, config=run.config())

    assert flat(run.span("retrieval")) == {
        "retrieval.documents.0.document.id": "1",
        "retrieval.documents.0.document.content": "a",
        "retrieval.documents.0.document.score": 0.5,
        "retrieval.documents.1.document.content": "[b]",
        "retrieval.documents.2.document.content": "c",
    }


def test_documents_stay_home_with_content_off() -> None:
    with captured() as run:
        rag().invoke(QUESTION, config=run.config())

    assert flat(run.span("retrieval")) == {}
    assert CONTEXT not in run.trace.text()


def test_flat_documents_are_redacted_and_fail_closed() -> None:
    def fails(text: str) -> str:
        raise ValueError(text)

    seen = []
    for redactor in (str.upper, fails):
        with captured(capture=Capture(content=True), redactor=redactor) as run:
            shelf(1).invoke(QUESTION, config=run.config())
        seen.append(flat(run.span("retrieval")))

    prefix = "retrieval.documents.0.document."
    assert seen == [{f"{prefix}id": "DOC-0", f"{prefix}content": "TEXT 0", f"{prefix}score": 0.0}, {}]


class Looks(SpanProcessor):
    """Looks at starts: with it a span is the SDK's own from its start on."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        span.set_attribute("app.tenant", "acme")


# Attributes that a span keeps → documents on a child and on a root, whose scores follow: room is left for all other attributes.
KEPT = {128: (20, 20), 64: (9, 8), 48: (4, 2), 24: (0, 0), None: (20, 20)}


@pytest.mark.parametrize("most", KEPT)
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("as_root", [False, True])
def test_no_document_costs_a_span_another_attribute(
    most: int | None, watched: bool, as_root: bool, caplog: pytest.LogCaptureFixture
) -> None:
    trace = a_trace(span_limits=SpanLimits(max_span_attributes=SpanLimits.UNSET if most is None else most))
    if watched:
        trace.provider.add_span_processor(Looks())
    chain = shelf(45) if as_root else shelf(45) | RunnableLambda(str)
    with captured(
        trace=trace,
        capture=Capture(content=True),
        outputs=Outputs(evaluation_span=False, event=False, instruments=False),
    ) as run:
        chain.invoke(QUESTION, config=run.config())

    span = run.span("retrieval")
    rows = {name.split(".")[2] for name in flat(span)}
    assert len(rows) == KEPT[most][as_root]
    assert span.attributes["gen_ai.operation.name"] == "retrieval"
    assert (span.dropped_attributes, caplog.records) == (0, [])


def test_the_scores_of_many_metrics_find_their_room(caplog: pytest.LogCaptureFixture) -> None:
    metrics = [Grounded(f"grounded_{n}") for n in range(25)]
    with captured(*metrics, capture=Capture(content=True)) as run:
        shelf(45).invoke(QUESTION, config=run.config())

    (root,) = run.trace.roots
    assert len({name.split(".")[2] for name in flat(root)}) == 5
    assert root.attributes["spanscore.status"] == "not_scored"
    assert (root.dropped_attributes, caplog.records) == (0, [])


def test_documents_stand_before_all_else() -> None:
    with captured(capture=Capture(content=True)) as run:
        (shelf(2) | RunnableLambda(str)).invoke(QUESTION, config=run.config())

    names = list(run.span("retrieval").attributes)
    assert [name for name in names if name.startswith(FLAT)] == names[:6]


def test_what_a_judge_reads_is_not_the_flat_form() -> None:
    metric = Grounded()
    with captured(metric, capture=Capture(content=True)) as run:
        rag().invoke(QUESTION, config=run.config())

    (sample,) = metric.seen
    assert sample.retrieved_contexts == [CONTEXT]


def test_flat_documents_are_content_wherever_they_came_from() -> None:
    span = span_data(ended({f"{FLAT}0.document.content": "[1]", f"{FLAT}0.document.score": 0.5, "app.x": 1}))

    assert dict(span.attributes) == {f"{FLAT}0.document.content": "[1]", f"{FLAT}0.document.score": 0.5, "app.x": 1}
    assert span.without_content().attributes == {"app.x": 1}


# --- conversations ------------------------------------------------------------------------------------------------


def conversations(run: Any) -> dict[str, Any]:
    return {span.name: span.attributes.get("gen_ai.conversation.id") for span in run.spans}


def answering() -> Any:
    def answer(question: str) -> str:
        look_up.invoke({"key": "a"})
        return question

    return RunnableLambda(answer) | rag()


def test_models_and_retrievers_tell_the_conversation_of_their_root() -> None:
    with captured() as run:
        answering().invoke(QUESTION, config=run.config(run_name="support", metadata={"thread_id": "t-1"}))

    assert conversations(run) == {
        "invoke_workflow support": "t-1",
        "execute_tool look_up": None,
        "retrieval Library": "t-1",
        "chat GenericFakeChatModel": "t-1",
    }


@pytest.mark.parametrize(("redactor", "left"), [(str.upper, "T-1"), (lambda text: 1 / 0, None)])
def test_a_conversation_is_redacted_on_every_span(redactor: Any, left: str | None) -> None:
    with captured(redactor=redactor) as run:
        answering().invoke(QUESTION, config=run.config(metadata={"thread_id": "t-1"}))

    assert set(conversations(run).values()) == {left, None}
    assert "t-1" not in run.trace.text()


def test_tokens_written_to_a_cache_are_reported_under_both_names() -> None:
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10, "input_token_details": {"cache_creation": 4}}
    said = GenericFakeChatModel(messages=iter([AIMessage("hi", usage_metadata=usage)]))
    with captured() as run:
        said.invoke(QUESTION, config=run.config())

    found = {name: value for name, value in run.span("chat").attributes.items() if ".cache_" in name}
    assert found == dict.fromkeys(
        ("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens"), 4
    )
