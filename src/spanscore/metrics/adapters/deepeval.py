"""DeepEvalMetric: runs a metric object of DeepEval online."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from spanscore import semconv
from spanscore.core.sample import AIMessage, HumanMessage, Message, MultiTurnSample, Sample, ToolCall, ToolMessage
from spanscore.core.score import Direction, Scale
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics.adapters.external import ExternalMetric, parameters_of, snake
from spanscore.metrics.kit.base import MULTI_TURN, SINGLE_TURN, Finding
from spanscore.samples.tool_calls import calls_in

_SINGLE = {
    "input": "user_input",
    "actual_output": "response",
    "expected_output": "reference",
    "context": "reference_contexts",
    "retrieval_context": "retrieved_contexts",
}
"""Field of an ``LLMTestCase`` → field of a single-turn sample."""
_TOOLS = {
    "input": "user_input",
    "actual_output": "user_input",
    "expected_output": "reference",
    "tools_called": "user_input",
    "expected_tools": "reference_tool_calls",
}
"""Field of an ``LLMTestCase`` → field of a multi-turn sample, for metrics of tool calls, which measure the last turn."""
_CONVERSATION = {
    "role": "user_input",
    "content": "user_input",
    "tools_called": "user_input",
    "expected_outcome": "reference",
}
"""Field of a ``ConversationalTestCase`` or its turns → field of a multi-turn sample."""
_BASE_NAMES = frozenset({"", "Base Metric", "Base Conversational Metric"})
"""Names of metrics that have no name of their own; their class name is used."""
_NOT_IN_VERSION = ("model", "name", "async_mode", "verbose_mode")
"""Constructor arguments of DeepEval's metrics that are not parameters of the formula."""


class DeepEvalMetric(ExternalMetric):
    """Which score does this DeepEval metric give the sample?

    Formula: the formula of the DeepEval metric. A copy of the metric measures each sample, because the metric stores its
    result in itself. Range [0, 1], higher is better, unless the metric counts a low score as a success or ``scale`` is given.
    The threshold of the metric is the pass mark.

    Fields: the metric's required parameters: ``input`` is ``user_input``, ``actual_output`` ``response``, ``expected_output``
    ``reference``, ``retrieval_context`` ``retrieved_contexts``, ``context`` ``reference_contexts``. A metric of tool calls
    gets the last turn of a conversation, a conversational metric gets all turns. Judge calls: the calls of the metric,
    untraced; their tokens and cost are unknown.

    Blind spot: the blind spot of the metric. An unreachable provider or an unreadable answer is a ``judge_error``; any other
    exception is a ``metric_error``; an empty required field is undefined. ``GEval`` without ``evaluation_steps`` generates
    new steps for each sample.

    Source: any metric object of DeepEval 3.7 or later (extra ``deepeval``). Deviations: ``a_measure`` runs on an event
    loop in its own thread, apart from the loop of our judges. ``measure`` runs on a thread instead, if ``async_mode`` is False
    or the metric has no ``a_measure``. The metric shows no progress, prints no steps and adds to no trace. Usage reports are
    switched off (``DEEPEVAL_TELEMETRY_OPT_OUT``, unless you set that variable).

    Give the metric a model of its own: an asynchronous HTTP client belongs to the event loop that first used it, so the
    application must not share one with the metric.

    Args:
        metric: a DeepEval metric, for single turns or conversations.
        name: name of the metric in its scores; None: DeepEval's name in lower snake case.
        constants: fields of the test case that are the same for all samples: ``{"chatbot_role": "…"}``.
        requires: ``single_turn`` or ``multi_turn`` → fields that a sample must have; None: the fields of the metric.
        scale: scale of the values; None: derived from the metric.
        pass_at: lowest quality that passes; None: the threshold of the metric.
        version: raise this number after a change that is not in the metric's parameters, to start a new evaluator version.

    Raises:
        MissingExtraError: DeepEval is not installed.
        ConfigurationError: ``metric`` is not a DeepEval metric, or requires a field that no sample has.

    Example:
        >>> from deepeval.metrics import FaithfulnessMetric  # doctest: +SKIP
        >>> scorer = OnlineScorer(metrics=[DeepEvalMetric(FaithfulnessMetric(model="gpt-4o-mini"))])  # doctest: +SKIP
    """

    def __init__(
        self,
        metric: Any,
        *,
        name: str | None = None,
        constants: Mapping[str, Any] | None = None,
        requires: Mapping[str, Sequence[str]] | None = None,
        scale: Scale | None = None,
        pass_at: float | None = None,
        version: str = "1",
    ) -> None:
        os.environ.setdefault(semconv.DEEPEVAL_TELEMETRY_OPT_OUT_ENV, "YES")
        try:
            from deepeval.metrics import BaseConversationalMetric, BaseMetric
        except ImportError as error:
            raise MissingExtraError("deepeval", "deepeval") from error
        if not isinstance(metric, BaseMetric | BaseConversationalMetric):
            raise ConfigurationError(f"a {type(metric).__name__} is no metric of DeepEval that scores samples")
        self.constants = dict(constants or {})
        own = str(getattr(metric, "__name__", ""))
        own = type(metric).__name__ if own in _BASE_NAMES else own
        self._parameters = _parameters_of_case(metric, conversational=isinstance(metric, BaseConversationalMetric))
        super().__init__(
            metric,
            library="deepeval",
            revision=version,
            name=name or snake(own),
            pass_at=pass_at,
            requires=requires or self._required_fields(own),
            scale=scale or _scale(metric),
            parameters=parameters_of(metric, exclude=_NOT_IN_VERSION),
            judge_model=str(getattr(metric, "evaluation_model", None) or ""),
        )
        base = BaseConversationalMetric if isinstance(metric, BaseConversationalMetric) else BaseMetric
        self._blocking = not metric.async_mode or type(metric).a_measure is base.a_measure
        self._conversational = base is BaseConversationalMetric
        self._metric = metric

    async def measure(self, sample: Sample) -> Finding:
        """Measure with a copy of the metric."""
        from deepeval.errors import MissingTestCaseParamsError

        metric, case = copy.copy(self._metric), self._case(sample)
        metric.verbose_mode, metric.score, metric.reason, metric.error = False, None, None, None
        measure = metric.measure if self._blocking else metric.a_measure
        # The parameter switches the progress display off. A user's own metric may not have it.
        quiet = {"_show_indicator": False} if "_show_indicator" in inspect.signature(measure).parameters else {}
        run = self._run_blocking if self._blocking else self._run_async
        try:
            value = await run(lambda: measure(case, **quiet))
        except MissingTestCaseParamsError:  # no required field is missing, as they were checked before, so one is empty
            return Finding(value=None, reason="a field that the DeepEval metric requires is empty")
        if value is None:
            value = metric.score
        if value is None and metric.error is not None:  # a metric may store its exception, like DeepEval's evaluate()
            raise ValueError("DeepEval gave an error in the place of a score")
        number = None if value is None else float(value)
        return Finding(value=number, reason="DeepEval gave no score on this sample", explanation=metric.reason)

    def _required_fields(self, own: str) -> dict[str, tuple[str, ...]]:
        fields, names = self._parameters
        unknown = sorted(names - fields.keys() - self.constants.keys())
        if unknown:
            raise ConfigurationError(
                f"{own} needs {', '.join(unknown)}, which no sample has. Give constants={{{unknown[0]!r}: …}} "
                "if it is the same for all samples"
            )
        turns = SINGLE_TURN if fields is _SINGLE else MULTI_TURN
        from_sample = (fields[name] for name in fields if name in names - self.constants.keys())
        return {turns: tuple(dict.fromkeys(from_sample))}

    def _case(self, sample: Sample) -> Any:
        from deepeval.test_case import ConversationalTestCase, LLMTestCase

        if not isinstance(sample, MultiTurnSample):
            fields = {name: getattr(sample, field) for name, field in _SINGLE.items()}
            return LLMTestCase(**{**fields, "input": sample.user_input or "", **self.constants})
        if self._conversational:
            fields = {"turns": _turns(sample.user_input), "expected_outcome": sample.reference}
            return ConversationalTestCase(**{**fields, **self.constants})
        return LLMTestCase(**{**_last_turn(sample), **self.constants})


def _parameters_of_case(metric: Any, *, conversational: bool) -> tuple[Mapping[str, str], set[str]]:
    """Return the map from fields of the test case to fields of a sample, and the names of the required fields.

    Metrics such as ``GEval`` get these names from the user. A user's own metric without such names needs input and output.
    """
    declared: Any = getattr(metric, "_required_test_case_params" if conversational else "_required_params", None)
    by_user = getattr(metric, "evaluation_params", None)
    params = by_user or (declared if isinstance(declared, list | tuple | set) else None)
    if conversational:
        role = {"chatbot_role"} if getattr(metric, "_requires_chatbot_role", False) else set()
        return _CONVERSATION, {_value(param) for param in params or ["content"]} | role
    names = {_value(param) for param in params or ["input", "actual_output"]}
    return (_TOOLS if names & {"tools_called", "expected_tools"} else _SINGLE), names


def _value(param: Any) -> str:
    return str(getattr(param, "value", param))


def _scale(metric: Any) -> Scale:
    """Return the scale of a metric: range 0…1, its direction, and its threshold as the pass mark on the quality scale."""
    direction = _direction(metric)
    threshold = getattr(metric, "threshold", None)
    strict = bool(getattr(metric, "strict_mode", False))
    pass_at = 1.0 if strict else 0.5
    if not strict and isinstance(threshold, int | float) and 0.0 <= threshold <= 1.0:
        pass_at = float(threshold) if direction == "higher" else 1.0 - float(threshold)
    return Scale(kind="binary" if strict else "continuous", direction=direction, pass_at=pass_at)


def _direction(metric: Any) -> Direction:
    """Return ``lower`` if a copy of the metric counts 0 as a success and 1 as a failure, as some do in some releases."""
    probe = copy.copy(metric)
    probe.threshold, probe.error = 0.5, None
    succeeds = []
    for score in (0.0, 1.0):
        probe.score = score
        try:
            succeeds.append(bool(probe.is_successful()))
        except Exception:  # noqa: BLE001  (a user's own metric; most are "higher")
            return "higher"
    return "lower" if succeeds == [True, False] else "higher"


def _turns(messages: Sequence[Message]) -> list[Any]:
    """Return a conversation in DeepEval's form: calls and results of tools belong to the answer that follows them."""
    from deepeval.test_case import Turn

    turns: list[Any] = []
    open_calls: list[ToolCall] = []
    results: list[ToolMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            results.append(message)
        elif isinstance(message, HumanMessage):
            turns.append(Turn(role="user", content=message.content))
        else:
            open_calls += message.tool_calls or []
            if message.content:
                calls = _deepeval_calls(open_calls, results) or None
                turns.append(Turn(role="assistant", content=message.content, tools_called=calls))
                open_calls, results = [], []
    if open_calls:
        turns.append(Turn(role="assistant", content="", tools_called=_deepeval_calls(open_calls, results)))
    return turns


def _last_turn(sample: MultiTurnSample) -> dict[str, Any]:
    """Return the last question with its answer and the tools called in between."""
    questions = (index for index, message in enumerate(sample.user_input) if isinstance(message, HumanMessage))
    last = max(questions, default=-1)  # without a question, its text is empty and all messages are its turn
    messages = sample.user_input[last + 1 :]
    calls = [*chain.from_iterable(map(calls_in, messages))]
    answers = [message.content for message in messages if isinstance(message, AIMessage) and message.content]
    expected = sample.reference_tool_calls
    return {
        "input": sample.user_input[last].content if last >= 0 else "",
        "actual_output": answers[-1] if answers else "",
        "expected_output": sample.reference,
        "tools_called": _deepeval_calls(calls, [message for message in messages if isinstance(message, ToolMessage)]),
        "expected_tools": None if expected is None else _deepeval_calls(expected, ()),
    }


def _deepeval_calls(calls: Sequence[ToolCall], results: Sequence[ToolMessage]) -> list[Any]:
    """Return calls in DeepEval's form, with their results, which are matched by id or, without an id, by order."""
    from deepeval.test_case import ToolCall as DeepEvalCall

    by_id = {result.tool_call_id: result.content for result in results if result.tool_call_id}
    in_order = iter([result.content for result in results if not result.tool_call_id])
    return [
        DeepEvalCall(
            name=call.name,
            input_parameters=dict(call.args),
            output=by_id.get(call.id) if call.id in by_id else next(in_order, None),
        )
        for call in calls
    ]
