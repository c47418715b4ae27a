"""BaseMetric, the base class that turns a sample into a Score; a metric's parameters as JSON, for its version; languages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from hashlib import blake2b
from math import inf, isfinite, isnan
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from spanscore.core import loop
from spanscore.core.codecs.media import mark_images
from spanscore.core.log import type_name, user_origin
from spanscore.core.printable import did_you_mean
from spanscore.core.sample import MultiTurnSample, Sample, SingleTurnSample, missing_fields
from spanscore.core.score import UNIT_INTERVAL, JudgeCall, Outcome, Scale, Score, ScoreValue, Usage, Votes
from spanscore.core.threads import run_without_loop
from spanscore.errors import ConfigurationError, JudgeBudgetSpent, JudgeError, JudgeRateLimited, JudgeTimeout
from spanscore.judges.effects.limited import judge_in_force
from spanscore.judges.effects.middleware import prompt_order
from spanscore.judges.embeddings import embedder_name
from spanscore.judges.jury import Jury
from spanscore.judges.langchain.models import model_name
from spanscore.judges.records import EMBED_STEP, recorded_calls
from spanscore.judges.rendering import Rendered, render
from spanscore.judges.score_context import asked_by, current_score, suppress_tracing
from spanscore.metrics.kit.condition import NotApplicableError
from spanscore.metrics.kit.jury import combine_scores, disagree, votes_of
from spanscore.metrics.kit.step import Step
from spanscore.protocols import Judge, Metric

_NAMES: Final = """
    am:Amharic ar:Arabic bg:Bulgarian da:Danish de:German el:Greek en:English es:Spanish fa:Persian fr:French
    hi:Hindi hy:Armenian it:Italian ja:Japanese kk:Kazakh km:Khmer ko:Korean lo:Lao mr:Marathi my:Burmese nl:Dutch
    pl:Polish pt:Portuguese ru:Russian sk:Slovak th:Thai ur:Urdu zh:Chinese
"""
LANGUAGES: Final = {code: name for code, _, name in (pair.partition(":") for pair in _NAMES.split())}
"""Two letters of ISO 639-1 → the language's name in English."""


def parse_language(metric: str, language: str | None) -> str | None:
    """Return the two-letter code of a language, which the user gives by code or English name; None stays None.

    Raises:
        ConfigurationError: the language is not in ``LANGUAGES``.
    """
    by_name = {name.casefold(): code for code, name in LANGUAGES.items()}
    key = language.strip().casefold() if isinstance(language, str) else language
    if key is None or key in LANGUAGES:
        return key
    if key in by_name:
        return by_name[key]
    hint = did_you_mean(str(key), [*LANGUAGES, *by_name])
    known_names = ", ".join(sorted(by_name))
    raise ConfigurationError(
        f"{metric}: language is {language!r}; {hint and f'{hint} '}Known are {known_names}, or two letters ('de')"
    )


def parameters_to_json(metric: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a metric's parameters as JSON values, which are hashed into its version.

    A judge, an embedder or a chat model becomes its model's name, so another model starts another evaluator version, and
    another key or address for the same model does not. A dataclass becomes its fields, a sequence its items, and a function or
    a class its ``__qualname__``. Any other object becomes the name of its class, because a default repr has a memory address.

    Raises:
        ConfigurationError: a parameter cannot be converted; the message names the attribute and the remedy.
    """
    values = {}
    for name, value in parameters.items():
        try:
            values[name] = parameter_to_json(value)
        except Exception as error:  # a user's object may raise anything when its attributes are read
            is_ours = isinstance(error, ConfigurationError)
            cause = str(error) if is_ours else f"looking at it raised {type(error).__name__}"
            raise ConfigurationError(
                f"{metric}: the value of its parameter {name} cannot be part of its version: {cause}; "
                "begin its name with an underscore, and it is no part of the version"
            ) from error
    return values


def parameter_to_json(value: Any) -> Any:
    """Return a parameter as a JSON value."""
    return to_json(value, _object_to_json)


def to_json(value: Any, convert_object: Callable[[Any], Any]) -> Any:
    """Return a value as JSON: collections item by item, and objects as ``convert_object`` converts them."""
    if isinstance(value, Mapping):
        return {str(key): to_json(item, convert_object) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [to_json(item, convert_object) for item in value]
        return items if isinstance(value, list | tuple) else sorted(items, key=str)
    return value if value is None or isinstance(value, str | int | float) else convert_object(value)


def _object_to_json(value: Any) -> Any:
    if isinstance(value, type):
        return value.__qualname__
    if (model := _model_name_of(value)) is not None:
        return model
    if is_dataclass(value):  # asdict() would copy each value, and a lock cannot be copied
        return {field.name: parameter_to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Sequence):
        return [parameter_to_json(item) for item in value]
    return getattr(value, "__qualname__", type(value).__qualname__)


def _model_name_of(value: Any) -> str | None:
    """Return the model name of a judge, an embedder or a LangChain model; None for any other object."""
    if _has_method(value, "ask"):
        model = getattr(value, "model", None)
        if not isinstance(model, str) or not model:
            kind = type(value).__name__
            raise ConfigurationError(f"a {kind} is a judge that names no model; give it a text as model")
        return model
    if _has_method(value, "embed"):
        return embedder_name(value)
    if _has_method(value, "ainvoke") or _has_method(value, "aembed_documents"):
        return " | ".join(map(model_name, _models_in(value)))
    return None


def _has_method(value: Any, name: str) -> bool:
    return callable(getattr(value, name, None))


def _models_in(runnable: Any) -> Iterator[Any]:
    """Yield the models in a LangChain runnable: the target of a binding, the steps of a sequence, and the fallbacks."""
    if (bound := getattr(runnable, "bound", None)) is not None:
        yield from _models_in(bound)
    elif isinstance(steps := getattr(runnable, "steps", None), list):
        for step in steps:
            yield from _models_in(step)
    elif isinstance(fallbacks := getattr(runnable, "fallbacks", None), list | tuple):
        for model in (runnable.runnable, *fallbacks):
            yield from _models_in(model)
    else:
        yield runnable


SINGLE_TURN = "single_turn"
MULTI_TURN = "multi_turn"
_SLACK = 1e-9
"""Largest rounding error by which a value may lie outside its range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a metric on one sample.

    Attributes:
        value: number on the metric's scale, or one of its categories; None if the metric is undefined on the sample.
        reason: why the value is undefined; never quotes content. None = a default text.
        explanation: counts or words behind the value; may quote content.
        votes: votes requested and received; None = the metric does not vote.
        scale: scale of this value, if it differs from sample to sample; None = the metric's own scale.
    """

    value: ScoreValue | None
    reason: str | None = None
    explanation: str | None = None
    votes: Votes | None = None
    scale: Scale | None = None


Measured: TypeAlias = Finding | Score | ScoreValue | None
"""The result of ``measure``. A bare number or category is the value; None and nan mean that there is no value."""


class BaseMetric:
    """The mixin that makes a class with one method ``async measure(sample)`` a metric.

    ``score`` checks the sample's fields, calls ``measure``, checks the range of the value and returns a ``Score``. If the
    sample or the judge fails, the score has an outcome and no value; ``score`` does not raise for it.

    Public attributes are the metric's parameters and part of its version; a judge, an embedder or a chat model is there by its
    model's name. Attributes that begin with an underscore are not part of the version.

    Attributes:
        name: the metric's name in lower snake case, unique within a scorer.
        scale: kind, range, direction and pass mark of the values.
        requires: kind of sample, ``single_turn`` or ``multi_turn`` → names of the required fields.
        optional: kind of sample → names of further fields that the metric reads if the sample has them.
        cpu_bound: whether ``measure`` computes instead of waiting. The engine then runs it in a pool thread, and ``score_sync``
            in the caller's thread.
        base_version: version of the computation, raised by hand; prompts and parameters are hashed into ``version``.
        steps: the prompted steps, by name.
        votes: number of answers requested from the judge per score.

    Example:
        >>> class Politeness(BaseMetric):
        ...     name = "politeness"
        ...     requires = {"single_turn": ("response",)}
        ...
        ...     async def measure(self, sample):
        ...         return "please" in sample.response
    """

    name: str
    scale: Scale = UNIT_INTERVAL
    requires: Mapping[str, tuple[str, ...]] = MappingProxyType({SINGLE_TURN: ()})
    optional: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    cpu_bound: bool = False
    base_version: str = "1"
    steps: Mapping[str, Step[Any]] = MappingProxyType({})
    votes: int = 1
    _judge: Judge | None = None

    async def measure(self, sample: Any) -> Measured:
        """Measure one sample that has the required fields; may raise any exception.

        Runs on the loop's thread; if ``cpu_bound``, on a thread of a pool or on the caller's thread.
        """
        raise NotImplementedError(f"{type(self).__name__} has no measure method")

    async def score(self, sample: Sample) -> Score:
        """Score one sample, from any loop. A failure of the judge or the sample is an outcome, not an exception.

        Judges are called on spanscore's one loop of the process. A ``cpu_bound`` metric runs on the caller's loop.
        """
        score = self._score_here(sample)
        return await (score if self.cpu_bound else loop.await_on_loop(score))

    def score_sync(self, sample: Sample) -> Score:
        """Score one sample and block until it is done, even inside a running loop (Jupyter)."""
        return run_without_loop(self._score_here(sample)) if self.cpu_bound else loop.run(self._score_here(sample))

    @cached_property
    def version(self) -> str:
        """Base version and a hash of prompts, parameters and scale, as ``1+0a1b2c3d``."""
        text = json.dumps(self._identity(), sort_keys=True, ensure_ascii=False)
        digest = blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
        return f"{self.base_version}+{digest}"

    @property
    def is_conditional(self) -> bool:
        """Whether a step has a condition (``applies_when``), so that the metric may not apply to a sample."""
        return any(step.applies_when is not None for step in self.steps.values())

    @property
    def evaluator_version(self) -> str:
        """Version, judge model and votes. A change of one starts a new evaluator version and is not a drop in quality.

        The model is the fallback's if a fallback judge answers for the current score. A jury lists the models of all members.
        """
        if isinstance(self._judge, Jury):
            model = self._judge.describe(lambda juror: judge_in_force(juror).model)
        else:
            model = "none" if self._judge is None else judge_in_force(self._judge).model
        return f"{self.version}/{model}/{self.votes}"

    def missing(self, sample: Sample) -> str | None:
        """Return a message that names the missing required fields; None if none is missing. Called before a paid call."""
        absent = missing_fields(sample, self.requires[kind_of(sample)])
        return f"{self.name} needs {' and '.join(absent)}, which the sample does not have" if absent else None

    async def _score_here(self, sample: Sample) -> Score:
        context = current_score()
        context.images = getattr(sample, "images", None) or ()
        if context.images:
            sample = mark_images(sample)  # each image's marker stands in the text
        # suppress_tracing(): a user's metric may call its model itself.
        # asked_by(): the judge calls belong to this score, even if the metric is called directly.
        with recorded_calls() as calls, suppress_tracing(), asked_by(context):
            try:
                refusal = self._refusal(sample)
                if refusal is not None:
                    return self._new_score(Outcome.MISSING_FIELD, calls, reason=refusal)
                if isinstance(self._judge, Jury):
                    return await self._ask_jury(self._judge, sample, calls)
                return self._to_score(await self.measure(sample), calls)
            except NotApplicableError as error:
                return self._new_score(Outcome.NOT_APPLICABLE, calls, reason=str(error), applies=False)
            except JudgeError as error:
                outcomes = (outcome for kind, outcome in _OUTCOME_BY_ERROR.items() if isinstance(error, kind))
                outcome = next(outcomes, Outcome.JUDGE_ERROR)
                return self._new_score(outcome, calls, reason=str(error), error_type=error.error_type)
            except Exception as error:  # noqa: BLE001  (user code may raise anything, and the text may quote content)
                reason = f"{self.name} raised {user_origin(error)}"
                return self._new_score(Outcome.METRIC_ERROR, calls, reason=reason, error_type=type_name(error))

    async def _ask_jury(self, jury: Jury, sample: Sample, calls: Sequence[JudgeCall]) -> Score:
        """Score a sample with all jurors concurrently, then with ``then`` if the jurors disagree, and combine the scores."""
        scores = await asyncio.gather(*(self._with_judge(juror)._score_here(sample) for juror in jury.jurors))
        if jury.then is not None and disagree(scores):
            scores.append(await self._with_judge(jury.then)._score_here(sample))
        by_model = {juror.model: score for juror, score in zip(jury.members, scores, strict=False)}
        finding, votes = combine_scores(by_model), votes_of(by_model)
        if finding.value is not None:
            measured = Finding(value=finding.value, explanation=finding.explanation, scale=scores[0].scale)
            return replace(self._to_score(measured, calls), jury=votes)
        return self._new_score(
            finding.outcome,
            calls,
            reason=finding.reason,
            explanation=finding.explanation,
            error_type="jury_incomplete" if finding.outcome is Outcome.JUDGE_ERROR else None,
            applies=False if finding.outcome is Outcome.NOT_APPLICABLE else None,
            jury=votes,
        )

    def _with_judge(self, judge: Judge) -> Self:
        changed = copy(self)
        changed._judge = judge
        return changed

    def _refusal(self, sample: Sample) -> str | None:
        turns = kind_of(sample)
        if turns not in self.requires:
            kinds = " or ".join(kind.replace("_", "-") for kind in self.requires)
            return f"{self.name} needs a {kinds} sample, not a {turns} one"
        return self.missing(sample)

    def _to_score(self, measured: Measured, calls: Sequence[JudgeCall]) -> Score:
        """Return the score of a result of ``measure``; a Score gets this metric's name, version and judge."""
        if isinstance(measured, Score):
            return replace(
                measured,
                metric=self.name,
                version=self.version,
                evaluator_version=self.evaluator_version,
                source=current_score().source,
                usage=Usage(tuple(calls)) if calls else measured.usage,
                judge_model=self._answering_model(calls, measured.judge_model),
            )
        finding = measured if isinstance(measured, Finding) else Finding(value=measured)
        scale = finding.scale or self.scale
        try:
            value = _value_on(scale, finding.value)
        except _UnusableValueError as error:
            reason = f"{self.name} {error}"
            return self._new_score(Outcome.METRIC_ERROR, calls, reason=reason, error_type=error.error_type)
        if value is None:
            return self._new_score(
                Outcome.NO_VALUE,
                calls,
                reason=finding.reason or f"{self.name} has no value on this sample",
                explanation=finding.explanation,
                votes=finding.votes,
            )
        quality = scale.quality(value)
        return self._new_score(
            Outcome.SCORED,
            calls,
            scale=scale,
            value=value,
            quality=quality,
            label=scale.label(quality),
            explanation=finding.explanation,
            votes=finding.votes,
            applies=True if self.is_conditional else None,
        )

    def _new_score(
        self, outcome: Outcome, calls: Sequence[JudgeCall], *, scale: Scale | None = None, **fields: Any
    ) -> Score:
        return Score(
            metric=self.name,
            version=self.version,
            outcome=outcome,
            scale=scale or self.scale,
            evaluator_version=self.evaluator_version,
            source=current_score().source,
            contradictions=current_score().contradictions,
            usage=Usage(tuple(calls)),
            judge_model=self._answering_model(calls),
            **fields,
        )

    def _answering_model(self, calls: Sequence[JudgeCall], default: str | None = None) -> str | None:
        """Return the model of the last judge call, or ``default``, or the judge's model; None without a judge.

        The model of a jury names all its members.
        """
        if isinstance(self._judge, Jury):
            return self._judge.model
        models = (call.model for call in reversed(calls) if call.model and call.step != EMBED_STEP)
        return next(models, None) or default or (self._judge.model if self._judge else None)

    def _identity(self) -> dict[str, Any]:
        """Return the values that are hashed into the version: parameters, prompts and scale."""
        public = {key: value for key, value in vars(self).items() if key not in _NO_PARAMETERS and key[0] != "_"}
        parameters = parameters_to_json(self.name, public)
        prompts = {name: self._texts_of(step) for name, step in self.steps.items()}
        # Empty ``categories`` and ``bad`` are left out, so that a metric without categories keeps its version.
        scale = {name: value for name, value in parameter_to_json(self.scale).items() if value != []}
        return {"parameters": parameters, "prompts": prompts, "scale": scale}

    def _texts_of(self, step: Step[Any]) -> Rendered:
        return render(step.prompt({}, order="evidence_first" if self._judge is None else prompt_order(self._judge)))


_OUTCOME_BY_ERROR: Mapping[type[JudgeError], Outcome] = {
    JudgeTimeout: Outcome.TIMEOUT,
    JudgeRateLimited: Outcome.JUDGE_UNAVAILABLE,
    JudgeBudgetSpent: Outcome.BUDGET_EXHAUSTED,
}
"""Error of a judge → outcome of the score. Any other ``JudgeError`` is a ``judge_error``."""
_NO_PARAMETERS = frozenset({"name", "version", "steps", "questions", "requires", "scale"})
"""Public attributes that are not hashed as parameters. Prompts and scale are hashed separately."""


def optional_of(metric: Metric) -> Mapping[str, tuple[str, ...]]:
    """Return kind of sample → fields that a metric reads if the sample has them; empty for a metric without ``optional``."""
    fields: Mapping[str, tuple[str, ...]] = getattr(metric, "optional", {})
    return fields


def kind_of(sample: Any) -> str:
    """Return ``multi_turn`` for a conversation, ``single_turn`` for one turn, and the class name for any other object."""
    if isinstance(sample, MultiTurnSample):
        return MULTI_TURN
    return SINGLE_TURN if isinstance(sample, SingleTurnSample) else type(sample).__name__


class _UnusableValueError(Exception):
    """The result is not a value of the metric's scale. The text quotes no content.

    Attributes:
        error_type: ``no_number``, ``no_category`` or ``out_of_range``.
    """

    def __init__(self, error_type: str, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type


def _value_on(scale: Scale, result: Any) -> ScoreValue | None:
    """Return a result as a value of the scale: a category, or a number clipped to the range; None for None and nan."""
    if result is None:
        return None
    if scale.categories:
        if isinstance(result, str) and result in scale.categories:
            return str(result)
        raise _UnusableValueError("no_category", f"gave none of its categories: {', '.join(scale.categories)}")
    if isinstance(result, complex) or not hasattr(result, "__float__"):
        text = "; a metric that gives a text needs categories=[…]" if isinstance(result, str) else ""
        reason = f"gave {type_name(result)}; a metric gives a number, a bool, None, a Finding or a Score{text}"
        raise _UnusableValueError("no_number", reason)
    value = float(result)
    if isnan(value):
        return None
    low, high = scale.range or (-inf, inf)
    if not isfinite(value) or not low - _SLACK <= value <= high + _SLACK:
        raise _UnusableValueError("out_of_range", f"came out as {value:g}, outside its range {scale.range}")
    return min(high, max(low, value))
