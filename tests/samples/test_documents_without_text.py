"""Documents with unknown text, and documents in every form that retrievers return."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from tests.pipeline.parts import a_job, scores_of
from tests.samples.builders import chat, retriever, root, unit
from tests.samples.normalizers.spans import content_of, external, samples_of

from spanscore import semconv
from spanscore.core.sample import Samples
from spanscore.core.span import Unit
from spanscore.metrics import Faithfulness
from spanscore.pipeline.evaluation import Evaluation
from spanscore.samples import contexts as recovered
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.texts import RetrievedDocument
from spanscore.samples.view import ModelRun, ToolRun

QUESTION = "When was the bridge opened?"
ANSWER = "The bridge was opened in 1931."
FIRST, SECOND = "The bridge was opened in 1931.", "The king came by boat.\nIt rained."
IDS = [{"id": "d1", "score": 0.9}, {"id": "d2", "score": None}]
LACK = "documents have ids and no text"
ROOT = {"gen_ai.operation.name": "invoke_workflow"}


def said(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


WHOLE = {**ROOT, "gen_ai.input.messages": said("user", QUESTION), "gen_ai.output.messages": said("assistant", ANSWER)}


def sample(documents: Any, *chats: dict[str, Any], inside: dict[str, Any] | None = None, **retrieval: Any) -> Samples:
    """The samples of a workflow that retrieves documents, inside a tool or not, and asks a model."""
    found = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.documents": json.dumps(documents),
        **retrieval,
    }
    spans = [(WHOLE, None), (found, 1 if inside is None else 3), *((one, 1) for one in chats)]
    spans[2:2] = [] if inside is None else [(inside, 1)]
    numbered = enumerate(spans, start=1)
    return samples_of(
        *(external(one, trace_id=1, span_id=at, parent_id=above, start_ns=at) for at, (one, above) in numbered)
    )


def asked(system: str = "Be brief.", user: str = QUESTION, **more: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    talk = {"gen_ai.input.messages": json.dumps(messages), "gen_ai.output.messages": said("assistant", ANSWER)}
    variables = {f"gen_ai.prompt.variable.{name}": value for name, value in more.items()}
    return {"gen_ai.operation.name": "chat", **talk, **variables}


def contexts(made: Samples) -> tuple[list[str] | None, Any]:
    assert made.single_turn is not None
    return made.single_turn.retrieved_contexts, made.single_turn.retrieved_context_ids


@pytest.mark.parametrize(
    ("documents", "ids"),
    [
        (IDS, ["d1", "d2"]),
        ([{"id": "d1"}], ["d1"]),
        ([{"id": "d1", "content": FIRST}, {"id": "d2", "score": 0.5}], ["d1", "d2"]),
        ([{"id": "d1", "content": ""}], ["d1"]),
        ([{"id": "d1", "content": None}, {"id": "d2", "page_content": ""}], ["d1", "d2"]),
        ([json.dumps(document) for document in IDS], ["d1", "d2"]),
        ([{"score": 0.9}], None),
        ([{"content": FIRST}, {"uri": "a.md"}], None),
    ],
)
def test_contexts_are_unknown_if_the_text_of_one_document_is_unknown(documents: Any, ids: Any) -> None:
    made = sample(documents)

    assert contexts(made) == (None, ids)
    assert made.unused_documents is None
    assert (LACK if ids else "documents have no text") in dict(made.searched)["retrieved_contexts"]


async def test_the_outcome_is_a_missing_field_and_says_what_the_documents_lack() -> None:
    metric = Faithfulness("lexical")

    job = replace(a_job(metric.name), samples=sample(IDS))
    [score] = await scores_of(Evaluation({metric.name: metric}), job)

    assert score.outcome == "missing_field"
    assert LACK in str(score.reason)


@pytest.mark.parametrize(
    ("documents", "texts", "ids"),
    [
        ([], [], []),
        ([{"id": 1, "content": FIRST}], [FIRST], [1]),
        ([FIRST, SECOND], [FIRST, SECOND], None),
        ([{"content": [{"type": "text", "text": FIRST}], "id": "d1"}], [FIRST], ["d1"]),
        ([{"content": {"text": FIRST, "type": "TEXT"}, "score": 0.9}], [FIRST], None),
        ([{"node": {"text": FIRST}, "id": "d1", "score": 0.9}], [FIRST], ["d1"]),
        ([json.dumps({"id": "d1", "text": FIRST})], [FIRST], ["d1"]),
        (['{"a": "chunk of JSON"}'], ['{"a": "chunk of JSON"}'], None),
    ],
)
def test_documents_with_a_text_are_contexts_in_whatever_form(documents: Any, texts: Any, ids: Any) -> None:
    assert contexts(sample(documents)) == (texts, ids)


@pytest.mark.parametrize(
    "variables",
    [
        {"context": f"{FIRST}\n\n{SECOND}", "question": QUESTION},
        {"docs": json.dumps([{"page_content": FIRST, "id": "d1"}, {"page_content": SECOND, "id": "d2"}])},
        {"documents": json.dumps([FIRST, SECOND])},
    ],
)
def test_a_variable_of_the_prompt_gives_the_documents_their_texts(variables: dict[str, str]) -> None:
    made = sample(IDS, asked(f"Answer from the context.\n\n{FIRST}\n\n{SECOND}", **variables))

    assert contexts(made) == ([FIRST, SECOND], ["d1", "d2"])
    assert made.unused_documents == 0


def test_documents_that_stand_in_one_text_are_one_context_and_keep_their_ids() -> None:
    together = f"{FIRST} {SECOND}"

    made = sample(IDS, asked(context=together))

    assert contexts(made) == ([together], ["d1", "d2"])
    assert made.unused_documents is None


def test_a_variable_with_fewer_documents_leaves_the_others_out() -> None:
    made = sample(IDS, asked(context=json.dumps([{"page_content": SECOND, "id": "d2"}])))

    assert (contexts(made), made.unused_documents) == (([SECOND], ["d2"]), 1)


def test_a_variable_for_something_else_is_no_context() -> None:
    assert contexts(sample(IDS, asked(question=QUESTION, tone="friendly"))) == (None, ["d1", "d2"])


@pytest.mark.parametrize(
    "prompt",
    [
        {"system": f"<context>\n{FIRST}\n\n{SECOND}\n</context>\nBe brief."},
        {"user": f"<documents>{FIRST}\n\n{SECOND}</documents>\n{QUESTION}"},
        {"user": f"Context: {FIRST}\n\n{SECOND}\n\nQuestion: {QUESTION}\nAnswer:"},
        {"user": f"Question: {QUESTION}\n\n## Retrieved documents:\n{FIRST}\n\n{SECOND}\n\nHelpful answer:"},
        {"system": f"You are a guide.\nUse the following context to answer:\n\n{FIRST}\n\n{SECOND}"},
    ],
)
def test_a_marked_part_of_the_answers_prompt_gives_the_documents_their_texts(prompt: dict[str, str]) -> None:
    assert contexts(sample(IDS, asked(**prompt))) == ([FIRST, SECOND], ["d1", "d2"])


def test_a_question_that_a_document_holds_does_not_end_the_marked_part() -> None:
    pages = "Question: Who came?\nAnswer: The king."

    assert contexts(sample(IDS[:1], asked(f"Context:\n{pages}"))) == ([pages], ["d1"])
    assert contexts(sample(IDS[:1], asked(user=f"Context:\n{pages}\n\nQuestion: {QUESTION}"))) == ([pages], ["d1"])


@pytest.mark.parametrize(
    "system", [f"Answer from the context.\n\n{FIRST}", f"Rules for documents:\n- cite them\n\n{FIRST}"]
)
def test_an_unmarked_part_of_a_prompt_is_no_context(system: str) -> None:
    assert contexts(sample(IDS, asked(system))) == (None, ["d1", "d2"])


TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "c1"}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": f"{FIRST}\n\n{SECOND}"}]}


def test_a_tool_around_the_retriever_returned_the_texts() -> None:
    with_result = {**TOOL, "gen_ai.tool.call.result": f"{FIRST}\n\n{SECOND}"}
    talk = {**asked(), "gen_ai.input.messages": json.dumps([RESULT])}

    assert contexts(sample(IDS, inside=with_result)) == ([FIRST, SECOND], ["d1", "d2"])
    assert contexts(sample(IDS, talk, inside=TOOL)) == ([FIRST, SECOND], ["d1", "d2"])


def test_another_run_may_have_found_the_text_under_the_same_id() -> None:
    ranked = {"openinference.span.kind": "RERANKER", "reranker.output_documents.0.document.id": "d1"}
    found = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": json.dumps(IDS[:1])}
    whole = external(WHOLE, trace_id=1, span_id=1, parent_id=None)

    made = samples_of(
        whole,
        external(found, trace_id=1, span_id=2, parent_id=1, start_ns=2),
        external(
            {**ranked, "reranker.output_documents.0.document.content": FIRST},
            trace_id=1,
            span_id=3,
            parent_id=1,
            start_ns=3,
        ),
    )

    assert contexts(made) == ([FIRST], ["d1"])


def test_a_tool_is_not_asked_for_documents_of_a_retriever_outside_of_it() -> None:
    runs = [ModelRun(lambda: [], [])]

    assert recovered.texts_of_documents([RetrievedDocument(None, "d1")], runs, []) is None
    assert recovered.texts_of_documents([RetrievedDocument(None)], runs, [ToolRun("t", None, None, FIRST)]) == [
        RetrievedDocument(FIRST)
    ]


def test_an_empty_page_that_our_own_capture_found_is_no_unknown_text() -> None:
    pages = [Document(FIRST, id="d1"), Document("", id="d2")]
    runs = unit(
        root(QUESTION, ANSWER), retriever(QUESTION, pages), chat([HumanMessage(f"{FIRST}\n{QUESTION}")], ANSWER)
    )
    state = unit(root({"question": QUESTION}, {"answer": ANSWER, "documents": pages}))
    assert contexts(GenAIExtractor().extract(state)) == ([FIRST, ""], ["d1", "d2"])
    own = Unit(runs.key, tuple(replace(span, scope=semconv.CAPTURE_SCOPE) for span in runs.spans))

    assert contexts(GenAIExtractor().extract(own)) == ([FIRST], ["d1"])


@pytest.mark.parametrize(
    "records", [[{"id": "m1", "content": FIRST, "score": 0.8}], [{"id": "m1", "content": {"text": FIRST}}]]
)
def test_a_search_in_a_memory_is_a_retrieval(records: Any) -> None:
    search = {"gen_ai.operation.name": "search_memory", "gen_ai.memory.query.text": QUESTION}

    made = sample(IDS, **{**search, "gen_ai.retrieval.documents": "", "gen_ai.memory.records": json.dumps(records)})

    assert contexts(made) == ([FIRST], ["m1"])


LANGFUSE = {"langfuse.observation.type": "retriever", "langfuse.observation.input": QUESTION}
MLFLOW = {"mlflow.spanType": '"RETRIEVER"', "mlflow.spanInputs": json.dumps({"query": QUESTION})}
OPENINFERENCE = {
    "openinference.span.kind": "RETRIEVER",
    "input.value": QUESTION,
    "output.mime_type": "application/json",
}
OPENLLMETRY = {"traceloop.span.kind": "task", "gen_ai.operation.name": "vector_db_retrieve"}
RETRIEVERS = {
    "langfuse.observation.output": LANGFUSE,
    "mlflow.spanOutputs": MLFLOW,
    "output.value": OPENINFERENCE,
    "traceloop.entity.output": OPENLLMETRY,
}


@pytest.mark.parametrize("name", RETRIEVERS)
@pytest.mark.parametrize(
    ("returned", "texts", "ids"),
    [
        ([FIRST, SECOND], [FIRST, SECOND], None),
        ([{"content": FIRST, "id": "d1"}, {"page_content": SECOND, "id": "d2"}], [FIRST, SECOND], ["d1", "d2"]),
        ([[{"page_content": FIRST, "id": "d1"}, 0.9]], [FIRST], ["d1"]),
        ({"results": [{"text": FIRST, "id": "d1"}]}, [FIRST], ["d1"]),
        (IDS, None, ["d1", "d2"]),
        ([{"page_content": FIRST, "id": "d1"}, {"id": "d2"}], None, ["d1", "d2"]),
        ([{"page_content": FIRST, "id": "d1"}, {"page_content": "", "id": "d2"}], [FIRST, ""], ["d1", "d2"]),
        ([], [], []),
    ],
)
def test_a_retriever_of_any_writer_returns_documents_in_any_form(
    name: str, returned: Any, texts: list[str] | None, ids: Any
) -> None:
    raw = {**RETRIEVERS[name], name: json.dumps(returned)}
    whole = external(WHOLE, trace_id=1, span_id=1, parent_id=None)

    made = samples_of(whole, external(raw, trace_id=1, span_id=2, parent_id=1))

    assert contexts(made) == (texts, ids)


def test_a_retriever_may_return_one_text() -> None:
    raw = {**LANGFUSE, "langfuse.observation.output": FIRST}

    assert content_of(external(raw))[semconv.RETRIEVAL_DOCUMENTS] == [FIRST]


def test_flat_documents_whose_content_is_hidden_are_unknown_texts() -> None:
    flat = {f"retrieval.documents.{at}.document.id": one["id"] for at, one in enumerate(IDS)}
    hidden = {"retrieval.documents.0.document.content": "__REDACTED__", "output.value": "__REDACTED__"}
    whole = external(WHOLE, trace_id=1, span_id=1, parent_id=None)

    made = samples_of(whole, external({**OPENINFERENCE, **flat, **hidden}, trace_id=1, span_id=2, parent_id=1))

    assert contexts(made) == (None, ["d1", "d2"])
