"""Spans → what they say: traces with their scores, means per stretch, the drop, and where to look first.

It reads what the report reads, exported spans and nothing else, so a file that was written reads back as what was shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spanscore import semconv
from spanscore.core.span import SpanData, UnitKey
from spanscore.demo.scenario import STRETCHES
from spanscore.monitoring.estimates import mean_interval
from spanscore.report import MetricSummary, ReportRow, ReportSummary, summarize
from spanscore.report.rows import as_low, unit_name
from spanscore.report.spans import Spans
from spanscore.report.story import story_of_spans

__all__ = ["Drop", "Mean", "Results", "Trace", "documents", "note_of", "results"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One request.

    Attributes:
        number: its place in time, from 1.
        spans: of the application, root first, in start order.
        found: names of the documents that were retrieved.
        evaluations: one per evaluation span, by metric.
    """

    number: int
    trace_id: str
    stretch: str
    question: str
    answer: str
    found: tuple[str, ...]
    spans: tuple[SpanData, ...]
    evaluations: tuple[ReportRow, ...]

    def of(self, metric: str) -> float | None:
        """Return the quality by a metric, None where there is none."""
        return next((one.quality for one in self.evaluations if one.metric == metric), None)


@dataclass(frozen=True, slots=True)
class Mean:
    """Weighted mean of quality with its 95 % interval."""

    mean: float
    low: float
    high: float
    scored: int


@dataclass(frozen=True, slots=True)
class Drop:
    """How far a metric fell while retrieval was broken."""

    metric: str
    before: Mean
    during: Mean
    after: Mean | None

    @property
    def by(self) -> float:
        """How far, on the quality scale; negative when it rose."""
        return self.before.mean - self.during.mean

    @property
    def clear(self) -> bool:
        """Whether the intervals before and during are apart."""
        return self.during.high < self.before.low


@dataclass(frozen=True, slots=True)
class Results:
    """All of it.

    Attributes:
        traces: in the order of time.
        metrics: by name, in the order of their names: what the report says of each.
        means: stretch → metric → mean; a metric without a score in a stretch is not there.
        ranking: those that fail a metric, the one to open first at the top: as on the page of a report.
        as_low: metric that fell → how many traces of its bad stretch have the score of the one to open first.
    """

    traces: tuple[Trace, ...]
    metrics: Mapping[str, MetricSummary]
    means: Mapping[str, Mapping[str, Mean]]
    ranking: tuple[Trace, ...]
    as_low: Mapping[str, int]

    def requests(self, stretch: str) -> tuple[int, int] | None:
        """Return the first and last request of a stretch, None where it has none."""
        numbers = [trace.number for trace in self.traces if trace.stretch == stretch]
        return (numbers[0], numbers[-1]) if numbers else None

    def drops(self) -> list[Drop]:
        """Return how each metric moved from before to during, the deepest fall first."""
        before, during, after = (self.means.get(stretch, {}) for stretch in STRETCHES)
        known = [Drop(name, before[name], during[name], after.get(name)) for name in before if name in during]
        return sorted(known, key=lambda drop: -drop.by)

    def worst(self, count: int) -> list[Trace]:
        """Return the worst traces, one per question; the worst of each application is among them."""
        distinct = _first_of_each(self.ranking, lambda trace: trace.question)
        applications = _first_of_each(distinct, lambda trace: trace.spans[0].name)
        chosen = list(dict.fromkeys(trace.number for trace in (*applications, *distinct)))[:count]
        return [trace for trace in distinct if trace.number in chosen]

    def times(self, trace: Trace) -> int:
        """Return how many traces failed on the question of this one."""
        return sum(other.question == trace.question for other in self.ranking)

    def open_first(self) -> Trace | None:
        """Return the trace at the top of the ranking; None where none has a flaw."""
        return next(iter(self.ranking), None)


def results(spans: Iterable[SpanData]) -> Results:
    """Read the spans of a demo, in any order."""
    read = Spans.read(spans)
    rows = read.rows()
    summary = summarize(rows)
    traces = _traces(read, rows)
    by_id = {trace.trace_id: trace for trace in traces}
    ranked = [str(worst.rows[0].trace_id) for worst in summary.ranking]  # each request is one unit
    return Results(
        traces=traces,
        metrics={one.metric: one for one in sorted(summary.metrics, key=lambda one: one.metric) if one.metric},
        means={stretch: _means(trace for trace in traces if trace.stretch == stretch) for stretch in STRETCHES},
        ranking=tuple(by_id[trace_id] for trace_id in ranked if trace_id in by_id),
        as_low=_as_low(summary),
    )


def _as_low(summary: ReportSummary) -> dict[str, int]:
    first = {row.metric: row.value for worst in summary.ranking[:1] for row in worst.rows}
    return {fall.metric: as_low(summary.ranking, fall, value) for fall in summary.falls
            if (value := first.get(fall.metric)) is not None}  # fmt: skip


def _first_of_each(traces: Iterable[Trace], kind: Callable[[Trace], str]) -> list[Trace]:
    first: dict[str, Trace] = {}
    for trace in traces:
        first.setdefault(kind(trace), trace)
    return list(first.values())


def _traces(read: Spans, rows: Iterable[ReportRow]) -> tuple[Trace, ...]:
    of_unit: dict[str, list[ReportRow]] = defaultdict(list)
    for row in rows:
        of_unit[row.unit].append(row)
    roots = [span for within in read.by_trace.values() for span in within.values() if span.parent_id is None]
    roots.sort(key=lambda root: (root.start_ns, root.trace_id))
    return tuple(_trace(number, root, read, of_unit) for number, root in enumerate(roots, start=1))


def _trace(number: int, root: SpanData, read: Spans, of_unit: Mapping[str, Sequence[ReportRow]]) -> Trace:
    key = UnitKey(root.trace_id, root.span_id)
    name, evaluated = unit_name(key), read.evaluations.get(key, {})
    story, (_, spans) = story_of_spans(name, read), read.unit(name)
    return Trace(
        number=number,
        trace_id=f"{root.trace_id:032x}",
        stretch=str(root.attributes.get(semconv.DEMO_STRETCH, "")),
        question=story.question or "",
        answer=story.answer or "",
        found=tuple(dict.fromkeys(name for span in spans for name in documents(span))),
        spans=spans,
        evaluations=tuple(row for row in of_unit.get(name, ()) if row.metric in evaluated),
    )


def documents(span: SpanData) -> list[str]:
    """Return the names of the documents that a span retrieved."""
    listed = span.attributes.get(semconv.RETRIEVAL_DOCUMENTS)
    return [str(one["id"]) for one in listed if one.get("id")] if isinstance(listed, list) else []


def note_of(row: ReportRow) -> str:
    """Return what the judge said, or why there is no score."""
    return row.explanation or (row.outcome if row.value is None else "")


def _means(traces: Iterable[Trace]) -> dict[str, Mean]:
    of_metric: dict[str, list[ReportRow]] = defaultdict(list)
    for trace in traces:
        for one in trace.evaluations:
            of_metric[one.metric].append(one)
    return {name: found for name, rows in sorted(of_metric.items()) if (found := _mean(rows)) is not None}


def _mean(rows: Sequence[ReportRow]) -> Mean | None:
    scored = [(row.quality, 1 / row.weight) for row in rows if row.quality is not None]
    found = mean_interval(scored)
    return None if found is None else Mean(*found, len(scored))
