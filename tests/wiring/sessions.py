"""Conversations for tests: a metric that counts the user's messages, and turns of one conversation."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from tests.live import Trace, model

from spanscore import semconv, session
from spanscore.metrics import BaseMetric, Finding


class Turns(BaseMetric):
    """A metric without a delay: the number of the user's messages, of twenty."""

    name = "turns"
    requires = {"multi_turn": ()}  # noqa: RUF012

    def __init__(self, name: str = "turns") -> None:
        self.name = name

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=sum(message.type == "human" for message in sample.user_input) / 20)


def talk(scorer: Any, session_id: str, turns: int = 2, *, first: int = 1) -> None:
    """Some turns of a conversation, without their history."""
    for turn in range(first, first + turns):
        with session(session_id):
            model(f"answer {turn}").invoke(f"question {turn}", config={"callbacks": [scorer.handler]})


def recall(scorer: Any, session_id: str, turns: int) -> None:
    """Some turns of a conversation, each with its history."""
    said: list[Any] = []
    for turn in range(1, turns + 1):
        said.append(HumanMessage(f"question {turn}"))
        with session(session_id):
            answer = model(f"answer {turn}").invoke(list(said), config={"callbacks": [scorer.handler]})
        said.append(AIMessage(answer.content))


def evaluations(trace: Trace, metric: str = "turns") -> list[Any]:
    """The evaluation spans of a metric, as they came."""
    return [span for span in trace.evaluations if span.name == f"evaluation {metric}"]


def ends(trace: Trace) -> list[str]:
    """How the sessions ended that were scored, as their spans came."""
    return [span.attributes[semconv.SESSION_END] for span in evaluations(trace)]
