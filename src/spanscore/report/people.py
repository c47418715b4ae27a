"""Labels beside scores → a section of the page: what people said, and how judges scored the same units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from spanscore.core.printable import format_count
from spanscore.report import findings as say
from spanscore.report.annotations import PersonAnnotation
from spanscore.report.cells import Chip, chip, comments, label_chip, rough, when
from spanscore.report.rows import ReportRow
from spanscore.report.story import UnitBook
from spanscore.report.summaries import ReportSummary

__all__ = ["AnnotatedUnit", "People", "people"]

MOST_UNITS = 50


@dataclass(frozen=True, slots=True)
class AnnotatedUnit:
    """One unit of which somebody said something; its labels come before its scores."""

    when: str
    title: str
    chips: Sequence[Chip]
    comments: Sequence[str]
    trace_id: str


@dataclass(frozen=True, slots=True)
class People:
    """What people said.

    Attributes:
        metrics: the columns beside a value: those with a score on a labelled unit.
        values: a row per value of a label: its name, the value, how many units have it, and a mean per metric.
        units: some of them, the worst first.
    """

    finding: str
    note: str
    metrics: Sequence[str]
    values: Sequence[Sequence[str]]
    units: Sequence[AnnotatedUnit]


def people(units: UnitBook, summary: ReportSummary) -> People | None:
    """Return what people said; None where nobody said anything."""
    labelled = [(unit, label) for unit, labels in units.labels.items() for label in labels]
    if not labelled:
        return None
    scored = {
        unit: {row.metric: row for row in units.rows.get(unit, ()) if row.value is not None} for unit in units.labels
    }
    metrics = sorted({metric for rows in scored.values() for metric in rows})
    order = sorted(units.labels, key=lambda unit: (_lowest(units.labels[unit]), -units.labels[unit][-1].when_ns))
    shown = order[:MOST_UNITS]
    return People(
        finding=f"People said something of {format_count(len(units.labels), 'unit')}",
        note=f"Shown: {len(shown)} of {len(order):,} units, the worst label first." if len(shown) < len(order) else "",
        metrics=[say.readable(metric) for metric in metrics],
        values=[*_values(labelled, scored, metrics)],
        units=[_unit(unit, units, scored[unit], summary) for unit in shown],
    )


def _values(
    labelled: Sequence[tuple[str, PersonAnnotation]],
    scored: Mapping[str, Mapping[str, ReportRow]],
    metrics: Sequence[str],
) -> Iterator[list[str]]:
    of_value: dict[tuple[str, str], set[str]] = {}
    for unit, label in sorted(labelled, key=lambda pair: (pair[1].name, _quality(pair[1]), pair[1].told)):
        of_value.setdefault((label.name, label.told), set()).add(unit)
    for (name, value), own in of_value.items():
        yield [say.readable(name), value, f"{len(own):,}", *(_mean(metric, own, scored) for metric in metrics)]


def _mean(metric: str, own: set[str], scored: Mapping[str, Mapping[str, ReportRow]]) -> str:
    values = [row.value for unit in own if (row := scored[unit].get(metric)) and row.value is not None]
    return f"{say.figure(fmean(values))} ({len(values):,})" if values else "–"


def _unit(unit: str, units: UnitBook, rows: Mapping[str, ReportRow], summary: ReportSummary) -> AnnotatedUnit:
    labels = units.labels[unit]
    return AnnotatedUnit(
        when=when(labels[-1].when_ns, summary),
        title=rough(units.tell(unit).question) or "(question not in this file)",
        chips=[*map(label_chip, labels), *map(chip, rows.values())],
        comments=comments(labels),
        trace_id=unit.partition("/")[0],
    )


def _lowest(labels: Sequence[PersonAnnotation]) -> float:
    return min(map(_quality, labels))


def _quality(label: PersonAnnotation) -> float:
    return 1.0 if label.quality is None else label.quality
