"""Scores of metrics: a score with its scale and id, the outcomes of evaluations, and the transcripts of judge calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from math import isfinite
from typing import Any, Final, Literal, Self, TypeAlias, get_args

from spanscore import semconv
from spanscore.core.span import Unit, UnitKey
from spanscore.errors import ConfigurationError

# --- transcript -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Prompt and answer of one judge call; exists only if ``judge.trace`` makes a span of each call.

    Attributes:
        ended_ns: end of the call, nanoseconds since the epoch.
        operation: ``chat``, or ``embeddings``. Texts of embeddings are left out, because the conventions have no attribute for
            them.
        provider: value of ``gen_ai.provider.name``; empty if the provider is unknown, or the call used none.
        asked_model: the requested model, as configured.
        finish: the provider's name for the reason why the model stopped; None if unknown.
        trouble: error of a call without a usable answer, without content; empty for a usable answer.
        system: the system prompt. Empty if content is not exported.
        user: the user message. Empty if content is not exported.
        answer: the model's answer, in the right form or not. Empty if content is not exported.
    """

    ended_ns: int
    operation: str = semconv.CHAT
    provider: str = ""
    asked_model: str = ""
    finish: str | None = None
    trouble: str = ""
    system: str = ""
    user: str = ""
    answer: str = ""

    @property
    def size(self) -> int:
        """Number of characters of the texts."""
        return len(self.system) + len(self.user) + len(self.answer)

    def without_question(self) -> Self:
        """Return the transcript without its prompt. For repeated attempts: the prompt is on the span of one attempt only."""
        return replace(self, system="", user="")


# --- outcome --------------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """How an eligible (unit × metric) ended: exactly one of these.

    A mean is about the units that can have a score. Some units have none, and are not lost:

    - an input is missing: ``no_sample``, ``missing_field``;
    - the metric has no value for the unit: ``not_applicable``, ``no_value``;
    - the user excluded the unit: ``filtered``;
    - spanscore or a head sampler did not sample the unit, and the sampled units represent it: ``not_sampled``,
      ``trace_not_sampled``;
    - another process counts the unit: ``delegated``.

    With every other outcome but ``scored`` the unit is lost: the mean should include it, and does not.

    Attributes:
        SCORED: the metric has a value.
        NOT_APPLICABLE: the metric's condition (``applies_when``) does not hold.
        NO_VALUE: the metric has no value on this sample; the reason names the cause.
        NOT_SAMPLED: no rate sampled the unit; the sampled units represent it.
        FILTERED: ``sample_filter=`` returned False or raised, ``units.kinds`` excludes the unit, or ``SPANSCORE_DISABLED`` is
            set.
        TRACE_NOT_SAMPLED: the head sampler dropped the trace, so there is no span for a score.
        DELEGATED: another process has the unit or reads it from a file; that process counts the outcome.
        NO_SAMPLE: no question and answer were found, or several were found and the configuration names none of them. Or the
            run failed, or was cancelled, interrupted or abandoned. Or an extractor raised or hung. The reason names the cause.
        MISSING_FIELD: a required field of the metric is missing; the reason names it.
        INCOMPLETE: events of the unit were lost, it never ended, it is too large, or its root arrived over OTLP when its other
            spans had already been dropped (reason ``late_root``).
        EXPIRED: the unit waited in the spool for longer than ``spool.max_age``.
        EVENT_QUEUE_FULL: the event queue was full when the unit began.
        QUEUE_FULL: the job queue was full, in units or in bytes; or the share of the queue for one judge's metrics was full.
            Or the spool or the remote scorer accepted no unit; the reason names it.
        JUDGE_UNAVAILABLE: the judge could not be asked within ``judge.queue_timeout``; ``error.type`` is ``rate_limit`` (the
            provider's limit), ``breaker_open`` (the judge does not answer) or ``quota`` (the account has no credit).
        BUDGET_EXHAUSTED: the judge was not asked, because the budget of the window is spent.
        TIMEOUT: the metric or its judge took too long.
        JUDGE_ERROR: the judge gave no usable answer; ``error.type`` names the kind of error.
        METRIC_ERROR: the metric raised, or gave no usable result; or ``sample_filter=`` hung.
            ``error.type`` is the class of the exception, ``no_number`` (the value is no number), ``out_of_range`` (the value
            is outside the metric's range), ``no_category`` (the value is no category), ``no_score`` (the result is not a
            ``Score``), ``unknown_metric`` (this process has no such metric) or ``metric_error`` (``sample_filter=``
            hung, or the unit's job could not be made).
        REDACTION_ERROR: the redactor raised, returned no text or hung: the unit is not judged, and no content is exported.
        SHUTDOWN: the scorer or the process ended first.
    """

    SCORED = "scored"
    NOT_APPLICABLE = "not_applicable"
    NO_VALUE = "no_value"
    NOT_SAMPLED = "not_sampled"
    FILTERED = "filtered"
    TRACE_NOT_SAMPLED = "trace_not_sampled"
    DELEGATED = "delegated"
    NO_SAMPLE = "no_sample"
    MISSING_FIELD = "missing_field"
    INCOMPLETE = "incomplete"
    EXPIRED = "expired"
    EVENT_QUEUE_FULL = "event_queue_full"
    QUEUE_FULL = "queue_full"
    JUDGE_UNAVAILABLE = "judge_unavailable"
    BUDGET_EXHAUSTED = "budget_exhausted"
    TIMEOUT = "timeout"
    JUDGE_ERROR = "judge_error"
    METRIC_ERROR = "metric_error"
    REDACTION_ERROR = "redaction_error"
    SHUTDOWN = "shutdown"

    @property
    def failed(self) -> bool:
        """Whether the evaluation failed, before or after a call of the judge: ``error.type`` is set, and there is no value."""
        return self in _FAILED

    @property
    def missing(self) -> bool:
        """Whether the unit is lost: it should have a score, but the evaluation failed or never began."""
        return self in _LOST

    @property
    def not_attempted(self) -> bool:
        """Whether no score was attempted here: because of sampling, a filter or delegation, or because no trace is exported."""
        return self in _NOT_ATTEMPTED


_FAILED = frozenset(
    {
        Outcome.TIMEOUT,
        Outcome.JUDGE_ERROR,
        Outcome.METRIC_ERROR,
        Outcome.REDACTION_ERROR,
        Outcome.JUDGE_UNAVAILABLE,
        Outcome.BUDGET_EXHAUSTED,
    }
)
_LOST = _FAILED | {
    Outcome.INCOMPLETE,
    Outcome.EXPIRED,
    Outcome.EVENT_QUEUE_FULL,
    Outcome.QUEUE_FULL,
    Outcome.SHUTDOWN,
}
_NOT_ATTEMPTED = frozenset({Outcome.NOT_SAMPLED, Outcome.FILTERED, Outcome.TRACE_NOT_SAMPLED, Outcome.DELEGATED})


# --- score ----------------------------------------------------------------------------------------------------------

# The value of a score is on the metric's own scale, and is exported on spans. The quality is the value mapped to [0, 1], 1
# good, for instruments, labels and means.

Kind = Literal["binary", "ordinal", "continuous", "categorical"]
Direction = Literal["higher", "lower"]
Label = Literal["pass", "fail"]
PASS_FAIL: Final[frozenset[Kind]] = frozenset({"binary", "categorical"})
"""Kinds with the qualities 0 and 1 only, so that their mean quality is a share of units."""
ScoreValue: TypeAlias = float | str
"""A number on the metric's scale, or one word of a categorical scale."""

MOST_CATEGORIES: Final = 50
"""Largest number of categories, because each is an attribute value of OpenTelemetry metrics."""
_LONGEST_CATEGORY: Final = 40
CATEGORY_WORD: Final = re.compile(r"[^\W\d_][\w-]*")
_NUMBERS: Final = ("nan", "inf", "infinity")
"""Words that are read as numbers from a file, in any spelling."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a metric's values, and their mapping to quality.

    Attributes:
        kind: binary, ordinal, continuous or categorical.
        range: lowest and highest value; None = an open scale, whose values have no quality. None for a categorical scale.
        direction: whether higher or lower is better; without meaning for a categorical scale.
        pass_at: lowest quality (0…1) that passes.
        negatives_are_zero: for cosine metrics: the quality is max(0, value) instead of the linear map.
        categories: the 2 to 50 words of a categorical scale, in any order; empty for other kinds. A word has letters, digits,
            ``_`` and ``-``, begins with a letter, and is at most 40 characters long. ``pass``, ``fail``, ``nan``, ``inf`` and
            ``infinity`` are refused.
        bad: the categories with quality 0; the others have quality 1. Empty = no category has a quality.

    Raises:
        ConfigurationError: the kind is unknown, or the categories do not fit it; the message states the allowed values.
    """

    kind: Kind = "continuous"
    range: tuple[float, float] | None = (0.0, 1.0)
    direction: Direction = "higher"
    pass_at: float = 0.5
    negatives_are_zero: bool = False
    categories: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check kind and categories, and make them tuples; a categorical scale has no range."""
        if self.kind not in get_args(Kind):
            raise ConfigurationError(f"the scale's kind is {self.kind!r}; it is one of {', '.join(get_args(Kind))}")
        if self.kind == "categorical":
            for name in ("categories", "bad"):
                object.__setattr__(self, name, _words(name, getattr(self, name)))
            _refuse_categories(self.categories, self.bad)
            object.__setattr__(self, "range", None)
        elif self.categories or self.bad:
            raise ConfigurationError(
                f"the scale has categories, and its kind is {self.kind!r}; write kind='categorical'"
            )

    @property
    def has_quality(self) -> bool:
        """Whether its values have a quality."""
        return self.range is not None or bool(self.bad)

    def quality(self, value: ScoreValue) -> float | None:
        """Map a value to [0, 1], 1 good; None without a quality."""
        if isinstance(value, str):
            return float(value not in self.bad) if self.bad else None
        if self.range is None:
            return None
        low, high = (0.0, self.range[1]) if self.negatives_are_zero else self.range
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return share if self.direction == "higher" else 1.0 - share

    def label(self, quality: float | None) -> Label | None:
        """Return ``pass`` if the quality is at least ``pass_at``, otherwise ``fail``; None without a quality."""
        if quality is None:
            return None
        return "pass" if quality >= self.pass_at else "fail"


UNIT_INTERVAL = Scale()
BINARY = Scale(kind="binary", pass_at=1.0)


def categorical(name: str, categories: Iterable[str], bad: Iterable[str] = ()) -> Scale:
    """Return the scale of a metric's categories. For the arguments see ``Scale``.

    Raises:
        ConfigurationError: the categories are invalid; the message begins with the metric's name.
    """
    try:
        return Scale(kind="categorical", categories=categories, bad=bad)  # type: ignore[arg-type]  # made tuples
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _words(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{key} is {value!r}; it is a list of words, such as [refund, order, other]")
    return tuple(value)


def _refuse_word(word: Any) -> None:
    is_word = isinstance(word, str) and CATEGORY_WORD.fullmatch(word) and len(word) <= _LONGEST_CATEGORY
    if not is_word or word in get_args(Label) or word.casefold() in _NUMBERS:
        raise ConfigurationError(
            f"{word!r} cannot be a category; write letters, digits, _ and -, a letter first, at most "
            f"{_LONGEST_CATEGORY}, and neither {' nor '.join((*get_args(Label), *_NUMBERS))}"
        )


def _refuse_categories(categories: Sequence[str], bad: Sequence[str]) -> None:
    if not 1 < len(categories) <= MOST_CATEGORIES:
        raise ConfigurationError(
            f"categories has {len(categories)} words; give 2 to {MOST_CATEGORIES}, such as [refund, order, other]"
        )
    for word in categories:
        _refuse_word(word)
    spellings = Counter(word.casefold() for word in categories)
    twice = [word for word in categories if spellings[word.casefold()] > 1]
    if twice:
        raise ConfigurationError(
            f"categories has {' and '.join(map(repr, twice))}; give each word once, in one spelling"
        )
    for word in bad:
        if word not in categories:
            raise ConfigurationError(f"bad has {word!r}, which is no category; there are {', '.join(categories)}")
    if {*bad} == {*categories}:
        raise ConfigurationError("bad has every category, so no unit could pass; leave out at least one")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCall:
    """One call of a judge.

    Attributes:
        model: the answering model as its provider names it; empty if unknown.
        cost_usd: US dollars; None if the price is unknown.
        error_type: ``error.type`` of a failed call; None for an answer.
        cached: whether the answer came from the cache, without tokens and cost.
        estimated: whether tokens and cost are estimates, because the call was abandoned and may be billed.
        cached_input_tokens: part of ``input_tokens`` that the provider read from its own cache.
        cache_write_tokens: part of ``input_tokens`` that the provider wrote to its cache.
        input_truncated_ratio: share of the prompt's tokens that was left out because the prompt was too long; [0, 1).
        images_not_shown: number of images of the sample that the judge did not get, because it reads no images.
        transcript: content of its span; None if judges are not traced.
    """

    step: str
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    duration_s: float = 0.0
    error_type: str | None = None
    cached: bool = False
    estimated: bool = False
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    input_truncated_ratio: float = 0.0
    images_not_shown: int = 0
    transcript: Transcript | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """The judge calls of a score, in order, failed ones included, and their cost."""

    calls: tuple[JudgeCall, ...] = ()

    @property
    def input_tokens(self) -> int:
        """Tokens sent."""
        return sum(call.input_tokens for call in self.calls)

    @property
    def output_tokens(self) -> int:
        """Tokens received."""
        return sum(call.output_tokens for call in self.calls)

    @property
    def cost_usd(self) -> float | None:
        """Sum in US dollars over the calls with a known price; None if there is no such call."""
        return known_sum(call.cost_usd for call in self.calls)

    @property
    def cached_calls(self) -> int:
        """Number of calls that were answered without a request."""
        return sum(call.cached for call in self.calls)

    @property
    def input_truncated_ratio(self) -> float:
        """Largest share of a prompt's tokens that was left out, [0, 1)."""
        return max((call.input_truncated_ratio for call in self.calls), default=0.0)

    @property
    def images_not_shown(self) -> int:
        """Largest number of images that the judge did not get in one call."""
        return max((call.images_not_shown for call in self.calls), default=0)

    @property
    def unpriced(self) -> frozenset[str]:
        """Models with tokens of unknown price.

        A judge that reports no tokens is not listed, because it cannot be distinguished from a free judge.
        """
        unknown = (call for call in self.calls if call.cost_usd is None and (call.input_tokens or call.output_tokens))
        return frozenset(call.model or "unknown" for call in unknown)

    @property
    def duration_s(self) -> float:
        """Seconds spent in the judge, summed over calls that may have run concurrently."""
        return sum(call.duration_s for call in self.calls)


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None, not zero, without a known value."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


NOT_APPLICABLE: Final = "not applicable"
"""Reason of a ``not_applicable`` score if the metric's condition (``applies_when``) does not hold."""


@dataclass(frozen=True, slots=True)
class Votes:
    """Number of requested votes or generations, and number of received votes or generations."""

    requested: int
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JuryVotes:
    """How the jurors of one score voted.

    Attributes:
        models: models of the jurors that gave a value, in the order of the jury.
        values: values of these jurors on the metric's scale, in the same order.
        left_out: model and outcome of each other juror, with a space between.
        disagreement: highest quality among the jurors less the lowest, [0, 1]; None for fewer than two qualities.
    """

    models: tuple[str, ...] = ()
    values: tuple[ScoreValue, ...] = ()
    left_out: tuple[str, ...] = ()
    disagreement: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One result of one metric on one sample.

    Attributes:
        metric: name in lower snake case.
        version: version of the metric, which changes with the metric's prompts and parameters.
        outcome: result of the evaluation; ``scored`` if and only if there is a value.
        scale: the metric's scale: kind, range, direction and lowest quality that passes.
        value: on the metric's own scale, the word for a categorical scale; None unless ``outcome`` is ``scored``. A number
            is always finite.
        quality: value mapped to [0, 1], 1 good; None for a scale without quality.
        label: ``pass`` or ``fail``; None without a quality.
        reason: the cause of an outcome other than ``scored``, without content; None if no cause is known.
        missing: for ``missing_field``, the required fields (or the kind of sample) that the unit lacks.
        explanation: the judge's words or the counts from which the value follows; may quote content. None without any.
        error_type: low-cardinality name of the error; None unless the evaluation failed.
        evaluator_version: metric version, judge model and votes. Scores of two evaluator versions are never compared, because
            their difference is no drop in quality.
        usage: the judge calls of this score, with their tokens and cost; without calls if no judge was asked.
        judge_model: model of the judge; None without a judge.
        votes: numbers of requested and received votes; None if the metric does not vote.
        probability: probability with which this (unit × metric) was sampled, (0, 1]; None outside sampling.
        threshold: the sampling threshold T (56 bit) of ``probability``; None outside sampling.
        rule: name of the sampling rule that sampled the unit; None outside sampling.
        source: origin of a score that does not come from the configured judge on sampled traffic, such as ``fallback`` or
            ``shadow`` (see the glossary); such a score is in no mean of the configured judge. None = sampled traffic.
        id: 32 hex digits, equal in every process (``id_of``); None before the score is assigned to a unit.
        revision: number of earlier scores that this score supersedes; 0 the first time.
        contradictions: number of verdicts of its judge that their own reason contradicts, by English patterns.
        applies: whether the metric's condition (``applies_when``) holds. False only on a ``not_applicable`` score with the
            reason ``NOT_APPLICABLE``; None without a condition, or if the judge failed on it.
        counted: whether the sums of another process include the score. This process then adds it to no sum, and counts the
            outcome ``delegated``.
        sent: whether another process exported the score, and ended before it exported the sums that include it. This process
            then adds the score to its own sums, and does not export it again.
        jury: votes of the jurors; None for a score of one judge.
    """

    metric: str
    version: str
    outcome: Outcome
    scale: Scale = UNIT_INTERVAL
    value: ScoreValue | None = None
    quality: float | None = None
    label: Label | None = None
    reason: str | None = None
    missing: tuple[str, ...] = ()
    explanation: str | None = None
    error_type: str | None = None
    evaluator_version: str = ""
    usage: Usage = field(default_factory=Usage)
    judge_model: str | None = None
    votes: Votes | None = None
    probability: float | None = None
    threshold: int | None = None
    rule: str | None = None
    source: str | None = None
    id: str | None = None
    revision: int = 0
    contradictions: int = 0
    applies: bool | None = None
    counted: bool = False
    sent: bool = False
    jury: JuryVotes | None = None

    @property
    def counted_as(self) -> Outcome:
        """The outcome in the counts of this process."""
        return Outcome.DELEGATED if self.counted else self.outcome

    def __post_init__(self) -> None:
        """Reject contradictions: a value with a failure, a score without a value, a value that is not finite."""
        if (self.value is not None) != (self.outcome is Outcome.SCORED):
            raise ValueError(f"{self.metric}: outcome {self.outcome} contradicts value {self.value}")
        if isinstance(self.value, str):
            if self.value not in self.scale.categories:
                raise ValueError(f"{self.metric}: the value is a text, and no category")
        elif self.value is not None and (self.scale.categories or not isfinite(self.value)):
            raise ValueError(
                f"{self.metric}: {self.value} is not a score; a metric without a value has outcome 'no_value'"
            )

    @property
    def number(self) -> float | None:
        """The value, unless it is a category."""
        return None if self.value is None or isinstance(self.value, str) else float(self.value)

    @property
    def category(self) -> str | None:
        """The value of a categorical scale."""
        return self.value if isinstance(self.value, str) else None

    @property
    def exported_label(self) -> str | None:
        """The label on spans, events and instruments: the category, else ``pass`` or ``fail``."""
        return self.category or self.label

    @property
    def is_shadow(self) -> bool:
        """Whether the score is from a second judge, in addition to the metric's own score."""
        return self.source == semconv.SOURCE_SHADOW

    @property
    def kind(self) -> Kind:
        """Binary, ordinal, continuous or categorical."""
        return self.scale.kind

    @property
    def range(self) -> tuple[float, float] | None:
        """Lowest and highest value; None if the scale is open."""
        return self.scale.range

    @property
    def direction(self) -> Direction:
        """Whether higher or lower is better."""
        return self.scale.direction


_ADDITIONAL_SOURCES = frozenset({semconv.SOURCE_SHADOW, semconv.SOURCE_FEEDBACK})
"""Sources of scores that a unit may have in addition to its score from sampled traffic."""


def change_score(score: Score, unit: Unit, **changes: Any) -> Score:
    """Return a copy of a score with changed fields and the id that follows. The value and the outcome must not change."""
    new = replace(score, **changes)
    object.__setattr__(new, "id", id_of(new, unit))  # the copy is not shared yet
    return new


def id_of(score: Score, unit: Unit) -> str:
    """Return the id of a score of a unit. An additional score of the unit, and a provisional score, has a separate id."""
    variant = f"{score.source}/{score.evaluator_version}" if score.source in _ADDITIONAL_SOURCES else None
    if unit.session is not None and unit.is_provisional:
        variant = f"{unit.session.end}/{unit.session.turns}"
    return score_id(unit.ledger_key, score.metric, score.version, score.revision, variant=variant)


def score_id(key: UnitKey, metric: str, version: str, revision: int = 0, *, variant: str | None = None) -> str:
    """Return 32 hex digits, equal for equal arguments on every replica and replay. The first 16 are the evaluation span's id.

    ``variant`` distinguishes several scores of one unit, metric, version and revision.
    """
    text = f"{key.trace_id:032x}/{key.span_id:016x}/{metric}/{version}/{revision}"
    text += "" if variant is None else f"/{variant}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def unit_attributes(
    scores: Iterable[Score], others: Mapping[str, Outcome] | None = None, *, pending: bool = False
) -> dict[str, Any]:
    """Return the flat attributes of a unit's span: values, labels, probabilities, verdict, status and outcomes.

    Args:
        scores: scores of this unit; a score without a value adds only its outcome.
        others: metric → outcome of an evaluation that never began (``not_sampled``, ``missing_field`` …).
        pending: whether the span is exported before all its scores exist. The status is then ``pending``, and a verdict can
            only be ``fail``.
    """
    scores, others = list(scores), others or {}
    attributes: dict[str, Any] = {}
    for score in scores:
        attributes |= score_attributes(score)
    if verdict := _verdict({score.label for score in scores}, pending=pending):
        attributes[semconv.VERDICT] = verdict
    outcomes = {score.outcome for score in scores} | set(others.values())
    attributes[semconv.STATUS] = "pending" if pending else _status(outcomes)
    attributes |= _unscored_outcomes(scores, others)
    if source := next((score.source for score in scores if score.source), None):
        attributes[semconv.EVALUATION_SOURCE] = source
    return attributes


def _verdict(labels: Set[Label | None], *, pending: bool) -> Label | None:
    if "fail" in labels:
        return "fail"
    return "pass" if "pass" in labels and not pending else None


def _unscored_outcomes(scores: Sequence[Score], others: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return the outcome of each sampled metric without a score; ``missing_field`` is followed by the fields. No content."""
    outcomes = {
        score.metric: " ".join(filter(None, (score.outcome, ",".join(score.missing))))
        for score in scores
        if score.outcome not in _OUTCOMES_NOT_EXPORTED
    }
    outcomes |= {metric: outcome.value for metric, outcome in others.items() if outcome not in _OUTCOMES_NOT_EXPORTED}
    return {semconv.METRIC_OUTCOME + metric: outcome for metric, outcome in outcomes.items()}


_OUTCOMES_NOT_EXPORTED = frozenset({Outcome.SCORED, Outcome.NOT_SAMPLED, Outcome.DELEGATED})


def check_metric_name(metric: str) -> None:
    """Make sure that the attributes of a metric do not overwrite other attributes.

    Raises:
        ConfigurationError: the name is ``id`` or ``revision``.
    """
    for name in (prefix + metric for prefix in _METRIC_PREFIXES):
        if name in _ATTRIBUTE_NAMES:
            raise ConfigurationError(
                f"a metric cannot be called {metric!r}: {name} is already an attribute of every score"
            )


_METRIC_PREFIXES = (semconv.SCORE, semconv.LABEL, semconv.PROBABILITY, semconv.METRIC_OUTCOME, semconv.LEFT_OUT)
"""Prefixes of attributes that end in a metric's name."""
_ATTRIBUTE_NAMES = frozenset(name for name in vars(semconv).values() if isinstance(name, str))
MOSTLY_LEFT_OUT: Final = 0.5
"""Share of a question above which the unit's span has ``spanscore.left_out.<metric>``."""


def score_attributes(score: Score) -> dict[str, Any]:
    """Return the flat attributes of one score, which the unit's span and the evaluation span have; empty without a value.

    A shadow has none, because a search for low scores of the metric would find them.
    """
    if score.value is None or score.is_shadow:
        return {}
    attributes: dict[str, Any] = {}
    if score.number is not None:
        attributes[semconv.SCORE + score.metric] = score.number
    if score.exported_label:
        attributes[semconv.LABEL + score.metric] = score.exported_label
    if score.probability is not None:
        attributes[semconv.PROBABILITY + score.metric] = float(score.probability)
    if (left_out := score.usage.input_truncated_ratio) > MOSTLY_LEFT_OUT:
        attributes[semconv.LEFT_OUT + score.metric] = float(left_out)
    return attributes


def _status(outcomes: set[Outcome]) -> str:
    begun = outcomes - {Outcome.NOT_SAMPLED}
    if not begun:
        return "not_sampled" if outcomes else "not_scored"
    if begun == {Outcome.SCORED}:
        return "scored"
    if Outcome.DELEGATED in begun:
        return "delegated"
    return "partial" if Outcome.SCORED in begun else "not_scored"
