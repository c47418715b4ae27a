"""OpenInference's spans, as its instrumentations write them → samples."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.codecs.payloads import SCALARS, payloads
from tests.samples.normalizers.spans import (
    ANSWER,
    OPENINFERENCE_CHAT,
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

LANGCHAIN = "openinference.instrumentation.langchain"


def of(kind: str, given: dict[str, Any] | None = None, scope: str = "x", **fields: Any) -> Any:
    return external({"openinference.span.kind": kind, **(given or {})}, scope, **fields)


def test_a_chat_says_its_model_tokens_conversation_and_metadata() -> None:
    translated = SpanNormalizers().translate(external(OPENINFERENCE_CHAT))

    assert translated is not None
    assert translated.metadata == {"tier": "gold", "thread_id": "t-1"}
    assert dict(translated.without_content().attributes) == {
        semconv.OPERATION_NAME: "chat",
        semconv.REQUEST_MODEL: "gpt-4.1",
        semconv.PROVIDER_NAME: "openai",
        semconv.USAGE_INPUT_TOKENS: 20,
        semconv.CONVERSATION_ID: "t-1",
    }


@pytest.mark.parametrize("text", ["5", "true", '"so"', "[1]", "{cut"])
def test_text_that_happens_to_be_json_stays_text(text: str) -> None:
    root = of("CHAIN", {"input.value": text, "output.value": text})

    assert samples_of(root).single_turn == SingleTurnSample(user_input=text, response=text)


@pytest.mark.parametrize("text", ["null", '"null"', "None", "'None'"])
@pytest.mark.parametrize("mime_type", ["text/plain", "application/json"])
def test_what_an_instrumentation_writes_for_none_is_no_text(text: str, mime_type: str) -> None:
    mime_types = {"input.mime_type": mime_type, "output.mime_type": mime_type}
    model = of("LLM", {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": QUESTION})
    answer = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "None"}
    below = of("LLM", {**model.attributes, **answer}, trace_id=7, span_id=2, parent_id=1)
    root = of("AGENT", {"input.value": text, "output.value": text, **mime_types}, trace_id=7, span_id=1)

    assert samples_of(root, below).single_turn == SingleTurnSample(user_input=QUESTION, response="None")


def test_an_input_that_is_an_object_is_one_without_a_mime_type_too() -> None:
    given = json.dumps({"task": QUESTION, "stream": False, "images": None})

    assert samples_of(of("AGENT", {"input.value": given, "output.value": ANSWER})).single_turn == SingleTurnSample(
        user_input=QUESTION, response=ANSWER
    )


@pytest.mark.parametrize(
    "text",
    [
        f"{{'role': 'assistant', 'text': \"{ANSWER}\", 'meta': {{'n': 1}}}}",
        f"{{'role': 'assistant', 'text': \"{ANSWER}\", 'meta': <Meta object at 0x7f>}}",
        f"{{'role': 'assistant', 'text': \"{ANSWER}",
        f"[{{'role': 'assistant', 'text': '{ANSWER}'}}]",
    ],
)
def test_an_answer_that_python_shows_is_its_words(text: str) -> None:
    assert samples_of(of("AGENT", {"input.value": "q", "output.value": text})).single_turn == SingleTurnSample(
        user_input="q", response=ANSWER
    )


def test_messages_that_name_their_source_are_read() -> None:
    asked = {"source": "user", "models_usage": None, "metadata": {}, "content": QUESTION, "type": "TextMessage"}
    called = {
        "source": "guide",
        "content": [{"id": "c-1", "name": "look_up", "arguments": '{"of": "France"}'}],
        "type": "ToolCallRequestEvent",
    }
    found = {
        "source": "guide",
        "content": [{"content": "Paris", "name": "look_up", "call_id": "c-1", "is_error": False}],
        "type": "ToolCallExecutionEvent",
    }
    answered = {"source": "guide", "content": ANSWER, "type": "TextMessage"}
    team = {"messages": [asked, called, found, answered], "stop_reason": "Maximum number of messages reached"}
    run = {
        "input.value": json.dumps({"task": asked, "cancellation_token": "<CancellationToken object at 0x7f>"}),
        "output.value": json.dumps(team),
        "output.mime_type": "application/json",
    }

    made = samples_of(of("CHAIN", run))

    assert made.single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)
    assert made.multi_turn is not None
    assert [message.type for message in made.multi_turn.user_input] == ["human", "ai", "tool", "ai"]


def test_a_text_beside_messages_in_an_unknown_form_is_not_the_answer() -> None:
    team = {"messages": [{"by": "guide", "words": ANSWER}], "stop_reason": "Maximum number of messages reached"}
    run = {"input.value": QUESTION, "output.value": json.dumps(team), "output.mime_type": "application/json"}
    said = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": ANSWER}
    root = of("CHAIN", run, trace_id=7, span_id=1)

    assert samples_of(root).single_turn == SingleTurnSample(user_input=QUESTION)
    assert samples_of(root, of("LLM", said, trace_id=7, span_id=2, parent_id=1)).single_turn == SingleTurnSample(
        user_input=QUESTION, response=ANSWER
    )


def test_output_without_input_is_a_resumed_graph_of_langgraph_alone() -> None:
    asked = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": QUESTION}
    said = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": ANSWER}
    state = {"output.value": json.dumps({"reply": ANSWER, "lang": "en"}), "output.mime_type": "application/json"}
    model = of("LLM", {**asked, **said}, trace_id=7, span_id=2, parent_id=1)
    node = of("CHAIN", {"metadata": '{"langgraph_node": "n"}'}, trace_id=7, span_id=3, parent_id=1)
    root = of("CHAIN", state, trace_id=7, span_id=1)

    assert samples_of(root, model).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)
    assert samples_of(root, model, node).single_turn == SingleTurnSample(response=ANSWER)


def test_json_is_read_where_it_is_said_to_be() -> None:
    given = {"input.value": '{"question": "q"}', "input.mime_type": "application/json", "output.value": "a"}

    assert samples_of(of("CHAIN", given)).single_turn == SingleTurnSample(user_input="q", response="a")


def test_documents_keep_the_ids_that_stand_in_the_output_alone() -> None:
    documents = [{"id": "d-1", "metadata": {}, "page_content": "One.", "type": "Document"}]
    dumped = json.dumps({"documents": documents})
    flat = {"retrieval.documents.0.document.content": "One.", "output.mime_type": "application/json"}

    found = content_of(of("RETRIEVER", {"input.value": "q", "output.value": dumped, **flat}))

    assert found == {semconv.RETRIEVAL_QUERY: "q", semconv.RETRIEVAL_DOCUMENTS: [{"id": "d-1", "content": "One."}]}


def test_flat_documents_are_read_in_the_order_of_their_positions() -> None:
    flat = {f"retrieval.documents.{n}.document.content": f"{n}" for n in (10**9, 2, 10)}

    found = content_of(of("RETRIEVER", {**flat, "retrieval.documents.2.document.id": "d-2", "input.value": "q"}))

    assert found[semconv.RETRIEVAL_DOCUMENTS] == [
        {"id": "d-2", "content": "2"},
        {"content": "10"},
        {"content": "1000000000"},
    ]


def test_a_retriever_that_found_nothing_found_nothing_and_is_not_unknown() -> None:
    none = {"input.value": "q", "output.value": '{"documents": []}', "output.mime_type": "application/json"}

    assert content_of(of("RETRIEVER", none))[semconv.RETRIEVAL_DOCUMENTS] == []
    assert semconv.RETRIEVAL_DOCUMENTS not in content_of(of("RETRIEVER", {"input.value": "q"}))


def test_a_tool_is_read_with_python_text_and_the_id_of_its_call() -> None:
    answer = {"type": "tool", "data": {"content": "5", "tool_call_id": "call-1", "artifact": None}}
    given = {"tool.name": "add", "input.value": "{'a': 2, 'b': None}", "output.value": json.dumps(answer)}

    translated = SpanNormalizers().translate(of("TOOL", {**given, "output.mime_type": "application/json"}, LANGCHAIN))

    assert translated is not None
    assert dict(translated.attributes) == {
        semconv.OPERATION_NAME: "execute_tool",
        semconv.TOOL_NAME: "add",
        semconv.TOOL_CALL_ID: "call-1",
        semconv.TOOL_CALL_ARGUMENTS: {"a": 2, "b": None},
        semconv.TOOL_CALL_RESULT: "5",
    }


@pytest.mark.parametrize("text", ["{'a': print()}", "{'a': 2", "{'\\d': 1}", "{" * 300 + "}" * 300, "{1, 2}", "2 + 3"])
def test_text_that_is_no_python_dict_stays_text(text: str) -> None:
    found = content_of(of("TOOL", {"input.value": text, "output.value": "x"}))

    assert found[semconv.TOOL_CALL_ARGUMENTS] == text


@pytest.mark.parametrize(
    ("name", "metadata", "parent", "operation"),
    [
        ("research_agent", {"lc_agent_name": "research_agent"}, 7, "invoke_agent"),
        ("agent", {"langgraph_node": "agent"}, 7, "invoke_workflow"),
        ("LangGraph", {"ls_integration": "langchain_create_agent"}, None, "invoke_agent"),
        ("model", {"ls_integration": "langchain_create_agent"}, 7, "invoke_workflow"),
    ],
)
def test_of_langchain_an_agent_is_what_says_so_and_not_whatever_has_the_word_in_its_name(
    name: str, metadata: dict[str, str], parent: int | None, operation: str
) -> None:
    given = {"metadata": json.dumps(metadata), "input.value": "q"}

    translated = SpanNormalizers().translate(of("AGENT", given, LANGCHAIN, name=name, parent_id=parent))

    assert translated is not None
    assert translated.operation == operation


def test_tool_calls_are_read_of_flat_messages() -> None:
    flat = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": QUESTION,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "call-1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "add",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"a": 2}',
    }

    said = content_of(of("LLM", flat))[semconv.OUTPUT_MESSAGES]

    call = {"type": "tool_call", "id": "call-1", "name": "add", "arguments": '{"a": 2}'}
    assert said == [{"role": "assistant", "parts": [call]}]


@pytest.mark.parametrize(
    "given",
    [
        {"input.value": QUESTION, "output.value": ANSWER},
        {"llm.prompts": (QUESTION,), "output.value": ANSWER},
        {
            "input.value": json.dumps({"messages": [{"role": "user", "content": QUESTION}]}),
            "output.value": json.dumps({"choices": [{"message": {"role": "assistant", "content": ANSWER}}]}),
            "input.mime_type": "application/json",
            "output.mime_type": "application/json",
        },
    ],
)
def test_a_model_without_flat_messages_is_read_of_what_there_is(given: dict[str, Any]) -> None:
    assert samples_of(of("LLM", given)).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


def test_a_root_that_shows_pythons_objects_alone_leaves_the_word_to_its_models() -> None:
    shows = {
        "input.value": '{"start_event": "AgentWorkflowStartEvent()", "init_state": {"is_running": false}}',
        "input.mime_type": "application/json",
        "output.value": "StopEvent(result=AgentOutput(response=ChatMessage(role=<MessageRole.ASSISTANT...",
    }
    root = of("CHAIN", shows, "openinference.instrumentation.llama_index", span_id=1, trace_id=1)

    made = samples_of(root, external(OPENINFERENCE_CHAT, span_id=2, trace_id=1, parent_id=1))

    assert made.single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


def test_a_model_span_around_another_says_what_that_one_says() -> None:
    shows = {
        "input.value": "{\"messages\": [\"ChatMessage(role=<MessageRole.USER: 'user'>, blocks=[TextBlock(text='q')])\"]}",
        "input.mime_type": "application/json",
        "output.value": '{"message": {"role": "assistant", "blocks": [{"text": "a"}]}}',
        "output.mime_type": "application/json",
    }
    outer = of("LLM", shows, span_id=1, trace_id=1)

    made = samples_of(outer, external(OPENINFERENCE_CHAT, span_id=2, trace_id=1, parent_id=1))

    assert made.single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


def test_what_is_hidden_is_not_there() -> None:
    hidden = {"input.value": QUESTION, "output.value": "__REDACTED__"}

    assert samples_of(of("CHAIN", hidden)).single_turn == SingleTurnSample(user_input=QUESTION)


NAMES = st.sampled_from(
    [
        *("input.value", "output.value", "input.mime_type", "output.mime_type", "metadata", "llm.prompts", "tool.name"),
        *(
            f"llm.input_messages.{n}.message.{rest}"
            for n in ("0", "1", "9" * 30, "x", "")
            for rest in ("role", "content")
        ),
        *(
            f"llm.output_messages.0.message.{rest}"
            for rest in ("role", "contents.0.message_content.text", "contents.x")
        ),
        *(f"llm.output_messages.0.message.tool_calls.{n}.tool_call.function.arguments" for n in (0, 10**9)),
        *(f"retrieval.documents.{n}.document.{rest}" for n in (0, 3, 10**9) for rest in ("content", "id", "score")),
    ]
)
KINDS = st.sampled_from(["LLM", "CHAIN", "TOOL", "RETRIEVER", "RERANKER", "AGENT", "PROMPT", "UNKNOWN", "odd"])
VALUES = SCALARS | payloads(6).map(lambda value: json.dumps(value, default=str)) | st.lists(SCALARS, max_size=3)


@given(
    st.lists(st.tuples(KINDS, st.dictionaries(NAMES, VALUES, max_size=8), st.integers(1, 4)), min_size=1, max_size=4)
)
def test_no_span_makes_it_raise(spans: list[tuple[str, dict[str, Any], int]]) -> None:
    made = [
        of(kind, {**held, "input.mime_type": "application/json"}, LANGCHAIN, span_id=n, trace_id=1, parent_id=parent)
        for n, (kind, held, parent) in enumerate(spans, start=1)
    ]

    for unit in units_of(made):
        assert is_sound(GenAIExtractor().extract(unit))


def test_two_thousand_attributes_are_read_in_their_order() -> None:
    flat = {
        f"llm.input_messages.{n}.message.{key}": v
        for n in range(1000)
        for key, v in (("role", "user"), ("content", f"{n}"))
    }

    asked = content_of(of("LLM", flat))[semconv.INPUT_MESSAGES]

    assert [message["parts"][0]["content"] for message in asked] == [str(n) for n in range(1000)]


def test_a_graph_whose_node_waits_for_a_person_gives_no_sample() -> None:
    interrupt = ("exception", {"exception.type": "langgraph.errors.GraphInterrupt"})
    graph = of("CHAIN", {"input.value": "Delete it all.", "output.value": "Shall I?"}, span_id=7)
    node = of("CHAIN", {"input.value": "x"}, trace_id=graph.trace_id, parent_id=7, events=[interrupt])

    assert samples_of(graph, node).reason == "the turn was interrupted and waits to be resumed"
    assert samples_of(graph).single_turn is not None


LLAMA_INDEX = "openinference.instrumentation.llama_index"


@pytest.mark.parametrize("text", [QUESTION, 'It\'s "Paris"?\nYes.'])
def test_a_printed_message_of_autogen_is_its_text(text: str) -> None:
    printed = f"id='7' source='user' models_usage=None metadata={{}} content={text!r} type='TextMessage'"
    written = {
        "openinference.span.kind": "AGENT",
        "input.value": json.dumps({"messages": [printed], "cancellation_token": "<autogen_core.CancellationToken>"}),
        "output.value": ANSWER,
    }

    samples = samples_of(external(written, "openinference.instrumentation.autogen_agentchat"))

    assert samples.single_turn == SingleTurnSample(user_input=text, response=ANSWER)


@pytest.mark.parametrize(
    ("scope", "printed"),
    [
        ("autogen_agentchat", "id='\\x' content='a' type='TextMessage'"),
        ("haystack", "ChatMessage(_role=<ChatRole.USER: 'user'>\\x)"),
    ],
)
def test_a_printed_message_that_is_no_json_is_read(scope: str, printed: str) -> None:
    written = {
        "openinference.span.kind": "AGENT",
        "input.value": f'{{"messages": ["{printed}"]}}',
        "output.value": ANSWER,
    }

    assert is_sound(samples_of(external(written, f"openinference.instrumentation.{scope}")))


@pytest.mark.parametrize("printed", ["<groq.Stream object at 0x7f3fdc7da590>", "<groq.AsyncStream object at 0x7f3f>"])
def test_a_stream_of_groq_is_no_answer(printed: str) -> None:
    asked = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": QUESTION}

    samples = samples_of(of("LLM", {**asked, "output.value": printed}, "openinference.instrumentation.groq"))

    assert samples.single_turn == SingleTurnSample(user_input=QUESTION)


@pytest.mark.parametrize("printed", ["<generator object>", '{"response_gen": "<async_generator object>", "nodes": []}'])
def test_an_unread_stream_is_no_answer(printed: str) -> None:
    of_stream = {"output.value": printed, "output.mime_type": "application/json"}
    root = of("CHAIN", {"input.value": QUESTION, **of_stream}, LLAMA_INDEX, span_id=1)
    wrapper = of("LLM", {"input.value": '{"prompt": "x"}'}, LLAMA_INDEX, span_id=2, parent_id=1, end_ns=90)
    answered = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": ANSWER}
    model = of("LLM", answered, LLAMA_INDEX, span_id=3, parent_id=2, end_ns=80)

    assert samples_of(root, wrapper, model).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


@pytest.mark.parametrize(
    ("last", "answer"),
    [(f"'{ANSWER}'", ANSWER), ('"It\'s 5."', "It's 5."), ("5", "5")],
)
def test_the_answer_of_a_stream_of_steps_is_its_final_step(last: str, answer: str) -> None:
    steps = f"ToolCall(name='look', arguments={{}})ActionStep(step_number=1)FinalAnswerStep(output={last})"
    run = {"input.value": json.dumps({"task": QUESTION, "stream": True}), "output.value": steps}

    root = of("AGENT", run, "openinference.instrumentation.smolagents")

    assert samples_of(root).single_turn == SingleTurnSample(user_input=QUESTION, response=answer)


def test_steps_without_a_final_one_are_no_answer() -> None:
    run = {"input.value": QUESTION, "output.value": "ActionStep(step_number=1)"}

    root = of("AGENT", run, "openinference.instrumentation.smolagents")

    assert samples_of(root).single_turn == SingleTurnSample(user_input=QUESTION)


def test_a_printed_message_of_haystack_is_read() -> None:
    asked = f"ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='{QUESTION}')], _name=None)"
    called = "ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[ToolCall(tool_name='look')], _name=None)"
    said = (
        f"ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[TextContent(text=\"{ANSWER}\")], _name=None)"
    )
    run = {
        "input.value": json.dumps({"data": {"agent": {"messages": [asked]}}}),
        "output.value": json.dumps({"agent": {"messages": [asked, called, said], "last_message": said}}),
        **dict.fromkeys(("input.mime_type", "output.mime_type"), "application/json"),
    }

    root = of("CHAIN", run, "openinference.instrumentation.haystack", span_id=1)
    model = of("LLM", OPENINFERENCE_CHAT, span_id=2, parent_id=1)

    assert samples_of(root, model).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


@pytest.mark.parametrize(
    ("scope", "given"),
    [
        ("dspy", {"input.value": '{"kwargs": {"city": "Paris"}}'}),
        ("smolagents", {"input.value": '{"args": [], "sanitize_inputs_outputs": false, "kwargs": {"city": "Paris"}}'}),
    ],
)
def test_a_tool_has_its_own_name_and_arguments(scope: str, given: dict[str, Any]) -> None:
    called = of("TOOL", given, f"openinference.instrumentation.{scope}", name="get_weather.__call__")
    translated = SpanNormalizers().translate(called)

    assert translated is not None
    assert translated.attributes[semconv.TOOL_NAME] == "get_weather"
    assert translated.attributes[semconv.TOOL_CALL_ARGUMENTS] == {"city": "Paris"}


def test_the_answer_of_a_crewai_agent_is_its_raw_text() -> None:
    prompt = [{"role": "system", "content": "You are a guide."}, {"role": "user", "content": f"Task: {QUESTION}"}]
    result = {"raw": ANSWER, "pydantic": None, "agent_role": "Guide", "messages": prompt, "last_replan_reason": None}
    run = {
        "input.value": json.dumps({"messages": QUESTION}),
        "output.value": json.dumps(result),
        **dict.fromkeys(("input.mime_type", "output.mime_type"), "application/json"),
    }

    root = of("AGENT", run, "openinference.instrumentation.crewai", name="Guide.kickoff")

    assert samples_of(root).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


IMAGE = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(("hidden", "images"), [({}, 1), ({"type": "image"}, 0)], ids=["not flat", "hidden"])
def test_an_image_that_flat_messages_lack_is_read_from_the_input(hidden: dict[str, str], images: int) -> None:
    parts = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": IMAGE}}]
    flat = "llm.input_messages.0.message"
    call = {
        "input.value": json.dumps([{"role": "user", "content": parts}]),
        "input.mime_type": "application/json",
        f"{flat}.role": "user",
        f"{flat}.contents.0.message_content.type": "text",
        f"{flat}.contents.0.message_content.text": QUESTION,
        **{f"{flat}.contents.1.message_content.{key}": value for key, value in hidden.items()},
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": ANSWER,
    }

    sample = samples_of(of("LLM", call)).single_turn

    assert sample is not None
    assert len(sample.images or ()) == images
    assert sample.response == ANSWER


def test_parallel_calls_in_messages_of_their_own_are_one_message() -> None:
    prompt: list[dict[str, str]] = [{"role": "user", "content": QUESTION}]
    for name, city in (("c1", "Rome"), ("c2", "Oslo")):
        call = {"id": name, "function.name": "weather", "function.arguments": json.dumps({"city": city})}
        prompt.append({"role": "assistant", **{f"tool_calls.0.tool_call.{key}": value for key, value in call.items()}})
    prompt += [{"role": "tool", "tool_call_id": name, "content": name} for name in ("c1", "c2")]
    flat = {
        f"llm.input_messages.{n}.message.{key}": value
        for n, message in enumerate(prompt)
        for key, value in message.items()
    }

    asked = content_of(of("LLM", flat))[semconv.INPUT_MESSAGES]

    assert [message["role"] for message in asked] == ["user", "assistant", "tool", "tool"]
    assert [part["id"] for part in asked[1]["parts"]] == ["c1", "c2"]


JAVA = "com.arize.langchain4j"


def test_printed_messages_of_java_are_read_from_the_input() -> None:
    printed = f'UserMessage {{ name = null, contents = [TextContent {{ text = "{QUESTION}" }}], attributes = {{}} }}'
    attributes = {
        "openinference.span.kind": "LLM",
        "input.value": json.dumps([{"role": "user", "content": QUESTION}]),
        "input.mime_type": "application/json",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": printed,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": ANSWER,
    }

    assert samples_of(external(attributes, JAVA)).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


@pytest.mark.parametrize("asked", ["Execution Started", json.dumps([{"role": "user", "content": QUESTION}])])
def test_the_fixed_texts_of_a_java_service_are_neither_question_nor_answer(asked: str) -> None:
    mime_type = "application/json" if asked.startswith("[") else "text/plain"
    run = {"openinference.span.kind": "AGENT", "input.value": asked, "input.mime_type": mime_type}
    run["output.value"] = "Execution Completed"
    call = {**OPENINFERENCE_CHAT, "metadata": "{}"}

    made = samples_of(external(run, JAVA, span_id=1), external(call, JAVA, parent_id=1))

    assert made.single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)
