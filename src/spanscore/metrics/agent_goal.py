"""AgentGoalAccuracy: did the agent reach the goal? The goal is the reference, or the judge infers it from the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator

from spanscore.core.sample import MultiTurnSample
from spanscore.core.score import BINARY
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.step import Step

_WORDS: Mapping[str, int] = {"0": 0, "1": 1, "false": 0, "true": 1}


def _parse_word(value: Any) -> Any:
    """Return 0 or 1 for the strings "0", "1", "false" and "true" in any case; None for any other string.

    Pydantic alone would also accept " 1" and "1.0". A value that is not a string is returned unchanged.
    """
    return _WORDS.get(value.casefold()) if isinstance(value, str) else value


class GoalAndOutcome(BaseModel):
    """What the user wanted, and where the conversation ended."""

    user_goal: str
    end_state: str


class Comparison(BaseModel):
    """Why, and whether what was reached is what was wanted."""

    reason: str = ""
    verdict: Annotated[BinaryAnswer, BeforeValidator(_parse_word)]


INFER_GOAL_OUTCOME: Step[GoalAndOutcome] = Step(
    name="infer_goal_outcome",
    instruction="""\
The evidence is a conversation of a user with an agent, tool calls and results included. In one or two sentences each, say:
user_goal: what the user wanted in the end, with the conditions that came up on the way.
end_state: what was done or found when it ended, by the tool results and the agent's last words. Name what was left open or \
failed. An announcement is not a result.""",
    output=GoalAndOutcome,
    fields={"workflow": "user_input"},
)
COMPARE_OUTCOME: Step[Comparison] = Step(
    name="compare_outcome",
    instruction="""\
The evidence is a desired outcome and the one that was arrived at. Give a short reason, then the verdict: 1 when every part of \
the desired outcome was reached, in whatever words and whatever way; 0 when a part is missing, different or undone.""",
    output=Comparison,
)


class _GoalAccuracy(JudgedMetric):
    """Base class of the goal metrics: two judge calls, one after the other."""

    base_version = "2"
    scale = BINARY
    questions = (INFER_GOAL_OUTCOME, COMPARE_OUTCOME)
    _reads_reference: ClassVar[bool] = True

    async def measure(self, sample: MultiTurnSample) -> Finding:
        """Infer goal and end state, then compare the end state with the reference, or the goal if there is no reference."""
        inferred = await self.ask(INFER_GOAL_OUTCOME, {"workflow": sample.messages()})
        reference = sample.reference if self._reads_reference else None
        wanted = inferred.user_goal if reference is None else reference
        evidence = {"desired_outcome": wanted, "arrived_outcome": inferred.end_state}
        compared = await self.ask(COMPARE_OUTCOME, evidence)
        explanation = f"Wanted: {wanted}\nReached: {inferred.end_state}\n{compared.reason}"
        return Finding(value=float(compared.verdict), explanation=explanation)


class AgentGoalAccuracy(_GoalAccuracy):
    """Did the agent reach the expected outcome or, without a reference, the goal of the user?

    Formula: the judge infers the goal of the user and the end state of the conversation, then compares the end state with the
    reference, or with the goal if the sample has no reference. The value is 1 if the end state reaches it, else 0. Range {0,
    1}, higher is better.

    Fields: ``user_input`` (messages), and ``reference`` if the sample has one. Judge calls: 2 (``infer_goal_outcome``,
    ``compare_outcome``), one after the other.

    Blind spot: a mean over samples with and without a reference mixes two questions; the question without a reference is
    easier. The blind spots of ``AgentGoalAccuracyWithReference`` and ``AgentGoalAccuracyWithoutReference`` apply, too.

    Source: ragas 0.4.3's ``AgentGoalAccuracyWithReference`` and ``AgentGoalAccuracyWithoutReference``. Deviations: one metric
    chooses between them for each sample; a verdict may also be a bare 0, 1, true or false; the conversation is shown as
    messages.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes; None: 1.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "agent_goal_accuracy"
    requires: Mapping[str, tuple[str, ...]] = {"multi_turn": ("user_input",)}


class AgentGoalAccuracyWithReference(_GoalAccuracy):
    """Did the conversation end with the expected outcome?

    Formula: the judge describes the end state of the conversation, then compares it with the reference: 1 if the reference was
    reached, else 0. Range {0, 1}, higher is better.

    Fields: ``user_input`` (messages), ``reference`` (the outcome, in words). Judge calls: 2 (``infer_goal_outcome``,
    ``compare_outcome``), one after the other. An empty conversation or reference is also judged.

    Blind spot: the second judge call reads only the end state from the first, so facts missing there are lost. The way to the
    outcome (detours, harm, repeated paid calls) does not count; see ``ToolCallAccuracy``.

    Source: ragas 0.4.3's ``AgentGoalAccuracyWithReference``. Deviations: a verdict may also be a bare 0, 1, true or false
    (ragas takes the two strings alone); a missing reference is found before the first judge call; the conversation is shown
    as messages.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes; None: 1.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "agent_goal_accuracy_with_reference"
    requires: Mapping[str, tuple[str, ...]] = {"multi_turn": ("user_input", "reference")}


class AgentGoalAccuracyWithoutReference(_GoalAccuracy):
    """Did the user get what they came for?

    Formula: the judge infers the goal of the user and the end state of the conversation, then compares the two: 1 if the goal
    was reached, else 0. Range {0, 1}, higher is better.

    Fields: ``user_input`` (messages). Judge calls: 2 (``infer_goal_outcome``, ``compare_outcome``), one after the other. An
    empty conversation is also judged.

    Blind spot: the goal is the judge's guess: if a user gives up halfway or accepts less, the goal counts as reached. Tool
    results are believed. The second judge call reads only the goal and the end state from the first.

    Source: ragas 0.4.3's ``AgentGoalAccuracyWithoutReference``. Deviations: a verdict may also be a bare 0, 1, true or false
    (ragas takes the two strings alone); the conversation is shown as messages.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes; None: 1.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "agent_goal_accuracy_without_reference"
    requires: Mapping[str, tuple[str, ...]] = {"multi_turn": ("user_input",)}
    _reads_reference = False
