"""Programs on the bare OpenAI SDK: nothing holds its calls together, so each is a unit of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from openai import OpenAI
from tests.traces.said import CAPITAL, MODEL, SUM, SYSTEM, TURNS

_ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


def chain(client: OpenAI) -> object:
    return _said(client, _asked(CAPITAL)).content


def stream(client: OpenAI) -> object:
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    return list(client.chat.completions.create(model=MODEL, messages=_asked(CAPITAL), **options))


def thread(client: OpenAI) -> object:
    messages: list[Any] = []
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        messages.append({"role": "assistant", "content": _said(client, messages).content})
    return messages


def tool(client: OpenAI) -> object:
    messages = _asked(SUM)
    said = _said(client, messages, tools=[_ADD])
    [call] = said.tool_calls
    result = sum(json.loads(call.function.arguments).values())
    messages += [said.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": str(result)}]
    return _said(client, messages, tools=[_ADD]).content


def _asked(question: str) -> list[Any]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def _said(client: OpenAI, messages: list[Any], **options: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=messages, **options).choices[0].message


def programs(url: str) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called: their model is at this address."""
    client = OpenAI(base_url=url, api_key="none", max_retries=0)
    named = {"chain": chain, "thread": thread, "tool": tool, "stream": stream}
    return {name: lambda program=program: program(client) for name, program in named.items()}
