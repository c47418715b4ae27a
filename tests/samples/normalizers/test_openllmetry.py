"""OpenLLMetry's spans, as its instrumentations and its SDK write them → samples."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.codecs.payloads import SCALARS, payloads
from tests.samples.normalizers.spans import (
    ANSWER,
    GENAI_CHAT,
    OPENLLMETRY_WORKFLOW,
    QUESTION,
    content_of,
    external,
    is_sound,
    samples_of,
    units_of,
)

from spanscore import semconv
from spanscore.core.sample import SingleTurnSample
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.normalizers.registry import SpanNormalizers

LANGCHAIN = "opentelemetry.instrumentation.langchain"
PROMPT = json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"Be brief. {QUESTION} None"}]}])


def of(kind: str, given: Any = None, gave: Any = None, more: dict[str, Any] | None = None, **fields: Any) -> Any:
    sides = {"traceloop.entity.input": given, "traceloop.entity.output": gave}
    written = {name: json.dumps(side) for name, side in sides.items() if side is not None}
    return external({"traceloop.span.kind": kind, **written, **(more or {})}, LANGCHAIN, **fields)


def test_a_chain_is_a_workflow_whatever_it_is_called_there() -> None:
    translated = SpanNormalizers().translate(external(OPENLLMETRY_WORKFLOW, LANGCHAIN))

    assert translated is not None
    assert translated.metadata == {"thread_id": "t-1"}
    assert dict(translated.attributes) == {
        semconv.OPERATION_NAME: "invoke_workflow",
        semconv.WORKFLOW_NAME: "capital",
        semconv.CONVERSATION_ID: "t-1",
        semconv.INPUT_VALUE: {"question": QUESTION},
        semconv.OUTPUT_VALUE: ANSWER,
    }


@pytest.mark.parametrize(
    "given",
    [
        {"args": [QUESTION], "kwargs": {}},
        {"args": [], "kwargs": {"question": QUESTION}},
    ],
)
def test_a_decorated_function_is_read_of_its_arguments(given: Any) -> None:
    assert samples_of(of("workflow", given, ANSWER)).single_turn == SingleTurnSample(
        user_input=QUESTION, response=ANSWER
    )


def _asked(prompt: str) -> Any:
    prompts = json.dumps([{"role": "user", "parts": [{"type": "text", "content": prompt}]}])
    answers = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}])
    written = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": prompts, "gen_ai.output.messages": answers}
    return external(written, "opentelemetry.instrumentation.openai.v1", span_id=2, parent_id=1)


@pytest.mark.parametrize(
    "given",
    [
        {"args": [QUESTION], "kwargs": {"user_id": "u7", "top_k": 3}},
        {"args": ["Service", QUESTION], "kwargs": {}},
        {"args": [[{"role": "user", "content": QUESTION}]], "kwargs": {"user_id": "u7"}},
        {"args": ["u7", [{"role": "user", "content": QUESTION}]], "kwargs": {}},
        {"args": [], "kwargs": {"user_id": "u7", "history": [{"role": "user", "content": QUESTION}]}},
    ],
)
def test_another_argument_is_no_question(given: Any) -> None:
    single_turn = samples_of(of("workflow", given, ANSWER, span_id=1), _asked(QUESTION)).single_turn

    assert single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({"input_str": "{'a': 2}", "inputs": {"a": 2}}, {"a": 2}),
        ({"input_str": "{'a': 2, 'b': [True]}", "inputs": None}, {"a": 2, "b": [True]}),
        ({"input_str": "2 + 3", "inputs": None}, "2 + 3"),
        ({"args": [], "kwargs": {"a": 2}}, {"a": 2}),
        ({"args": [2, 3], "kwargs": {"b": 4}}, {"0": 2, "1": 3, "b": 4}),
    ],
)
def test_a_tool_is_read_of_its_callbacks_arguments(given: Any, arguments: Any) -> None:
    message = {"lc": 1, "id": ["ToolMessage"], "kwargs": {"type": "tool", "content": "5", "tool_call_id": "call-1"}}
    repeated = {"gen_ai.tool.name": "add", "gen_ai.tool.call.arguments": json.dumps(given)}

    translated = SpanNormalizers().translate(of("tool", given, {"output": message, "kwargs": {}}, repeated))

    assert translated is not None
    assert dict(translated.attributes) == {
        semconv.OPERATION_NAME: "execute_tool",
        semconv.TOOL_NAME: "add",
        semconv.TOOL_CALL_ID: "call-1",
        semconv.TOOL_CALL_ARGUMENTS: arguments,
        semconv.TOOL_CALL_RESULT: "5",
    }


def test_a_retriever_is_read_of_its_documents() -> None:
    documents = [{"page_content": "One.", "metadata": {"page": 1}}, {"page_content": "Two.", "metadata": {}}]
    retrieves = {"gen_ai.operation.name": "vector_db_retrieve"}

    found = content_of(of("task", {"query": "q", "tags": []}, {"documents": documents, "count": 2}, retrieves))

    assert found == {
        semconv.RETRIEVAL_QUERY: "q",
        semconv.RETRIEVAL_DOCUMENTS: [{"content": "One."}, {"content": "Two."}],
    }


def test_steps_of_a_workflow_keep_none_of_the_text_that_their_neighbours_have() -> None:
    step = of("task", {"inputs": QUESTION}, {"outputs": ANSWER}, {"traceloop.workflow.name": "capital"})

    translated = SpanNormalizers().translate(step)

    assert translated is not None
    assert (translated.operation, content_of(step), translated.no_content) == ("execute_task", {}, None)


def test_metadata_are_read_where_older_releases_have_them() -> None:
    given = {"inputs": QUESTION, "tags": [], "metadata": {"thread_id": "t-1", "lc_agent_name": "guide"}, "kwargs": {}}

    translated = SpanNormalizers().translate(of("workflow", given, ANSWER, {"traceloop.entity.name": "guide"}))

    assert translated is not None
    assert translated.metadata == given["metadata"]
    assert (translated.operation, translated.attributes[semconv.CONVERSATION_ID]) == ("invoke_agent", "t-1")


def test_a_model_is_known_by_what_langchain_knows_of_it() -> None:
    unknown = {**GENAI_CHAT, "gen_ai.request.model": "unknown", "traceloop.workflow.name": "capital"}

    translated = SpanNormalizers().translate(
        external({**unknown, "traceloop.association.properties.ls_model_name": "gpt-4.1"}, LANGCHAIN)
    )

    assert translated is not None
    assert translated.attributes[semconv.REQUEST_MODEL] == "gpt-4.1"
    assert translated.attributes[semconv.OUTPUT_MESSAGES][0]["content"] == ANSWER


def test_a_chat_whose_first_attributes_the_sdk_dropped_is_read_of_the_rest() -> None:
    rest = {
        "gen_ai.prompt.31.content": "whose role was dropped",
        "gen_ai.prompt.32.role": "user",
        "gen_ai.prompt.32.content": QUESTION,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": ANSWER,
    }

    made = samples_of(external(rest, "opentelemetry.instrumentation.openai.v1"))

    assert made.single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)
    assert made.multi_turn is None


def test_content_on_log_events_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    emits_events = SimpleNamespace(Config=SimpleNamespace(use_legacy_attributes=False))
    monkeypatch.setitem(sys.modules, f"{LANGCHAIN}.config", emits_events)

    assert samples_of(of("workflow")).reason == "content is in log records, not on the spans (openllmetry)"


NAMES = st.sampled_from(
    [
        *("traceloop.entity.input", "traceloop.entity.output", "gen_ai.task.input", "gen_ai.operation.name"),
        *("traceloop.workflow.name", "traceloop.association.properties.thread_id", "gen_ai.request.model"),
        *(
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.prompt.0.content",
            "gen_ai.prompt.1000000000.role",
        ),
    ]
)
KINDS = st.sampled_from(["workflow", "task", "agent", "tool", "odd"]) | SCALARS
WRAPPED = payloads(6).map(lambda value: json.dumps({"inputs": value, "outputs": value, "output": value}, default=str))
VALUES = SCALARS | WRAPPED | st.sampled_from(["chat", "execute_tool", "vector_db_retrieve", "invoke_agent"])


@given(
    st.lists(st.tuples(KINDS, st.dictionaries(NAMES, VALUES, max_size=6), st.integers(1, 4)), min_size=1, max_size=4)
)
def test_no_span_makes_it_raise(spans: list[tuple[Any, dict[str, Any], int]]) -> None:
    made = [
        external({"traceloop.span.kind": kind, **held}, LANGCHAIN, span_id=n, trace_id=1, parent_id=parent)
        for n, (kind, held, parent) in enumerate(spans, start=1)
    ]

    for unit in units_of(made):
        assert is_sound(GenAIExtractor().extract(unit))


def test_a_graph_that_runs_on_from_a_checkpoint_is_asked_what_its_state_holds() -> None:
    root = external({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "poet"}, LANGCHAIN, span_id=7)
    state = {"outputs": {"request": QUESTION, "answer": ANSWER}, "kwargs": {}}
    graph = of("workflow", {"inputs": None, "tags": []}, state, trace_id=root.trace_id, parent_id=7, span_id=8)
    chat = external(GENAI_CHAT | {"gen_ai.input.messages": PROMPT}, LANGCHAIN, trace_id=root.trace_id, parent_id=8)

    assert samples_of(root, graph, chat).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


def test_what_a_stream_was_given_is_reported_at_its_end() -> None:
    values = {"outputs": {"setup": "Why?", "punchline": "So."}, "kwargs": {"tags": [], "inputs": {"query": QUESTION}}}

    found = content_of(of("workflow", {"inputs": {"input": ""}, "tags": []}, values))

    assert found[semconv.INPUT_VALUE] == {"query": QUESTION}


LLAMA_INDEX = "opentelemetry.instrumentation.llamaindex"


def of_llama_index(name: str, start_ns: int, end_ns: int, gave: Any = None, **fields: Any) -> Any:
    written = {} if gave is None else {"traceloop.entity.output": json.dumps(gave)}
    kind = {"traceloop.span.kind": name.rpartition(".")[2], **written}
    return external(kind, LLAMA_INDEX, name=name, trace_id=1, start_ns=start_ns, end_ns=end_ns, **fields)


def test_steps_after_the_end_of_a_llama_index_agent_belong_to_its_unit() -> None:
    agent = of_llama_index("FunctionAgent.workflow", 0, 10, span_id=1)
    state = {"input": [{"role": "user", "blocks": [{"block_type": "text", "text": "x"}]}], "current_agent_name": "a"}
    steps = [
        of_llama_index("BaseWorkflowAgent.task", n * 20, n * 20 + 9, state, span_id=n + 1, parent_id=1)
        for n in range(1, 4)
    ]
    model = external(GENAI_CHAT, trace_id=1, span_id=9, parent_id=4, start_ns=61, end_ns=65)

    assert samples_of(agent, *steps, model).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)
    for start_ns in (5, 20):
        assert len(units_of([agent, of_llama_index("QueryEngine.workflow", start_ns, 30, span_id=2, parent_id=1)])) == 2


def test_a_message_of_llama_index_is_its_blocks() -> None:
    message = {"role": "assistant", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": ANSWER}]}
    ended = {"result": {"response": message, "structured_response": None, "current_agent_name": "a", "tool_calls": []}}

    sample = samples_of(of_llama_index("FunctionAgent.workflow", 0, 10, ended)).single_turn

    assert sample is not None
    assert sample.response == ANSWER


def test_a_retriever_of_llama_index_is_read_of_its_nodes() -> None:
    nodes = [
        json.dumps({"node": {"id_": text, "metadata": {}, "text": text}, "score": 1.0})
        for text in ("Children enter free.", "Adults pay 5.")
    ]
    asked = {"traceloop.entity.input": json.dumps({"str_or_query_bundle": {"query_str": QUESTION, "embedding": None}})}
    root = of_llama_index("RetrieverQueryEngine.workflow", 0, 90, {"response": ANSWER, "metadata": {}}, span_id=1)
    retriever = [
        of_llama_index("VectorIndexRetriever.task", n, 9 - n, nodes, span_id=n + 1, parent_id=n) for n in (1, 2)
    ]
    queried = external({**retriever[0].attributes, **asked}, LLAMA_INDEX, name=retriever[0].name)

    sample = samples_of(root, *retriever).single_turn

    assert sample is not None
    assert (sample.response, sample.retrieved_contexts) == (ANSWER, ["Children enter free.", "Adults pay 5."])
    assert content_of(queried)[semconv.RETRIEVAL_QUERY] == QUESTION


CHROMA = {
    "db.query.result.id": "d1",
    "db.query.result.distance": 0.1,
    "db.query.result.document": "Paris is in France.",
}
PINECONE = {"db.query.result.id": "d1", "db.query.result.metadata": "{'text': 'Paris is in France.', 'page': 3}"}
MILVUS = {"db.search.result.id": "d1", "db.search.result.entity": "{'text': 'Paris is in France.'}"}
WITHOUT_TEXT = {"db.query.result.id": "d2", "db.query.result.metadata": "{'page': 3}"}


def searched(database: str, *results: Any, **fields: Any) -> Any:
    events = [("db.query.embeddings", {}), *((next(iter(result)).rpartition(".")[0], result) for result in results)]
    scope = f"opentelemetry.instrumentation.{database}"
    return external({"db.system": database}, scope, events=events, **fields)


@pytest.mark.parametrize(("database", "result"), [("chromadb", CHROMA), ("pinecone", PINECONE), ("milvus", MILVUS)])
def test_results_of_a_vector_database_are_contexts(database: str, result: Any) -> None:
    root = of("workflow", {"inputs": {"question": QUESTION}}, {"outputs": ANSWER}, trace_id=1, span_id=1)

    sample = samples_of(root, searched(database, result, trace_id=1, span_id=2, parent_id=1)).single_turn

    assert sample is not None
    assert (sample.retrieved_contexts, sample.retrieved_context_ids) == (["Paris is in France."], ["d1"])


def test_a_search_whose_results_lack_a_text_gives_no_contexts() -> None:
    assert content_of(searched("pinecone", PINECONE, WITHOUT_TEXT)) == {}


def test_a_search_alone_is_no_unit() -> None:
    assert units_of([searched("chromadb", CHROMA)]) == []
