"""Programs on OpenAI's Agents SDK: an agent that answers, one with a tool, a thread of three turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.instrumentation.genai.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from tests.traces.said import CAPITAL, MODEL, SUM, SYSTEM, TURNS


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def attach(provider: TracerProvider) -> None:
    """Have both instrumentations write to the provider: the spans of models are those of OpenAI's client."""
    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider, disable_openai_trace_export=True)
    OpenAIInstrumentor().instrument(tracer_provider=provider)


def programs(url: str) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called: their model is at this address."""

    def asked(name: str, questions: Sequence[str], *tools: Any) -> list[Any]:
        # A client of its own, as it belongs to one loop.
        model = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(base_url=url, api_key="none"))
        agent = Agent(name=name, instructions=SYSTEM, model=model, tools=list(tools))
        talk: list[Any] = []
        for question in questions:
            talk = Runner.run_sync(agent, [*talk, {"role": "user", "content": question}]).to_input_list()
        return talk

    return {
        "chain": lambda: asked("assistant", [CAPITAL]),
        "agent": lambda: asked("calculator", [SUM], add),
        "thread": lambda: asked("companion", TURNS),
    }
