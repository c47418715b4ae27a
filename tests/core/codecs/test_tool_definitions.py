"""Definitions of tools, in the form of each provider and instrumentation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spanscore import MultiTurnSample, SampleError, ToolDefinition
from spanscore.core.codecs.langchain import bound_tools
from spanscore.core.codecs.stored_sample import sample_of
from spanscore.core.codecs.tool_definitions import tool_definitions, union

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GEMINI = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
TOOL = ToolDefinition(name="weather", description="The weather.", parameters=SCHEMA)
ABOUT = {"name": "weather", "description": "The weather."}
FORMS: dict[str, Any] = {
    "GenAI conventions": [{"type": "function", **ABOUT, "parameters": SCHEMA}],
    "OpenAI's chat API": [{"type": "function", "function": {**ABOUT, "parameters": SCHEMA}}],
    "OpenAI's functions": [{**ABOUT, "parameters": SCHEMA}],
    "Anthropic": [{**ABOUT, "input_schema": SCHEMA}],
    "Bedrock": [{"toolSpec": {**ABOUT, "inputSchema": {"json": SCHEMA}}}],
    "Gemini": [{"functionDeclarations": [{**ABOUT, "parameters": GEMINI}]}],
    "ADK": [{"function_declarations": [{**ABOUT, "parameters_json_schema": SCHEMA}]}],
    "Vercel's SDK 4": (json.dumps({"type": "function", **ABOUT, "parameters": SCHEMA}),),
    "Vercel's SDK 5": [json.dumps({"type": "function", **ABOUT, "inputSchema": SCHEMA})],
    "Pydantic AI": {"function_tools": [{**ABOUT, "parameters_json_schema": SCHEMA}], "output_mode": "text"},
    "OpenLLMetry": [{**ABOUT, "parameters": json.dumps(SCHEMA)}],
    "JSON text": json.dumps([{"function": {**ABOUT, "parameters": SCHEMA}}]),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_form_gives_the_same_tool(form: Any) -> None:
    assert tool_definitions(form) == [TOOL]


@pytest.mark.parametrize(
    "value", [None, 5, "", "weather", "[{", [{}], [{"type": "function"}], [[]], {"name": 5}, [None]]
)
def test_a_value_without_a_tool_gives_none(value: Any) -> None:
    assert tool_definitions(value) == []


def test_the_last_definition_of_a_name_counts() -> None:
    assert tool_definitions([{"name": "a", "description": "old"}, {"name": "b"}, {"name": "a"}]) == [
        ToolDefinition(name="a"),
        ToolDefinition(name="b"),
    ]


def test_a_tool_of_the_provider_is_named_by_its_type() -> None:
    assert tool_definitions([{"type": "web_search"}]) == [ToolDefinition(name="web_search")]


def test_tools_beyond_the_limit_are_counted_and_called_ones_are_kept_first() -> None:
    tools = [ToolDefinition(name=name, description=20 * name) for name in "abc"]
    size = len(tools[0].model_dump_json(exclude_none=True))

    assert union(tools, 2 * size, ["c"]) == ([tools[0], tools[2]], 1)
    assert union(tools, 3 * size) == (tools, 0)


@pytest.mark.parametrize(
    "parameters",
    [{"tools": FORMS["OpenAI's chat API"]}, {"functions": FORMS["OpenAI's functions"]}, {"tools": FORMS["Anthropic"]}],
)
def test_bound_tools_are_read_from_the_parameters_of_a_model(parameters: Any) -> None:
    assert bound_tools(parameters) == FORMS["GenAI conventions"]


@pytest.mark.parametrize("parameters", [None, {}, {"tools": None}, {"tools": object()}, {"tools": [object(), {}]}])
def test_a_model_without_bound_tools_has_none(parameters: Any) -> None:
    assert bound_tools(parameters) == []


@pytest.mark.parametrize(
    "tools", [FORMS["OpenAI's chat API"], FORMS["JSON text"], [ABOUT | {"parameters": SCHEMA}], [TOOL]]
)
def test_a_record_has_tools_in_any_form(tools: Any) -> None:
    sample = sample_of({"user_input": [{"role": "user", "content": "hello"}], "tools": tools})

    assert isinstance(sample, MultiTurnSample)
    assert sample.tools == [TOOL]


def test_a_tool_without_a_name_is_refused_with_its_place() -> None:
    with pytest.raises(SampleError, match=r"tools\.1: it has no name; a tool has name, description and parameters"):
        sample_of({"user_input": [{"role": "user", "content": "hello"}], "tools": [{"name": "a"}, {"title": "b"}]})
