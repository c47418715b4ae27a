"""Programs on Pydantic AI: an agent that answers, one with a tool, a thread of three turns, a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from httpx import AsyncClient
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.traces.said import CAPITAL, MODEL, SUM, SYSTEM, TURNS


def chain(model: OpenAIChatModel) -> object:
    return Agent(model, system_prompt=SYSTEM, name="assistant").run_sync(CAPITAL).output


def agent(model: OpenAIChatModel) -> object:
    calculator = Agent(model, system_prompt=SYSTEM, name="calculator")

    @calculator.tool_plain
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return calculator.run_sync(SUM).output


def thread(model: OpenAIChatModel) -> object:
    companion, history = Agent(model, name="companion"), None
    for said in TURNS:
        history = companion.run_sync(said, message_history=history).all_messages()
    return history


def stream(model: OpenAIChatModel) -> object:
    async def words() -> list[str]:
        assistant: Agent[Any, str] = Agent(model, system_prompt=SYSTEM, name="assistant")
        async with assistant.run_stream(CAPITAL) as said:
            return [word async for word in said.stream_text(delta=True)]

    return asyncio.run(words())


def attach(provider: TracerProvider) -> None:
    """Have every agent trace itself to the provider: version 1 of the library in its first format."""
    first: Any = {"version": 1, "event_mode": "attributes"} if version("pydantic-ai-slim").startswith("1.") else {}
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider, **first))


def programs(url: str) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called: their model is at this address."""
    named = {"chain": chain, "agent": agent, "thread": thread, "stream": stream}
    return {name: lambda program=program: program(_model_at(url)) for name, program in named.items()}


def _model_at(url: str) -> OpenAIChatModel:
    """Return a model of its own, as its client belongs to one loop."""
    return OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none", http_client=AsyncClient()))
