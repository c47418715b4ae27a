"""Rows → units, the one to open first at the top.

What fell stands out from what is always a little bad: units of a bad stretch come first, lowest first by the metrics that fell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from spanscore.metrics.response_relevancy import NONCOMMITTAL
from spanscore.report.rows import Row

__all__ = ["Fall", "Worst", "flawed", "ranked", "some_of_each"]

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
    """A unit with low scores.

    Attributes:
        quality: the lowest of its qualities.
        rows: of all metrics on it.
        fell: whether it lies in the bad stretch of a metric that it fails.
    """

    unit: str
    quality: float
    rows: tuple[Row, ...]
    fell: bool = False


def ranked(rows: Iterable[Row], falls: Sequence[Fall]) -> tuple[Worst, ...]:
    """Return every unit with a flaw, the one to open first at the top.

    Args:
        rows: in any order.
        falls: the clearest first.
    """
    of_unit: dict[str, list[Row]] = {}
    for row in rows:
        of_unit.setdefault(row.unit, []).append(row)
    keyed = [
        (_rank(flaws, own, falls), _worst(flaws, own, falls)) for own in of_unit.values() if (flaws := flawed(own))
    ]
    return tuple(worst for _, worst in sorted(keyed, key=lambda pair: pair[0]))


def flawed(own: Sequence[Row]) -> list[Row]:
    """Return the rows of a unit whose score is not the best one.

    A refusal that keeps to the allowed topics is what its application is there for: that it commits to nothing is no flaw.
    """
    keeps = any(row.metric == _TOPICS and row.label == "pass" for row in own)
    return [
        row
        for row in own
        if row.quality is not None
        and (row.quality < 1.0 or row.label == "fail")
        and not (keeps and row.explanation == NONCOMMITTAL)
    ]


def some_of_each(ranking: Sequence[Worst], falls: Sequence[Fall]) -> tuple[Worst, ...]:
    """Return some of the ranked units, in their order: the worst by every metric, so that no metric hides another one's."""
    fallen = {fall.metric for fall in falls}
    of_metric: dict[str, list[tuple[float, int]]] = {}
    for place, worst in enumerate(ranking):
        for row in flawed(worst.rows):
            lowness = 0.0 if row.metric in fallen else _quality(row)
            of_metric.setdefault(row.metric, []).append((lowness, place))
    share = max(1, min(WORST_PER_METRIC, WORST_AT_MOST // max(1, len(of_metric))))
    chosen = {place for own in of_metric.values() for _, place in sorted(own)[:share]}
    return tuple(ranking[place] for place in sorted(chosen)[:WORST_AT_MOST])


def _worst(flaws: Sequence[Row], own: Sequence[Row], falls: Sequence[Fall]) -> Worst:
    return Worst(own[0].unit, min(map(_quality, flaws)), tuple(own), fell=_fell(flaws, falls))


def _rank(flaws: Sequence[Row], own: Sequence[Row], falls: Sequence[Fall]) -> tuple[float | str, ...]:
    """Return what to sort by; a metric without a score on the unit counts as a good one."""
    by: Mapping[str, float] = {row.metric: _quality(row) for row in flaws}
    known = [by.get(row.metric, 1.0) for row in own if row.quality is not None]
    fallen = [by.get(fall.metric, 1.0) for fall in falls]
    return (not _fell(flaws, falls), *fallen, min(known), fmean(known), own[0].time_ns or 0, own[0].unit)


def _fell(flaws: Sequence[Row], falls: Sequence[Fall]) -> bool:
    stretch = {fall.metric: fall for fall in falls}
    return any(
        (fall := stretch.get(row.metric)) is not None
        and fall.begin_ns <= (row.time_ns or 0) < fall.end_ns
        and row.label != "pass"
        for row in flaws
    )


def _quality(row: Row) -> float:
    return 1.0 if row.quality is None else row.quality
