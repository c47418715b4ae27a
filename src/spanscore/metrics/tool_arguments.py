"""ToolArguments: do the arguments of each tool call fit the tool's schema, and do they follow from the conversation?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spanscore.core.sample import MultiTurnSample, ToolDefinition
from spanscore.core.threads import run_interruptibly
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.made_calls import CallMetric, CallRows, CallVerdict, CallVerdicts, MadeCall, faults
from spanscore.metrics.kit.schema_jsonschema_referencing import schema_check
from spanscore.metrics.kit.step import OwnPrompts, Step

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
        more = {"tools": _definitions(valid, tools) or None}
        rows = await self.ask_about(valid, JUDGE_ARGUMENTS, sample, more)
        wrong = [*invalid.values(), *faults(valid, rows)]
        lines = [f"{len(calls) - len(wrong)} of {len(calls)} calls had right arguments."]
        if unchecked:
            lines.append(f"Without a usable schema: {', '.join(sorted(unchecked))}.")
        return Finding(value=1 - len(wrong) / len(calls), explanation="\n".join([*lines, *wrong]))


def _definitions(calls: Sequence[MadeCall], tools: Mapping[str, ToolDefinition]) -> list[dict[str, Any]]:
    """Return the definitions of the called tools, each once."""
    names = dict.fromkeys(made.call.name for made in calls)
    return [tools[name].model_dump(exclude_none=True) for name in names if name in tools]


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
    """Return number of a call → its fault by the tool's schema; None without a schema that can be used."""
    if tool is None or tool.parameters is None:
        return None
    try:
        check = schema_check(metric, tool.parameters)
        results = [(made, check(made.call.args)) for made in calls]
    except Exception:  # noqa: BLE001  (the application's own schema: invalid, too deep, or with a reference elsewhere)
        return None
    return {made.number: f"{made}: by its schema, {fault}" for made, fault in results if fault}
