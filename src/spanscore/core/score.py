"""Scores of metrics: a score with its scale and id, the outcomes of evaluations, and the transcripts of judge calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from math import isfinite
from typing import Any, Final, Literal, Self

from spanscore import semconv
from spanscore.core.span import Unit, UnitKey
from spanscore.errors import ConfigurationError

# --- transcript -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Prompt and answer of one judge call. Kept only if judges are traced.

    Attributes:
        ended_ns: end of the call, nanoseconds since the epoch.
        operation: ``chat``, or ``embeddings``. Texts of embeddings are not kept, because the conventions have no attribute for
            them.
        provider: value of ``gen_ai.provider.name``; empty if the provider is unknown, or the call used none.
        asked_model: the requested model, as configured.
        finish: the provider's name for the reason why the model stopped; None if unknown.
        trouble: error of a call without a usable answer; quotes no content.
        system: the system prompt. Empty if content is not exported.
        user: the evidence, as it was sent. Empty if content is not exported.
        answer: the model's answer, readable or not. Empty if content is not exported.
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
        """Return the transcript without its prompt, because another attempt at the same question has it."""
        return replace(self, system="", user="")


# --- outcome --------------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """How an eligible (unit × metric) ended: exactly one of these.

    A mean is about the units that can have a score. Some units cannot: they lack an input (``no_sample``, ``missing_field``),
    the metric has no value for them (``not_applicable``, ``no_value``), or the user excluded them (``filtered``). Sampled units
    represent the unsampled ones, ours (``not_sampled``) and the head sampler's (``trace_not_sampled``). ``delegated`` units are
    counted by another process. Every other outcome but ``scored`` is a loss: the mean should include the unit, and does not.

    Attributes:
        SCORED: the metric has a value.
        NOT_APPLICABLE: the metric's condition (``applies_when``) does not hold.
        NO_VALUE: the metric has no value on this sample; the reason names the cause.
        NOT_SAMPLED: no rate sampled the unit; the sampled units represent it.
        FILTERED: ``sample_filter=`` returned False, ``units.kinds`` excludes the unit, or ``SPANSCORE_DISABLED`` is set.
        TRACE_NOT_SAMPLED: the head sampler dropped the trace, so there is no span for a score.
        DELEGATED: another process has the unit, or takes it from a file, and counts its outcome there.
        NO_SAMPLE: no question and answer were found, or several and the configuration selects none; the reason names the keys
            that were present.
        MISSING_FIELD: a required field of the metric is missing; the reason names it.
        INCOMPLETE: events of the unit were lost, it never ended, it is too large, or its root arrived over OTLP when its other
            spans had already been dropped (reason ``late_root``).
        EXPIRED: the unit waited in the spool for longer than ``spool.max_age``.
        EVENT_QUEUE_FULL: the event queue was full when the unit began.
        QUEUE_FULL: the job queue was full, in units or in bytes, or the share of it for metrics of one judge was.
        JUDGE_UNAVAILABLE: the judge could not be asked within ``judge.queue_timeout``; ``error.type`` is ``rate_limit`` (its
            provider's limits), ``breaker_open`` (it is down) or ``quota`` (its account has no money).
        BUDGET_EXHAUSTED: the judge was not asked, because its budget of the window is spent.
        TIMEOUT: the metric or its judge took too long.
        JUDGE_ERROR: the judge gave no usable answer; ``error.type`` names the kind of error.
        METRIC_ERROR: the metric, or a function of the user's, raised or hung, or the metric gave no usable result;
            ``error.type`` is the class of the exception, ``no_number`` (its value is no number), ``out_of_range`` (its value is
            outside its range), ``no_score`` (its result is not a ``Score``), ``unknown_metric`` (this process has no such
            metric) or ``metric_error`` (a function of the user's failed).
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
        """Whether an evaluation that had begun failed: ``error.type`` is set, and there is no value."""
        return self in _FAILED

    @property
    def missing(self) -> bool:
        """Whether the mean lacks this unit: its evaluation failed, or never began although the unit should have been scored."""
        return self in _LOST

    @property
    def not_attempted(self) -> bool:
        """Whether no score was attempted here: by sampling, by a filter, because the trace is not exported, or by
        delegation.
        """
        return self in _TURNED_AWAY


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


_TURNED_AWAY = frozenset({Outcome.NOT_SAMPLED, Outcome.FILTERED, Outcome.TRACE_NOT_SAMPLED, Outcome.DELEGATED})


# --- score ----------------------------------------------------------------------------------------------------------

# ``value`` is on the metric's own scale, and is exported on spans. ``quality`` maps it by range and direction to [0, 1], 1
# good, for instruments, labels and means.

Kind = Literal["binary", "ordinal", "continuous"]
Direction = Literal["higher", "lower"]
Label = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a metric's values, and their mapping to quality.

    Attributes:
        kind: binary, ordinal or continuous.
        range: lowest and highest value; None: an open scale, whose values have no quality.
        direction: whether higher or lower is better.
        pass_at: lowest quality (0…1) that passes.
        negatives_are_zero: for cosine metrics: the quality is max(0, value) instead of the linear map.
    """

    kind: Kind = "continuous"
    range: tuple[float, float] | None = (0.0, 1.0)
    direction: Direction = "higher"
    pass_at: float = 0.5
    negatives_are_zero: bool = False

    def quality(self, value: float) -> float | None:
        """Map a value to [0, 1], 1 good; None if the scale is open."""
        if self.range is None:
            return None
        low, high = (0.0, self.range[1]) if self.negatives_are_zero else self.range
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return share if self.direction == "higher" else 1.0 - share

    def label(self, quality: float | None) -> Label | None:
        """Return ``pass`` from ``pass_at`` upwards, otherwise ``fail``; None without a quality."""
        if quality is None:
            return None
        return "pass" if quality >= self.pass_at else "fail"


UNIT_INTERVAL = Scale()
BINARY = Scale(kind="binary", pass_at=1.0)


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
        input_truncated_ratio: share of the question's tokens that was left out because the question was too long; [0, 1).
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
    transcript: Transcript | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Cost of a score: its judge calls in order, failed ones included."""

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
        """Sum in US dollars over the calls with a known price; None without such a call."""
        return known_sum(call.cost_usd for call in self.calls)

    @property
    def cached_calls(self) -> int:
        """Number of calls that were answered without a request."""
        return sum(call.cached for call in self.calls)

    @property
    def input_truncated_ratio(self) -> float:
        """Largest share of a question's tokens that was left out, [0, 1)."""
        return max((call.input_truncated_ratio for call in self.calls), default=0.0)

    @property
    def unpriced(self) -> frozenset[str]:
        """Models that were paid for at an unknown price; a judge that counts no tokens looks like a free one."""
        unknown = (call for call in self.calls if call.cost_usd is None and (call.input_tokens or call.output_tokens))
        return frozenset(call.model or "unknown" for call in unknown)

    @property
    def duration_s(self) -> float:
        """Seconds spent in the judge, summed over calls that may have run concurrently."""
        return sum(call.duration_s for call in self.calls)


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are not None; None, not zero, without such a value."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


NOT_APPLICABLE: Final = "not applicable"
"""Reason of a ``not_applicable`` score if the metric's condition (``applies_when``) does not hold."""


@dataclass(frozen=True, slots=True)
class Votes:
    """Number of requested votes or generations, and number of received ones."""

    requested: int
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JuryVotes:
    """How the jurors of one score voted.

    Attributes:
        models: models of the jurors that gave a value, in the order of the jury.
        values: their values on the metric's scale, in the same order.
        left_out: model and outcome of each other juror, with a space between.
        disagreement: highest quality among the jurors less the lowest, [0, 1]; None for fewer than two qualities.
    """

    models: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    left_out: tuple[str, ...] = ()
    disagreement: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One result of one metric on one sample.

    Attributes:
        metric: name in lower snake case.
        version: version of the metric; it changes with its prompts and parameters.
        value: on the metric's own scale; None unless ``outcome`` is ``scored``. Always finite.
        quality: value mapped to [0, 1], 1 good; None for an open scale.
        reason: for every other outcome, the cause, without content.
        missing: for ``missing_field``, the required fields (or the kind of sample) that the unit lacks.
        explanation: the judge's words or the counts behind the value; may quote content.
        error_type: low-cardinality, set if the evaluation failed.
        evaluator_version: metric version, judge model and votes. A change starts a new evaluator version and is no drop.
        probability: probability with which this (unit × metric) was sampled, (0, 1]; None outside sampling.
        threshold: the sampling threshold T (56 bit) of ``probability``.
        rule: the sampling rule that sampled it.
        source: ``fallback``: another judge replaced the configured one. Such scores have an evaluator version of their own, and
            are in no mean of the configured judge. ``shadow``: a second judge was asked as well. None: sampled traffic.
        id: 32 hex digits, a pure function of trace id, span id, metric, version and revision. A shadow's id also depends on its
            evaluator version; a session's on the session id instead of trace and span.
        revision: number of earlier scores that this one supersedes; 0 the first time.
        contradictions: number of verdicts of its judge that their own reason contradicts, by English patterns.
        applies: whether the metric's condition (``applies_when``) holds. False only on a ``not_applicable`` score with the
            reason ``NOT_APPLICABLE``; None without a condition, or if the judge failed on it.
        counted: whether the sums of another process include it: it is emitted again, ends as ``delegated``, and adds to no sum.
        sent: whether another process has exported it, and ended before it exported its sums: it is added to sums alone.
        jury: votes of the jurors; None for a score of one judge.
    """

    metric: str
    version: str
    outcome: Outcome
    scale: Scale = UNIT_INTERVAL
    value: float | None = None
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
        if self.value is not None and not isfinite(self.value):
            raise ValueError(
                f"{self.metric}: {self.value} is not a score; a metric without a value has outcome 'no_value'"
            )

    @property
    def is_shadow(self) -> bool:
        """Whether it is from a second judge, in addition to the metric's own score."""
        return self.source == semconv.SOURCE_SHADOW

    @property
    def kind(self) -> Kind:
        """Binary, ordinal or continuous."""
        return self.scale.kind

    @property
    def range(self) -> tuple[float, float] | None:
        """Lowest and highest value; None if the scale is open."""
        return self.scale.range

    @property
    def direction(self) -> Direction:
        """Whether higher or lower is better."""
        return self.scale.direction


_BESIDE = frozenset({semconv.SOURCE_SHADOW, semconv.SOURCE_FEEDBACK})
"""Sources of scores that a unit may have in addition to the one from sampled traffic."""


def from_source(score: Score, unit: Unit, source: str) -> Score:
    """Return a copy of a score with this source and the id of that source, which differs from the id of the unit's own
    score.
    """
    return signed(score, unit, source=source)


def signed(score: Score, unit: Unit, **told: Any) -> Score:
    """Return a copy of a unit's score with these fields and the id that follows from them; value and outcome do not change."""
    new = replace(score, **told)
    object.__setattr__(new, "id", id_of(new, unit))  # the copy is not shared yet
    return new


def id_of(score: Score, unit: Unit) -> str:
    """Return the id of a score. Sources in ``_BESIDE`` and provisional session scores have ids of their own."""
    beside = f"{score.source}/{score.evaluator_version}" if score.source in _BESIDE else None
    if unit.session is not None and unit.is_provisional:
        beside = f"{unit.session.end}/{unit.session.turns}"
    return score_id(unit.ledger_key, score.metric, score.version, score.revision, beside=beside)


def score_id(key: UnitKey, metric: str, version: str, revision: int = 0, *, beside: str | None = None) -> str:
    """Return 32 hex digits, the same for the same unit, metric, version and revision, on every replica and replay.

    The evaluation span's id is the first 16 of them. The last argument distinguishes additional scores of the same unit.
    """
    text = f"{key.trace_id:032x}/{key.span_id:016x}/{metric}/{version}/{revision}"
    text += "" if beside is None else f"/{beside}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def unit_attributes(
    scores: Iterable[Score], others: Mapping[str, Outcome] | None = None, *, pending: bool = False
) -> dict[str, Any]:
    """Return the flat attributes of a unit's span: values, labels, probabilities, verdict, status and outcomes.

    Args:
        scores: scores of this unit; a score without a value adds its outcome only.
        others: metric → outcome of evaluations that never began (not sampled, missing field …).
        pending: whether the span is exported before all its scores are in. The status is then ``pending``, and a verdict can
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
    return attributes | _unscored(scores, others) | _source(scores)


def _source(scores: Sequence[Score]) -> dict[str, Any]:
    found = next((score.source for score in scores if score.source), None)
    return {} if found is None else {semconv.EVALUATION_SOURCE: found}


def _verdict(labels: Set[Label | None], *, pending: bool) -> Label | None:
    if "fail" in labels:
        return "fail"
    return "pass" if "pass" in labels and not pending else None


def _unscored(scores: Sequence[Score], others: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return the outcome of each sampled metric without a score; after ``missing_field`` the fields. It quotes no content."""
    reasons = {
        score.metric: " ".join(filter(None, (score.outcome, ",".join(score.missing))))
        for score in scores
        if score.outcome not in _NOTHING_TO_SAY
    }
    reasons |= {metric: outcome.value for metric, outcome in others.items() if outcome not in _NOTHING_TO_SAY}
    return {semconv.METRIC_OUTCOME + metric: why for metric, why in reasons.items()}


_NOTHING_TO_SAY = frozenset({Outcome.SCORED, Outcome.NOT_SAMPLED, Outcome.DELEGATED})


def refuse_taken_name(metric: str) -> None:
    """Reject a metric's name if its attribute would overwrite another attribute.

    Raises:
        ConfigurationError: the name is ``id`` or ``revision``.
    """
    for name in (family + metric for family in _FAMILIES):
        if name in _TAKEN:
            raise ConfigurationError(
                f"a metric cannot be called {metric!r}: {name} is already an attribute of every score"
            )


MOSTLY_LEFT_OUT: Final = 0.5
"""Share of a question above which the unit's span has ``spanscore.left_out.<metric>``."""
_FAMILIES = (semconv.SCORE, semconv.LABEL, semconv.PROBABILITY, semconv.METRIC_OUTCOME, semconv.LEFT_OUT)
_TAKEN = frozenset(name for name in vars(semconv).values() if isinstance(name, str))


def score_attributes(score: Score) -> dict[str, Any]:
    """Return the flat keys of one score, the same on the unit's span and on the evaluation span; empty without a value."""
    if score.value is None or score.is_shadow:  # otherwise a search for the metric's low scores would find the shadow's
        return {}
    attributes: dict[str, Any] = {semconv.SCORE + score.metric: float(score.value)}
    if score.label:
        attributes[semconv.LABEL + score.metric] = score.label
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
