"""Processes of a LangGraph agent: one has conversations, another labels their turns.

python -m tests.end_to_end.talking talk ENDPOINT PORT=TURNS …    has conversations named after ports, and prints their units
python -m tests.end_to_end.talking label ENDPOINT TRACE SPAN     labels a unit as bad, ten minutes later
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from uuid import uuid4

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.live import Grounded

from spanscore import OnlineScorer
from spanscore.config import Capture, Sampling, Sessions
from spanscore.core.sample import MultiTurnSample
from spanscore.metrics import BaseMetric, Finding

SERVICE = "harbour-pilots"
LATER_S = 600.0


@tool
def tide(port: str) -> str:
    """Tell the tide."""
    return f"high in {port}"


class Pilot(BaseChatModel):
    """Looks the tide up, then answers with it."""

    @property
    def _llm_type(self) -> str:
        return "pilot"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        last = messages[-1]
        call = {"name": "tide", "args": {"port": str(last.content)}, "id": uuid4().hex}
        said = AIMessage(str(last.content)) if isinstance(last, ToolMessage) else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


class Answered(BaseMetric):
    """Which share of the questions of a conversation was answered with the tide?"""

    name = "answered"
    requires = {"multi_turn": ("user_input",)}  # noqa: RUF012

    async def measure(self, sample: MultiTurnSample) -> Finding:
        asked = [one for one in sample.user_input if one.type == "human"]
        rows = [one for one in sample.user_input if one.type == "ai" and "high in" in str(one.content)]
        return Finding(value=len(rows) / len(asked), explanation=f"{len(rows)} of {len(asked)} questions")


def talk(endpoint: str, conversations: dict[str, int]) -> dict[str, list[list[str]]]:
    """Have conversations, turn by turn in turn, and return conversation → both ids of the unit of each of its turns."""
    provider = _provider(endpoint)
    unsampled = {"grounded": 0.0}
    units: dict[str, list[list[str]]] = {name: [] for name in conversations}
    scorer = OnlineScorer(
        [Grounded()],
        sampling=Sampling(rates=unsampled),
        sessions=Sessions(metrics=[Answered()]),
        tracer_provider=provider,
        capture=Capture(content=True),
    )
    with scorer:
        agent = create_agent(Pilot(), [tide], name="pilot", checkpointer=InMemorySaver())
        for turn in range(max(conversations.values())):
            for name in (name for name, turns in conversations.items() if turn < turns):
                run_id = uuid4()
                config = {"callbacks": [scorer.handler], "configurable": {"thread_id": name}, "run_id": run_id}
                agent.invoke({"messages": [("user", name)]}, config=config)
                units[name].append([*(scorer.unit_id(run_id) or ())])
        for name in conversations:
            assert scorer.end_session(name)
        assert scorer.flush(30)
    provider.shutdown()
    return units


def label(endpoint: str, trace_id: str, span_id: str) -> None:
    """Label a unit as bad, ten minutes from now, by its ids alone."""
    provider = _provider(endpoint)
    with OnlineScorer([Grounded()], tracer_provider=provider) as scorer:
        assert scorer.feedback(trace_id, False, span_id=span_id, when=time.time() + LATER_S)
        assert scorer.flush(30)
    provider.shutdown()


def _provider(endpoint: str) -> TracerProvider:
    provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    return provider


if __name__ == "__main__":
    what, endpoint, *rest = sys.argv[1:]
    if what == "talk":
        print(json.dumps(talk(endpoint, {name: int(turns) for name, turns in (one.split("=") for one in rest)})))
    else:
        label(endpoint, *rest)
