"""Spans → what they say: traces with their scores, means per stretch, the drop, and where to look first.

It reads exported spans and nothing else, so a file that was written reads back as what was shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spanscore import semconv
from spanscore.demo.scenario import STRETCHES
from spanscore.dialects.extract import Extract
from spanscore.dialects.genai import GenAIDialect
from spanscore.model.span import SpanData, Unit, UnitKey
from spanscore.monitoring.estimates import interval, mean, moments
from spanscore.report import ReportSummary, summary
from spanscore.report.ranking import as_low
from spanscore.sampling.threshold import probability

__all__ = ["Drop", "Evaluation", "Mean", "Results", "Trace", "results"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation span, as a person reads it.

    Attributes:
        value: on the metric's own scale; None when there is none.
        quality: [0, 1], 1 good; None when there is none.
        label: ``pass`` or ``fail``; None without a quality.
        weight: 1 / the probability with which it was chosen.
        binary: whether the metric knows only 0 and 1.
        pass_at: the lowest quality that passes; None where the scale is open.
        failed: whether the evaluation, not the answer, failed.
        note: the judge's explanation, or why there is no value.
    """

    metric: str
    value: float | None
    quality: float | None
    label: str | None
    weight: float
    binary: bool
    pass_at: float | None
    failed: bool
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One request.

    Attributes:
        number: its place in time, from 1.
        spans: of the application, root first, in start order.
        found: names of the documents that were retrieved.
    """

    number: int
    trace_id: str
    stretch: str
    question: str
    answer: str
    found: tuple[str, ...]
    spans: tuple[SpanData, ...]
    evaluations: tuple[Evaluation, ...]

    def of(self, metric: str) -> float | None:
        """Return the quality by a metric, None where there is none."""
        return next((one.quality for one in self.evaluations if one.metric == metric), None)


@dataclass(frozen=True, slots=True)
class Mean:
    """Hájek's weighted mean of quality with its 95 % interval; NaN and (0, 1) where nothing was scored."""

    mean: float
    low: float
    high: float
    scored: int


@dataclass(frozen=True, slots=True)
class Drop:
    """How far a metric fell while retrieval was broken.

    Attributes:
        clear: whether the intervals before and during are apart.
    """

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
        """Whether the two intervals are apart."""
        return self.during.high < self.before.low


@dataclass(frozen=True, slots=True)
class Results:
    """All of it.

    Attributes:
        traces: in the order of time.
        metrics: in the order of their names.
        means: stretch → metric → mean; a metric without a score in a stretch is not there.
        ranking: those that fail a metric, the one to open first at the top: as on the page of a report.
        as_low: metric that fell → how many traces of its bad stretch have the score of the one to open first.
    """

    traces: tuple[Trace, ...]
    metrics: tuple[str, ...]
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

    def pass_at(self, metric: str) -> tuple[float, ...]:
        """Return the lowest quality that passes, ascending where it was changed."""
        every = (one for trace in self.traces for one in trace.evaluations if one.metric == metric)
        return tuple(sorted({one.pass_at for one in every if one.pass_at is not None and one.label}))

    def binary(self, metric: str) -> bool:
        """Whether a metric knows only 0 and 1."""
        return any(one.binary for trace in self.traces for one in trace.evaluations if one.metric == metric)

    def open_first(self) -> Trace | None:
        """Return the trace at the top of the ranking; None where none has a flaw."""
        return next(iter(self.ranking), None)


def results(spans: Iterable[SpanData]) -> Results:
    """Read the spans of a demo, in any order."""
    spans, by_trace = list(spans), defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    whole = [(root, group) for group in by_trace.values() if (root := _root(group)) is not None]
    whole.sort(key=lambda pair: (pair[0].start_ns, pair[0].trace_id))
    traces = tuple(_trace(number, root, group) for number, (root, group) in enumerate(whole, start=1))
    metrics = tuple(sorted({one.metric for trace in traces for one in trace.evaluations}))
    by_id = {trace.trace_id: trace for trace in traces}
    page = summary(spans)
    ranked = [str(worst.rows[0].trace_id) for worst in page.ranking]  # each request is one unit
    return Results(
        traces=traces,
        metrics=metrics,
        means={stretch: _means(traces, stretch, metrics) for stretch in STRETCHES},
        ranking=tuple(by_id[trace_id] for trace_id in ranked if trace_id in by_id),
        as_low=_as_low(page),
    )


def _as_low(page: ReportSummary) -> dict[str, int]:
    first = {row.metric: row.value for worst in page.ranking[:1] for row in worst.rows}
    return {fall.metric: as_low(page.ranking, fall, value) for fall in page.falls
            if (value := first.get(fall.metric)) is not None}  # fmt: skip


def _first_of_each(traces: Iterable[Trace], kind: Callable[[Trace], str]) -> list[Trace]:
    first: dict[str, Trace] = {}
    for trace in traces:
        first.setdefault(kind(trace), trace)
    return list(first.values())


def _root(spans: Sequence[SpanData]) -> SpanData | None:
    return next((span for span in spans if span.parent_id is None), None)


def _trace(number: int, root: SpanData, group: Sequence[SpanData]) -> Trace:
    own = [span for span in group if span.scope != semconv.SCOPE]
    own.sort(key=lambda span: (span is not root, span.start_ns, span.end_ns, span.span_id))
    samples = GenAIDialect(Extract()).samples(Unit(UnitKey(root.trace_id, root.span_id), tuple(own)))
    evaluations = sorted(
        (_evaluation(span) for span in group if span.scope == semconv.SCOPE), key=lambda one: one.metric
    )
    return Trace(
        number=number,
        trace_id=f"{root.trace_id:032x}",
        stretch=str(root.attributes.get(semconv.DEMO_STRETCH, "")),
        question=(samples.single.user_input if samples.single else None) or "",
        answer=(samples.single.response if samples.single else None) or "",
        found=tuple(dict.fromkeys(name for span in own for name in _documents(span))),
        spans=tuple(own),
        evaluations=tuple(evaluations),
    )


def _evaluation(span: SpanData) -> Evaluation:
    attributes = span.attributes
    threshold = attributes.get(semconv.SAMPLING_THRESHOLD)
    return Evaluation(
        metric=attributes[semconv.EVALUATION_NAME],
        value=attributes.get(semconv.EVALUATION_SCORE_VALUE),
        quality=attributes.get(semconv.QUALITY),
        label=attributes.get(semconv.EVALUATION_SCORE_LABEL),
        weight=1.0 if threshold is None else 1 / probability(int(threshold, 16)),
        binary=attributes.get(semconv.METRIC_KIND) == "binary",
        pass_at=attributes.get(semconv.METRIC_PASS_AT),
        failed=semconv.ERROR_TYPE in attributes,
        note=attributes.get(semconv.EVALUATION_EXPLANATION) or attributes.get(semconv.REASON) or "",
    )


def _documents(span: SpanData) -> list[str]:
    listed = span.attributes.get(semconv.RETRIEVAL_DOCUMENTS)
    return [str(one["id"]) for one in listed if one.get("id")] if isinstance(listed, list) else []


def _means(traces: Sequence[Trace], stretch: str, metrics: Sequence[str]) -> dict[str, Mean]:
    there = [one for trace in traces if trace.stretch == stretch for one in trace.evaluations]
    by_metric = {metric: [one for one in there if one.metric == metric] for metric in metrics}
    return {metric: found for metric, ones in by_metric.items() if (found := _mean(ones)) is not None}


def _mean(evaluations: Sequence[Evaluation]) -> Mean | None:
    scored = [(one.quality, 1 / one.weight) for one in evaluations if one.quality is not None]
    if not scored:
        return None
    sums = moments(scored, failed=sum(one.weight for one in evaluations if one.failed))
    low, high = interval(sums, binary=any(one.binary for one in evaluations))
    return Mean(mean(sums), low, high, len(scored))
