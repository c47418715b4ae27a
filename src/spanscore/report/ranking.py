"""Rows → units that fail a metric, the one to open first at the top; and units → cases, one per question.

What fell stands out from what is always a little bad: units of a bad stretch come first, lowest first by the metrics that fell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from spanscore.metrics.response_relevancy import NONCOMMITTAL
from spanscore.report.rows import ReportRow, by_unit

__all__ = ["Case", "Fall", "Worst", "as_low", "cases", "failing", "rank_failures", "some_of_each"]

WORST_PER_METRIC = 8
WORST_AT_MOST = 24
_TOPICS = "topic_adherence"


@dataclass(frozen=True, slots=True)
class Fall:
    """A metric's bad stretch: from ``begin_ns`` to before ``end_ns``."""

    metric: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Worst:
    """A unit that fails a metric.

    Attributes:
        quality: the lowest of its qualities.
        rows: of all metrics on it.
        fell: whether it lies in the bad stretch of a metric that it fails.
    """

    unit: str
    quality: float
    rows: tuple[ReportRow, ...]
    fell: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """What was asked, and failed, once or several times.

    Attributes:
        worst: the unit to open.
        others: that failed on the same question, in the order of their ranks.
    """

    worst: Worst
    others: tuple[Worst, ...] = ()

    @property
    def units(self) -> tuple[Worst, ...]:
        """All of them, the worst first."""
        return (self.worst, *self.others)

    @property
    def failed(self) -> frozenset[str]:
        """The metrics that any of them fails."""
        return frozenset(row.metric for unit in self.units for row in failing(unit.rows))


def rank_failures(rows: Iterable[ReportRow], falls: Sequence[Fall]) -> tuple[Worst, ...]:
    """Return every unit that fails a metric, the one to open first at the top.

    Args:
        rows: in any order.
        falls: the clearest first.
    """
    failures = [_worst(own, falls) for own in by_unit(rows).values() if failing(own)]
    return tuple(sorted(failures, key=lambda worst: _rank(worst, falls)))


def failing(own: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows of a unit that fail their metric.

    A refusal that keeps to the allowed topics is what its application is there for: that it commits to nothing is no flaw.
    """
    return [row for row in _find_flawed(own) if _fails(row)]


def cases(ranking: Iterable[Worst], question: Callable[[Worst], str | None]) -> tuple[Case, ...]:
    """Return one case per question, in the order of their worst units; a unit without a question is its own."""
    cases: dict[str, list[Worst]] = {}
    for worst in ranking:
        text = " ".join((question(worst) or "").split())
        cases.setdefault(f"asked {text}" if text else f"unit {worst.unit}", []).append(worst)
    return tuple(Case(first, tuple(rest)) for first, *rest in cases.values())


def some_of_each(ranking: Sequence[Case], falls: Sequence[Fall]) -> tuple[Case, ...]:
    """Return some of the cases, in their order: the worst by every metric, so that no metric hides another one's."""
    fallen = {fall.metric for fall in falls}
    of_metric: dict[str, list[tuple[float, int]]] = {}
    for place, case in enumerate(ranking):
        for metric in case.failed:
            lowness = 0.0 if metric in fallen else _lowest(case, metric)
            of_metric.setdefault(metric, []).append((lowness, place))
    share = max(1, min(WORST_PER_METRIC, WORST_AT_MOST // max(1, len(of_metric))))
    chosen = {place for own in of_metric.values() for _, place in sorted(own)[:share]}
    return tuple(ranking[place] for place in sorted(chosen)[:WORST_AT_MOST])


def as_low(ranking: Iterable[Worst], fall: Fall, value: float) -> int:
    """Return how many units of a metric's bad stretch fail it with this value, as two digits show it."""
    rows = (row for worst in ranking for row in failing(worst.rows) if row.metric == fall.metric and _within(row, fall))
    return sum(row.value is not None and f"{row.value:.2f}" == f"{value:.2f}" for row in rows)


def _fails(row: ReportRow) -> bool:
    """Whether its label says so, or, where it has none, the metric's threshold does."""
    return row.label == "fail" or (row.label is None and _quality(row) < row.threshold)


def _lowest(case: Case, metric: str) -> float:
    return min(_quality(row) for unit in case.units for row in failing(unit.rows) if row.metric == metric)


def _find_flawed(own: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows whose score is not the best one, a refusal's apart."""
    keeps = any(row.metric == _TOPICS and row.label == "pass" for row in own)
    return [
        row
        for row in own
        if row.quality is not None
        and (row.quality < 1.0 or row.label == "fail")
        and not (keeps and row.explanation == NONCOMMITTAL)
    ]


def _worst(own: Sequence[ReportRow], falls: Sequence[Fall]) -> Worst:
    flaws = _find_flawed(own)
    fell = any(
        row.metric == fall.metric and _within(row, fall) and row.label != "pass" for row in flaws for fall in falls
    )
    return Worst(own[0].unit, min(map(_quality, flaws)), tuple(own), fell=fell)


def _rank(worst: Worst, falls: Sequence[Fall]) -> tuple[float | str, ...]:
    """Return what to sort by; a metric without a score on the unit counts as a good one."""
    by: Mapping[str, float] = {row.metric: _quality(row) for row in _find_flawed(worst.rows)}
    qualities = [by.get(row.metric, 1.0) for row in worst.rows if row.quality is not None]
    fallen = [by.get(fall.metric, 1.0) for fall in falls]
    return (not worst.fell, *fallen, min(qualities), fmean(qualities), worst.rows[0].time_ns or 0, worst.unit)


def _within(row: ReportRow, fall: Fall) -> bool:
    return fall.begin_ns <= (row.time_ns or 0) < fall.end_ns


def _quality(row: ReportRow) -> float:
    return 1.0 if row.quality is None else row.quality
