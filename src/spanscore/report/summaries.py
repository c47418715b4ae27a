"""Rows → ReportSummary: means, bad stretches, corrected pass rates, missing scores, the funnel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations_with_replacement, pairwise
from math import sqrt
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from spanscore import semconv
from spanscore.core.codecs.text import safe_text
from spanscore.core.score import MOSTLY_LEFT_OUT, Direction, Kind, known_sum
from spanscore.monitoring import estimates
from spanscore.monitoring.calibration import Estimated, SavedCalibration
from spanscore.monitoring.estimates import mean, moments
from spanscore.monitoring.health import Applicability
from spanscore.monitoring.judge_check_runs import JudgeComparison, pair
from spanscore.report.rows import BadStretch, ReportRow, WorstUnit, name_within, rank_failures
from spanscore.report.spans import population_applicability, population_sums

__all__ = [
    "Bucket",
    "CorrectedRate",
    "FunnelStep",
    "MetricSummary",
    "ReportSummary",
    "Stretch",
    "Unscored",
    "corrected_rate",
    "explain_unscored",
    "funnel",
    "summarize",
    "worst_stretch",
]

# --- stretch --------------------------------------------------------------------------------------------------------

# Stretch: the run of buckets in which a metric was worse than in all others, where there is one beyond chance.
#
# A scan over every run of neighbouring buckets. The evidence is the difference of the two weighted means in standard
# errors, with the variance of all scores together (that of "nothing happened"): pass/fail metrics at 0 or 1 have none of
# their own.

MIN_DROP = 0.1
"""On the quality scale: a smaller one is not worth a headline."""
MIN_EVIDENCE = 4.5
"""Standard errors. 48 buckets have 1,176 runs: chance alone passes this in fewer than 1 of 100 reports."""
MIN_SCORES = 5
"""In the run, and outside it."""

_Sums = npt.NDArray[np.float64]  # n, Σw, Σwy, Σw²


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of buckets, first and last included.

    Attributes:
        inside: weighted mean of quality in the run.
        outside: of all other buckets.
        usual: of the buckets before the run, which is what it fell from; of all others where those hold too few scores.
        evidence: the difference in standard errors.
    """

    first: int
    last: int
    inside: float
    outside: float
    usual: float
    evidence: float


def worst_stretch(buckets: Sequence[Sequence[tuple[float, float]]]) -> Stretch | None:
    """Return the run that stands out most; None where none does.

    Args:
        buckets: neighbours in time, each with its (weight, quality) pairs; an empty one is no evidence either way.
    """
    filled = [at for at, bucket in enumerate(buckets) if bucket]
    if not filled:
        return None
    upto = np.array([np.zeros(4), *map(_sums, buckets)]).cumsum(axis=0)
    weights, qualities = np.array([*chain.from_iterable(buckets)]).T
    variance = float(np.cov(qualities, aweights=weights, bias=True))
    compared = (_compare(upto, at, variance) for at in combinations_with_replacement(filled, 2))
    return max(filter(None, compared), key=lambda run: run.evidence, default=None)


def _sums(bucket: Sequence[tuple[float, float]]) -> _Sums:
    pairs = np.array(bucket, dtype=np.float64).reshape(-1, 2)
    weights, qualities = pairs[:, 0], pairs[:, 1]
    return np.array([len(pairs), weights.sum(), (weights * qualities).sum(), (weights**2).sum()])


def _compare(upto: _Sums, at: tuple[int, int], variance: float) -> Stretch | None:
    """Compare a run with the rest.

    Args:
        upto: shape (buckets + 1, 4): the sums of all buckets before each border.
    """
    before, run = upto[at[0]], upto[at[1] + 1] - upto[at[0]]
    rest = upto[-1] - run
    if min(run[0], rest[0]) < MIN_SCORES or variance == 0.0:
        return None
    inside, outside = run[2] / run[1], rest[2] / rest[1]
    error = sqrt(variance * (run[3] / run[1] ** 2 + rest[3] / rest[1] ** 2))  # 1 / Kish's effective size, twice
    evidence = (outside - inside) / error
    if outside - inside < MIN_DROP or evidence < MIN_EVIDENCE:
        return None
    usual = before[2] / before[1] if before[0] >= MIN_SCORES else outside
    return Stretch(*at, float(inside), float(outside), float(usual), float(evidence))


# --- corrected ------------------------------------------------------------------------------------------------------

# Scores and what labels say of their judge → the pass rate as humans would tell it; of the one evaluator version of which
# that holds.


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """What there is to say of a metric's pass rate by its calibration.

    Attributes:
        rate: corrected; None where the labels are of another evaluator version than the last score.
        raw: as the judge says, of the same scores; None likewise.
        by: of which evaluator version the labels are, and how many there are.
        evaluator_version: of the last score; None = the spans do not tell.
    """

    rate: Estimated | None
    raw: float | None
    by: SavedCalibration
    evaluator_version: str | None

    @property
    def line(self) -> str:
        """What the metric's tile says."""
        return f"corrected by labels: {_percent(self.rate)} pass" if self.rate else "not calibrated"

    @property
    def sentence(self) -> str:
        """What stands below the metric's finding."""
        of = self.by.calibration
        if self.rate is None or self.raw is None:
            now = (
                "do not tell theirs"
                if self.evaluator_version is None
                else f"are of {safe_text(self.evaluator_version)}"
            )
            own = safe_text(self.by.evaluator_version)
            return f"Not calibrated: the labels are of evaluator version {own}, and the last scores {now}"
        assumed = ", assumed to be drawn at random" if of.assumed_random else ""
        error = of.annotator_error.rate
        wrong = f", of which {_share(error)} are taken to be wrong" if error else ""
        passes, fails = of.sensitivity.value, of.specificity.value
        return (
            f"Pass rate corrected by {of.labels:,} human labels{assumed}{wrong}: {_percent(self.rate)}; as the judge says "
            f"{_share(self.raw)}. Of what humans pass it passes {_share(passes)}, of what they fail it fails {_share(fails)}"
        )


def _percent(of: Estimated) -> str:
    return f"{_share(of.value)} ({_share(of.low)} to {_share(of.high)})"


def _share(share: float) -> str:
    return f"{100 * share:.0f}\u00a0%"


def corrected_rate(scored: Sequence[ReportRow], by: SavedCalibration | None) -> CorrectedRate | None:
    """Return the corrected pass rate of a metric's scores; None where it has no calibration, or no score that passes or fails.

    Only scores of the evaluator version that was calibrated count; where the last score is of another one, none do.
    """
    judged = [row for row in scored if row.label]
    if by is None or not judged:
        return None
    last = max(judged, key=lambda row: row.time_ns or 0).evaluator_version
    if last != by.evaluator_version:
        return CorrectedRate(None, None, by, last)
    own = moments((float(row.label == "pass"), 1.0 / row.weight) for row in judged if row.evaluator_version == last)
    return CorrectedRate(by.calibration.corrected(own), mean(own), by, last)


# --- unscored -------------------------------------------------------------------------------------------------------

# Rows without a score → why, how many for each reason, and one of them to open.

TURNED_AWAY = frozenset({"not_sampled", "filtered", "trace_not_sampled", "delegated"})
"""Nobody asked for these scores here."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """Why evaluations of a metric have no score.

    Attributes:
        outcome: one of ``Outcome``, ``pending``, or several joined by " or ".
        reason: what is known beside it: an error's type, a field; empty where nothing is.
        units: how many.
        latest: trace id of the latest; its unit's own name where it has none.
    """

    outcome: str
    reason: str
    units: int
    latest: str


def explain_unscored(rows: Iterable[ReportRow]) -> tuple[Unscored, ...]:
    """Return why rows of one metric have no score, the most frequent reason first."""
    alike: dict[tuple[str, str], list[ReportRow]] = {}
    for row in rows:
        if row.value is None and not {*row.outcome.split(" or ")} <= TURNED_AWAY:
            alike.setdefault((row.outcome, row.reason or ""), []).append(row)
    reasons = (Unscored(*why, len(those), _latest(those)) for why, those in alike.items())
    return tuple(sorted(reasons, key=lambda reason: -reason.units))


def _latest(rows: Iterable[ReportRow]) -> str:
    last = max(rows, key=lambda row: row.time_ns or 0)
    return last.trace_id or last.name or last.unit


# --- funnel ---------------------------------------------------------------------------------------------------------

# Rows → the funnel: how many evaluations came how far, and what was lost on the way.

_NOT_CHOSEN = TURNED_AWAY | {"event_queue_full"}
_NO_SAMPLE = frozenset({"no_sample", "missing_field", "incomplete"})


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """One step of the funnel.

    Attributes:
        name: what the evaluations that came this far have.
        left: how many came this far.
        lost: outcome → how many ended just before.
    """

    name: str
    left: int
    lost: Mapping[str, int]


def funnel(rows: Sequence[ReportRow]) -> tuple[FunnelStep, ...]:
    """Return what became of all (unit × metric), step by step."""
    ended = Counter(row.outcome for row in rows if row.value is None)
    failed = {"failed the metric's threshold": sum(row.label == "fail" for row in rows)}
    left = len(rows)
    steps = [FunnelStep("came in", left, {})]
    for name, lost in (
        ("chosen by sampling", _only(ended, lambda outcome: outcome in _NOT_CHOSEN)),
        ("had what the metric needs", _only(ended, lambda outcome: outcome in _NO_SAMPLE)),
        ("scored", _only(ended, lambda outcome: outcome not in _NOT_CHOSEN | _NO_SAMPLE)),
        ("passed", {key: count for key, count in failed.items() if count}),
    ):
        left -= sum(lost.values())
        steps.append(FunnelStep(name, left, lost))
    return tuple(steps if any(row.label for row in rows) else steps[:-1])


def _only(counts: Mapping[str, int], wanted: Callable[[str], bool]) -> dict[str, int]:
    return {outcome: count for outcome, count in sorted(counts.items()) if wanted(outcome)}


# --- summaries ------------------------------------------------------------------------------------------------------

# Rows → ReportSummary: what there is to say about a file of scores, before anything is drawn.

MAX_BUCKETS = 48
SCORES_PER_BUCKET = 5
"""On average, below which buckets are made wider: a mean of one score is noise."""
_SECOND = 1_000_000_000
_WIDTHS_S = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400, 604800),
)
"""Of a bucket: seconds, minutes, hours to a week."""

_Z = 1.96
"""Two-sided 95 % of the normal distribution."""
_Pair: TypeAlias = tuple[float, float]  # weight, quality
_Scale: TypeAlias = Literal["binary", "unit", "open"]

_NOTHING_TO_SCORE = frozenset({"no_sample", "missing_field", "not_applicable", "no_value", "pending"})
"""These are no fault: an agent's turn without retrieval has no faithfulness."""
_HARMLESS = TURNED_AWAY | _NOTHING_TO_SCORE


@dataclass(frozen=True, slots=True)
class Bucket:
    """One interval of time.

    Attributes:
        mean: weighted by 1 / probability; None where nothing was scored, which is not zero.
        low: lower end of the 95 % interval; None with the mean, and for a single score on an open scale.
        scores: how many are behind the mean.
        outcomes: outcome → units, those without a score.
    """

    start_ns: int
    end_ns: int
    mean: float | None
    low: float | None
    high: float | None
    scores: int
    outcomes: Mapping[str, int]

    @property
    def lost(self) -> int:
        """How many were to be scored and failed or were dropped: a judge's failure, a full queue."""
        return sum(count for outcome, count in self.outcomes.items() if not _parts(outcome) <= _HARMLESS)

    @property
    def nothing_to_score(self) -> int:
        """How many were to be scored and had nothing that the metric could be about."""
        return sum(
            count for outcome, count in self.outcomes.items()
            if _parts(outcome) <= _HARMLESS and not _parts(outcome) <= TURNED_AWAY
        )  # fmt: skip


def _parts(outcome: str) -> set[str]:
    """Return the outcomes of which it is one: a span cannot always tell them apart."""
    return set(outcome.split(" or "))


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric over the whole file.

    Attributes:
        on_quality: whether means and buckets are on the quality scale (0…1, 1 good); else on the metric's own, open one.
        mean: None where nothing was scored.
        own_mean: on the metric's own scale.
        range: of the own scale; None = open.
        points: (weight, quality, value) of each score; quality is the value where the scale is open.
        pass_share: weighted share of ``pass`` among the labelled; None without labels.
        pass_at: the lowest quality that passes, ascending where it was changed; empty where it is not known.
        outcomes: outcome → units, ``scored`` among them.
        unscored: why units have no score, the most frequent reason first.
        buckets: neighbours in time, without holes; empty when no row has a time.
        stretch: indices into ``buckets``; None when no stretch stands out.
        cost_usd: None when no price is known.
        mostly_left_out: scores whose judge was shown less than half of a question, as it was too long.
        shadows: how each second judge compares, on the units that both scored.
        excluded: share of the chosen units that should have a score and have none, and the bounds of the mean of all; None
            where none lacks one, or the scale is open.
        applies: to how much of all traffic, where it has a condition; None where it has none, or the rows do not tell.
        corrected: the pass rate by human labels; None where the metric has no calibration.
        of_conversations: each score is of a whole conversation, not of a unit.
    """

    metric: str
    on_quality: bool
    kind: Kind
    direction: Direction
    range: tuple[float, float] | None
    mean: float | None
    low: float | None
    high: float | None
    own_mean: float | None
    pass_share: float | None
    pass_at: tuple[float, ...]
    points: tuple[tuple[float, float, float], ...]
    outcomes: Mapping[str, int]
    unscored: tuple[Unscored, ...]
    buckets: tuple[Bucket, ...]
    stretch: Stretch | None
    judges: tuple[str, ...]
    tokens: int
    cost_usd: float | None
    shadows: tuple[str, ...] = ()
    excluded: tuple[float, float, float] | None = None
    corrected: CorrectedRate | None = None
    applies: Applicability | None = None
    of_conversations: bool = False
    mostly_left_out: int = 0

    @property
    def scores(self) -> int:
        """How many units have a score."""
        return len(self.points)

    @property
    def noun(self) -> str:
        """What each score is of."""
        return "conversation" if self.of_conversations else "unit"


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """What there is to say about a file of scores.

    Attributes:
        units: how many have a score, or an outcome that says why not; conversations are no units.
        conversations: how many were judged as a whole.
        metrics: those with the clearest bad stretch first, then by name.
        steps: the funnel, over all (unit × metric), conversations not among them.
        falls: the bad stretches, in the order of the metrics.
        ranking: every unit that fails a metric, the one to open first at the top.
        failed: every conversation that does, likewise.
        alone: units that are a model called alone.
        width_ns: of a bucket; 0 when no row has a time.
    """

    units: int
    conversations: int
    start_ns: int | None
    end_ns: int | None
    width_ns: int
    metrics: tuple[MetricSummary, ...]
    steps: tuple[FunnelStep, ...]
    falls: tuple[BadStretch, ...]
    ranking: tuple[WorstUnit, ...]
    failed: tuple[WorstUnit, ...]
    alone: int = 0

    @property
    def scores(self) -> int:
        """How many scores there are, of all metrics."""
        return sum(metric.scores for metric in self.metrics)


def summarize(
    rows: Iterable[ReportRow],
    shadows: Iterable[ReportRow] = (),
    calibrations: Mapping[str, SavedCalibration] = MappingProxyType({}),
) -> ReportSummary:
    """Return what there is to say about the rows, in any order.

    Args:
        shadows: second judges', beside those of one metric.
        calibrations: metric → what human labels say of its judge.
    """
    rows = list(rows)
    whole, single = ([row for row in rows if row.of_conversation is wanted] for wanted in (True, False))
    times = [row.time_ns for row in rows if row.time_ns is not None]
    edges = _edges(times, max(Counter(row.metric for row in rows if row.value is not None).values(), default=0))
    metrics = _metrics(rows, edges, _compare_judges(rows, shadows), calibrations)
    metrics.sort(key=lambda metric: -metric.stretch.evidence if metric.stretch else 0.0)
    falls = tuple(fall for metric in metrics if (fall := _fall(metric)) is not None)
    return ReportSummary(
        units=_units(single),
        conversations=_units(whole),
        start_ns=min(times, default=None),
        end_ns=max(times, default=None),
        width_ns=edges[1] - edges[0] if edges else 0,
        metrics=tuple(metrics),
        steps=funnel(single),
        falls=falls,
        ranking=rank_failures(single, falls),
        failed=rank_failures(whole, falls),
    )


def _units(rows: Iterable[ReportRow]) -> int:
    return len({row.unit for row in rows})


def _metrics(
    rows: Iterable[ReportRow],
    edges: Sequence[int],
    compared: Mapping[str, Sequence[str]],
    calibrations: Mapping[str, SavedCalibration],
) -> list[MetricSummary]:
    of_metric: dict[str, list[ReportRow]] = {}
    for row in rows:
        of_metric.setdefault(row.metric, []).append(row)
    return [
        replace(
            _metric(name, own, edges),
            shadows=tuple(compared.get(name, ())),
            excluded=_sum_excluded(own, of_metric.get(name_within(name, semconv.SOURCE_FALLBACK), [])),
            applies=population_applicability(own, of_metric.get(name_within(name, semconv.SOURCE_FALLBACK), [])),
            corrected=corrected_rate(own, calibrations.get(name)),
        )
        for name, own in sorted(of_metric.items())
    ]


def _compare_judges(rows: Iterable[ReportRow], shadows: Iterable[ReportRow]) -> dict[str, list[str]]:
    """Return metric → what there is to say of each of its second judges."""
    own = {(row.unit, row.metric): row.quality for row in rows}
    comparisons: dict[str, dict[str, JudgeComparison]] = {}
    for row in shadows:
        original, judges = own.get((row.unit, row.metric)), comparisons.setdefault(row.metric, {})
        judge = row.judge_model or "unknown"
        sums = judges.setdefault(judge, JudgeComparison())
        if original is not None and row.quality is not None:
            judges[judge] = sums + pair(original, row.quality, row.probability)
    return {metric: [f"{judge}: {sums}" for judge, sums in judges.items()] for metric, judges in comparisons.items()}


def _fall(metric: MetricSummary) -> BadStretch | None:
    if metric.stretch is None:
        return None
    first, last = metric.buckets[metric.stretch.first], metric.buckets[metric.stretch.last]
    return BadStretch(metric.metric, first.start_ns, last.end_ns)


def _edges(times: Sequence[int], scores: int) -> list[int]:
    """Return the borders of equal buckets on round times, so that two reports of one day line up."""
    if not times:
        return []
    wanted = max(1, min(MAX_BUCKETS, scores // SCORES_PER_BUCKET))
    first, last = min(times), max(times)
    widths = [int(width * _SECOND) for width in _WIDTHS_S]
    step = next((width for width in widths if _count(first, last, width) <= wanted), None)
    if step is None:  # years, or so few scores that one bucket holds them all: whole weeks, as many as it takes
        step = widths[-1] * -(-_count(first, last, widths[-1]) // wanted)
    begin = first // step * step
    return [begin + n * step for n in range(_count(first, last, step) + 1)]


def _count(first: int, last: int, step: int) -> int:
    return last // step - first // step + 1


def _metric(name: str, rows: Sequence[ReportRow], edges: Sequence[int]) -> MetricSummary:
    scored = [row for row in rows if row.value is not None]
    scale = _scale(scored)
    points = tuple((row.weight, _y(row, scale), row.value or 0.0) for row in scored)
    mean, low, high = _interval([(w, y) for w, y, _ in points], scale)
    buckets, pairs = _buckets(rows, edges, scale)
    example = next(iter(scored), rows[0])
    return MetricSummary(
        metric=name,
        on_quality=scale != "open",
        kind=example.kind,
        direction=example.direction,
        range=example.range,
        mean=mean,
        low=low,
        high=high,
        own_mean=_mean([(w, value) for w, _, value in points]),
        pass_share=_pass_share(scored),
        pass_at=_thresholds(scored),
        points=points,
        outcomes=Counter(row.outcome for row in rows),
        unscored=explain_unscored(rows),
        buckets=buckets,
        stretch=None if scale == "open" else worst_stretch(pairs),
        judges=_judges(rows),
        tokens=sum(row.input_tokens + row.output_tokens for row in rows),
        cost_usd=known_sum(row.cost_usd for row in rows),
        of_conversations=example.of_conversation,
        mostly_left_out=sum(row.left_out > MOSTLY_LEFT_OUT for row in scored),
    )


def _sum_excluded(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> tuple[float, float, float] | None:
    """Return what the mean lacks: what was lost, and what a fallback judged."""
    scored = [row for row in rows if row.value is not None]
    if not scored or _scale(scored) == "open":
        return None
    sums = population_sums(rows, fallback)
    return (estimates.missing_share(sums), *estimates.missing_bounds(sums)) if sums.lost else None


def _scale(scored: Sequence[ReportRow]) -> _Scale:
    if any(row.quality is None for row in scored):
        return "open"
    return "binary" if scored and all(row.kind == "binary" for row in scored) else "unit"


def _y(row: ReportRow, scale: _Scale) -> float:
    return (row.value if scale == "open" else row.quality) or 0.0


def _pass_share(scored: Sequence[ReportRow]) -> float | None:
    return _mean([(row.weight, float(row.label == "pass")) for row in scored if row.label])


def _thresholds(scored: Sequence[ReportRow]) -> tuple[float, ...]:
    return tuple(sorted({row.pass_at for row in scored if row.pass_at is not None and row.label}))


def _judges(rows: Sequence[ReportRow]) -> tuple[str, ...]:
    return tuple(sorted({row.judge_model for row in rows if row.judge_model}))


def _mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    return sum(w * y for w, y in pairs) / sum(w for w, _ in pairs) if pairs else None


def _interval(pairs: Sequence[_Pair], scale: _Scale) -> tuple[float | None, float | None, float | None]:
    """Return mean, low and high; an open scale has an interval from two scores on."""
    scores = [(y, 1.0 / weight) for weight, y in pairs]
    if scale != "open":
        return estimates.mean_interval(scores) or (None, None, None)
    sums = estimates.moments(scores)
    mean = estimates.mean(sums) if scores else None
    if mean is None or len(scores) == 1:
        return mean, None, None
    half = _Z * estimates.standard_error(sums)
    return mean, mean - half, mean + half


def _buckets(
    rows: Sequence[ReportRow], edges: Sequence[int], scale: _Scale
) -> tuple[tuple[Bucket, ...], list[list[_Pair]]]:
    if not edges:
        return (), []
    pairs: list[list[_Pair]] = [[] for _ in edges[1:]]
    outcomes: list[Counter[str]] = [Counter() for _ in edges[1:]]
    for row in rows:
        if row.time_ns is None:
            continue
        at = (row.time_ns - edges[0]) // (edges[1] - edges[0])
        if row.value is not None:
            pairs[at].append((row.weight, _y(row, scale)))
        else:
            outcomes[at][row.outcome] += 1
    made = [
        Bucket(start, end, *_interval(own, scale), len(own), dict(counts))
        for (start, end), own, counts in zip(pairwise(edges), pairs, outcomes, strict=True)
    ]
    return tuple(made), pairs
