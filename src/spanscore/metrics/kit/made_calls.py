"""The tool calls of a conversation with their results, and the questions of metrics that give each call a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from spanscore.core.sample import HumanMessage, Message, MultiTurnSample, ToolCall
from spanscore.errors import JudgeUnparseable
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.step import Step
from spanscore.samples.tool_calls import calls_in, match_results

_TRIES = 2


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A tool call of a conversation.

    Attributes:
        number: position among all calls of the conversation, from 1.
        turn: number of the user's messages before it.
        call: the call.
        result: result of the tool; None if unknown.
    """

    number: int
    turn: int
    call: ToolCall
    result: str | None

    def __str__(self) -> str:
        """Return number and tool, as explanations name a call."""
        return f"call {self.number} ({self.call.name})"


class CallVerdict(BaseModel):
    """Number of a call, why, and whether it is right (1) or not (0)."""

    call: int
    reason: str = ""
    verdict: BinaryAnswer


V = TypeVar("V", bound=CallVerdict)


class CallRows(BaseModel, Generic[V]):
    """One row per call; a row has a verdict and the other answers about the call."""

    calls: list[V]


class CallVerdicts(CallRows[CallVerdict]):
    """One row per call."""


def made_calls(messages: Iterable[Message]) -> list[MadeCall]:
    """Return the tool calls of a conversation in order, each with its result."""
    made: list[MadeCall] = []
    turn = 0
    for slot in match_results([*messages])[0]:
        turn += isinstance(slot.message, HumanMessage)
        results = {id(call): answer.content for call, answer in slot.answered}
        for call in calls_in(slot.message):
            made.append(MadeCall(len(made) + 1, turn, call, results.get(id(call))))
    return made


class CallMetric(JudgedMetric):
    """Base class of metrics that ask for a verdict on each tool call of a conversation, all in one question."""

    requires: Mapping[str, tuple[str, ...]] = {"multi_turn": ("user_input",)}

    async def measure(self, sample: MultiTurnSample) -> Finding:
        """Measure the calls of a conversation; undefined without a call."""
        calls = made_calls(sample.user_input)
        if not calls:
            return Finding(value=None, reason="the conversation has no tool call")
        return await self.measure_calls(calls, sample)

    async def measure_calls(self, calls: Sequence[MadeCall], sample: MultiTurnSample) -> Finding:
        """Measure the calls of a conversation, of which there is at least one."""
        raise NotImplementedError(f"{type(self).__name__} has no measure_calls method")

    async def ask_about(
        self, calls: Sequence[MadeCall], step: Step[CallRows[V]], sample: MultiTurnSample, more: Mapping[str, Any]
    ) -> dict[int, V]:
        """Return number of a call → its row; empty, without a question, if there is no call.

        A second answer is asked for if the first one lacks a row; rows of other calls are ignored.

        Args:
            calls: the calls to be judged.
            step: the question.
            sample: the conversation.
            more: further evidence, placed between the conversation and the list of calls.

        Raises:
            JudgeUnparseable: the second answer lacks a row, too.
        """
        if not calls:
            return {}
        listed = [{"call": made.number, "tool": made.call.name, "args": made.call.args} for made in calls]
        evidence = {"user_input": sample.messages(), **more, "calls": listed}
        for attempt in range(_TRIES):
            answer = await self.ask(step, evidence, vote_index=attempt)
            by_number = {row.call: row for row in reversed(answer.calls)}
            lacking = [made.number for made in calls if made.number not in by_number]
            if not lacking:
                return {made.number: by_number[made.number] for made in calls}
        raise JudgeUnparseable(f"the judge gave no verdict on {len(lacking)} of {len(calls)} calls")


def faults(calls: Iterable[MadeCall], rows: Mapping[int, CallVerdict]) -> list[str]:
    """Return a line for each call with verdict 0: the call, and the judge's reason."""
    bad = [(made, rows[made.number]) for made in calls if not rows[made.number].verdict]
    return [f"{made}: {row.reason}" if row.reason else str(made) for made, row in bad]
