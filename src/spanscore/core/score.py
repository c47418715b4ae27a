"""Score, Outcome and Transcript: one result, how each evaluation ended, and what a judge was asked for it."""

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
    """What a judge was asked in one call, and what it answered. Kept only if judges are traced.

    Attributes:
        ended_ns: when it ended, since the epoch.
        operation: ``chat``, or ``embeddings``, of which the texts are nowhere: the conventions know no place for them.
        provider: as ``gen_ai.provider.name`` has it; empty where nobody is asked, or nobody tells.
        asked_model: the model that was asked, as it is configured.
        finish: why the model stopped, as its provider names it; None where it does not tell.
        trouble: what is wrong with a call that gave no answer of use; quotes nothing.
        system: what it was told to do. Empty where content is not exported; likewise the next two.
        user: the evidence, as it was sent.
        answer: what it said, readable or not.
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
        """Characters of what was said."""
        return len(self.system) + len(self.user) + len(self.answer)

    def without_question(self) -> Self:
        """Return it without what was asked: another attempt of the same question tells that."""
        return replace(self, system="", user="")


# --- outcome --------------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """How an eligible (unit × metric) ended: exactly one of these.

    A mean is about the units that can have a score, and some cannot, by what they are: there is nothing to score
    (``no_sample``, ``missing_field``) or to say (``not_applicable``, ``no_value``), or the user left them out (``filtered``).
    Others stand for those that dice have left, ours (``not_sampled``) or the head sampler's (``trace_not_sampled``); and some
    are counted by another process (``delegated``). Every other outcome but ``scored`` is a loss: the mean should hold the unit,
    and does not.

    Attributes:
        SCORED: a value came out.
        NOT_APPLICABLE: the metric's condition (``applies_when``) does not hold.
        NO_VALUE: the metric has no value on this sample; the reason names why.
        NOT_SAMPLED: the dice left it; those that they took stand for it.
        FILTERED: ``sample_filter=`` returned False, ``units.kinds`` leaves the unit out, or ``SPANSCORE_DISABLED`` is set.
        TRACE_NOT_SAMPLED: the head sampler dropped the trace: there is no span that a score could be on.
        DELEGATED: another process has it, or a file from which one takes it, and counts there how it ends.
        NO_SAMPLE: no question and answer were found, or several and none was told; the reason names the keys that were there.
        MISSING_FIELD: a field that the metric needs is not there; the reason names it.
        INCOMPLETE: events of the unit were lost, it never ended, it is too large, or its root came over the wire after others
            of its spans had been given up (reason ``late_root``).
        EXPIRED: it waited in the spool for longer than ``spool.max_age``.
        EVENT_QUEUE_FULL: the event queue was full when it began.
        QUEUE_FULL: the job queue was full, in units or in bytes, or the part of it that metrics which ask one judge may fill.
        JUDGE_UNAVAILABLE: the judge could not be asked within ``judge.queue_timeout``; ``error.type`` is ``rate_limit`` (its
            provider's limits), ``breaker_open`` (it is down) or ``quota`` (its account has no money).
        BUDGET_EXHAUSTED: the judge was not asked: what it may be paid in the window is spent.
        TIMEOUT: the metric or its judge took too long.
        JUDGE_ERROR: the judge gave no usable answer; ``error.type`` says of which kind.
        METRIC_ERROR: the metric, or a function of the user's, raised or hung, or the metric gave nothing usable;
            ``error.type`` is the class of what it raised, ``no_number`` (its value is no number), ``out_of_range`` (its value
            is outside its range), ``no_score`` (it answered something else than a ``Score``), ``unknown_metric`` (this
            process has no such metric) or ``metric_error`` (a function of the user's failed).
        REDACTION_ERROR: the redactor raised, gave no text or hung: nothing is judged, and no content is exported.
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
        """Whether this is the failure of an evaluation that was begun: ``error.type`` is set, never a value."""
        return self in _FAILED

    @property
    def missing(self) -> bool:
        """Whether the mean lacks this unit: its evaluation failed, or never began although the unit was to be scored."""
        return self in _LOST

    @property
    def not_attempted(self) -> bool:
        """Whether no score was asked for here: by the dice, a filter, as the trace is not exported, or as it is another's."""
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

# ``value`` is on the metric's own scale and is what spans carry. ``quality`` maps it by range and direction to [0, 1], 1
# good: instruments, labels and means use that one.

Kind = Literal["binary", "ordinal", "continuous"]
Direction = Literal["higher", "lower"]
Label = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a metric's values, and how a value becomes a quality.

    Attributes:
        kind: binary, ordinal or continuous.
        range: lowest and highest value; None = open, such a metric has values and no quality.
        direction: whether higher or lower is better.
        pass_at: lowest quality (0…1) that passes.
        negatives_are_zero: cosine metrics: the quality is max(0, value) instead of the linear map.
    """

    kind: Kind = "continuous"
    range: tuple[float, float] | None = (0.0, 1.0)
    direction: Direction = "higher"
    pass_at: float = 0.5
    negatives_are_zero: bool = False

    def quality(self, value: float) -> float | None:
        """Map a value to [0, 1], 1 good; None where the scale is open."""
        if self.range is None:
            return None
        low, high = (0.0, self.range[1]) if self.negatives_are_zero else self.range
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return share if self.direction == "higher" else 1.0 - share

    def label(self, quality: float | None) -> Label | None:
        """``pass`` from ``pass_at`` upwards; None where there is no quality."""
        if quality is None:
            return None
        return "pass" if quality >= self.pass_at else "fail"


UNIT_INTERVAL = Scale()
BINARY = Scale(kind="binary", pass_at=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCall:
    """One call of a judge.

    Attributes:
        model: the answering model as its provider names it; empty when unknown.
        cost_usd: None when the price is not known.
        error_type: None for an answer.
        cached: nobody was asked: it was answered before. No tokens, no cost.
        estimated: tokens and cost are what it may have come to: it was given up, and may be billed all the same.
        cached_input_tokens: of ``input_tokens``, those that the provider read from its own cache.
        cache_write_tokens: part of ``input_tokens`` that the provider wrote to its cache.
        input_truncated_ratio: share of the question's tokens that were left out of it, as it was too long; [0, 1).
        transcript: what its span tells; None where judges are not traced.
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
    """What a score cost: the judge's calls in order, failed ones included."""

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
        """Sum over the calls whose price is known; None when none is."""
        return known_sum(call.cost_usd for call in self.calls)

    @property
    def cached_calls(self) -> int:
        """Of the calls, those that were answered without a request."""
        return sum(call.cached for call in self.calls)

    @property
    def input_truncated_ratio(self) -> float:
        """Largest share of a question's tokens that was left out of it, [0, 1)."""
        return max((call.input_truncated_ratio for call in self.calls), default=0.0)

    @property
    def unpriced(self) -> frozenset[str]:
        """Models that were paid for at an unknown price; a judge that counts no tokens looks like a free one."""
        unknown = (call for call in self.calls if call.cost_usd is None and (call.input_tokens or call.output_tokens))
        return frozenset(call.model or "unknown" for call in unknown)

    @property
    def duration_s(self) -> float:
        """Time spent in the judge, summed over calls that may have run side by side."""
        return sum(call.duration_s for call in self.calls)


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of what is known; None where nothing is, which is not zero."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


NOT_APPLICABLE: Final = "not applicable"
"""Why a score is ``not_applicable`` whose metric has a condition (``applies_when``) that does not hold."""


@dataclass(frozen=True, slots=True)
class Votes:
    """How many votes or generations were asked for, and how many came back."""

    requested: int
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One result of one metric on one sample.

    Attributes:
        metric: name in lower snake case.
        version: of the metric with its prompts and parameters; a change of either changes it.
        value: on the metric's own scale; None unless ``outcome`` is ``scored``. Always finite.
        quality: value mapped to [0, 1], 1 good; None for an open scale.
        reason: for every other outcome, what happened, without content.
        missing: of a ``missing_field``, the fields (or the kind of sample) that the metric needs and the unit does not have.
        explanation: the judge's words or the counts behind the value; may quote content.
        error_type: low-cardinality, set when the evaluation failed.
        evaluator_version: metric version + judge model + votes: a change starts a new evaluator version, it is not a drop.
        probability: with which this (unit × metric) was chosen, (0, 1]; None outside sampling.
        threshold: the sampling threshold T (56 bit), from which ``probability`` derives.
        rule: the sampling rule that took it.
        source: ``fallback``, where another judge than the one configured was asked; such scores are an evaluator version of
            their own, and in no mean of the configured judge. ``shadow``, where a second judge was asked beside it. None = the
            population.
        id: 32 hex digits, a pure function of trace id, span id, metric, version and revision; of a shadow's, of its evaluator
            version too; of a session's, of the session's id in place of trace and span.
        revision: 0, or how often a later score superseded an earlier one.
        contradictions: verdicts of the judge behind it that their own reason speaks against, in plain English forms.
        applies: whether the metric's condition (``applies_when``) holds, of a score and of what is ``not_applicable`` as it
            does not (``NOT_APPLICABLE``); None where there is no condition, or nobody could say.
        counted: whether the sums of another process have it: it is emitted again, ends as ``delegated``, and adds to no sum.
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

    @property
    def counted_as(self) -> Outcome:
        """The outcome in the counts of this process."""
        return Outcome.DELEGATED if self.counted else self.outcome

    def __post_init__(self) -> None:
        """Refuse what would lie: a value beside a failure, a score without a value, a value that is no number."""
        if (self.value is not None) != (self.outcome is Outcome.SCORED):
            raise ValueError(f"{self.metric}: outcome {self.outcome} cannot stand beside value {self.value}")
        if self.value is not None and not isfinite(self.value):
            raise ValueError(
                f"{self.metric}: {self.value} is not a score; a metric without a value has outcome 'no_value'"
            )

    @property
    def is_shadow(self) -> bool:
        """Whether a second judge gave it, beside the metric's own score."""
        return self.source == semconv.SOURCE_SHADOW

    @property
    def kind(self) -> Kind:
        """Binary, ordinal or continuous."""
        return self.scale.kind

    @property
    def range(self) -> tuple[float, float] | None:
        """Lowest and highest value; None where the scale is open."""
        return self.scale.range

    @property
    def direction(self) -> Direction:
        """Whether higher or lower is better."""
        return self.scale.direction


_BESIDE = frozenset({semconv.SOURCE_SHADOW, semconv.SOURCE_FEEDBACK})
"""Sources of which a unit may have a score beside the one of the population."""


def from_source(score: Score, unit: Unit, source: str) -> Score:
    """Return a score as one that stands beside the population's; its id is none that the unit's own score has."""
    return signed(score, unit, source=source)


def signed(score: Score, unit: Unit, **told: Any) -> Score:
    """Return a score of a unit with these fields, and the id that comes of them; neither value nor outcome is changed."""
    new = replace(score, **told)
    object.__setattr__(new, "id", id_of(new, unit))  # nobody has seen it yet
    return new


def id_of(score: Score, unit: Unit) -> str:
    """Return the id of a score; one beside it, or of a session that goes on, is none that any other of the metric has."""
    beside = f"{score.source}/{score.evaluator_version}" if score.source in _BESIDE else None
    if unit.session is not None and unit.is_provisional:
        beside = f"{unit.session.end}/{unit.session.turns}"
    return score_id(unit.ledger_key, score.metric, score.version, score.revision, beside=beside)


def score_id(key: UnitKey, metric: str, version: str, revision: int = 0, *, beside: str | None = None) -> str:
    """Return 32 hex digits, the same for the same unit, metric, version and revision, on every replica and replay.

    The evaluation span's id is the first 16 of them. ``beside`` tells apart what is scored beside the unit.
    """
    text = f"{key.trace_id:032x}/{key.span_id:016x}/{metric}/{version}/{revision}"
    text += "" if beside is None else f"/{beside}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def unit_attributes(
    scores: Iterable[Score], others: Mapping[str, Outcome] | None = None, *, pending: bool = False
) -> dict[str, Any]:
    """Return the flat attributes of a unit's span: values, labels, probabilities, verdict, status and outcomes.

    Args:
        scores: of this unit; those without a value add their outcome only.
        others: metric → outcome of those that were never begun (not sampled, missing field …).
        pending: the span leaves before all its scores are in; takes precedence over every other status, and there is no
            verdict but ``fail``.
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
    """Return the outcome of each chosen metric without a score, after ``missing_field`` the fields; it quotes nothing."""
    reasons = {
        score.metric: " ".join(filter(None, (score.outcome, ",".join(score.missing))))
        for score in scores
        if score.outcome not in _NOTHING_TO_SAY
    }
    reasons |= {metric: outcome.value for metric, outcome in others.items() if outcome not in _NOTHING_TO_SAY}
    return {semconv.METRIC_OUTCOME + metric: why for metric, why in reasons.items()}


_NOTHING_TO_SAY = frozenset({Outcome.SCORED, Outcome.NOT_SAMPLED, Outcome.DELEGATED})


def refuse_taken_name(metric: str) -> None:
    """Refuse a metric's name under which its value would take the place of another attribute.

    Raises:
        ConfigurationError: it is ``id`` or ``revision``.
    """
    for name in (family + metric for family in _FAMILIES):
        if name in _TAKEN:
            raise ConfigurationError(
                f"a metric cannot be called {metric!r}: {name} is an attribute that every score has already"
            )


MOSTLY_LEFT_OUT: Final = 0.5
"""Share of a question from which on the unit's span says that it was left out."""
_FAMILIES = (semconv.SCORE, semconv.LABEL, semconv.PROBABILITY, semconv.METRIC_OUTCOME, semconv.LEFT_OUT)
_TAKEN = frozenset(name for name in vars(semconv).values() if isinstance(name, str))


def score_attributes(score: Score) -> dict[str, Any]:
    """Return one score's flat keys, the same on the unit's span and on the evaluation span; empty without a value."""
    if score.value is None or score.is_shadow:  # a search for the metric's low scores would find the shadow's
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
