"""Stored spans → the scores of releases: those of a whole file, or of each compared value in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from spanscore import semconv
from spanscore.codec.text import safe_text
from spanscore.model.span import SpanData, Unit, UnitKey
from spanscore.monitoring.estimates import Moments
from spanscore.monitoring.releases import ReleaseScores
from spanscore.otel.compared_values import UNTOLD, ComparedValues
from spanscore.report.population import population_sums
from spanscore.report.rows import ReportRow, name_within
from spanscore.report.spans import Spans

__all__ = ["release_scores", "rows_by_value"]

_SECOND_NS = 1e9


def rows_by_value(files: Iterable[Spans], by: str) -> dict[str, list[ReportRow]]:
    """Return compared value → the rows of its units, of all files; ``by``: as ``Compare.by``."""
    values, found = ComparedValues(by, most=inf), dict[str, list[ReportRow]]()
    for spans in files:
        for row in spans.rows():
            value = row.series or UNTOLD if by == semconv.SERIES else safe_text(values.of_unit(_unit_of(spans, row)))
            found.setdefault(value, []).append(row)
    return found


def release_scores(name: str, rows: Iterable[ReportRow]) -> ReleaseScores:
    """Return what rows say of a release; a series that no row tells is the empty one."""
    of_metric: dict[str, list[ReportRow]] = {}
    for row in rows:
        of_metric.setdefault(row.metric, []).append(row)
    fallback = {metric: name_within(metric, semconv.STRATUM_FALLBACK) for metric in of_metric}
    own = of_metric.keys() - {*fallback.values()}
    return ReleaseScores(
        name,
        scored={metric: _by_series(of_metric[metric]) for metric in own},
        lost={metric: _excluded(of_metric[metric], of_metric.get(fallback[metric], [])) for metric in own},
        seconds=_seconds_of(of_metric.values()),
    )


def _seconds_of(of_metrics: Iterable[Sequence[ReportRow]]) -> float:
    times = [row.time_ns for rows in of_metrics for row in rows if row.time_ns is not None]
    return (max(times) - min(times)) / _SECOND_NS if times else 0.0


def _excluded(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> tuple[float, float]:
    sums = population_sums(rows, fallback)
    return sums.lost, sums.lost2


def _by_series(rows: Sequence[ReportRow]) -> dict[str, Moments]:
    found: dict[str, list[ReportRow]] = {}
    for row in rows:
        if row.quality is not None:
            found.setdefault(row.series or "", []).append(row)
    return {series: population_sums(of, ()) for series, of in found.items()}


def _unit_of(spans: Spans, row: ReportRow) -> Unit:
    """Return the unit of a row; where the file has evaluation spans alone, what they tell of it."""
    key, found = spans.unit(row.unit) if "/" in row.unit else (UnitKey(0, 0), ())
    if found:
        return Unit(key, found)
    told = next(iter(spans.evaluations.get(key, {}).values()), None)
    return Unit(key, () if told is None else (_as_root(key, told),))


def _as_root(key: UnitKey, evaluation: SpanData) -> SpanData:
    model = evaluation.attributes.get(semconv.SCORED_REQUEST_MODEL)
    return replace(
        evaluation,
        span_id=key.span_id,
        attributes={**evaluation.without_content().attributes, semconv.REQUEST_MODEL: model},
    )
