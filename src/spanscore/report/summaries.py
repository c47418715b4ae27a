"""Summarizes the rows of a report: means per metric and time, bad stretches, corrected pass rates, missing scores, a funnel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations_with_replacement, pairwise
from math import sqrt
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from spanscore import semconv
from spanscore.core.codecs.text import safe_text
from spanscore.core.score import MOSTLY_LEFT_OUT, PASS_FAIL, Direction, Kind, known_sum
from spanscore.monitoring import estimates
from spanscore.monitoring.calibration import Estimated, SavedCalibration
from spanscore.monitoring.estimates import MeanInterval, category_shares, mean, moments
from spanscore.monitoring.health import Applicability
from spanscore.monitoring.judge_check_runs import JudgeComparison, pair
from spanscore.report.rows import BadStretch, ReportRow, WorstUnit, by_metric, by_unit, name_within, rank_failures
from spanscore.report.spans import population_applicability, population_sums

# --- bad stretches ---------------------------------------------------------------------------------------------------

MIN_DROP = 0.1
"""Smallest difference of mean qualities that makes a bad stretch."""
MIN_EVIDENCE = 4.5
"""Least evidence, in standard errors. 48 buckets have 1,176 runs: by chance fewer than 1 of 100 reports have so much."""
MIN_SCORES = 5
"""Fewest scores inside and outside of a bad stretch."""

_Sums = npt.NDArray[np.float64]  # n, Σw, Σwy, Σw²


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of neighbouring buckets in which a metric was worse than in all other buckets, beyond chance.

    Attributes:
        first: index of its first bucket.
        last: index of its last bucket, included.
        inside: weighted mean of quality in the run.
        outside: weighted mean of quality in all other buckets.
        usual: weighted mean before the run; ``outside`` if there are too few scores before the run.
        evidence: difference of ``outside`` and ``inside`` in standard errors.
    """

    first: int
    last: int
    inside: float
    outside: float
    usual: float
    evidence: float


def worst_stretch(buckets: Sequence[Sequence[tuple[float, float]]]) -> Stretch | None:
    """Return the run of neighbouring buckets that is worse than the other buckets by most standard errors.

    None if no run is worse beyond chance. The standard error is that of equal means, from the variance of all scores together,
    because a run of a pass/fail metric at 0 or 1 has no variance of its own.

    Args:
        buckets: (weight, quality) pairs of each bucket, neighbours in time; an empty bucket is no evidence.
    """
    filled = [at for at, bucket in enumerate(buckets) if bucket]
    if not filled:
        return None
    sums_before = np.array([np.zeros(4), *map(_sums, buckets)]).cumsum(axis=0)
    weights, qualities = np.array([*chain.from_iterable(buckets)]).T
    variance = float(np.cov(qualities, aweights=weights, bias=True))
    stretches = (_compare(sums_before, *ends, variance) for ends in combinations_with_replacement(filled, 2))
    return max(filter(None, stretches), key=lambda stretch: stretch.evidence, default=None)


def _sums(bucket: Sequence[tuple[float, float]]) -> _Sums:
    pairs = np.array(bucket, dtype=np.float64).reshape(-1, 2)
    weights, qualities = pairs[:, 0], pairs[:, 1]
    return np.array([len(pairs), weights.sum(), (weights * qualities).sum(), (weights**2).sum()])


def _compare(sums_before: _Sums, first: int, last: int, variance: float) -> Stretch | None:
    """Return the run from the first to the last bucket as a stretch; None if it is not worse than the other buckets.

    Args:
        sums_before: shape (buckets + 1, 4): the sums of all buckets before each border.
        variance: variance of the quality of all scores.
    """
    before, run = sums_before[first], sums_before[last + 1] - sums_before[first]
    rest = sums_before[-1] - run
    if min(run[0], rest[0]) < MIN_SCORES or variance == 0.0:
        return None
    inside, outside = run[2] / run[1], rest[2] / rest[1]
    error = sqrt(variance * (run[3] / run[1] ** 2 + rest[3] / rest[1] ** 2))  # 1 / Kish's effective size, twice
    evidence = (outside - inside) / error
    if outside - inside < MIN_DROP or evidence < MIN_EVIDENCE:
        return None
    usual = before[2] / before[1] if before[0] >= MIN_SCORES else outside
    return Stretch(first, last, float(inside), float(outside), float(usual), float(evidence))


# --- corrected pass rates --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """The pass rate of a metric as human labels correct it.

    Attributes:
        rate: corrected rate; None = the labels are of another evaluator version than the last score.
        raw: pass rate of the judge on the same scores; None with ``rate``.
        by: the calibration, which is for one evaluator version.
        evaluator_version: evaluator version of the last score; None = not known.
    """

    rate: Estimated | None
    raw: float | None
    by: SavedCalibration
    evaluator_version: str | None

    @property
    def line(self) -> str:
        """The line on the metric's tile."""
        return f"corrected by labels: {_percent(self.rate)} pass" if self.rate else "not calibrated"

    @property
    def sentence(self) -> str:
        """The sentence below the metric's finding."""
        of = self.by.calibration
        if self.rate is None or self.raw is None:
            version, own = self.evaluator_version, safe_text(self.by.evaluator_version)
            now = "have no evaluator version" if version is None else f"are of {safe_text(version)}"
            return f"Not calibrated: the calibration is of evaluator version {own}, and the last scores {now}"
        assumed = ", assumed to be drawn at random" if of.assumed_random else ""
        error = of.annotator_error.rate
        wrong = f" ({percent(error)} of them count as wrong)" if error else ""
        passes, fails = of.sensitivity.value, of.specificity.value
        return (
            f"Pass rate corrected by {of.labels:,} human labels{assumed}{wrong}: {_percent(self.rate)}; by the judge alone it "
            f"is {percent(self.raw)}. It passes {percent(passes)} of human passes, and fails {percent(fails)} of human fails"
        )


def _percent(of: Estimated) -> str:
    return f"{percent(of.value)} ({percent(of.low)} to {percent(of.high)})"


def percent(share: float) -> str:
    """Return a share, [0, 1], in per cent without decimals."""
    return f"{100 * share:.0f}\u00a0%"


def corrected_rate(scored: Sequence[ReportRow], by: SavedCalibration | None) -> CorrectedRate | None:
    """Return the corrected pass rate of a metric's scores; None without a calibration, or without a score with a label.

    Only scores of the calibrated evaluator version count. If the last score is of another version, there is no rate.
    """
    judged = [row for row in scored if row.label]
    if by is None or not judged:
        return None
    last = max(judged, key=lambda row: row.time_ns or 0).evaluator_version
    if last != by.evaluator_version:
        return CorrectedRate(None, None, by, last)
    own = moments((float(row.label == "pass"), 1.0 / row.weight) for row in judged if row.evaluator_version == last)
    return CorrectedRate(by.calibration.corrected(own), mean(own), by, last)


# --- missing scores and the funnel -----------------------------------------------------------------------------------

TURNED_AWAY = frozenset({"not_sampled", "filtered", "trace_not_sampled", "delegated"})
"""Outcomes of evaluations that the exporting process did not try to score."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """One reason why evaluations of a metric have no score.

    Attributes:
        outcome: one of ``Outcome``, ``pending``, or several joined by " or ".
        reason: detail of the outcome: an error's type, a field; empty = not known.
        latest: trace id of the latest unit, or the unit's name if it has no trace.
    """

    outcome: str
    reason: str
    units: int
    latest: str


def explain_unscored(rows: Iterable[ReportRow]) -> tuple[Unscored, ...]:
    """Return the reasons for which rows of one metric have no score, the most frequent first."""
    by_reason: dict[tuple[str, str], list[ReportRow]] = {}
    for row in rows:
        if row.value is None and not _outcomes_in(row.outcome) <= TURNED_AWAY:
            by_reason.setdefault((row.outcome, row.reason or ""), []).append(row)
    reasons = list[Unscored]()
    for reason, unscored in sorted(by_reason.items(), key=lambda pair: -len(pair[1])):
        last = max(unscored, key=lambda row: row.time_ns or 0)
        reasons.append(Unscored(*reason, len(unscored), last.trace_id or last.name or last.unit))
    return tuple(reasons)


_NOT_CHOSEN = TURNED_AWAY | {"event_queue_full"}
_NO_SAMPLE = frozenset({"no_sample", "missing_field", "incomplete"})


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """One step of the funnel.

    Attributes:
        remaining: number of evaluations that reached this step.
        lost: outcome → number of evaluations that ended just before this step.
    """

    name: str
    remaining: int
    lost: Mapping[str, int]


def funnel(rows: Sequence[ReportRow]) -> tuple[FunnelStep, ...]:
    """Return the outcomes of all (unit × metric), step by step."""
    ended = Counter(row.outcome for row in rows if row.value is None)
    failed = sum(row.label == "fail" for row in rows)
    remaining = len(rows)
    steps = [FunnelStep("arrived", remaining, {})]
    for name, outcomes in (
        ("chosen by sampling", _NOT_CHOSEN),
        ("had the fields that the metric needs", _NO_SAMPLE),
        ("scored", ended.keys() - _NOT_CHOSEN - _NO_SAMPLE),
    ):
        lost = {outcome: ended[outcome] for outcome in sorted(ended.keys() & outcomes)}
        remaining -= sum(lost.values())
        steps.append(FunnelStep(name, remaining, lost))
    if any(row.label for row in rows):
        steps.append(
            FunnelStep("passed", remaining - failed, {"failed the metric's threshold": failed} if failed else {})
        )
    return tuple(steps)


# --- summaries -------------------------------------------------------------------------------------------------------

MAX_BUCKETS = 48
SCORES_PER_BUCKET = 5
"""Mean number of scores per bucket below which buckets are made wider, because a mean of one score is noise."""
_SECOND = 1_000_000_000
_DAY_NS = 86_400 * _SECOND
_WIDTHS_S = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400, 604800),
)
"""Widths of buckets: seconds, minutes, hours to a week."""

_Z = 1.96
"""Two-sided 95 % of the normal distribution."""
_Pair: TypeAlias = tuple[float, float]  # weight, quality
_Scale: TypeAlias = Literal["binary", "unit", "open", "nominal"]
"""Scale of the means; a nominal one has categories without a quality, and so no mean."""

_NOTHING_TO_SCORE = frozenset({"no_sample", "missing_field", "not_applicable", "no_value", "pending"})
"""Outcomes that are no fault: an agent's turn without retrieval has no faithfulness, for example."""
_HARMLESS = TURNED_AWAY | _NOTHING_TO_SCORE


@dataclass(frozen=True, slots=True)
class Bucket:
    """One interval of time.

    Attributes:
        start_ns: begin, nanoseconds since the epoch.
        end_ns: end, nanoseconds since the epoch, excluded.
        mean: mean weighted by 1 / probability; None = there is no score.
        low: lower end of the 95 % interval; None with the mean, and for a single score on an open scale.
        high: upper end of the 95 % interval; None with ``low``.
        scores: number of scores.
        outcomes: outcome → number of units without a score.
        shares: category → share of the scores, weighted by 1 / probability; empty for other metrics.
    """

    start_ns: int
    end_ns: int
    mean: float | None
    low: float | None
    high: float | None
    scores: int
    outcomes: Mapping[str, int]
    shares: Mapping[str, float] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Number of scores that failed or were dropped, by a judge's failure or a full queue."""
        return sum(count for outcome, count in self.outcomes.items() if not _outcomes_in(outcome) <= _HARMLESS)

    @property
    def nothing_to_score(self) -> int:
        """Number of units that were to be scored, but without anything for the metric to score."""
        harmless = [(outcome, count) for outcome, count in self.outcomes.items() if _outcomes_in(outcome) <= _HARMLESS]
        return sum(count for outcome, count in harmless if not _outcomes_in(outcome) <= TURNED_AWAY)


def _outcomes_in(outcome: str) -> set[str]:
    """Return the outcomes in a row's outcome, which has several if the span does not distinguish them."""
    return set(outcome.split(" or "))


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric over the whole file.

    Attributes:
        metric: name of the metric; empty = units with an outcome of an unknown metric.
        on_quality: whether means and buckets are on the quality scale (0…1, 1 is good); otherwise they are on the metric's own,
            open scale.
        range: ends of the metric's scale; None = open.
        mean: mean of all scores; None = there is no score.
        low: lower end of its 95 % interval; None as in a ``Bucket``.
        high: upper end of its 95 % interval; None as in a ``Bucket``.
        own_mean: mean of the values on the metric's own scale; None = there is no score.
        pass_share: weighted share of ``pass`` among the scores with a label; None = there is no label.
        pass_at: lowest qualities that pass, ascending, several if it was changed; empty = not known.
        points: (weight, quality, value) of each score; on an open scale, the value twice; for a category, its quality twice.
            Empty for categories without a quality.
        outcomes: outcome → number of units, ``scored`` among them.
        unscored: reasons for missing scores, the most frequent first.
        buckets: neighbours in time, without holes; empty if no row has a time.
        stretch: bad stretch, with indices into ``buckets``; None = no bad stretch.
        judges: names of the judges' models.
        tokens: number of tokens of the judges.
        cost_usd: price in US dollars; None = no price is known.
        usd_per_day: ``cost_usd`` per day from the first row to the last; None = they are less than a day apart.
        shadows: comparison with each second judge, on the units that both scored.
        excluded: (share of the sampled units without a score, bounds of the mean of all units); None if every unit has a score,
            or the scale is open.
        corrected: pass rate by human labels; None = the metric has no calibration.
        applies: share of traffic to which the metric applies; None = it has no condition, or the rows have no answer.
        of_conversations: whether each score is of a whole conversation.
        mostly_left_out: number of scores with a question too long for the judge, of which the judge got less than half.
        shares: category → share of all scores with its 95 % interval; empty for other metrics.
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
    usd_per_day: float | None = None
    shadows: tuple[str, ...] = ()
    excluded: tuple[float, float, float] | None = None
    corrected: CorrectedRate | None = None
    applies: Applicability | None = None
    of_conversations: bool = False
    mostly_left_out: int = 0
    shares: Mapping[str, MeanInterval] = field(default_factory=dict)

    @property
    def scores(self) -> int:
        """Number of units with a score."""
        return self.outcomes.get("scored", 0)

    @property
    def noun(self) -> str:
        """The word for the subject of a score."""
        return "conversation" if self.of_conversations else "unit"


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """The figures of a file of scores.

    Attributes:
        units: number of units with a score or an outcome, without conversations.
        conversations: number of conversations that were judged as a whole.
        start_ns: time of the first row, nanoseconds since the epoch; None = no row has a time.
        end_ns: time of the last row; None = no row has a time.
        width_ns: width of a bucket in nanoseconds; 0 = no row has a time.
        metrics: summaries, the clearest bad stretch first, then by name.
        steps: the funnel over all (unit × metric), without conversations.
        falls: bad stretches, in the order of the metrics.
        ranking: every unit that fails a metric, the worst first.
        failed: every conversation that fails a metric, in the same order.
        alone: number of units that are a single model call.
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
        """Number of scores of all metrics."""
        return sum(metric.scores for metric in self.metrics)


def summarize(
    rows: Iterable[ReportRow],
    shadows: Iterable[ReportRow] = (),
    calibrations: Mapping[str, SavedCalibration] = MappingProxyType({}),
    *,
    alone: int = 0,
) -> ReportSummary:
    """Return the summary of rows.

    Args:
        rows: rows in any order.
        shadows: rows of second judges, under the names of their metrics.
        calibrations: metric → calibration of its judge by human labels.
        alone: number of units that are a single model call.
    """
    rows = list(rows)
    whole, single = ([row for row in rows if row.of_conversation is is_whole] for is_whole in (True, False))
    times = [row.time_ns for row in rows if row.time_ns is not None]
    of_metric = by_metric(rows)
    edges = _edges(times, of_metric)
    judges = _compare_judges(rows, shadows)
    metrics = [_summarize_metric(of_metric, name, edges, judges, calibrations) for name in sorted(of_metric)]
    metrics.sort(key=lambda metric: -metric.stretch.evidence if metric.stretch else 0.0)
    falls = tuple(
        BadStretch(own.metric, own.buckets[own.stretch.first].start_ns, own.buckets[own.stretch.last].end_ns)
        for own in metrics
        if own.stretch is not None
    )
    return ReportSummary(
        units=len(by_unit(single)),
        conversations=len(by_unit(whole)),
        start_ns=min(times, default=None),
        end_ns=max(times, default=None),
        width_ns=edges[1] - edges[0] if edges else 0,
        metrics=tuple(metrics),
        steps=funnel(single),
        falls=falls,
        ranking=rank_failures(single, falls),
        failed=rank_failures(whole, falls),
        alone=alone,
    )


def _compare_judges(rows: Iterable[ReportRow], shadows: Iterable[ReportRow]) -> dict[str, list[str]]:
    """Return metric → a line on each of its second judges."""
    own = {(row.unit, row.metric): row.quality for row in rows}
    comparisons: dict[str, dict[str, JudgeComparison]] = {}
    for row in shadows:
        original, judges = own.get((row.unit, row.metric)), comparisons.setdefault(row.metric, {})
        judge = row.judge_model or "unknown"
        sums = judges.setdefault(judge, JudgeComparison())
        if original is not None and row.quality is not None:
            judges[judge] = sums + pair(original, row.quality, row.probability)
    return {metric: [f"{judge}: {sums}" for judge, sums in judges.items()] for metric, judges in comparisons.items()}


def _edges(times: Sequence[int], of_metric: Mapping[str, Sequence[ReportRow]]) -> list[int]:
    """Return the borders of equal buckets on round times, so that two reports of one day line up."""
    if not times:
        return []
    scores = max(sum(row.value is not None for row in rows) for rows in of_metric.values())
    wanted = max(1, min(MAX_BUCKETS, scores // SCORES_PER_BUCKET))
    first, last = min(times), max(times)
    widths = [int(width * _SECOND) for width in _WIDTHS_S]
    step = next((width for width in widths if _count_buckets(first, last, width) <= wanted), None)
    if step is None:  # years, or so few scores that one bucket contains all: as many whole weeks as needed
        step = widths[-1] * -(-_count_buckets(first, last, widths[-1]) // wanted)
    begin = first // step * step
    return [begin + n * step for n in range(_count_buckets(first, last, step) + 1)]


def _count_buckets(first: int, last: int, step: int) -> int:
    """Return the number of buckets of a width that contain two times and the time between them."""
    return last // step - first // step + 1


def _summarize_metric(
    of_metric: Mapping[str, Sequence[ReportRow]],
    name: str,
    edges: Sequence[int],
    judges: Mapping[str, Sequence[str]],
    calibrations: Mapping[str, SavedCalibration],
) -> MetricSummary:
    """Return the summary of one metric.

    Args:
        of_metric: metric → its rows.
        edges: borders of the buckets.
        judges: metric → a line on each second judge.
    """
    rows, fallback = of_metric[name], of_metric.get(name_within(name, semconv.SOURCE_FALLBACK), ())
    scored = [row for row in rows if row.value is not None]
    scale = _scale(scored)
    points = _points(scored, scale)
    mean, low, high = _interval([(w, y) for w, y, _ in points], scale)
    buckets, pairs = _buckets(rows, edges, scale)
    example = next(iter(scored), rows[0])
    return MetricSummary(
        metric=name,
        on_quality=scale in ("binary", "unit"),
        kind=example.kind,
        direction=example.direction,
        range=example.range,
        mean=mean,
        low=low,
        high=high,
        own_mean=_mean([(w, value) for w, _, value in points]),
        pass_share=_mean([(row.weight, float(row.label == "pass")) for row in scored if row.label]),
        pass_at=_thresholds(scored),
        points=points,
        outcomes=Counter(row.outcome for row in rows),
        unscored=explain_unscored(rows),
        buckets=buckets,
        stretch=worst_stretch(pairs) if scale in ("binary", "unit") else None,
        judges=_judges(rows),
        tokens=sum(row.input_tokens + row.output_tokens for row in rows),
        cost_usd=known_sum(row.cost_usd for row in rows),
        usd_per_day=_usd_per_day(rows),
        shadows=tuple(judges.get(name, ())),
        excluded=_sum_excluded(rows, scored, scale, fallback),
        corrected=corrected_rate(scored, calibrations.get(name)),
        applies=population_applicability(rows, fallback),
        of_conversations=example.of_conversation,
        mostly_left_out=sum(row.left_out > MOSTLY_LEFT_OUT for row in scored),
        shares=_category_shares(scored),
    )


def _points(scored: Sequence[ReportRow], scale: _Scale) -> tuple[tuple[float, float, float], ...]:
    if scale == "nominal":
        return ()
    pairs = ((row, _averaged_value(row, scale)) for row in scored)
    return tuple((row.weight, value, value if row.number is None else row.number) for row, value in pairs)


def _usd_per_day(rows: Sequence[ReportRow]) -> float | None:
    times = [row.time_ns for row in rows if row.time_ns is not None]
    days = (max(times) - min(times)) / _DAY_NS if times else 0.0
    cost_usd = known_sum(row.cost_usd for row in rows)
    return None if cost_usd is None or days < 1 else cost_usd / days


def _sum_excluded(
    rows: Sequence[ReportRow], scored: Sequence[ReportRow], scale: _Scale, fallback: Sequence[ReportRow]
) -> tuple[float, float, float] | None:
    """Return ``MetricSummary.excluded``, from units that were lost or judged by a fallback."""
    if not scored or scale not in ("binary", "unit"):
        return None
    sums = population_sums(rows, fallback)
    return (estimates.missing_share(sums), *estimates.missing_bounds(sums)) if sums.lost else None


def _scale(scored: Sequence[ReportRow]) -> _Scale:
    """Return the scale of a metric's means, by its scores."""
    if any(row.quality is None for row in scored):
        return "nominal" if all(row.kind == "categorical" for row in scored) else "open"
    return "binary" if scored and all(row.kind in PASS_FAIL for row in scored) else "unit"


def _category_shares(scored: Iterable[ReportRow]) -> Mapping[str, MeanInterval]:
    """Return category → share: the categories of the scales in their order, then others that scores have."""
    pairs = [(row, row.value) for row in scored if isinstance(row.value, str)]
    words = [*(word for row, _ in pairs for word in row.categories), *(word for _, word in pairs)]
    return category_shares([(word, 1.0 / row.weight) for row, word in pairs], dict.fromkeys(words))


def _averaged_value(row: ReportRow, scale: _Scale) -> float:
    """Return the number of a score that is in means: the quality, or the value on an open scale."""
    return (row.number if scale == "open" else row.quality) or 0.0


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
    """Return the buckets between the edges, and the (weight, quality) pairs of each bucket; empty without edges."""
    if not edges:
        return (), []
    pairs: list[list[_Pair]] = [[] for _ in edges[1:]]
    scored: list[list[ReportRow]] = [[] for _ in edges[1:]]
    outcomes: list[Counter[str]] = [Counter() for _ in edges[1:]]
    for row in rows:
        if row.time_ns is None:
            continue
        at = (row.time_ns - edges[0]) // (edges[1] - edges[0])
        if row.value is not None:
            scored[at].append(row)
            if scale != "nominal":
                pairs[at].append((row.weight, _averaged_value(row, scale)))
        else:
            outcomes[at][row.outcome] += 1
    buckets = [
        Bucket(start, end, *_interval(own, scale), len(rows), dict(counts), _shares(rows))
        for (start, end), own, rows, counts in zip(pairwise(edges), pairs, scored, outcomes, strict=True)
    ]
    return tuple(buckets), pairs


def _shares(scored: Sequence[ReportRow]) -> Mapping[str, float]:
    """Return category → weighted share of the scores; empty without categories."""
    weights: dict[str, float] = {}
    for row in scored:
        if isinstance(row.value, str):
            weights[row.value] = weights.get(row.value, 0.0) + row.weight
    total = sum(weights.values())
    return {word: weight / total for word, weight in weights.items()}
