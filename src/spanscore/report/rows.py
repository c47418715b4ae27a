"""The rows of a report, one per unit and metric (a score, or the reason for its absence), and the ranking of failed units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean
from typing import Any, TypeAlias

from spanscore.core.codecs.text import as_text
from spanscore.core.printable import format_value
from spanscore.core.score import BINARY, UNIT_INTERVAL, Direction, Kind, Label, Outcome, ScoreValue
from spanscore.core.span import UnitKey
from spanscore.metrics.response_relevancy import NONCOMMITTAL

PENDING = "pending"
"""Outcome of a score that came after the export of its unit's span, and is not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One (unit × metric) of spans or of a data set: a score, or the reason for its absence.

    Attributes:
        unit: name of the unit: trace id and span id in hex, a sample's own name, or the id of a conversation.
        metric: name of the metric; empty = unknown, the outcome is of some metric of the unit. Scores of a fallback judge count
            as a separate metric (``name_within``).
        outcome: one of ``Outcome``, ``pending``, or several joined by " or " if the span does not distinguish them.
        time_ns: nanoseconds since the epoch; None = not known: the row is in no trend.
        value: value on the metric's own scale, a word of a categorical one; None unless the outcome is ``scored``.
        quality: [0, 1], 1 is good; None for a scale without quality.
        label: ``pass`` or ``fail``; None = the metric has no threshold.
        reason: detail of an outcome other than ``scored``; low cardinality.
        explanation: the judge's words; may quote the sample.
        probability: probability with which this (unit × metric) was sampled, (0, 1]; None = it was not sampled.
        range: lowest and highest value; None = open or not known.
        categories: words of a categorical scale; empty for other kinds.
        pass_at: lowest quality that passes; None = not known.
        evaluator_version: metric version, judge and votes; None = not known.
        judge_model: model of the judge; None = the metric has no judge.
        cost_usd: price in US dollars; None = not known.
        name: name of the unit's root, for people.
        trace_id: 32 hex digits; None = the unit has no trace.
        question: None = not captured.
        answer: None = not captured.
        contexts: contexts in rank order; None = not captured.
        of_conversation: whether a whole conversation was judged.
        applies: whether the metric's condition holds; None = it has no condition, or the answer is not known.
        left_out: largest share of a question that its judge did not get, (0.5, 1); 0 if it got half of each question or more.
    """

    unit: str
    metric: str
    outcome: str = Outcome.SCORED.value
    time_ns: int | None = None
    value: ScoreValue | None = None
    quality: float | None = None
    label: Label | None = None
    reason: str | None = None
    explanation: str | None = None
    probability: float | None = None
    kind: Kind = "continuous"
    range: tuple[float, float] | None = None
    categories: tuple[str, ...] = ()
    direction: Direction = "higher"
    pass_at: float | None = None
    evaluator_version: str | None = None
    judge_model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    name: str = ""
    trace_id: str | None = None
    question: str | None = None
    answer: str | None = None
    contexts: tuple[str, ...] | None = None
    of_conversation: bool = False
    applies: bool | None = None
    left_out: float = 0.0

    @property
    def weight(self) -> float:
        """1 / probability: the number of units of the traffic that this unit represents."""
        return 1.0 / self.probability if self.probability else 1.0

    @property
    def threshold(self) -> float:
        """Lowest quality that passes; the default of the metric's kind if it is not known."""
        return self.pass_at if self.pass_at is not None else default_threshold(self.kind)

    @property
    def number(self) -> float | None:
        """The value, unless it is a category."""
        return None if isinstance(self.value, str) else self.value


def default_threshold(kind: Kind) -> float:
    """Return the lowest quality that passes without a ``pass_at``."""
    return BINARY.pass_at if kind == "binary" else UNIT_INTERVAL.pass_at


def name_within(metric: str, source: Any) -> str:
    """Return a metric's name in the rows of a source: ``faithfulness (fallback)``; without a source, the name itself."""
    return f"{metric} ({as_text(source)})" if source else metric


def unit_name(key: UnitKey) -> str:
    """Return the name of a unit in rows."""
    return f"{key.trace_id:032x}/{key.span_id:016x}"


def by_unit(rows: Iterable[ReportRow]) -> dict[str, list[ReportRow]]:
    """Return unit → its rows. Units and rows are in the order of arrival."""
    return _group(rows, attrgetter("unit"))


def by_metric(rows: Iterable[ReportRow]) -> dict[str, list[ReportRow]]:
    """Return metric → its rows. Metrics and rows are in the order of arrival."""
    return _group(rows, attrgetter("metric"))


def _group(rows: Iterable[ReportRow], key: Callable[[ReportRow], str]) -> dict[str, list[ReportRow]]:
    groups: dict[str, list[ReportRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


# --- ranking ---------------------------------------------------------------------------------------------------------

WORST_PER_METRIC = 8
WORST_AT_MOST = 24
_TOPICS = "topic_adherence"


@dataclass(frozen=True, slots=True)
class BadStretch:
    """A stretch of time, from ``begin_ns`` to before ``end_ns``, in which a metric was worse than usual, beyond chance."""

    metric: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class WorstUnit:
    """A unit that fails a metric.

    Attributes:
        quality: lowest of its qualities.
        rows: rows of all metrics on the unit.
        fell: whether the unit fails a metric within a bad stretch of that metric.
    """

    unit: str
    quality: float
    rows: tuple[ReportRow, ...]
    fell: bool = False


Case: TypeAlias = tuple[WorstUnit, ...]
"""The units that failed on one question, in the order of their ranks; the first is the unit to open."""


def rank_failures(rows: Iterable[ReportRow], falls: Sequence[BadStretch]) -> tuple[WorstUnit, ...]:
    """Return every unit that fails a metric; the first is the one to open first.

    Units of a bad stretch come first, so that they precede units that are always a little bad. Among them, the lowest qualities
    by the metrics with a bad stretch come first.

    Args:
        rows: rows in any order.
        falls: bad stretches, the clearest first.
    """
    failures = list[WorstUnit]()
    for own in by_unit(rows).values():
        if failing(own):
            flaws = _find_flawed(own)
            fell = any(
                row.metric == fall.metric and _is_in(row, fall) and row.label != "pass"
                for row in flaws
                for fall in falls
            )
            failures.append(WorstUnit(own[0].unit, min(map(_quality, flaws)), tuple(own), fell=fell))
    return tuple(sorted(failures, key=lambda worst: _rank(worst, falls)))


def failing(own: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows of a unit that fail their metric.

    A row fails by its label, or without a label by the metric's threshold.
    """
    return [
        row for row in _find_flawed(own) if row.label == "fail" or (row.label is None and _quality(row) < row.threshold)
    ]


def failed_metrics(case: Case) -> frozenset[str]:
    """Return the metrics that any unit of a case fails."""
    return frozenset(row.metric for unit in case for row in failing(unit.rows))


def cases_by_question(ranking: Iterable[WorstUnit], question: Callable[[WorstUnit], str | None]) -> tuple[Case, ...]:
    """Return one case per question, in the order of their worst units; a unit without a question is a separate case."""
    cases: dict[str, list[WorstUnit]] = {}
    for worst in ranking:
        text = " ".join((question(worst) or "").split())
        cases.setdefault(f"asked {text}" if text else f"unit {worst.unit}", []).append(worst)
    return tuple(map(tuple, cases.values()))


def select_cases(ranking: Sequence[Case], falls: Sequence[BadStretch]) -> tuple[Case, ...]:
    """Return the worst cases of each metric, in the order of the ranking, so that no metric hides the cases of another.

    For a metric with a bad stretch, the order of the ranking decides; for others, the lowest quality.
    """
    fallen = {fall.metric for fall in falls}
    of_metric: dict[str, list[tuple[float, int]]] = {}
    for place, case in enumerate(ranking):
        for metric in failed_metrics(case):
            rows = (row for unit in case for row in failing(unit.rows) if row.metric == metric)
            lowness = 0.0 if metric in fallen else min(map(_quality, rows))
            of_metric.setdefault(metric, []).append((lowness, place))
    share = max(1, min(WORST_PER_METRIC, WORST_AT_MOST // max(1, len(of_metric))))
    chosen = {place for own in of_metric.values() for _, place in sorted(own)[:share]}
    return tuple(ranking[place] for place in sorted(chosen)[:WORST_AT_MOST])


def count_equally_low(ranking: Iterable[WorstUnit], fall: BadStretch, value: ScoreValue) -> int:
    """Return the number of units that fail a metric in its bad stretch with the same value, to two digits."""
    rows = (row for worst in ranking for row in failing(worst.rows) if row.metric == fall.metric and _is_in(row, fall))
    return sum(row.value is not None and format_value(row.value) == format_value(value) for row in rows)


def _find_flawed(own: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows with a score below the best possible score.

    If an answer passes topic adherence, a low relevancy because it is noncommittal is left out: it is a correct refusal.
    """
    keeps_to_topics = any(row.metric == _TOPICS and row.label == "pass" for row in own)
    return [
        row
        for row in own
        if row.quality is not None
        and (row.quality < 1.0 or row.label == "fail")
        and not (keeps_to_topics and row.explanation == NONCOMMITTAL)
    ]


def _rank(worst: WorstUnit, falls: Sequence[BadStretch]) -> tuple[float | str, ...]:
    """Return the sort key of a unit; a metric without a score on the unit counts as good."""
    flawed: Mapping[str, float] = {row.metric: _quality(row) for row in _find_flawed(worst.rows)}
    qualities = [flawed.get(row.metric, 1.0) for row in worst.rows if row.quality is not None]
    fallen = [flawed.get(fall.metric, 1.0) for fall in falls]
    return (not worst.fell, *fallen, min(qualities), fmean(qualities), worst.rows[0].time_ns or 0, worst.unit)


def _is_in(row: ReportRow, fall: BadStretch) -> bool:
    return fall.begin_ns <= (row.time_ns or 0) < fall.end_ns


def _quality(row: ReportRow) -> float:
    return 1.0 if row.quality is None else row.quality
