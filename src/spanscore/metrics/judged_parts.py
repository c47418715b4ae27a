"""AnswerCompleteness and PlanAdherence: a judge splits a request or a plan into parts and gives each part a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, Sample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.statements import key_of
from spanscore.metrics.kit.step import Step


class PartVerdict(BaseModel):
    """A part in a few words, why, and whether it is done (1) or not (0)."""

    part: str
    reason: str = ""
    verdict: BinaryAnswer


class PartVerdicts(BaseModel):
    """One row per part; no row if there is no part."""

    parts: list[PartVerdict]


def share_of_parts(rows: Sequence[PartVerdict], *, done: str, nothing: str) -> Finding:
    """Return the share of parts with verdict 1; rows without words do not count.

    Args:
        done: end of the explanation's first line, behind "1 of 2 parts", such as "of the question are answered".
        nothing: reason of an undefined score, if there is no part.
    """
    parts = [row for row in rows if key_of(row.part)]
    if not parts:
        return Finding(value=None, reason=nothing)
    open_parts = [row for row in parts if not row.verdict]
    lines = [f"{len(parts) - len(open_parts)} of {len(parts)} {done}."]
    lines += [f"Not: {row.part}" + (f" ({row.reason})" if row.reason else "") for row in open_parts]
    return Finding(value=1 - len(open_parts) / len(parts), explanation="\n".join(lines))


_NOTHING = "the user asks for nothing"
JUDGE_PARTS: Step[PartVerdicts] = Step(
    name="judge_parts",
    instruction="""\
The evidence is a question of a user (user_input) and its answer (response), or a conversation of a user with an assistant. \
Split the user's requests into parts: each thing that could be answered or done alone; a condition belongs to its part. \
Greetings, thanks and background are no parts, and a request that the user took back or replaced is left out.
One row per part, in order: the part in a few words, a short reason, the verdict.
Verdict 1: the assistant gave or did the requested thing, in any words; a wrong answer is an answer. Verdict 0: the part was \
passed over, answered only in part, put off, or declined.""",
    output=PartVerdicts,
)


class AnswerCompleteness(JudgedMetric):
    """Which share of the parts of a question is answered?

    Formula: parts that are answered / parts of the question; in a conversation, of all the user's requests. Range [0, 1],
    higher is better. Undefined if the user asks for nothing. A question of one part is 1 or 0.

    Fields: ``user_input``, ``response``; of a conversation ``user_input`` (messages). Judge calls: 1 (``judge_parts``), 0 if
    the user wrote nothing.

    Blind spot: wrong answers count as answers; a part that is declined for a good reason counts as not answered. The judge
    chooses the parts: a finer division changes the share.

    Source: strands-agents-evals' partial completion, in our own words. Deviations: a share of named parts instead of a
    percentage that the judge estimates; also for conversations without a failure.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "answer_completeness"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "response"), "multi_turn": ("user_input",)}
    questions = (JUDGE_PARTS,)

    async def measure(self, sample: Sample) -> Finding:
        """Ask for the parts of the question, and whether each is answered."""
        if isinstance(sample, MultiTurnSample):
            request = "".join(message.content for message in sample.user_input if isinstance(message, HumanMessage))
            evidence: dict[str, object] = {"user_input": sample.messages()}
        else:
            request = sample.user_input or ""
            evidence = {"user_input": request, "response": sample.response}
        if not key_of(request):
            return Finding(value=None, reason=_NOTHING)
        answer = await self.ask(JUDGE_PARTS, evidence)
        return share_of_parts(answer.parts, done="parts of the question are answered", nothing=_NOTHING)


_NO_PLAN = "the conversation has no plan"
JUDGE_PLAN: Step[PartVerdicts] = Step(
    name="judge_plan",
    instruction="""\
The evidence is a conversation of a user with an agent, tool calls and results included. Find the plan in it: the steps that \
the agent announced before it took them, in a message or with a tool for plans and tasks, or the steps that the user \
prescribed. Openly revised steps replace the earlier ones. One announced action alone is no plan. Without a plan, give no \
row.
One row per step of the plan, in order: the step in a few words (part), a short reason, the verdict.
Verdict 1: the agent took the step, and not before a step that it depends on. Verdict 0: the step was left out, only \
claimed, replaced without a word, or taken in an order that the plan excludes. Leave out the steps that were still to come \
when the conversation stopped to wait for the user.
Whether a step succeeded does not count.""",
    output=PartVerdicts,
)


class PlanAdherence(JudgedMetric):
    """Which share of its plan did the agent carry out?

    Formula: steps of the plan that the agent took / steps of the plan. Range [0, 1], higher is better. Undefined without a
    plan: several steps that the agent announced, in words or with a tool, or that the user prescribed.

    Fields: ``user_input`` (messages). Judge calls: 1 (``judge_plan``), also if there turns out to be no plan; 0 for a
    conversation without a message of the agent.

    Blind spot: plans in a system prompt or in hidden reasoning, which are not part of the sample; steps beside the plan, which
    ``step_efficiency`` counts if they are tool calls; whether the plan is good.

    Source: DeepEval's plan adherence, in our own words. Deviations: one question instead of three; a share of steps instead of
    a grade; undefined without a plan (DeepEval: 1); steps that the user prescribed are a plan, too.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "plan_adherence"
    requires: Mapping[str, tuple[str, ...]] = {"multi_turn": ("user_input",)}
    questions = (JUDGE_PLAN,)

    async def measure(self, sample: MultiTurnSample) -> Finding:
        """Ask for the steps of the plan, and whether each was taken."""
        if not any(isinstance(message, AIMessage) for message in sample.user_input):
            return Finding(value=None, reason=_NO_PLAN)
        answer = await self.ask(JUDGE_PLAN, {"user_input": sample.messages()})
        return share_of_parts(answer.parts, done="steps of the plan were taken", nothing=_NO_PLAN)
