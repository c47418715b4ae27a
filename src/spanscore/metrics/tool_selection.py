"""ToolSelection: was each tool call a call of the right tool among those on offer?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spanscore.core.sample import MultiTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.made_calls import CallMetric, CallRows, CallVerdict, CallVerdicts, MadeCall, faults
from spanscore.metrics.kit.step import Step

JUDGE_SELECTION: Step[CallRows[CallVerdict]] = Step(
    name="judge_selection",
    instruction="""\
The evidence holds a conversation of a user with an agent, the tools on offer (tools) and the tool calls that the agent made \
(calls). Without a list of tools, judge by the conversation. Decide for each call whether its tool was the right one, by the \
messages before it.
Verdict 1: the tool does something that the request needs, and no other tool on offer is clearly meant for it. Verdict 0: \
another tool on offer is meant for it, the tool has nothing to do with the request, or it is not on offer.
Only the choice of the tool counts: its arguments, its result and repeated calls do not.
Give one row per call, in order: the number of the call, a short reason, the verdict.""",
    output=CallVerdicts,
)


class ToolSelection(CallMetric):
    """Which share of the tool calls used the right tool among those on offer?

    Formula: calls of the right tool / all calls. Range [0, 1], higher is better. Undefined without a call. The judge gets
    names and descriptions of the offered tools. If they are unknown, it judges by the conversation alone, and the explanation
    notes that.

    Fields: ``user_input`` (messages), and ``tools`` if the sample has them. Judge calls: 1 (``judge_selection``) for all
    calls; one more if the answer lacks a call.

    Blind spot: a call that should have been made and was not; see ``answer_completeness`` and ``agent_goal_accuracy``. Without
    ``tools`` the judge cannot find a better tool. The calls of earlier turns in the conversation count again.

    Source: Phoenix's tool selection and strands-agents-evals' tool selection accuracy, in our own words. Deviations: a share
    instead of one verdict for all calls (Phoenix); all calls of a conversation in one question (strands: one for each call);
    undefined without a call (Phoenix judges whether a tool was needed).

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "tool_selection"
    optional: Mapping[str, tuple[str, ...]] = {"multi_turn": ("tools",)}
    questions = (JUDGE_SELECTION,)

    async def measure_calls(self, calls: Sequence[MadeCall], sample: MultiTurnSample) -> Finding:
        """Ask for a verdict on the tool of each call."""
        tools = None
        if sample.tools is not None:
            tools = [tool.model_dump(include={"name", "description"}, exclude_none=True) for tool in sample.tools]
        rows = await self.ask_about(calls, JUDGE_SELECTION, sample, {"tools": tools})
        wrong = faults(calls, rows)
        lines = [f"{len(calls) - len(wrong)} of {len(calls)} calls used the right tool."]
        if tools is None:
            lines.append("The tools on offer are unknown: judged by the conversation alone.")
        return Finding(value=1 - len(wrong) / len(calls), explanation="\n".join([*lines, *wrong]))
