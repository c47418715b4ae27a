"""BaseMetric: the base class that turns a sample into a Score, and the hash of parameters in a metric's version."""

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
from spanscore.metrics.kit.jury import disagree, find_verdict, votes_of
from spanscore.metrics.kit.step import Step
from spanscore.protocols import Judge, Metric

_NAMES: Final = """
    am:Amharic ar:Arabic bg:Bulgarian da:Danish de:German el:Greek en:English es:Spanish fa:Persian fr:French
    hi:Hindi hy:Armenian it:Italian ja:Japanese kk:Kazakh km:Khmer ko:Korean lo:Lao mr:Marathi my:Burmese nl:Dutch
    pl:Polish pt:Portuguese ru:Russian sk:Slovak th:Thai ur:Urdu zh:Chinese
"""
LANGUAGES: Final = {code: name for code, _, name in (pair.partition(":") for pair in _NAMES.split())}
"""Two letters of ISO 639-1 → the language's name in English."""


def language_wanted(metric: str, given: str | None) -> str | None:
    """Return the two-letter code of a language given as code or English name; None stays None.

    Raises:
        ConfigurationError: the language is not in ``LANGUAGES``.
    """
    by_name = {name.casefold(): code for code, name in LANGUAGES.items()}
    wanted = given.strip().casefold() if isinstance(given, str) else given
    if wanted is None or wanted in LANGUAGES:
        return wanted
    if wanted in by_name:
        return by_name[wanted]
    meant = did_you_mean(str(wanted), [*LANGUAGES, *by_name])
    raise ConfigurationError(
        f"{metric}: language is {given!r}; {meant and f'{meant} '}Known are {', '.join(sorted(by_name))}, or two letters ('de')"
    )


_LEAVE_OUT = "begin its name with an underscore, and it is no part of the version"


def parameters_of_version(metric: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a metric's parameters as JSON values, to be hashed into its version.

    A judge, an embedder or a chat model becomes its model's name. So another model starts another evaluator version; another
    key or address for the same model does not. A dataclass becomes its fields, a sequence its items, and a function or a class
    its ``__qualname__``. Any other object becomes the name of its class, because a default repr has its address.

    Raises:
        ConfigurationError: a parameter cannot be converted; the message names the attribute and the remedy.
    """
    plain = {}
    for name, value in parameters.items():
        try:
            plain[name] = plain_parameter(value)
        except Exception as error:  # a user's object may raise anything when its attributes are read
            what = (
                str(error) if isinstance(error, ConfigurationError) else f"looking at it raised {type(error).__name__}"
            )
            raise ConfigurationError(
                f"{metric}: the value of its parameter {name} cannot be part of its version: {what}; {_LEAVE_OUT}"
            ) from error
    return plain


def plain(value: Any, of_object: Callable[[Any], Any]) -> Any:
    """Return a parameter as JSON values: collections item by item, and other objects as converted by ``of_object``."""
    if isinstance(value, Mapping):
        return {str(key): plain(item, of_object) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item, of_object) for item in value]
        return items if isinstance(value, list | tuple) else sorted(items, key=str)
    return value if value is None or isinstance(value, str | int | float) else of_object(value)


def plain_parameter(value: Any) -> Any:
    """Return a parameter as JSON."""
    return plain(value, _of_object)


def _of_object(value: Any) -> Any:
    if isinstance(value, type):
        return value.__qualname__
    if (model := _model_asked(value)) is not None:
        return model
    if is_dataclass(value):  # asdict() would copy each value, and a lock cannot be copied
        return {field.name: plain_parameter(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Sequence):
        return [plain_parameter(item) for item in value]
    return getattr(value, "__qualname__", type(value).__qualname__)


def _model_asked(value: Any) -> str | None:
    """Return the model name of a judge, an embedder or a LangChain model; None for any other object."""
    if _has(value, "ask"):
        model = getattr(value, "model", None)
        if not isinstance(model, str) or not model:
            kind = type(value).__name__
            raise ConfigurationError(f"a {kind} is a judge that names no model; give it a text as model")
        return model
    if _has(value, "embed"):
        return embedder_name(value)
    if _has(value, "ainvoke") or _has(value, "aembed_documents"):
        return " | ".join(map(model_name, _models(value)))
    return None


def _has(value: Any, method: str) -> bool:
    return callable(getattr(value, method, None))


def _models(runnable: Any) -> Iterator[Any]:
    """Yield the models in a LangChain runnable: the target of a binding, the steps of a sequence, and the fallbacks."""
    if (bound := getattr(runnable, "bound", None)) is not None:
        yield from _models(bound)
    elif isinstance(steps := getattr(runnable, "steps", None), list):
        for step in steps:
            yield from _models(step)
    elif isinstance(others := getattr(runnable, "fallbacks", None), list | tuple):
        for other in (runnable.runnable, *others):
            yield from _models(other)
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
"""A result of ``measure``. A bare number or category is a value; None and nan are no value."""


class BaseMetric:
    """The mixin that makes a class with one method ``async measure(sample)`` a metric.

    Field check → ``measure`` → range check → ``Score``. A failure of a sample or a judge is an outcome without a value;
    ``score`` does not raise for it.

    Public attributes are the metric's parameters and part of its version. A judge, an embedder or a chat model counts by its
    model's name. Attributes that begin with an underscore are not part of the version.

    Attributes:
        name: the metric's name in lower snake case, unique within a scorer.
        scale: kind, range, direction and pass mark of the values.
        requires: kind of sample, ``single_turn`` or ``multi_turn`` → names of the required fields.
        optional: kind of sample → names of further fields that the metric reads if the sample has them.
        cpu_bound: whether ``measure`` computes rather than waits. The engine then runs it in a pool thread, and ``score_sync``
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
        scored = self._scored(sample)
        return await (scored if self.cpu_bound else loop.await_on_loop(scored))

    def score_sync(self, sample: Sample) -> Score:
        """Score one sample and block until it is done, even inside a running loop (Jupyter)."""
        return run_without_loop(self._scored(sample)) if self.cpu_bound else loop.run(self._scored(sample))

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

    async def _scored(self, sample: Sample) -> Score:
        # suppress_tracing(): a user's metric may call its model itself.
        # asked_by(): the judge calls belong to this score, even if the metric is called directly.
        context = current_score()
        if images := getattr(sample, "images", None) or ():
            sample = mark_images(sample)
        context.images = images
        with recorded_calls() as calls, suppress_tracing(), asked_by(context):
            return await self._outcome(sample, calls)

    async def _outcome(self, sample: Sample, calls: Sequence[JudgeCall]) -> Score:
        """Measure one sample and return its score, even after a failure. Each judge call is added to ``calls``."""
        try:
            refusal = self._refusal(sample)
            if refusal is not None:
                return self._ended(Outcome.MISSING_FIELD, calls, reason=refusal)
            if isinstance(self._judge, Jury):
                return await self._ask_jury(self._judge, sample, calls)
            return self._judged(await self.measure(sample), calls)
        except NotApplicableError as error:
            return self._ended(Outcome.NOT_APPLICABLE, calls, reason=str(error), applies=False)
        except JudgeError as error:
            own = (outcome for kind, outcome in _OUTCOMES.items() if isinstance(error, kind))
            outcome = next(own, Outcome.JUDGE_ERROR)
            return self._ended(outcome, calls, reason=str(error), error_type=error.error_type)
        except Exception as error:  # noqa: BLE001  (user code may raise anything, and the text may quote content)
            reason = f"{self.name} raised {user_origin(error)}"
            return self._ended(Outcome.METRIC_ERROR, calls, reason=reason, error_type=type_name(error))

    async def _ask_jury(self, jury: Jury, sample: Sample, calls: Sequence[JudgeCall]) -> Score:
        """Score a sample with all jurors concurrently, then with ``then`` if the jurors disagree, and combine the scores."""
        scores = await asyncio.gather(*(self._with_judge(juror)._scored(sample) for juror in jury.jurors))
        if jury.then is not None and disagree(scores):
            scores.append(await self._with_judge(jury.then)._scored(sample))
        by_model = {juror.model: score for juror, score in zip(jury.members, scores, strict=False)}
        finding, votes = find_verdict(by_model), votes_of(by_model)
        if finding.value is not None:
            measured = Finding(value=finding.value, explanation=finding.explanation, scale=scores[0].scale)
            return replace(self._score_of_finding(measured, calls), jury=votes)
        error_type = "jury_incomplete" if finding.outcome is Outcome.JUDGE_ERROR else None
        applies = False if finding.outcome is Outcome.NOT_APPLICABLE else None
        return self._ended(
            finding.outcome,
            calls,
            reason=finding.reason,
            explanation=finding.explanation,
            error_type=error_type,
            applies=applies,
            jury=votes,
        )

    def _with_judge(self, judge: Judge) -> Self:
        """Return a copy of the metric that asks another judge."""
        changed = copy(self)
        changed._judge = judge
        return changed

    def _refusal(self, sample: Sample) -> str | None:
        """Return why a sample cannot be measured; None if it can."""
        turns = kind_of(sample)
        if turns not in self.requires:
            kinds = " or ".join(kind.replace("_", "-") for kind in self.requires)
            return f"{self.name} needs a {kinds} sample, not a {turns} one"
        return self.missing(sample)

    def _judged(self, measured: Measured, calls: Sequence[JudgeCall]) -> Score:
        if isinstance(measured, Score):
            return self._complete_score(measured, calls)
        return self._score_of_finding(measured if isinstance(measured, Finding) else Finding(value=measured), calls)

    def _score_of_finding(self, finding: Finding, calls: Sequence[JudgeCall]) -> Score:
        scale = finding.scale or self.scale
        try:
            value = _value_on(scale, finding.value)
        except _UnusableValueError as error:
            return self._ended(Outcome.METRIC_ERROR, calls, reason=f"{self.name} {error}", error_type=error.error_type)
        if value is None:
            return self._ended(
                Outcome.NO_VALUE,
                calls,
                reason=finding.reason or f"{self.name} has no value on this sample",
                explanation=finding.explanation,
                votes=finding.votes,
            )
        quality = scale.quality(value)
        return self._ended(
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

    def _complete_score(self, score: Score, calls: Sequence[JudgeCall]) -> Score:
        """Return a Score that ``measure`` built itself, with this metric's name, version and judge."""
        return replace(
            score,
            metric=self.name,
            version=self.version,
            **self._judge_asked(),
            usage=Usage(tuple(calls)) if calls else score.usage,
            judge_model=self._answered(calls, score.judge_model),
        )

    def _ended(
        self, outcome: Outcome, calls: Sequence[JudgeCall], *, scale: Scale | None = None, **fields: Any
    ) -> Score:
        """Return a score with the fields that all scores of this metric share."""
        return Score(
            metric=self.name,
            version=self.version,
            outcome=outcome,
            scale=scale or self.scale,
            **self._judge_asked(),
            contradictions=current_score().contradictions,
            usage=Usage(tuple(calls)),
            judge_model=self._answered(calls),
            **fields,
        )

    def _judge_asked(self) -> dict[str, Any]:
        """Return the evaluator version and source of the current score, by the judge that answers for it."""
        return {"evaluator_version": self.evaluator_version, "source": current_score().source}

    def _answered(self, calls: Sequence[JudgeCall], known: str | None = None) -> str | None:
        """Return the model of the last judge call, or ``known``, or the judge's model; None without a judge.

        A jury's model names all its members.
        """
        if isinstance(self._judge, Jury):
            return self._judge.model
        answered = next((call.model for call in reversed(calls) if call.model and call.step != EMBED_STEP), None)
        return answered or known or (self._judge.model if self._judge else None)

    def _identity(self) -> dict[str, Any]:
        """Return the values that are hashed into the version: parameters, prompts and scale."""
        public = {key: value for key, value in vars(self).items() if key not in _NO_PARAMETERS and key[0] != "_"}
        parameters = parameters_of_version(self.name, public)
        prompts = {name: self._texts_of(step) for name, step in self.steps.items()}
        # Metrics of earlier releases had no ``categories`` and ``bad``, so these are left out while they are empty.
        scale = {name: value for name, value in plain_parameter(self.scale).items() if value != []}
        return {"parameters": parameters, "prompts": prompts, "scale": scale}

    def _texts_of(self, step: Step[Any]) -> Rendered:
        """Return the rendered prompt of a step without evidence."""
        return render(step.prompt({}, order="evidence_first" if self._judge is None else prompt_order(self._judge)))


_OUTCOMES: Mapping[type[JudgeError], Outcome] = {
    JudgeTimeout: Outcome.TIMEOUT,
    JudgeRateLimited: Outcome.JUDGE_UNAVAILABLE,
    JudgeBudgetSpent: Outcome.BUDGET_EXHAUSTED,
}


_NO_PARAMETERS = frozenset({"name", "version", "steps", "questions", "requires", "scale"})


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
    """A result that is no value of the metric's scale. The text quotes no content.

    Attributes:
        error_type: ``no_number``, ``no_category`` or ``out_of_range``.
    """

    def __init__(self, error_type: str, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type


def _value_on(scale: Scale, result: Any) -> ScoreValue | None:
    """Return the value on the scale: a category, or a number clipped to the range within ``_SLACK``; None for None and nan.

    Raises:
        _UnusableValueError: the value is neither.
    """
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
