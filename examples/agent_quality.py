"""An agent with five tools and six planted faults: each fault is found by the metric that is for it, and by no other.

    pip install -e '.[demo,checks,report]' && python examples/agent_quality.py [FOLDER]

The agent works at the desk of a ferry company. Its model is scripted, so that it makes the same mistakes every time: a wrong
tool, a wrong argument, a loop, an ignored error, a forgotten step of its plan, and half an answer. No reference is needed: the
metrics read the conversation and the tools that the agent was offered. No key, no server: the offline judge compares words. For
a real application, replace "lexical" with the name of a model ("openai:gpt-4o-mini").

At the end the page of `spanscore report` is in FOLDER (default: a new temporary folder). In a terminal, a browser opens it at
the worst trace.
"""

from __future__ import annotations

import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

try:
    from langchain.agents import create_agent

    from spanscore import OnlineScorer
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -e '.[demo,checks,report]'") from None
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from spanscore.config import Capture, Outputs
from spanscore.metrics import (
    AnswerCompleteness,
    ErrorRecovery,
    PlanAdherence,
    StepEfficiency,
    ToolArguments,
    ToolSelection,
)
from spanscore.testing import MemorySink


@tool
def find_departures(origin: str, destination: str, day: str) -> str:
    """Find the departures of the ferries between two harbours on a day."""
    return f"Ferries from {origin} to {destination} on {day}: L-1 at 9:00, L-2 at 14:30, L-3 at 18:00."


@tool
def ticket_price(departure: str) -> str:
    """Look up the price of a ticket."""
    return f"A ticket for {departure} costs 24 euros."


@tool
def book_ticket(departure: str, passengers: int) -> str:
    """Book tickets for a departure."""
    return f"Booked: {departure}, {passengers} passengers, booking B-40."


@tool
def cancel_booking(booking: str) -> str:
    """Cancel a booking and pay the price back."""
    return f"Error: there is no booking {booking}."


@tool
def weather_forecast(harbour: str, day: str) -> str:
    """Tell the weather, such as rain and wind, at a harbour."""
    return f"{harbour}, {day}: dry, a light wind."


TOOLS = [find_departures, ticket_price, book_ticket, cancel_booking, weather_forecast]
LUND_TO_ARN = {"origin": "Lund", "destination": "Arn", "day": "3 May"}
Turn = str | tuple[str, str, dict[str, Any]]
"""A text of the agent; or a text and a call: the tool and its arguments."""
SCRIPTS: dict[str, tuple[str, list[Turn]]] = {
    "no fault": (
        "When does the first ferry leave Lund for Arn on 3 May, and what does a ticket cost?",
        [
            ("", "find_departures", LUND_TO_ARN),
            ("", "ticket_price", {"departure": "L-1"}),
            "The first ferry, L-1, leaves Lund at 9:00. A ticket costs 24 euros.",
        ],
    ),
    "a wrong tool": (
        "Will it rain in Arn on 3 May when I come from Lund?",
        [("", "find_departures", LUND_TO_ARN), "It will not rain in Arn on 3 May."],
    ),
    "a wrong argument": (
        "Please book the ferry L-2 for 2 passengers.",
        [("", "book_ticket", {"departure": "L-2", "passengers": 20}), "The ferry L-2 is booked, with booking B-40."],
    ),
    "a loop": (
        "When does the last ferry leave Lund for Arn on 3 May?",
        [*[("", "find_departures", LUND_TO_ARN)] * 4, "The last ferry, L-3, leaves Lund at 18:00."],
    ),
    "an ignored error": (
        "Please cancel my booking B-17.",
        [("", "cancel_booking", {"booking": "B-17"}), "Your booking B-17 is cancelled."],
    ),
    "a forgotten step": (
        "Please book a trip from Lund to Arn on 3 May for 1 passenger.",
        [
            (
                "My plan:\n1. Find the departures.\n2. Look at the weather.\n3. Book the tickets.",
                "find_departures",
                LUND_TO_ARN,
            ),
            ("", "book_ticket", {"departure": "L-1", "passengers": 1}),
            "The trip from Lund to Arn is booked: L-1 on 3 May, 1 passenger.",
        ],
    ),
    "half an answer": (
        "When does the first ferry leave Lund for Arn on 3 May, and what does a ticket cost?",
        [("", "find_departures", LUND_TO_ARN), "The first ferry, L-1, leaves Lund at 9:00."],
    ),
}
"""Fault → the user's request, and the turns of the model."""


class ScriptedModel(BaseChatModel):
    """A model that follows a script."""

    turns: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": "scripted"}

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """Bind the tools in the form of OpenAI's API, as most chat models do."""
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools])

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        said = sum(isinstance(message, AIMessage) for message in messages)
        turn = self.turns[said]
        if isinstance(turn, str):
            message = AIMessage(content=turn)
        else:
            text, name, arguments = turn
            call = {"name": name, "args": arguments, "id": f"call-{said}"}
            message = AIMessage(content=text, tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


def agent_for(turns: list[Turn]) -> Any:
    """Return the agent with a model that follows these turns."""
    return create_agent(ScriptedModel(turns=turns), TOOLS, name="ferry_desk")


def agent_metrics(judge: Any) -> list[Any]:
    """Return the six metrics for agents; a score below 1 fails."""
    kinds = (ToolSelection, ToolArguments, StepEfficiency, ErrorRecovery, PlanAdherence, AnswerCompleteness)
    return [kind(judge, pass_at=1.0) for kind in kinds]


FOUND_BY = {
    "no fault": [],
    "a wrong tool": ["tool_selection"],
    "a wrong argument": ["tool_arguments"],
    "a loop": ["step_efficiency"],
    "an ignored error": ["error_recovery"],
    "a forgotten step": ["plan_adherence"],
    "half an answer": ["answer_completeness"],
}
"""Fault → the metrics that fail."""
COMMAND = (sys.executable, "-c", "from spanscore.cli.main import main; main()")


def run_and_score(spans: Path) -> dict[str, dict[str, float | None]]:
    """Run the agent on each script, with a live scorer; return fault → metric → quality, None if it is undefined."""
    found: dict[str, dict[str, float | None]] = {}
    outputs = Outputs(sinks=[sink := MemorySink()], spans_to=spans)
    with OnlineScorer(agent_metrics("lexical"), outputs=outputs, capture=Capture(content=True)) as scorer:
        for fault, (request, turns) in SCRIPTS.items():
            config: RunnableConfig = {"callbacks": [scorer.handler]}
            agent_for(turns).invoke({"messages": [{"role": "user", "content": request}]}, config=config)
            scorer.flush(timeout=10)
            found[fault] = {score.metric: score.quality for score in sink.scores}
            sink.emitted.clear()
    return found


def main(folder: Path) -> int:
    """Run the agent, print its scores, write the page, and open it on the worst trace; return 0 if each fault was found."""
    folder.mkdir(parents=True, exist_ok=True)
    spans, page = folder / "spans.jsonl", folder / "report.html"
    spans.unlink(missing_ok=True)
    found = run_and_score(spans)
    names = [metric.name for metric in agent_metrics("lexical")]
    print(f"{'':18}{''.join(f'{name:>20}' for name in names)}")
    for fault, values in found.items():
        shown = ("–" if values[name] is None else f"{values[name]:.2f}" for name in names)
        print(f"{fault:18}{''.join(f'{text:>20}' for text in shown)}")
    failed = {
        fault: [name for name, value in values.items() if value is not None and value < 1]
        for fault, values in found.items()
    }
    print()
    subprocess.run([*COMMAND, "report", str(spans), "--out", str(page)], check=True)
    address = f"{page.as_uri()}#unit-1"
    print(f"The worst trace: {address}")
    if sys.stdout.isatty():
        webbrowser.open(address)
    return 0 if failed == FOUND_BY else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else mkdtemp(prefix="spanscore-")).resolve()))
