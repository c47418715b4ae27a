"""Reads scores from stored spans, per file or per value of the compared attribute (such as ``service.version``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from spanscore import semconv
from spanscore.core.codecs.text import safe_text
from spanscore.core.span import Unit
from spanscore.monitoring.estimates import moments
from spanscore.monitoring.releases import ReleasePair, ReleaseScores, Steps
from spanscore.outputs.aggregates import UNKNOWN, ComparedValues
from spanscore.report.rows import ReportRow, by_metric, name_within
from spanscore.report.spans import Spans, lost_units

_STEP_S = 60


def rows_by_value(files: Iterable[Spans], by: str) -> dict[str, list[ReportRow]]:
    """Return compared value → the rows of its units in all files.

    Args:
        files: spans of each file.
        by: name of the attribute to group by, as in ``Compare.by``.
    """
    values, by_value = ComparedValues(by, most=inf), dict[str, list[ReportRow]]()
    for spans in files:
        for row in spans.rows():
            value = (
                row.evaluator_version or UNKNOWN
                if by == semconv.EVALUATOR_VERSION
                else safe_text(values.of_unit(_unit_of(spans, row)))
            )
            by_value.setdefault(value, []).append(row)
    return by_value


def release_scores(name: str, rows: Iterable[ReportRow]) -> ReleaseScores:
    """Return the scores of a release, per minute; rows without a time are left out.

    Rows without an evaluator version are grouped under the empty string.
    """
    of_metric = by_metric(rows)
    fallback = {metric: name_within(metric, semconv.SOURCE_FALLBACK) for metric in of_metric}
    own = of_metric.keys() - {*fallback.values()}  # a fallback's scores count as lost, because another judge made them
    return ReleaseScores(
        name,
        scored={metric: _by_evaluator_version(of_metric[metric]) for metric in own},
        lost={metric: _sum_lost(of_metric[metric], of_metric.get(fallback[metric], [])) for metric in own},
    )


def release_pair(a: ReleaseScores, b: ReleaseScores) -> ReleasePair:
    """Return two releases with a common end, in seconds since the epoch: the end of the minute with the last score of both."""
    ends = [side.span_s[1] + _STEP_S for side in (a, b) if side.span_s]
    return ReleasePair(a, b, max(ends, default=0))


def _by_evaluator_version(rows: Sequence[ReportRow]) -> dict[str, Steps]:
    by_evaluator_version: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for row in rows:
        if row.quality is not None and row.time_ns is not None:
            minutes = by_evaluator_version.setdefault(row.evaluator_version or "", {})
            probability = 1.0 / row.weight
            minutes.setdefault(_minute(row.time_ns), []).append((row.quality, probability))
    return {
        evaluator_version: {start: moments(values) for start, values in minutes.items()}
        for evaluator_version, minutes in by_evaluator_version.items()
    }


def _sum_lost(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> Steps:
    by_minute: dict[int, list[float]] = {}
    for row, probability in lost_units(rows, fallback):
        if row.time_ns is not None:
            by_minute.setdefault(_minute(row.time_ns), []).append(probability)
    return {start: moments((), values) for start, values in by_minute.items()}


def _minute(time_ns: int) -> int:
    return time_ns // (_STEP_S * 10**9) * _STEP_S


def _unit_of(spans: Spans, row: ReportRow) -> Unit:
    """Return the unit of a row. If the file has only evaluation spans, the unit has their resource and model."""
    key, spans_of_unit = spans.unit(row.unit)
    if spans_of_unit:
        return Unit(key, spans_of_unit)
    evaluation = next(iter(spans.evaluations.get(key, {}).values()), None)
    if evaluation is None:
        return Unit(key, ())
    model = evaluation.attributes.get(semconv.SCORED_REQUEST_MODEL)
    attributes = {**evaluation.without_content().attributes, semconv.REQUEST_MODEL: model}
    return Unit(key, (replace(evaluation, span_id=key.span_id, attributes=attributes),))
