"""Metrics of an agent's tool calls by a judge, which gives each call of a conversation a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from spanscore.core.sample import HumanMessage, Message, MultiTurnSample, ToolCall, ToolDefinition
from spanscore.core.threads import run_interruptibly
from spanscore.errors import JudgeUnparseable
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.schema_jsonschema_referencing import schema_check
from spanscore.metrics.kit.step import OwnPrompts, Step
from spanscore.metrics.tool_calls import are_equal
from spanscore.samples.tool_calls import calls_in, match_results

_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A tool call of a conversation.

    Attributes:
        number: position among all calls of the conversation, from 1.
        turn: number of the user's messages before it.
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
            more: further evidence, placed between the conversation and the list of calls.

        Raises:
            JudgeUnparseable: the second answer lacks a row, too.
        """
        if not calls:
            return {}
        listed = [{"call": made.number, "tool": made.call.name, "args": made.call.args} for made in calls]
        evidence = {"user_input": sample.messages(), **more, "calls": listed}
        for attempt in range(_ATTEMPTS):
            answer = await self.ask(step, evidence, vote_index=attempt)
            by_number = {row.call: row for row in reversed(answer.calls)}
            lacking = [made.number for made in calls if made.number not in by_number]
            if not lacking:
                return {made.number: by_number[made.number] for made in calls}
        raise JudgeUnparseable(f"the judge gave no verdict on {len(lacking)} of {len(calls)} calls")


def fault_lines(calls: Iterable[MadeCall], rows: Mapping[int, CallVerdict]) -> list[str]:
    """Return a line for each call with verdict 0: the call, and the judge's reason."""
    bad = [(made, rows[made.number]) for made in calls if not rows[made.number].verdict]
    return [f"{made}: {row.reason}" if row.reason else str(made) for made, row in bad]


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
        wrong = fault_lines(calls, rows)
        lines = [f"{len(calls) - len(wrong)} of {len(calls)} calls used the right tool."]
        if tools is None:
            lines.append("The tools on offer are unknown: judged by the conversation alone.")
        return Finding(value=1 - len(wrong) / len(calls), explanation="\n".join([*lines, *wrong]))


JUDGE_ARGUMENTS: Step[CallRows[CallVerdict]] = Step(
    name="judge_arguments",
    instruction="""\
The evidence holds a conversation of a user with an agent, the definitions of the called tools as far as they are known \
(tools) and some of the tool calls that the agent made (calls). Decide for each of these calls whether its arguments are \
right, by the messages before it.
Verdict 1: each value was given by the user, was in an earlier result, or follows from these; a usual default is right if \
the user gave no value. Verdict 0: a value is invented, contradicts an earlier message, belongs to another argument, or a \
value that the request gives is left out although the tool takes it.
Only the arguments count: whether the tool was the right one, whether the call was needed, and its result do not.
Give one row per call, in order: the number of the call, a short reason, the verdict.""",
    output=CallVerdicts,
)


class ToolArguments(CallMetric):
    """Which share of the tool calls had right arguments?

    Formula: calls whose arguments are valid by the tool's schema and follow from the conversation / all calls. Range [0, 1],
    higher is better. Undefined without a call. A call that the schema refuses is wrong without a question to the judge. A tool
    without a schema, or with one that is no JSON Schema, is judged by the conversation and its definition.

    Fields: ``user_input`` (messages), and ``tools`` if the sample has them. Judge calls: 1 (``judge_arguments``) for all calls
    that are valid by their schema, 0 without such a call; one more if the answer lacks a call.

    Blind spot: values that are right by chance. Most schemas allow arguments that they do not name, so only the judge finds
    them. The calls of earlier turns in the conversation count again.

    Source: DeepEval's argument correctness, Phoenix's tool invocation and strands-agents-evals' tool parameter accuracy, in
    our own words. Deviations: the schema is also checked by jsonschema before the judge is asked (they only show it to the
    judge, or ignore it); a share instead of one verdict (Phoenix); all calls in one question.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.

    Raises:
        MissingExtraError: jsonschema is not installed (extra ``checks``).
    """

    name = "tool_arguments"
    optional: Mapping[str, tuple[str, ...]] = {"multi_turn": ("tools",)}
    questions = (JUDGE_ARGUMENTS,)

    def __init__(
        self,
        judge: Any,
        *,
        name: str | None = None,
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        schema_check(self.name, {})

    async def measure_calls(self, calls: Sequence[MadeCall], sample: MultiTurnSample) -> Finding:
        """Check the schemas, then ask for a verdict on the arguments of each valid call."""
        tools = {tool.name: tool for tool in sample.tools or ()}
        # A schema may be large, so its check does not run on the loop of all judges.
        invalid, unchecked = await run_interruptibly(None, _check_schemas, self.name, calls, tools)
        valid = [made for made in calls if made.number not in invalid]
        called = dict.fromkeys(made.call.name for made in valid)
        definitions = [tools[name].model_dump(exclude_none=True) for name in called if name in tools]
        rows = await self.ask_about(valid, JUDGE_ARGUMENTS, sample, {"tools": definitions or None})
        wrong = [*invalid.values(), *fault_lines(valid, rows)]
        lines = [f"{len(calls) - len(wrong)} of {len(calls)} calls had right arguments."]
        if unchecked:
            lines.append(f"Without a usable schema: {', '.join(sorted(unchecked))}.")
        return Finding(value=1 - len(wrong) / len(calls), explanation="\n".join([*lines, *wrong]))


def _check_schemas(
    metric: str, calls: Sequence[MadeCall], tools: Mapping[str, ToolDefinition]
) -> tuple[dict[int, str], set[str]]:
    """Return number of a call → the fault that its tool's schema finds, and the names of tools without a usable schema."""
    invalid: dict[int, str] = {}
    unchecked: set[str] = set()
    for name in {made.call.name for made in calls}:
        faults_of_tool = _check_tool(metric, tools.get(name), [made for made in calls if made.call.name == name])
        if faults_of_tool is None:
            unchecked.add(name)
        invalid |= faults_of_tool or {}
    return invalid, unchecked


def _check_tool(metric: str, tool: ToolDefinition | None, calls: Sequence[MadeCall]) -> dict[int, str] | None:
    """Return number of a call → its fault by the tool's schema; None without a usable schema."""
    if tool is None or tool.parameters is None:
        return None
    try:
        check = schema_check(metric, tool.parameters)
        results = [(made, check(made.call.args)) for made in calls]
    except Exception:  # noqa: BLE001  (the application's own schema: invalid, too deep, or with a reference elsewhere)
        return None
    return {made.number: f"{made}: by its schema, {fault}" for made, fault in results if fault}


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
        repeats: dict[int, str] = {}
        for place, made in enumerate(calls):
            first = next((earlier for earlier in calls[:place] if _is_repeat(made, earlier)), None)
            if first is not None:
                repeats[made.number] = f"{made} repeats {first}"
        others = [made for made in calls if made.number not in repeats]
        rows = await self.ask_about(others, JUDGE_STEPS, sample, {})
        needless = [*repeats.values(), *fault_lines(others, rows)]
        line = f"{len(needless)} of {len(calls)} calls were needless."
        return Finding(value=1 - len(needless) / len(calls), explanation="\n".join([line, *needless]))


def _is_repeat(made: MadeCall, earlier: MadeCall) -> bool:
    same = made.turn == earlier.turn and made.call.name == earlier.call.name and made.result == earlier.result
    return same and are_equal(made.call.args, earlier.call.args)


class RecoveryVerdict(CallVerdict):
    """Number of a call, why, whether it failed (1), and whether the agent went on sensibly (1)."""

    failed: BinaryAnswer


class RecoveryVerdicts(CallRows[RecoveryVerdict]):
    """One row per call."""


JUDGE_RECOVERY: Step[CallRows[RecoveryVerdict]] = Step(
    name="judge_recovery",
    instruction="""\
The evidence holds a conversation of a user with an agent, and tool calls of the agent that may have failed (calls). Decide \
for each of these calls whether it failed, and how the agent went on.
Failed 1: the result reports an error, or that the tool could not do its work. Failed 0: the result is an ordinary one, also \
if it speaks of errors or found nothing; the verdict is then 1.
Verdict 1: after the failure the agent tried again in another way, or once more if the fault could pass; or took another \
tool; or asked the user; or reported the failure openly. Verdict 0: it went on as if the call had succeeded, repeated the \
call unchanged although that could not help, or stopped without a word about it.
Give one row per call, in order: the number of the call, a short reason, failed, the verdict.""",
    output=RecoveryVerdicts,
)
_MAY_HAVE_FAILED: Final = re.compile(
    r"error|exception|traceback|\bfail|time[d ]{0,2}out|unavailable|unknown|invalid|denied|forbidden|unauthori[sz]ed|refused"
    r"|rejected|missing|unable|can(?:not|['’]t)|could(?: not|n['’]t)|no such|too many|out of|limit|\b[45]\d\d\b"
    r"|not (?:found|available|allowed|supported|permitted|valid|possible|authori[sz]ed|exist)|\"(?:success|ok)\"\s*:\s*false"
    r"|fehler|fehlgeschlagen|ung[uü]ltig|nicht (?:gefunden|verf[uü]gbar|m[oö]glich)|erreur|[ée]chou|introuvable"
    r"|indisponible|no (?:se pudo|encontrad|disponible)|fall[oó]|inv[aá]lid",
    re.IGNORECASE,
)
"""Words of results that may report a failure; the judge decides. Any other result is no failure."""
_BEGINNING: Final = 1_000
"""Number of leading characters of a result that are searched, because an error is at the beginning."""


class ErrorRecovery(CallMetric):
    """After how many of the failed tool calls did the agent go on sensibly?

    Formula: failed calls after which the agent changed its attempt, took another tool, asked the user or reported the failure
    / all failed calls. Range [0, 1], higher is better. Undefined without a failed call. Results without a word for a failure
    (English, German, French, Spanish, or a status from 400 to 599) in their first 1,000 characters are no failures; among the
    others the judge decides which are.

    Fields: ``user_input`` (messages). Judge calls: 1 (``judge_recovery``) for all calls that may have failed, 0 without any,
    so most conversations cost nothing; one more if the answer lacks a call.

    Blind spot: failures whose result does not look like one, such as an empty list or a word of another language; failures
    without a recorded result. Whether the second attempt succeeded does not count.

    Source: strands-agents-evals' recovery strategy, in our own words. Deviations: a share of the failed calls instead of one
    of five grades for the whole trace; no question, and no score, without a failed call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "error_recovery"
    questions = (JUDGE_RECOVERY,)

    async def measure_calls(self, calls: Sequence[MadeCall], sample: MultiTurnSample) -> Finding:
        """Find the calls that may have failed, then ask which did, and how the agent went on."""
        suspects = [made for made in calls if _MAY_HAVE_FAILED.search((made.result or "")[:_BEGINNING])]
        rows = await self.ask_about(suspects, JUDGE_RECOVERY, sample, {})
        failed = [made for made in suspects if rows[made.number].failed]
        if not failed:
            return Finding(value=None, reason="no tool call failed")
        ignored = fault_lines(failed, rows)
        line = f"The agent went on sensibly after {len(failed) - len(ignored)} of {len(failed)} failed calls."
        return Finding(value=1 - len(ignored) / len(failed), explanation="\n".join([line, *ignored]))
