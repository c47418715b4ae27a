"""Programs on Google's Agent Development Kit: an agent that answers, one with a tool, a thread of three turns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else the import fetches prices from the net
os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")  # version 2 reads both; 1 writes
os.environ.setdefault("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")  # content in names of its own

from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.traces.said import CAPITAL, MODEL, SUM, SYSTEM, TURNS


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _asked(agent: Agent, questions: Sequence[str]) -> list[str]:
    runner = InMemoryRunner(agent, app_name="recorded")
    session = await runner.session_service.create_session(app_name="recorded", user_id="user-1", session_id="session-1")
    said: list[str] = []
    for question in questions:
        message = types.Content(role="user", parts=[types.Part(text=question)])
        async for event in runner.run_async(user_id="user-1", session_id=session.id, new_message=message):
            said += [part.text for part in event.content.parts] if event.is_final_response() and event.content else []
    return said


def attach(provider: TracerProvider) -> None:
    """Set the provider globally, because the kit reads it there."""
    trace.set_tracer_provider(provider)


def programs(url: str) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called: their model is at this address."""
    model = LiteLlm(f"openai/{MODEL}", api_base=url, api_key="none")
    assistant = Agent(name="assistant", model=model, instruction=SYSTEM)
    calculator = Agent(name="calculator", model=model, instruction=SYSTEM, tools=[add])
    return {
        "chain": lambda: asyncio.run(_asked(assistant, [CAPITAL])),
        "agent": lambda: asyncio.run(_asked(calculator, [SUM])),
        "thread": lambda: asyncio.run(_asked(assistant, TURNS)),
    }
