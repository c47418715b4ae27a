"""Tool calls in the forms of other libraries: each is once in the conversation, with its own result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.samples.normalizers.spans import ANSWER, QUESTION, external, samples_of

from spanscore import semconv
from spanscore.core.sample import Samples
from spanscore.core.span import SpanData
from spanscore.samples.normalizers.registry import SpanNormalizers

ROOT = 7


def text(words: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": words}]}


def calls(*named: tuple[Any, str, dict[str, Any]]) -> dict[str, Any]:
    parts = [{"type": "tool_call", "id": identity, "name": name, "arguments": args} for identity, name, args in named]
    return {"role": "assistant", "parts": parts}


def answers(*results: tuple[Any, Any]) -> list[dict[str, Any]]:
    parts = [{"type": "tool_call_response", "id": identity, "response": result} for identity, result in results]
    return [{"role": "tool", "parts": [part]} for part in parts]


ROME, OSLO = {"city": "Rome"}, {"city": "Oslo"}
ASKED = text("Weather in Rome and Oslo?")
SAID = text("Sun and snow.", "assistant")
BOTH = calls(("c1", "weather", ROME), ("c2", "weather", OSLO))
RESULTS = answers(("c1", "sun"), ("c2", "snow"))


def span(operation: str, at: int = 0, more: dict[str, Any] | None = None, **fields: Any) -> SpanData:
    named = {"gen_ai.operation.name": operation, "gen_ai.provider.name": "openai", **(more or {})}
    known = {"span_id": 100 + at, "parent_id": ROOT, "end_ns": at + 1, **fields}
    return external(named, trace_id=1, start_ns=at, **known)


def agent(asked: Sequence[Any] = (), said: Sequence[Any] = (), **fields: Any) -> SpanData:
    return span("invoke_agent", 0, talk(asked, said), span_id=ROOT, parent_id=None, end_ns=1_000, **fields)


def chat(at: int, asked: Sequence[Any], said: Sequence[Any], **fields: Any) -> SpanData:
    return span("chat", at, talk(asked, said), **fields)


def tool(at: int, name: str, **attributes: Any) -> SpanData:
    known = {f"gen_ai.tool.call.{key}": value for key, value in attributes.items()}
    return span("execute_tool", at, {"gen_ai.tool.name": name, **known})


def talk(asked: Sequence[Any], said: Sequence[Any]) -> dict[str, Any]:
    sides = {"gen_ai.input.messages": asked, "gen_ai.output.messages": said}
    return {name: json.dumps(side) for name, side in sides.items() if side}


def shown(samples: Samples) -> list[Any]:
    """The conversation in short: words, names of calls with their arguments, results with the call's id."""
    assert samples.multi_turn is not None, samples.reason
    return [each for message in samples.multi_turn.user_input for each in _short(message)]


def _short(message: Any) -> list[Any]:
    called = [(call.name, *call.args.values()) for call in getattr(message, "tool_calls", None) or ()]
    words = [message.content] if message.content or message.type == "tool" else []
    return [*words, *called] if message.type != "tool" else [f"= {message.content}"]


WEATHER = [
    "Weather in Rome and Oslo?",
    ("weather", "Rome"),
    ("weather", "Oslo"),
    "= sun",
    "= snow",
    "Sun and snow.",
]
ONE_BY_ONE = [calls(("c1", "weather", ROME)), calls(("c2", "weather", OSLO))]


@pytest.mark.parametrize(
    "prompt",
    [
        [BOTH, *RESULTS],
        [*ONE_BY_ONE, *RESULTS],
        [*ONE_BY_ONE, *reversed(RESULTS)],
        [ONE_BY_ONE[0], RESULTS[0], ONE_BY_ONE[1], RESULTS[1]],
        [BOTH, *answers((None, "sun"), (None, "snow"))],
        [calls((None, "weather", ROME), (None, "weather", OSLO)), *answers((None, "sun"), (None, "snow"))],
        [calls(("fc_1", "weather", ROME)), calls(("fc_2", "weather", OSLO)), *RESULTS],
        RESULTS,
    ],
    ids=[
        "as said",
        "one by one",
        "reversed",
        "in turns",
        "results without ids",
        "without ids",
        "items' ids",
        "only new",
    ],
)
def test_a_call_that_a_later_prompt_repeats_stands_once_with_its_result(prompt: list[Any]) -> None:
    samples = samples_of(agent(), chat(1, [ASKED], [BOTH]), chat(5, [ASKED, *prompt], [SAID]))

    assert shown(samples) == WEATHER


def test_a_call_that_is_said_with_its_items_id_is_the_one_that_its_tool_ran_for() -> None:
    said = calls(("fc_1", "weather", ROME), ("fc_2", "weather", OSLO))
    tools = [tool(2, "weather", id="c2", arguments=json.dumps(OSLO), result="snow")]
    tools += [tool(3, "weather", id="c1", arguments=json.dumps(ROME), result="sun")]

    samples = samples_of(agent(), chat(1, [ASKED], [said]), *tools, chat(5, [ASKED], [SAID]))

    assert shown(samples) == WEATHER


def test_results_of_tools_without_ids_go_by_arguments_and_then_by_order() -> None:
    said = calls(("c1", "weather", ROME), ("c2", "weather", OSLO))
    tools = [tool(2, "weather", arguments=json.dumps(OSLO), result="snow"), tool(3, "weather", result="sun")]

    samples = samples_of(agent(), chat(1, [ASKED], [said]), *tools, chat(5, [ASKED], [SAID]))

    assert shown(samples) == WEATHER


def test_the_same_call_without_an_id_is_two_calls_if_one_prompt_shows_it_twice() -> None:
    call = calls((None, "roll", {}))
    first = [ASKED, call, *answers((None, "3"))]
    second = [*first, call, *answers((None, "5"))]

    samples = samples_of(agent(), chat(1, [ASKED], [call]), chat(3, first, [call]), chat(5, second, [SAID]))

    assert shown(samples)[1:-1] == [("roll",), "= 3", ("roll",), "= 5"]


@pytest.mark.parametrize("scope", ["gcp.vertex.agent", "opentelemetry.instrumentation.google_genai"])
@pytest.mark.parametrize("ids", [("adk-1", "adk-2", "adk-3"), ("weather_0", "weather_1", "weather_0")])
def test_a_position_that_stands_for_a_missing_id_is_no_id(scope: str, ids: tuple[str, str, str]) -> None:
    lima = {"city": "Lima"}
    said = [calls((ids[0], "weather", ROME), (ids[1], "weather", OSLO)), calls((ids[2], "weather", lima))]
    first = [
        calls(("weather_0", "weather", ROME), ("weather_1", "weather", OSLO)),
        *answers(("weather_0", "sun"), ("weather_1", "snow")),
    ]
    second = [*first, calls(("weather_0", "weather", lima)), *answers(("weather_0", "fog"))]
    models = [(1, [ASKED], said[0]), (3, [ASKED, *first], said[1]), (5, [ASKED, *second], SAID)]

    samples = samples_of(agent(), *(chat(at, asked, [answer], scope=scope) for at, asked, answer in models))

    assert shown(samples) == [*WEATHER[:-1], ("weather", "Lima"), "= fog", WEATHER[-1]]


@pytest.mark.parametrize("results", [{}, {"result": ""}], ids=["unknown", "empty"])
def test_a_tool_without_a_result_gives_way_to_the_prompts_and_an_empty_result_does_not(results: dict[str, str]) -> None:
    called, ran = calls(("c1", "weather", ROME)), tool(2, "weather", id="c1", **results)
    prompt = [ASKED, called, *answers(("c1", "sun"))]

    samples = samples_of(agent(), chat(1, [ASKED], [called]), ran, chat(5, prompt, [SAID]))

    assert shown(samples)[2] == ("= " if results else "= sun")


def test_a_result_that_stands_nowhere_is_not_an_empty_one() -> None:
    called = calls(("c1", "weather", ROME))

    samples = samples_of(agent(), chat(1, [ASKED], [called]), tool(2, "weather", id="c1"), chat(5, [ASKED], [SAID]))
    alone = samples_of(agent([ASKED], [SAID]), tool(2, "weather", id="c1", arguments=json.dumps(ROME)))

    assert shown(samples) == shown(alone) == [ASKED["parts"][0]["content"], ("weather", "Rome"), "Sun and snow."]


def test_the_name_of_a_call_tells_two_of_one_id_apart() -> None:
    said = calls(("1", "weather", ROME)), calls(("1", "clock", ROME))
    tools = [tool(2, "weather", id="1", result="sun"), tool(4, "clock", id="1", result="noon")]

    samples = samples_of(agent(), chat(1, [ASKED], [said[0]]), tools[0], chat(3, [ASKED], [said[1]]), tools[1])

    assert shown(samples)[1:] == [("weather", "Rome"), "= sun", ("clock", "Rome"), "= noon"]


def test_a_root_without_messages_of_its_own_ends_with_the_answer() -> None:
    before = [text("Hi"), text("Hello.", "assistant")]

    samples = samples_of(agent([*before, ASKED]), chat(1, [ASKED], [SAID]))

    assert shown(samples) == ["Hi", "Hello.", "Weather in Rome and Oslo?", "Sun and snow."]


def test_a_call_that_the_root_shows_has_the_result_of_its_tool_or_of_a_later_prompt() -> None:
    first, second = ONE_BY_ONE
    models = [chat(1, [ASKED], [BOTH]), chat(5, [ASKED, BOTH, *RESULTS], [SAID])]

    samples = samples_of(agent([ASKED], [first, second, SAID]), tool(2, "weather", id="c1", result="sun"), *models)
    without_models = samples_of(agent([ASKED], [first, SAID]), tool(2, "weather", id="c1", result="sun"))

    assert shown(samples)[1:] == [("weather", "Rome"), "= sun", ("weather", "Oslo"), "= snow", "Sun and snow."]
    assert shown(without_models)[1:] == [("weather", "Rome"), "= sun", "Sun and snow."]


def test_words_that_a_root_shows_beside_calls_stand_behind_them_if_a_model_said_them_alone() -> None:
    summed = {"role": "assistant", "parts": [*SAID["parts"], *BOTH["parts"]]}
    models = [chat(1, [ASKED], [BOTH]), chat(5, [ASKED, BOTH, *RESULTS], [SAID])]

    assert shown(samples_of(agent([ASKED], [summed]), *models)) == WEATHER


def test_words_that_a_model_said_beside_its_calls_stay_there() -> None:
    said = {"role": "assistant", "parts": [*text("Let me look.")["parts"], *BOTH["parts"]]}

    samples = samples_of(agent([ASKED], [said]), chat(1, [ASKED], [said]), tool(2, "weather", id="c1", result="sun"))

    assert shown(samples)[1:] == ["Let me look.", ("weather", "Rome"), ("weather", "Oslo"), "= sun"]


CONTENT = [
    {"role": message["role"], "content": message["parts"]}
    for message in (calls(("c1", "weather", ROME)), *answers(("c1", "sun")))
]
ANTHROPIC = [
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": ROME}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sun"}]},
]
OPENAI = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(ROME)}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sun"},
]
RESPONSES = [
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": json.dumps(ROME)},
    {"type": "function_call_output", "call_id": "c1", "output": "sun"},
]
VERCEL = [
    {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": ROME}]},
    {
        "role": "tool",
        "content": [{"type": "tool-result", "toolCallId": "c1", "output": {"type": "text", "value": "sun"}}],
    },
]
BEDROCK = [
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "weather", "input": ROME}}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "sun"}]}}]},
]
GEMINI = [
    {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": ROME}}]},
    {"role": "tool", "parts": [{"functionResponse": {"name": "weather", "response": "sun"}}]},
]
DEFINITIONS = [
    {"role": "tool", "content": {"functionDeclarations": [{"name": "weather", "description": "Weather of a city"}]}},
    {"role": "tool", "content": json.dumps([{"name": "weather", "description": "Weather of a city"}])},
]


@pytest.mark.parametrize(
    "prompt",
    [
        CONTENT,
        ANTHROPIC,
        [*ANTHROPIC[:1], {**ANTHROPIC[1], "role": "tool"}],
        OPENAI,
        RESPONSES,
        VERCEL,
        BEDROCK,
        GEMINI,
    ],
    ids=["content", "anthropic", "anthropic as tool", "openai", "responses", "vercel", "bedrock", "gemini"],
)
def test_calls_and_results_in_any_clients_form_are_read_under_the_conventions_names(prompt: list[Any]) -> None:
    asked = [ASKED, *DEFINITIONS, *prompt]

    samples = samples_of(chat(1, asked, [{"role": "assistant", "content": [{"type": "text", "text": "Sun."}]}]))

    assert shown(samples) == [ASKED["parts"][0]["content"], ("weather", "Rome"), "= sun", "Sun."]


@pytest.mark.parametrize("content", ["Dogs bark.", [{"type": "text", "text": "Dogs bark."}]])
def test_search_results_in_a_prompt_are_contexts(content: Any) -> None:
    found = [{"type": "search_result", "source": "https://a.example", "title": "Dogs", "content": content}]
    ran = [{"type": "tool_result", "tool_use_id": "c1", "content": found}]
    earlier = {"role": "user", "content": [{**found[0], "content": "Cats purr."}, {"type": "text", "text": "Hi"}]}
    asked = {"role": "user", "content": [*found, {"type": "text", "text": "What do dogs do?"}]}

    given = samples_of(chat(1, [earlier, SAID, asked], [SAID]))
    by_tool = samples_of(chat(1, [ASKED, ANTHROPIC[0], {"role": "user", "content": ran}], [SAID]))

    for samples in (given, by_tool):
        assert samples.single_turn is not None
        assert samples.single_turn.retrieved_contexts == ["Dogs bark."]
        assert samples.single_turn.retrieved_context_ids == ["https://a.example"]


def test_a_tool_that_the_provider_runs_answers_within_the_models_message() -> None:
    found = [{"type": "web_search_result", "title": "Rome", "url": "https://a.example"}]
    said = [
        {"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "Rome"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": found},
        {"type": "text", "text": "Sun."},
    ]

    alone = samples_of(chat(1, [ASKED], [{"role": "assistant", "content": said}]))
    below = samples_of(agent(), chat(1, [ASKED], [{"role": "assistant", "content": said}]))

    searched = [("web_search", "Rome"), f"= {json.dumps(found, separators=(',', ':'))}"]
    assert shown(alone) == ["Weather in Rome and Oslo?", "I look.", *searched, "Sun."]
    assert shown(below) == ["Weather in Rome and Oslo?", "I look.Sun.", *searched]


def test_a_result_that_no_call_asked_for_is_left_out_with_a_note() -> None:
    before = [*answers(("c0", "fog")), text("Hi"), text("Hello.", "assistant")]

    samples = samples_of(chat(1, [*before, ASKED], [SAID]))

    assert shown(samples) == ["Hi", "Hello.", "Weather in Rome and Oslo?", "Sun and snow."]
    assert samples.reason is not None
    assert "left out of the conversation: 1 " in samples.reason


INTERRUPTIONS = {
    "event": {"events": [("exception", {"exception.type": "langgraph.errors.GraphInterrupt"})]},
    "older": {"events": [("exception", {"exception.type": "langgraph.errors.NodeInterrupt"})]},
    "status": {
        "status": "error",
        "events": [("exception", {"exception.message": "GraphInterrupt: (Interrupt(value=1),)"})],
    },
    "error type": {"status": "error", "more": {"error.type": "GraphInterrupt"}},
}


@pytest.mark.parametrize("how", INTERRUPTIONS)
def test_a_tool_that_waits_for_a_person_deep_in_a_run_without_an_answer_gives_no_sample(how: str) -> None:
    more = {"gen_ai.tool.name": "ask", **INTERRUPTIONS[how].get("more", {})}
    fields = {key: value for key, value in INTERRUPTIONS[how].items() if key != "more"}
    ran = [chat(1, [ASKED], [BOTH]), span("execute_tool", 2, more, parent_id=101, **fields)]

    samples = samples_of(agent(), *ran)
    went_on = samples_of(agent(), *ran, chat(5, [ASKED, BOTH, *RESULTS], [SAID]))
    answered = samples_of(agent([ASKED], [SAID]), *ran)

    assert (samples.reason, samples.interrupted) == ("the turn was interrupted and waits to be resumed", True)
    assert went_on.single_turn is not None
    assert answered.single_turn is not None


CALL = {"id": "c-1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Paris"}'}}
HUMAN = {"role": "user", "content": QUESTION}


def _called(*spans: SpanData) -> list[tuple[str, str]]:
    """The type of each message of a sample, and its text, or else the name and arguments of its calls."""
    sample = samples_of(*spans).multi_turn
    assert sample is not None
    calls = [str([(call.name, call.args) for call in getattr(m, "tool_calls", None) or ()]) for m in sample.user_input]
    return [(m.type, m.content or call) for m, call in zip(sample.user_input, calls, strict=True)]


LOOKED = [
    ("human", QUESTION),
    ("ai", "[('look', {'city': 'Paris'})]"),
    ("tool", "sunny"),
    ("ai", ANSWER),
]


def test_items_of_the_responses_api_are_the_calls_of_langfuses_model() -> None:
    inputs = [
        HUMAN,
        {"type": "function_call", "call_id": "c-1", "name": "look", "arguments": '{"city": "Paris"}'},
        {"type": "function_call_output", "call_id": "c-1", "output": "sunny"},
    ]
    model = external(
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.input": json.dumps({"input": inputs, "tools": []}),
            "langfuse.observation.output": json.dumps({"role": "assistant", "content": ANSWER}),
            "langfuse.observation.usage_details": '{"input_tokens": 11, "output_tokens": 7}',
        },
        "langfuse-sdk",
    )

    translated = SpanNormalizers().translate(model)

    assert _called(model) == LOOKED
    assert translated is not None
    assert translated.attributes[semconv.USAGE_INPUT_TOKENS] == 11


def test_a_message_of_langfuse_may_have_calls_alone() -> None:
    model = external(
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.input": json.dumps({"messages": [HUMAN]}),
            "langfuse.observation.output": json.dumps({"role": "assistant", "tool_calls": [CALL]}),
        },
        "langfuse-sdk",
    )

    assert _called(model) == LOOKED[:2]


def test_calls_beside_the_parts_of_litellms_messages_are_read() -> None:
    inputs = [
        {"role": "user", "parts": [{"type": "text", "content": QUESTION}]},
        {"role": "assistant", "parts": [], "tool_calls": [CALL]},
        {"role": "tool", "parts": [{"type": "text", "content": "sunny"}], "tool_call_id": "c-1"},
    ]
    output = {"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "stop"}
    model = external(
        {
            semconv.OPERATION_NAME: "chat",
            semconv.INPUT_MESSAGES: json.dumps(inputs),
            semconv.OUTPUT_MESSAGES: json.dumps([output]),
        },
        "litellm",
    )

    assert _called(model) == LOOKED


def test_a_streamed_response_of_openais_agents_is_read_in_its_list() -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}
    attributes = {
        "openinference.span.kind": "LLM",
        "input.value": json.dumps([HUMAN]),
        "output.value": json.dumps([{"object": "response", "output": [message], "error": None}]),
        **dict.fromkeys(("input.mime_type", "output.mime_type"), "application/json"),
    }

    single = samples_of(external(attributes, "openinference.instrumentation.openai_agents")).single_turn

    assert single is not None
    assert single.response == ANSWER
