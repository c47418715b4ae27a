"""Programs on the bare OpenAI SDK: nothing holds its calls together, so each is a unit of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from openai import OpenAI
from tests.traces.said import CAPITAL, MODEL, SUM, SYSTEM, TURNS

ADD: Final[Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


def chain(client: OpenAI) -> object:
    return said(client, asked(CAPITAL)).content


def stream(client: OpenAI) -> object:
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    return list(client.chat.completions.create(model=MODEL, messages=asked(CAPITAL), **options))


def thread(client: OpenAI) -> object:
    messages: list[Any] = []
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        messages.append({"role": "assistant", "content": said(client, messages).content})
    return messages


def tool(client: OpenAI) -> object:
    return with_tool(client, lambda a, b: a + b)


def with_tool(client: OpenAI, add: Callable[[int, int], int]) -> str:
    """Ask for a sum, call the tool that the model requests, and give it the result."""
    messages = asked(SUM)
    calling = said(client, messages, tools=[ADD])
    [call] = calling.tool_calls
    result = add(**json.loads(call.function.arguments))
    messages.append(calling.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})
    return str(said(client, messages, tools=[ADD]).content)


def asked(question: str) -> list[Any]:
    """Return the messages that ask it."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def said(client: OpenAI, messages: list[Any], **options: Any) -> Any:
    """Return the message that the model answers with."""
    return client.chat.completions.create(model=MODEL, messages=messages, **options).choices[0].message


def programs(url: str) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called: their model is at this address."""
    client = OpenAI(base_url=url, api_key="none", max_retries=0)
    named = {"chain": chain, "thread": thread, "tool": tool, "stream": stream}
    return {name: lambda program=program: program(client) for name, program in named.items()}
