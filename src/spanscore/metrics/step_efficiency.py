"""StepEfficiency: how many of the tool calls did the task need?"""

from __future__ import annotations

from collections.abc import Sequence

from spanscore.core.sample import MultiTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.made_calls import CallMetric, CallRows, CallVerdict, CallVerdicts, MadeCall, faults
from spanscore.metrics.kit.step import Step
from spanscore.metrics.tool_calls import alike

JUDGE_STEPS: Step[CallRows[CallVerdict]] = Step(
    name="judge_steps",
    instruction="""\
The evidence holds a conversation of a user with an agent, and some of the tool calls that the agent made (calls). Decide \
for each of these calls whether the task needed it.
Verdict 1: its result was used, or could at that moment be expected to be of use. A call that failed, and another attempt \
after it, were needed; so was a call with a wrong tool or wrong arguments, if the task needed such a step at all. Verdict 0: \
its result was known already, it asks for the same as an earlier call in other words, it undoes an earlier call, it goes \
round in a circle, or the request has no use for it.
Give one row per call, in order: the number of the call, a short reason, the verdict.""",
    output=CallVerdicts,
)


class StepEfficiency(CallMetric):
    """How many of the tool calls did the task need?

    Formula: 1 − needless calls / calls. Range [0, 1], higher is better. Undefined without a call. A call is needless without a
    question to the judge if it repeats an earlier call of the same turn: same tool, equal arguments and the same result;
    unknown results count as the same. So each round of a loop after the first one is needless. The judge decides on all other
    calls.

    Fields: ``user_input`` (messages). Judge calls: 1 (``judge_steps``) for all calls that repeat none; one more if the answer
    lacks a call.

    Blind spot: if a tool is called until something changes, its equal answers count as needless. A shorter way that the agent
    did not take; steps without a tool; tokens and time, which ``tokens`` and ``latency`` measure.

    Source: strands-agents-evals' tool efficiency and DeepEval's step efficiency, in our own words. Deviations: equal calls are
    counted without a judge; a failed call is not needless (strands counts it so) and undefined without a call (strands: 1); a
    share of calls instead of a grade for the whole trace (DeepEval).

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "step_efficiency"
    questions = (JUDGE_STEPS,)

    async def measure_calls(self, calls: Sequence[MadeCall], sample: MultiTurnSample) -> Finding:
        """Count the repeated calls, then ask for a verdict on each other call."""
        repeats = _repeats(calls)
        others = [made for made in calls if made.number not in repeats]
        rows = await self.ask_about(others, JUDGE_STEPS, sample, {})
        needless = [*repeats.values(), *faults(others, rows)]
        line = f"{len(needless)} of {len(calls)} calls were needless."
        return Finding(value=1 - len(needless) / len(calls), explanation="\n".join([line, *needless]))


def _repeats(calls: Sequence[MadeCall]) -> dict[int, str]:
    """Return number of a call → the earlier call that it repeats, as a line, for the calls that repeat one."""
    lines: dict[int, str] = {}
    for place, made in enumerate(calls):
        first = next((earlier for earlier in calls[:place] if _is_repeat(made, earlier)), None)
        if first is not None:
            lines[made.number] = f"{made} repeats {first}"
    return lines


def _is_repeat(made: MadeCall, earlier: MadeCall) -> bool:
    same = made.turn == earlier.turn and made.call.name == earlier.call.name and made.result == earlier.result
    return same and alike(made.call.args, earlier.call.args)
