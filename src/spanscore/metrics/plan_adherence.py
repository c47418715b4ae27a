"""PlanAdherence: did the agent carry out the plan in the conversation?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.sample import AIMessage, MultiTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.parts import PartVerdicts, share_of_parts
from spanscore.metrics.kit.step import Step

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
