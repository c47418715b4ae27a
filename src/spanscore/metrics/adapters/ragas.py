"""RagasMetric: runs a metric object of ragas online: an older metric, or a metric of ``ragas.metrics.collections``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

from spanscore import semconv
from spanscore.core.sample import MultiTurnSample, Sample, SingleTurnSample
from spanscore.core.score import BINARY, Direction, Scale
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics.adapters.external import ExternalMetric, parameters_of, snake
from spanscore.metrics.kit.averages import COSINE
from spanscore.metrics.kit.base import MULTI_TURN, SINGLE_TURN, Finding, kind_of
from spanscore.metrics.kit.graded import bounds_of, ordinal_scale

_COSINES = frozenset({"ResponseRelevancy", "AnswerRelevancy", "AnswerSimilarity", "SemanticSimilarity"})
"""Classes of ragas that return a cosine."""
_LOWER_IS_BETTER = frozenset({"NoiseSensitivity"})
_PASS_OR_FAIL = {"pass": 1.0, "fail": 0.0}
_FIELDS = {SINGLE_TURN: tuple(SingleTurnSample.model_fields), MULTI_TURN: tuple(MultiTurnSample.model_fields)}
_METHODS = {SINGLE_TURN: "single_turn_ascore", MULTI_TURN: "multi_turn_ascore"}
_NOT_IN_VERSION = ("llm", "embeddings", "name", "required_columns", "_required_columns")
"""Constructor arguments of ragas's metrics that are not parameters of the formula."""


class RagasMetric(ExternalMetric):
    """Which score does this ragas metric give the sample?

    Formula: the formula of the ragas metric; nan is undefined. Range [0, 1], higher is better, unless the metric declares
    another range (``allowed_values``, rubrics, pass or fail), is a cosine or ``NoiseSensitivity``, or ``scale`` is given.
    Other integer scales are open: they have a value and no quality.

    Fields: required columns of the metric, or the parameters of its ``ascore``; missing fields are detected before the metric
    is called. Judge calls: the calls of the metric, untraced; their tokens and cost are unknown. The metric's ``RunConfig``
    has its retries and time limits, within ours.

    Blind spot: the blind spot of the metric. An unreachable provider or an unreadable answer is a ``judge_error``; any other
    exception is a ``metric_error``. A prompt that is not an attribute of the metric is not part of the version.

    Source: any metric object of ragas 0.3 or later (extra ``ragas``), also of ``ragas.metrics.collections``. Deviations: it
    runs on an event loop in its own thread, apart from the loop of our judges, because some async methods of ragas block.
    Usage reports are switched off (``RAGAS_DO_NOT_TRACK``, unless you set that variable).

    Give the metric a model of its own: an asynchronous HTTP client belongs to the event loop that first used it, so the
    application must not share one with the metric.

    Args:
        metric: a ragas metric, ready to score: with its ``llm`` and ``embeddings``.
        name: name of the metric in its scores; None: ragas's name in lower snake case.
        llm: model for a metric that takes its model with each call (``DiscreteMetric``, ``NumericMetric``).
        requires: ``single_turn`` or ``multi_turn`` → fields that a sample must have; None: the fields of the metric.
        scale: scale of the values; None: derived from the metric.
        values: word → number, for a metric that answers in words. None = ``pass`` is 1 and ``fail`` is 0.
        pass_at: lowest quality that passes.
        version: raise this number after a change that is not in the metric's parameters, to start a new evaluator version.

    Raises:
        MissingExtraError: ragas is not installed.
        ConfigurationError: ``metric`` is not a ragas metric, lacks its model, or requires a field that no sample has.

    Example:
        >>> from ragas.metrics import Faithfulness  # doctest: +SKIP
        >>> scorer = OnlineScorer(metrics=[RagasMetric(Faithfulness(llm=LangchainLLMWrapper(model)))])  # doctest: +SKIP
    """

    def __init__(
        self,
        metric: Any,
        *,
        name: str | None = None,
        llm: Any = None,
        requires: Mapping[str, Sequence[str]] | None = None,
        scale: Scale | None = None,
        values: Mapping[str, float] | None = None,
        pass_at: float | None = None,
        version: str = "1",
    ) -> None:
        try:
            import ragas  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("ragas", "ragas") from error
        os.environ.setdefault(semconv.RAGAS_DO_NOT_TRACK_ENV, "true")
        required = _required_fields(metric) if requires is None else requires  # first, as it refuses other objects
        prompts = [name for name, value in vars(metric).items() if isinstance(getattr(value, "instruction", None), str)]
        self.values = dict(values) if values is not None else _numbers_of_words(metric)
        super().__init__(
            metric,
            library="ragas",
            revision=version,
            name=name or snake(str(metric.name)),
            pass_at=pass_at,
            requires=required,
            scale=scale or _scale(metric),
            parameters=parameters_of(metric, include=prompts, exclude=_NOT_IN_VERSION),
            judge_model=_model_name(llm if llm is not None else getattr(metric, "llm", None)),
        )
        _initialise(metric, self.name)
        self._metric = metric
        self._llm_argument = {} if llm is None else {"llm": llm}

    async def measure(self, sample: Sample) -> Finding:
        """Convert the sample to ragas's form and score it."""
        from ragas import dataset_schema

        turns = kind_of(sample)
        kind = (
            dataset_schema.MultiTurnSample if isinstance(sample, MultiTurnSample) else dataset_schema.SingleTurnSample
        )
        converted = kind(**sample.model_dump(exclude_none=True))
        method = getattr(self._metric, _METHODS[turns], None)
        if method is not None:
            return self._to_finding(await self._run_async(lambda: method(converted)))
        parameters = _parameters(self._metric)
        values = {field: getattr(converted, field) for field in _FIELDS[turns] if field in parameters}
        fields = {field: value for field, value in values.items() if value is not None}
        return self._to_finding(await self._run_async(lambda: self._metric.ascore(**fields, **self._llm_argument)))

    def _to_finding(self, result: Any) -> Finding:
        """Return the finding for a bare number or word, or for a ``MetricResult`` with its reason."""
        value, explanation = (result.value, result.reason) if hasattr(result, "value") else (result, None)
        if value is None:  # a decorated function raised; ragas's reason quotes the error's text
            raise ValueError("ragas gave no value")
        if isinstance(value, str):
            value = self.values[value]
        reason = "ragas gave nan: it has no value on this sample"
        return Finding(value=float(value), reason=reason, explanation=explanation)


def _required_fields(metric: Any) -> dict[str, tuple[str, ...]]:
    if isinstance(metric, type):
        raise ConfigurationError(f"{metric.__name__} is a class: give a metric made of it, with its llm")
    columns = getattr(metric, "required_columns", None)
    if isinstance(columns, Mapping):
        needed = {
            turns: columns.get(turns.upper(), ()) for turns, method in _METHODS.items() if hasattr(metric, method)
        }
    elif callable(getattr(metric, "ascore", None)):
        parameters = _parameters(metric)
        input_type = parameters["user_input"].annotation if "user_input" in parameters else None
        turns = MULTI_TURN if "Message" in str(input_type) else SINGLE_TURN
        needed = {turns: [name for name, parameter in parameters.items() if parameter.default is parameter.empty]}
    else:
        needed = {}
    if not needed:
        raise ConfigurationError(f"a {type(metric).__name__} is no metric of ragas")
    return {turns: _in_order(metric, turns, fields) for turns, fields in needed.items()}


def _in_order(metric: Any, turns: str, fields: Any) -> tuple[str, ...]:
    unknown = sorted(set(fields) - set(_FIELDS[turns]))
    if unknown:
        raise ConfigurationError(
            f"{metric.name} needs {', '.join(unknown)}, which no {turns.replace('_', '-')} sample has"
        )
    return tuple(field for field in _FIELDS[turns] if field in fields)


def _parameters(metric: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of ``ascore``: from its signature, that of a decorated function, or the variables of a prompt."""
    if callable(getattr(metric, "get_variables", None)):
        return {name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in metric.get_variables()}
    function = getattr(metric, "_func", None) or metric.ascore
    return {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in {"self", "llm", "callbacks"} and parameter.kind is not parameter.VAR_KEYWORD
    }


def _scale(metric: Any) -> Scale:
    kinds = {cls.__name__ for cls in type(metric).__mro__}
    if kinds & _COSINES and not getattr(metric, "threshold", None):
        return COSINE
    direction: Direction = "lower" if kinds & _LOWER_IS_BETTER else "higher"
    allowed = getattr(metric, "allowed_values", None)
    if isinstance(allowed, tuple):
        return Scale(range=(float(allowed[0]), float(allowed[1])), direction=direction)
    if isinstance(allowed, range):
        return ordinal_scale((min(allowed), max(allowed)), direction)
    output = getattr(getattr(metric, "output_type", None), "value", None)
    if output == "binary" or (isinstance(allowed, list) and set(allowed) == set(_PASS_OR_FAIL)):
        return BINARY
    discrete = output == "discrete" or isinstance(allowed, list)
    return _scale_of_rubrics(metric, direction) if discrete else Scale(direction=direction)


def _scale_of_rubrics(metric: Any, direction: Direction) -> Scale:
    rubrics = getattr(metric, "rubrics", None) or ()
    return ordinal_scale(bounds_of(map(str, rubrics)), direction)


def _numbers_of_words(metric: Any) -> dict[str, float]:
    """Return word → number for a metric that answers pass or fail; empty for a metric that answers in numbers."""
    allowed = getattr(metric, "allowed_values", None)
    if isinstance(allowed, int) and not isinstance(allowed, bool):
        raise ConfigurationError(f"{metric.name} answers with a ranking, which is no score")
    if not isinstance(allowed, list):
        return {}
    if set(allowed) == set(_PASS_OR_FAIL):
        return _PASS_OR_FAIL
    raise ConfigurationError(
        f"{metric.name} answers in words: give each word a number, values={{{allowed[0]!r}: 1.0, …}}"
    )


def _model_name(llm: Any) -> str:
    """Return the name of the model behind a ragas LLM, or its class if it has no name; empty without an LLM."""
    if llm is None:
        return ""
    owners = (llm, getattr(llm, "langchain_llm", None))
    names = (getattr(owner, attribute, None) for owner in owners for attribute in ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name), type(llm).__name__)


def _initialise(metric: Any, name: str) -> None:
    """Call a metric's ``init`` like ragas's ``evaluate``, because some metrics build their parts there."""
    if not callable(getattr(metric, "init", None)):
        return
    from ragas.run_config import RunConfig

    try:
        metric.init(getattr(getattr(metric, "llm", None), "run_config", None) or RunConfig())
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}") from error
