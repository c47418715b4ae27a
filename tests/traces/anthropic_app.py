"""Programs on the bare Anthropic SDK, with answers from a transport in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx2 as httpx  # the client is written with it
from anthropic import Anthropic
from tests.traces.said import ANSWERS, CAPITAL, MODEL, SUM, SYSTEM, TOTAL, TURNS

ADD: Final[Any] = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


def chain(client: Anthropic) -> object:
    return said(client, [{"role": "user", "content": CAPITAL}], system=SYSTEM)


def thread(client: Anthropic) -> object:
    messages: list[Any] = []
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        messages.append({"role": "assistant", "content": said(client, messages)})
    return messages


def tool(client: Anthropic) -> object:
    messages: list[Any] = [{"role": "user", "content": SUM}]
    [call] = said(client, messages, system=SYSTEM, tools=[ADD])
    result = {"type": "tool_result", "tool_use_id": call.id, "content": str(call.input["a"] + call.input["b"])}
    messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return said(client, messages, system=SYSTEM, tools=[ADD])


def said(client: Anthropic, messages: list[Any], **options: Any) -> list[Any]:
    """Return the content blocks that the model answers with."""
    return client.messages.create(model=MODEL, max_tokens=100, messages=messages, **options).content


def programs(url: str) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called; the address is of another provider's server, and unused."""
    client = Anthropic(api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(_answer)), max_retries=0)
    named = {"chain": chain, "thread": thread, "tool": tool}
    return {name: lambda program=program: program(client) for name, program in named.items()}


def _answer(request: httpx.Request) -> httpx.Response:
    asked = json.loads(request.content)
    block = _block(asked["messages"][-1]["content"])
    message = {
        "id": "msg-1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [block],
        "stop_reason": "end_turn" if block["type"] == "text" else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 8},
    }
    return httpx.Response(200, json=message)


def _block(last: Any) -> dict[str, Any]:
    if not isinstance(last, str):
        return {"type": "text", "text": TOTAL}
    if last == SUM:
        return {"type": "tool_use", "id": "call-1", "name": "add", "input": {"a": 2, "b": 3}}
    return {"type": "text", "text": ANSWERS[last]}
