"""The tools that a unit offered, from the spans of each writer, and from the callback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from tests.live import a_line
from tests.samples.normalizers.spans import external
from tests.traces.recordings import RECORDED, Recording

from spanscore import AIMessage as SampleAIMessage
from spanscore import HumanMessage, MultiTurnSample, ToolCall, ToolDefinition, semconv
from spanscore.config import Capture
from spanscore.core.codecs.tool_definitions import tool_definitions
from spanscore.core.sample import Samples
from spanscore.metrics import BaseMetric, Finding
from spanscore.samples.extraction import add_tools
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.normalizers.registry import SpanNormalizers
from spanscore.samples.redaction import redact_sample
from spanscore.testing import make_span, make_unit

TALK = MultiTurnSample(
    user_input=[HumanMessage(content="2 + 3?"), SampleAIMessage(tool_calls=[ToolCall(name="add", args={"a": 2})])]
)
WITH_TOOLS = [
    *("genai-langchain-1.3b0", "genai-openai-agents-1.3b0", "google-adk-2.13.0", "mlflow-3.17.2"),
    *("openinference-langchain-0.1.80", "openinference-llama-index-4.6.1", "openllmetry-langchain-0.40.14"),
    *("openllmetry-langchain-0.62.4", "pydantic-ai-1.107.10", "pydantic-ai-2.68.0"),
    *("vercel-ai-4.3.19", "vercel-ai-5.0.277", "vercel-ai-6.0.326"),
]


@pytest.mark.parametrize("writer", WITH_TOOLS)
def test_a_recorded_agent_has_its_tool(writer: str) -> None:
    [unit] = Recording(RECORDED / f"agent.{writer}.jsonl").units()
    samples = add_tools(GenAIExtractor().extract(unit), unit)

    assert samples.multi_turn is not None
    [add] = samples.multi_turn.tools or []
    assert add.name == "add"
    assert str(add.description).endswith("Add two numbers.")
    assert [kind["type"] for kind in (add.parameters or {})["properties"].values()] == ["integer", "integer"]


def definitions(*names: str, text: str = "") -> list[dict[str, Any]]:
    return [{"type": "function", "name": name, "description": text or None} for name in names]


def model(span_id: int, *tools: dict[str, Any], operation: str = semconv.CHAT) -> Any:
    attributes = {semconv.TOOL_DEFINITIONS: [*tools]}
    return make_span(operation, attributes=attributes, trace_id=1, span_id=span_id, parent_id=1, start_ns=span_id)


ROOT = make_span(trace_id=1, span_id=1, start_ns=0)


def test_the_tools_of_all_models_are_joined_and_the_last_definition_counts() -> None:
    agent = model(9, *definitions("add", text="of the agent"), operation=semconv.INVOKE_AGENT)
    unit = make_unit(
        ROOT, agent, model(2, *definitions("add", text="old")), model(3, *definitions("add", "sub", text="new"))
    )

    samples = add_tools(Samples(multi_turn=TALK), unit)

    assert samples.multi_turn is not None
    assert samples.multi_turn.tools == [ToolDefinition(name=name, description="new") for name in ("add", "sub")]


def test_tools_beyond_the_limit_are_noted_and_the_called_one_stays() -> None:
    unit = make_unit(ROOT, model(2, *definitions(*(f"t{n}" for n in range(5)), "add", text="x" * 20_000)))

    samples = add_tools(Samples(multi_turn=TALK, reason="a note"), unit)

    assert samples.multi_turn is not None
    assert [each.name for each in samples.multi_turn.tools or ()] == ["t0", "t1", "add"]
    assert samples.reason == "a note; left out of the tools: 3 definitions beyond 64 kB"


@pytest.mark.parametrize("spans", [[], [model(2)]])
def test_without_a_definition_the_tools_are_unknown(spans: list[Any]) -> None:
    samples = Samples(multi_turn=TALK)

    assert add_tools(samples, make_unit(ROOT, *spans)) is samples


def test_tools_that_are_there_stay() -> None:
    own = Samples(multi_turn=TALK.model_copy(update={"tools": []}))

    assert add_tools(own, make_unit(ROOT, model(2, *definitions("add")))) is own


def test_a_redactor_changes_the_definitions_as_it_changes_the_calls() -> None:
    made = SampleAIMessage(tool_calls=[ToolCall(name="call_ada", args={"ada": 1})])
    offered = ToolDefinition(
        name="call_ada", description="Call ada.", parameters={"properties": {"ada": {"type": "number"}}}
    )
    sample = MultiTurnSample(user_input=[made], tools=[offered])

    clean = redact_sample(sample, lambda text: text.replace("ada", "x"))

    assert clean == MultiTurnSample(
        user_input=[SampleAIMessage(tool_calls=[ToolCall(name="call_x", args={"x": 1})])],
        tools=[
            ToolDefinition(name="call_x", description="Call x.", parameters={"properties": {"x": {"type": "number"}}})
        ],
    )


def test_definitions_alone_are_no_content() -> None:
    marks = {"openinference.span.kind": "LLM", "llm.tools.0.tool.json_schema": '{"name": "add"}'}
    span = SpanNormalizers().translate(external(marks, "openinference.instrumentation.langchain"))

    assert span is not None
    assert span.no_content is not None


MARKS = {
    "openinference.span.kind": "LLM",
    "input.value": "2 + 3?",
    "output.value": "5",
    "llm.tools.0.tool.json_schema": '{"name": "add"}',
}


@pytest.mark.parametrize(("keeps", "names"), [(True, ["add"]), (False, [])])
def test_spans_keep_definitions_only_if_a_metric_reads_them(keeps: bool, names: list[str]) -> None:
    span = SpanNormalizers(tools=keeps).translate(external(MARKS, "openinference.instrumentation.langchain"))

    assert span is not None
    assert [each.name for each in tool_definitions(span.attributes.get(semconv.TOOL_DEFINITIONS))] == names


ADD = {"name": "add", "description": "Add."}
MESSAGES = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "2 + 3?"}]}])
FLAT = {"llm.tools.0.tool.name": "add", "llm.tools.0.tool.description": "Add."}
OLDER: dict[str, tuple[str, dict[str, Any]]] = {
    "Pydantic AI": (
        "pydantic-ai",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": MESSAGES,
            "model_request_parameters": json.dumps({"function_tools": [ADD]}),
        },
    ),
    "ADK": (
        "gcp.vertex.agent",
        {
            "gen_ai.operation.name": "generate_content",
            "gcp.vertex.agent.llm_request": json.dumps(
                {
                    "config": {"tools": [{"function_declarations": [ADD]}]},
                    "contents": [{"role": "user", "parts": [{"text": "2 + 3?"}]}],
                }
            ),
        },
    ),
    "OpenInference without a schema": (
        "openinference.instrumentation.openai",
        {**MARKS, "llm.tools.0.tool.name": "add", "llm.tools.0.tool.description": "Add."}
        | {"llm.tools.0.tool.json_schema": None},
    ),
    "flat content of the conventions": (
        "opentelemetry.instrumentation.openai.v1",
        {
            "llm.request.type": "chat",
            "gen_ai.system": "openai",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "2 + 3?",
            "llm.request.functions.0.name": "add",
            "llm.request.functions.0.description": "Add.",
        },
    ),
}


@pytest.mark.parametrize(("scope", "attributes"), OLDER.values(), ids=OLDER)
def test_older_forms_of_a_span_have_their_tools(scope: str, attributes: dict[str, Any]) -> None:
    present = {name: value for name, value in attributes.items() if value is not None}
    span = SpanNormalizers().translate(external(present, scope))

    assert span is not None
    assert tool_definitions(span.attributes.get(semconv.TOOL_DEFINITIONS)) == [ToolDefinition(**ADD)]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Bound(GenericFakeChatModel):
    """A model to which tools are bound in the form of OpenAI's API."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools])


class Witness(BaseMetric):
    """Keeps its samples."""

    name = "witness"

    def __init__(self, seen: list[Any], *fields: str) -> None:
        self.requires = {"multi_turn": ("user_input",)}
        self.optional = {"multi_turn": fields}
        self._seen = seen

    async def measure(self, sample: Any) -> Finding:
        self._seen.append(sample)
        return Finding(value=1.0)


def witnessed(*fields: str) -> tuple[Any, list[Any]]:
    seen: list[Any] = []
    call = {"name": "add", "args": {"a": 2, "b": 3}, "id": "call-1"}
    agent = create_agent(Bound(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("5")])), [add])
    with a_line(Witness(seen, *fields), capture=Capture(content=True)) as (scorer, trace):
        config: RunnableConfig = {"callbacks": [scorer.handler]}
        agent.invoke({"messages": [("user", "2 + 3?")]}, config)
        assert scorer.flush(10)
    return seen[0], [span for span in trace.spans if semconv.TOOL_DEFINITIONS in (span.attributes or {})]


def test_the_callback_reads_the_tools_that_are_bound_to_the_model() -> None:
    sample, spans = witnessed("tools")

    assert [span.name for span in spans] == ["chat Bound", "chat Bound"]
    [tool_seen] = sample.tools
    assert (tool_seen.name, tool_seen.description) == ("add", "Add two numbers.")
    assert tool_seen.parameters["required"] == ["a", "b"]


def test_without_a_metric_that_reads_them_no_sample_and_no_span_has_tools() -> None:
    sample, spans = witnessed()

    assert sample.tools is None
    assert spans == []
