"""Spans as libraries for JavaScript write them today (AI SDK 7, LangChain.js, Langfuse, Mastra, Genkit …) → samples."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.samples.normalizers.spans import ANSWER, GENAI_CHAT, QUESTION, VERCEL_RUN, content_of, external, samples_of

from spanscore import semconv
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.core.span import SpanData
from spanscore.samples.normalizers.registry import SpanNormalizers

LANGCHAIN = "@arizeai/openinference-instrumentation-langchain"
LANGFUSE = "langfuse-sdk"
DOCUMENTS = [
    {"pageContent": "Paris is the capital.", "metadata": {"source": "a.txt"}},
    {"pageContent": "Rome is older.", "metadata": {}, "id": "d-2"},
]
TEXTS = ["Paris is the capital.", "Rome is older."]
BOTH = SingleTurnSample(user_input=QUESTION, response=ANSWER)


def flat(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with structures as JSON, without blanks, as JavaScript writes it."""
    texts = (
        value if isinstance(value, (str, int)) else json.dumps(value, separators=(",", ":"))
        for value in attributes.values()
    )
    return dict(zip(attributes, texts, strict=True))


def langfuse(kind: str, input: Any = None, output: Any = None, **more: Any) -> SpanData:
    fields = {name: more.pop(name) for name in ("span_id", "parent_id", "name") if name in more}
    values = {"type": kind, "input": input, "output": output, **more}
    named = {f"langfuse.observation.{name}": value for name, value in values.items() if value is not None}
    return external(flat(named), LANGFUSE, **fields)


def openinference(kind: str, input: Any, output: Any, more: dict[str, Any] | None = None, **fields: Any) -> SpanData:
    values = {"input.value": input, "output.value": output}
    types = {
        name.replace("value", "mime_type"): "text/plain" if isinstance(value, str) else "application/json"
        for name, value in values.items()
    }
    return external(flat({"openinference.span.kind": kind, **values, **types, **(more or {})}), LANGCHAIN, **fields)


def dumped(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", kind], "kwargs": fields}


def translated(span: SpanData) -> SpanData:
    read = SpanNormalizers().translate(span)
    assert read is not None
    return read


def test_a_langfuse_run_of_level_error_has_failed() -> None:
    samples = samples_of(langfuse("span", QUESTION, {"error": "Error: 400"}, level="ERROR", status_message="400"))

    assert (samples.single_turn, samples.outcome) == (None, Outcome.NO_SAMPLE)
    assert samples.reason == "the run failed before it answered"


@pytest.mark.parametrize("level", ["DEFAULT", "WARNING"])
def test_a_langfuse_run_of_another_level_has_not_failed(level: str) -> None:
    assert samples_of(langfuse("span", QUESTION, ANSWER, level=level)).single_turn == BOTH


def test_langfuse_counts_cached_and_reasoning_tokens_apart() -> None:
    counts = {"input": 8, "output": 5, "total": 18, "input_cached_tokens": 3, "output_reasoning_tokens": 2}
    attributes = translated(langfuse("generation", QUESTION, ANSWER, usage_details=counts)).attributes

    assert attributes[semconv.USAGE_INPUT_TOKENS] == 11
    assert attributes[semconv.USAGE_OUTPUT_TOKENS] == 7


def test_a_langfuse_span_that_gives_documents_for_a_text_is_a_retrieval() -> None:
    root = langfuse("span", {"input": QUESTION}, ANSWER, span_id=1)
    retriever = langfuse("span", QUESTION, DOCUMENTS, span_id=2, parent_id=1)
    joined = langfuse("span", DOCUMENTS, " ".join(TEXTS), span_id=3, parent_id=1)

    assert translated(retriever).operation == semconv.RETRIEVAL
    assert translated(joined).operation == semconv.INVOKE_WORKFLOW
    assert samples_of(root, retriever, joined).single_turn == SingleTurnSample(
        user_input=QUESTION, response=ANSWER, retrieved_contexts=TEXTS
    )


def test_a_langfuse_message_whose_role_is_a_tools_name_is_the_tools() -> None:
    call = {"id": "c-1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = {"role": "user", "content": QUESTION}
    answered = {"role": "weather", "content": "sunny", "additional_kwargs": {}}
    messages = [asked, {"role": "assistant", "content": "", "tool_calls": [call]}, answered]
    root = langfuse("span", [asked], {"messages": [*messages, {"role": "assistant", "content": ANSWER}]})

    assert samples_of(root).single_turn == BOTH
    assert [message["role"] for message in content_of(root)[semconv.OUTPUT_MESSAGES]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_documents_of_langchain_js_in_a_state_are_the_contexts() -> None:
    graph = openinference("CHAIN", QUESTION, {"question": QUESTION, "docs": DOCUMENTS, "answer": ANSWER})

    assert samples_of(graph).single_turn == SingleTurnSample(
        user_input=QUESTION, response=ANSWER, retrieved_contexts=TEXTS
    )


def test_a_retriever_of_langchain_js_gives_documents_with_their_ids() -> None:
    retriever = openinference("RETRIEVER", QUESTION, {"documents": DOCUMENTS})

    assert content_of(retriever)[semconv.RETRIEVAL_DOCUMENTS] == [
        {"content": TEXTS[0]},
        {"id": "d-2", "content": TEXTS[1]},
    ]


def test_a_prompt_of_langchain_js_with_an_image_is_read_from_the_dump() -> None:
    # The flat attributes have no content if the message's content is a list.
    blocks = [
        {"type": "text", "text": QUESTION},
        {"type": "image_url", "image_url": {"url": "https://shop.example/a.png"}},
    ]
    prompt = {"messages": [[dumped("HumanMessage", content=blocks, additional_kwargs={}, response_metadata={})]]}
    flat_names = {"llm.input_messages.0.message.role": "user"}
    samples = samples_of(openinference("LLM", prompt, ANSWER, flat_names))

    assert samples.single_turn is not None
    assert (samples.single_turn.user_input, samples.single_turn.response) == (f"{QUESTION}\n[image 1]", ANSWER)


def test_an_answer_of_langchain_js_in_blocks_is_read_from_the_dump() -> None:
    # OpenAI's Responses API gives the answer as blocks.
    message = dumped("AIMessage", content=[{"type": "text", "text": ANSWER, "annotations": []}], tool_calls=[])
    output = {"generations": [[{"text": ANSWER, "message": message}]]}
    prompt = {"messages": [[dumped("HumanMessage", content=QUESTION)]]}

    assert (
        samples_of(
            openinference("LLM", prompt, output, {"llm.output_messages.0.message.role": "assistant"})
        ).single_turn
        == BOTH
    )


def test_a_tool_of_langchain_js_gives_what_is_under_output() -> None:
    message = dumped("ToolMessage", content='{"sky":"sunny"}', tool_call_id="c-1", name="weather")
    tool = openinference("TOOL", "Paris", {"output": message}, {"tool.name": "weather"})

    assert content_of(tool)[semconv.TOOL_CALL_RESULT] == '{"sky":"sunny"}'
    assert translated(tool).attributes[semconv.TOOL_CALL_ID] == "c-1"


@pytest.mark.parametrize("key", ["sessionId", "threadId", "conversationId", "chatId"])
def test_the_runtime_context_of_the_ai_sdk_7_has_conversation_and_metadata(key: str) -> None:
    context = {f"ai.settings.context.{key}": "t-1", "ai.settings.context.tier": "gold"}
    without = {name: value for name, value in VERCEL_RUN.items() if "sessionId" not in name}
    for run in (external({**GENAI_CHAT, **context}, "gen_ai"), external({**without, **context}, "ai")):
        read = translated(run)

        assert read.metadata == {key: "t-1", "tier": "gold"}
        assert read.attributes[semconv.CONVERSATION_ID] == "t-1"


def test_a_call_outside_a_workflow_has_the_association_properties() -> None:
    properties = {"traceloop.association.properties.session_id": "t-1", "traceloop.association.properties.tier": "gold"}
    read = translated(external({**GENAI_CHAT, **properties}, "@traceloop/instrumentation-openai"))

    assert read.metadata == {"session_id": "t-1", "tier": "gold"}
    assert read.attributes[semconv.CONVERSATION_ID] == "t-1"


def test_a_text_block_that_names_a_role_is_a_block_and_no_message() -> None:
    # OpenAI's agents write earlier answers of chat completions in this form.
    block = {"type": "text", "text": "Hello Ann.", "role": "assistant", "refusal": None}
    asked = [
        {"role": "user", "content": "I am Ann."},
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": QUESTION},
    ]
    samples = samples_of(openinference("AGENT", asked, ANSWER))

    assert samples.multi_turn is not None
    assert [message.content for message in samples.multi_turn.user_input] == [
        "I am Ann.",
        "Hello Ann.",
        QUESTION,
        ANSWER,
    ]


def mastra(kind: str, **fields: Any) -> SpanData:
    named = {f"mastra.{kind}.{name}": fields.pop(name) for name in ("input", "output") if name in fields}
    more = fields.pop("more", {})
    return external(flat({"mastra.span.type": kind, **named, **more}), "@mastra/otel-exporter", **fields)


def test_a_run_of_a_mastra_agent_has_its_question_answer_and_conversation() -> None:
    asked = [
        {"role": "user", "content": "I am Ann."},
        {"role": "assistant", "content": "Hello Ann."},
        {"role": "user", "content": QUESTION},
    ]
    more = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "terse", "mastra.metadata.threadId": "t-1"}
    run = mastra("agent_run", input=asked, output={"text": ANSWER, "files": []}, more=more, span_id=1)
    step = mastra("model_step", input=asked, more={"gen_ai.operation.name": "agent_step"}, span_id=2, parent_id=1)
    names = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4.1"}
    output = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}]
    chat = mastra("model_inference", more={**names, "gen_ai.output.messages": output}, span_id=3, parent_id=2)
    samples = samples_of(run, step, chat)

    assert samples.single_turn == BOTH
    assert samples.multi_turn is not None
    assert [message.content for message in samples.multi_turn.user_input] == [
        "I am Ann.",
        "Hello Ann.",
        QUESTION,
        ANSWER,
    ]
    assert translated(run).attributes[semconv.CONVERSATION_ID] == "t-1"
    assert translated(run).attributes[semconv.AGENT_NAME] == "terse"
    assert (translated(step).operation, translated(step).no_content) == (semconv.EXECUTE_TASK, None)


def test_a_run_of_a_mastra_workflow_has_its_question_and_answer() -> None:
    run = mastra("workflow_run", input={"question": QUESTION}, output={"answer": ANSWER}, name="invoke_workflow qa")

    assert samples_of(run).single_turn == BOTH


def genkit(kind: str, input: Any, output: Any, **fields: Any) -> SpanData:
    kinds = (
        {"genkit:type": "util"} if kind == "generate" else {"genkit:type": "action", "genkit:metadata:subtype": kind}
    )
    values = {"genkit:input": json.dumps(input), "genkit:output": json.dumps(output)}
    return external({**kinds, **values}, "genkit-tracer", **{"name": kind, **fields})


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": [*blocks]}


def test_a_flow_of_genkit_has_question_answer_and_contexts() -> None:
    documents = [{"content": [{"text": text}], "metadata": {}} for text in TEXTS]
    flow = genkit("flow", QUESTION, ANSWER, span_id=1)
    retriever = genkit(
        "retriever", {"query": said("user", {"text": QUESTION})}, {"documents": documents}, span_id=2, parent_id=1
    )

    assert content_of(retriever)[semconv.RETRIEVAL_QUERY] == QUESTION
    assert samples_of(flow, retriever).single_turn == SingleTurnSample(
        user_input=QUESTION, response=ANSWER, retrieved_contexts=TEXTS
    )


def test_documents_that_genkit_appends_to_the_question_are_contexts() -> None:
    context = {"text": "Use the following information: …", "metadata": {"purpose": "context"}}
    request = {
        "messages": [said("user", {"text": QUESTION}, context)],
        "docs": [{"content": [{"text": text}]} for text in TEXTS],
    }

    assert samples_of(genkit("generate", request, {"message": said("model", {"text": ANSWER})})).single_turn == (
        SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=TEXTS)
    )


def test_a_structured_answer_of_genkit_is_its_json() -> None:
    run = genkit(
        "generate", {"messages": [said("user", {"text": "q"})]}, {"message": said("model", {"data": {"a": 1}})}
    )

    assert samples_of(run).single_turn == SingleTurnSample(user_input="q", response='{"a":1}')


@pytest.mark.parametrize(("kind", "output"), [("tool", "sunny"), ("tool.v2", {"output": "sunny"})], ids=["js", "go"])
def test_a_tool_of_genkit_has_its_name_its_arguments_and_its_result(kind: str, output: Any) -> None:
    tool = translated(genkit(kind, {"city": "Paris"}, output, name="weather"))

    assert (tool.operation, tool.attributes.get("gen_ai.tool.name")) == ("execute_tool", "weather")
    assert content_of(genkit(kind, {"city": "Paris"}, output)) == {
        semconv.TOOL_CALL_ARGUMENTS: {"city": "Paris"},
        semconv.TOOL_CALL_RESULT: "sunny",
    }


def test_a_model_of_genkit_has_messages_tools_tokens_and_name() -> None:
    call = {"toolRequest": {"name": "weather", "ref": "c-1", "input": {"city": "Paris"}}}
    answer = {"toolResponse": {"name": "weather", "ref": "c-1", "output": {"sky": "sunny"}}}
    messages = [said("user", {"text": "q"}, {"media": {"url": "https://shop.example/a.png"}}), said("model", call)]
    request = {"messages": [*messages, said("tool", answer)], "tools": [{"name": "weather", "description": "w"}]}
    response = {"message": said("model", {"text": ANSWER}), "usage": {"inputTokens": 11, "outputTokens": 7}}
    model = genkit("model", request, response, name="openai/gpt-4.1")

    content = content_of(model)
    assert [[part["type"] for part in message["parts"]] for message in content[semconv.INPUT_MESSAGES]] == [
        ["text", "uri"],
        ["tool_call"],
        ["tool_call_response"],
    ]
    assert content[semconv.OUTPUT_MESSAGES] == [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}]
    assert dict(translated(model).without_content().attributes) == {
        semconv.OPERATION_NAME: "chat",
        semconv.PROVIDER_NAME: "openai",
        semconv.REQUEST_MODEL: "gpt-4.1",
        semconv.USAGE_INPUT_TOKENS: 11,
        semconv.USAGE_OUTPUT_TOKENS: 7,
    }


def test_parallel_tools_of_the_agent_development_kit_are_counted_once_and_named() -> None:
    merged = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "(merged tools)"}
    scope = "gcp.vertex.agent"

    assert translated(external(merged, scope, name="execute_tool (merged)")).operation == semconv.EXECUTE_TASK
    failed = translated(external({}, scope, name="execute_tool flaky"))
    assert (failed.operation, failed.attributes[semconv.TOOL_NAME]) == (semconv.EXECUTE_TOOL, "flaky")
