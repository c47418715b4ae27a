"""Spans or rows → one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from spanscore import semconv
from spanscore.core.codecs.text import safe_text
from spanscore.core.span import SpanData
from spanscore.monitoring.calibration import SavedCalibration
from spanscore.report.annotations import labels
from spanscore.report.conversations import conversations
from spanscore.report.page import page
from spanscore.report.rows import ReportRow, by_unit
from spanscore.report.spans import Spans
from spanscore.report.story import UnitBook, story_of_rows, story_of_spans
from spanscore.report.summaries import ReportSummary, summarize

__all__ = ["summary", "write", "write_scores"]

_UNKNOWN = "unknown_service"
"""OpenTelemetry's name of a service without one, alone or with the process: ``unknown_service:java``."""


def summary(spans: Iterable[SpanData]) -> ReportSummary:
    """Return what there is to say about the scores on spans: means per metric and bucket, outcomes, the worst units."""
    read = Spans.read(spans)
    return replace(summarize(read.rows(), read.shadow_rows()), alone=_alone(read))


def write(
    spans: Iterable[SpanData],
    path: Path,
    *,
    title: str | None = None,
    calibrations: Mapping[str, SavedCalibration] = MappingProxyType({}),
) -> ReportSummary:
    """Write the report on the scores that spans carry, and return what it says.

    Args:
        spans: of applications and evaluations, in any order; each score counts once.
        path: replaced where it exists.
        title: None = the names of the services.
        calibrations: metric → what human labels say of its judge: its pass rate is told as they would have it, too.

    Raises:
        MissingExtraError: jinja2 is not installed.
        OSError: the file cannot be written.
    """
    read = Spans.read(spans)
    rows = read.rows()
    summary = replace(summarize(rows, read.shadow_rows(), calibrations), alone=_alone(read))
    units = UnitBook(by_unit([*rows, *read.feedback_rows()]), labels(read), lambda unit: story_of_spans(unit, read))
    html = page(summary, units, title=title or _services(read), conversations=conversations(read))
    path.write_text(html, encoding="utf-8")
    return summary


def write_scores(rows: Iterable[ReportRow], path: Path, *, title: str = "Scores of a data set") -> ReportSummary:
    """Write the report on scores that come from no spans, and return what it says. Raises as ``write`` does."""
    rows = list(rows)
    summary, of_unit = summarize(rows), by_unit(rows)
    units = UnitBook(of_unit, {}, lambda unit: story_of_rows(of_unit[unit]))
    path.write_text(page(summary, units, title=title), encoding="utf-8")
    return summary


def _alone(read: Spans) -> int:
    return sum(span.operation in semconv.MODEL_OPERATIONS for span in read.units.values())


def _services(read: Spans) -> str:
    """Return the names of the services, without the name that an SDK gives to a service that has none."""
    held = ((span.resource or {}).get(semconv.SERVICE_NAME) for span in read.units.values())
    names = dict.fromkeys(safe_text(str(name)) for name in held if name is not None)
    services = [name for name in names if not name.startswith(_UNKNOWN)]
    return ", ".join(services) or "Scores of live traces"
