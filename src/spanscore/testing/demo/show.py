"""Show the demo's results (traces with scores, and means per stretch) on the terminal, as JSON and as SVG."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from io import StringIO
from types import MappingProxyType
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from spanscore import semconv
from spanscore.core.printable import format_bytes
from spanscore.core.span import SpanData, UnitKey
from spanscore.core.terminal import Terminal
from spanscore.monitoring.estimates import mean_interval
from spanscore.report import MetricSummary, ReportRow, ReportSummary, summarize
from spanscore.report.excerpts import excerpt_of_spans
from spanscore.report.findings import format_score, threshold, value_among
from spanscore.report.rows import by_metric, by_unit, count_equally_low, unit_name
from spanscore.report.spans import Spans
from spanscore.testing.demo.run import MINUTES, STRETCHES, Played

# The demo has three stretches: before, during and after its retrieval is broken. Like the report, this module reads only
# exported spans, so the results of a written file are the same.


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One request and its scores.

    Attributes:
        number: position in time, from 1.
        trace_id: trace id, 32 hex digits.
        stretch: ``before``, ``during`` or ``after`` the broken retrieval; empty if the root has no stretch.
        question: the user's question; empty if unknown.
        answer: the answer; empty if unknown.
        documents: names of the retrieved documents.
        spans: spans of the application, root first, in start order.
        evaluations: one row per evaluation span, by metric.
    """

    number: int
    trace_id: str
    stretch: str
    question: str
    answer: str
    documents: tuple[str, ...]
    spans: tuple[SpanData, ...]
    evaluations: tuple[ReportRow, ...]

    def quality_of(self, metric: str) -> float | None:
        """Return the quality by a metric; None without a score."""
        return next((evaluation.quality for evaluation in self.evaluations if evaluation.metric == metric), None)


@dataclass(frozen=True, slots=True)
class Mean:
    """Weighted mean of quality with its 95 % interval, and the number of scores."""

    mean: float
    low: float
    high: float
    scored: int


@dataclass(frozen=True, slots=True)
class Drop:
    """The change of a metric's mean while retrieval was broken; ``after``: None = no scores after that time."""

    metric: str
    before: Mean
    during: Mean
    after: Mean | None

    @property
    def by(self) -> float:
        """Size of the fall, on the quality scale; negative for a rise."""
        return self.before.mean - self.during.mean

    @property
    def clear(self) -> bool:
        """Whether the intervals before and during are disjoint."""
        return self.during.high < self.before.low


@dataclass(frozen=True, slots=True)
class Results:
    """All results of a demo.

    Attributes:
        traces: traces in the order of time.
        metrics: metric → its summary in the report, in alphabetical order.
        means: stretch → metric → mean; metrics without a score in a stretch are missing.
        ranking: traces that fail a metric, in the report's order: the trace to open first is at the top.
        as_low: metric with a bad stretch → number of traces in that stretch with the score of the trace to open first.
    """

    traces: tuple[Trace, ...]
    metrics: Mapping[str, MetricSummary]
    means: Mapping[str, Mapping[str, Mean]]
    ranking: tuple[Trace, ...]
    as_low: Mapping[str, int]

    def requests(self, stretch: str) -> tuple[int, int] | None:
        """Return the numbers of the first and last request of a stretch; None for an empty stretch."""
        numbers = [trace.number for trace in self.traces if trace.stretch == stretch]
        return (numbers[0], numbers[-1]) if numbers else None

    def drops(self) -> list[Drop]:
        """Return the change of each metric from before to during, the deepest fall first."""
        before, during, after = (self.means.get(stretch, {}) for stretch in STRETCHES)
        drops = [Drop(name, before[name], during[name], after.get(name)) for name in before if name in during]
        return sorted(drops, key=lambda drop: -drop.by)

    def worst(self, count: int) -> list[Trace]:
        """Return the worst traces, one per question, including the worst of each application."""
        distinct = _first_of_each(self.ranking, lambda trace: trace.question)
        applications = _first_of_each(distinct, lambda trace: trace.spans[0].name)
        chosen = list(dict.fromkeys(trace.number for trace in (*applications, *distinct)))[:count]
        return [trace for trace in distinct if trace.number in chosen]

    def times(self, trace: Trace) -> int:
        """Return the number of failed traces with the question of this trace."""
        return sum(other.question == trace.question for other in self.ranking)

    def open_first(self) -> Trace | None:
        """Return the trace at the top of the ranking; None if no trace fails."""
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
        metrics={
            metric.metric: metric
            for metric in sorted(summary.metrics, key=lambda metric: metric.metric)
            if metric.metric
        },
        means={stretch: _means(trace for trace in traces if trace.stretch == stretch) for stretch in STRETCHES},
        ranking=tuple(by_id[trace_id] for trace_id in ranked if trace_id in by_id),
        as_low=_count_as_low(summary),
    )


def _count_as_low(summary: ReportSummary) -> dict[str, int]:
    first = {row.metric: row.value for worst in summary.ranking[:1] for row in worst.rows}
    falls = ((fall, first.get(fall.metric)) for fall in summary.falls)
    return {fall.metric: count_equally_low(summary.ranking, fall, value) for fall, value in falls if value is not None}


def _first_of_each(traces: Iterable[Trace], key: Callable[[Trace], str]) -> list[Trace]:
    first: dict[str, Trace] = {}
    for trace in traces:
        first.setdefault(key(trace), trace)
    return list(first.values())


def _traces(read: Spans, rows: Iterable[ReportRow]) -> tuple[Trace, ...]:
    rows_by_unit = by_unit(rows)
    roots = [span for within in read.by_trace.values() for span in within.values() if span.parent_id is None]
    roots.sort(key=lambda root: (root.start_ns, root.trace_id))
    return tuple(_trace(number, root, read, rows_by_unit) for number, root in enumerate(roots, start=1))


def _trace(number: int, root: SpanData, read: Spans, rows_by_unit: Mapping[str, Sequence[ReportRow]]) -> Trace:
    key = UnitKey(root.trace_id, root.span_id)
    name, evaluated = unit_name(key), read.evaluations.get(key, {})
    excerpt, (_, spans) = excerpt_of_spans(name, read), read.unit(name)
    return Trace(
        number=number,
        trace_id=f"{root.trace_id:032x}",
        stretch=str(root.attributes.get(semconv.DEMO_STRETCH, "")),
        question=excerpt.question or "",
        answer=excerpt.answer or "",
        documents=tuple(dict.fromkeys(name for span in spans for name in documents_of(span))),
        spans=spans,
        evaluations=tuple(row for row in rows_by_unit.get(name, ()) if row.metric in evaluated),
    )


def documents_of(span: SpanData) -> list[str]:
    """Return the names of the documents that a span retrieved."""
    listed = span.attributes.get(semconv.RETRIEVAL_DOCUMENTS)
    return [str(document["id"]) for document in listed if document.get("id")] if isinstance(listed, list) else []


def note_of(row: ReportRow) -> str:
    """Return the judge's explanation, or the reason why there is no score."""
    return row.explanation or (row.outcome if row.value is None else "")


def _means(traces: Iterable[Trace]) -> dict[str, Mean]:
    means = {}
    for name, rows in sorted(by_metric(row for trace in traces for row in trace.evaluations).items()):
        scored = [(row.quality, 1 / row.weight) for row in rows if row.quality is not None]
        if (interval := mean_interval(scored)) is not None:
            means[name] = Mean(*interval, len(scored))
    return means


def summary(played: Played, results: Results, *, traces: int = 3) -> dict[str, Any]:
    """Return the results as one JSON object. Means and intervals are on the quality scale, [0, 1], 1 good."""
    options, first = played.options, results.open_first()
    stretches: dict[str, Any] = {}
    for stretch in STRETCHES:
        if requests := results.requests(stretch):
            means = {metric: asdict(mean) for metric, mean in results.means[stretch].items()}
            stretches[stretch] = {"first": requests[0], "last": requests[1], "means": means}
    return {
        "requests": played.asked,
        "interrupted": played.interrupted,
        "seed": options.seed,
        "model": played.model,
        "rate": options.rate,
        "spans": len(played.spans),
        "eligible": dict(sorted(played.status.eligible.items())),
        "outcomes": {metric: dict(sorted(counts.items())) for metric, counts in sorted(played.status.outcomes.items())},
        "stretches": stretches,
        "notes": list(played.status.notes),
        "drops": [
            {
                "metric": drop.metric,
                "by": drop.by,
                "clear": drop.clear,
                "before": drop.before.mean,
                "during": drop.during.mean,
                "after": None if drop.after is None else drop.after.mean,
            }
            for drop in results.drops()
        ],
        "open_first": None if first is None else _trace_object(first),
        "worst": [_trace_object(trace) for trace in results.worst(traces)],
        "deliveries": played.deliveries,
    }


def _trace_object(trace: Trace) -> dict[str, Any]:
    return {
        "request": trace.number,
        "trace_id": trace.trace_id,
        "stretch": trace.stretch,
        "question": trace.question,
        "answer": trace.answer,
        "retrieved": list(trace.documents),
        "scores": {evaluation.metric: evaluation.value for evaluation in trace.evaluations},
        "notes": {evaluation.metric: note_of(evaluation) for evaluation in trace.evaluations},
    }


_SVG_WIDTH = 100
_RETRIEVAL_METRIC = "context_relevance"
_FILE_OPTIONS = MappingProxyType({"report": "demo.html", "out": "demo.jsonl"})
"""Option → an example of the file that it writes."""
_MISSING_FIELD_UNITS = (
    ("retrieved_contexts", "agent turns without retrieval"),
    ("multi-turn", "single-turn chain runs"),
)
"""Pairs: a word in the reason of ``missing_field``, and the demo's units with that reason."""
_dim = partial(Text, style="dim")
_FONT_FACE = re.compile(r"@font-face\s*\{\{.*?\}\}\s*", re.DOTALL)
"""The part of Rich's SVG that loads a font from a server. It is removed, because GitHub blocks this in a README's picture."""


def overview(
    played: Played, results: Results, *, traces: int = 3, written: Mapping[str, tuple[str, int]] = MappingProxyType({})
) -> RenderableType:
    """Return the overview for a terminal. Terminals are read from the end, so the most important part is last.

    Args:
        played: results of the demo.
        results: results as read from the spans.
        traces: number of the worst traces to show.
        written: option (``report``, ``out``, ``svg``) → the path of the file it wrote, and its size in bytes.
    """
    return Group(
        Text(_what_ran(played)),
        *(_section("The worst traces", *_worst(results, traces)) if traces else ()),
        *_section("Mean quality, with its 95 % interval", _means_table(results), *map(_dim, played.status.notes)),
        *_section("Scored units, and why others were not", _outcomes(played), *_reasons(played)),
        *_section("Findings", *_findings(results)),
        *_section("Next steps", *_next_steps(played, written)),
    )


def svg(shown: RenderableType, title: str) -> str:
    """Return ``shown`` as a terminal prints it, as SVG."""
    from rich._export_format import CONSOLE_SVG_FORMAT

    console = Terminal(record=True, width=_SVG_WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(shown)
    return console.export_svg(title=title, code_format=_FONT_FACE.sub("", CONSOLE_SVG_FORMAT))


def _section(title: str, *parts: RenderableType) -> Iterator[RenderableType]:
    yield Text()
    yield Rule(Text(title, style="bold"), align="left", style="dim")
    yield from parts


def _what_ran(played: Played) -> str:
    options = played.options
    agents = sum(span.name.startswith(semconv.INVOKE_AGENT) for span in played.spans)
    stopped = ", stopped by Ctrl-C" if played.interrupted else ""
    runs = f"{played.asked} requests about a ferry company{stopped}: {played.asked - agents} to a chain, {agents} to an agent"
    models = "An offline model answers, and an offline judge scores"
    if options.model:
        models = f"{options.model} answers and judges"
    return f"{runs}. {len(played.spans)} spans. {models}, seed {options.seed}."


# --- traces ---------------------------------------------------------------------------------------------------------


def _worst(results: Results, count: int) -> Iterator[RenderableType]:
    worst = results.worst(count)
    if not worst:
        yield Text("No trace fails a metric.")
    for trace in worst:
        yield _render_trace(trace, results.times(trace))


def _render_trace(trace: Trace, times: int) -> RenderableType:
    """Return a trace for display; ``times`` is the number of failed traces with its question."""
    title = _line(f"request {trace.number}", f"  {trace.stretch}  ", style="bold").append(trace.trace_id, style="dim")
    if times > 1:
        title.append(f"  failed in {times} requests", style="dim")
    exchange = Table.grid(padding=(0, 1))
    exchange.add_row(_dim("Q"), trace.question)
    exchange.add_row(_dim("A"), trace.answer)
    root, *children = trace.spans
    scores = Columns([_score(row) for row in trace.evaluations if row.value is not None], padding=(0, 2))
    tree = Tree(Group(_line(root.name), Padding(scores, (0, 0, 0, 2))), guide_style="dim")
    branches = {root.span_id: tree}
    for span in children:
        names = ", ".join(documents_of(span))
        line = _line(span.name, f"  → {names}" if names else "")
        branches[span.span_id] = branches.get(span.parent_id or 0, tree).add(line)
    for evaluation in trace.evaluations:
        line = Text() if evaluation.label == "fail" else _line("")  # the reason of a failure may take more than a line
        line.append(f"{semconv.EVALUATION} ").append_text(_score(evaluation))
        tree.add(line.append(f"  {_note(evaluation)}", style="dim"))
    return Group(Text(), title, exchange, tree)


def _score(row: ReportRow) -> Text:
    value = format_score(row.value, row.quality, row.pass_at)
    return Text(f"{row.metric} ").append(value, style={"pass": "green", "fail": "bold red"}.get(row.label or "", ""))


def _note(row: ReportRow) -> str:
    return " ".join(note_of(row).split())


def _line(text: str, detail: str = "", *, style: str = "") -> Text:
    """Return one line that is cut instead of wrapped."""
    line = Text(no_wrap=True, overflow="ellipsis")
    return line.append(text, style=style).append(detail, style="dim")


# --- figures --------------------------------------------------------------------------------------------------------


def _means_table(results: Results) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("metric", overflow="fold")
    for stretch in STRETCHES:
        requests = results.requests(stretch)
        header = f"{stretch}\n[dim]{requests[0]}–{requests[1]}[/dim]" if requests else stretch
        table.add_column(header, overflow="fold")  # a narrow terminal shows every number
    fallen = {drop.metric for drop in results.drops() if drop.clear}
    for metric, summary in results.metrics.items():
        cells = [
            _format_mean(results.means[stretch].get(metric), low=stretch == "during" and metric in fallen)
            for stretch in STRETCHES
        ]
        pass_at = threshold(summary.kind, summary.pass_at)
        table.add_row(Text(metric).append(f"\n{pass_at}" if pass_at else "", style="dim"), *cells)
    return table


def _format_mean(mean: Mean | None, *, low: bool) -> Text:
    if mean is None:
        return _dim("–")
    text = Text().append(f"{mean.mean:.2f}", style="bold red" if low else "")
    return text.append(f"  {mean.low:.2f}–{mean.high:.2f}\n{mean.scored} scored", style="dim")


def _outcomes(played: Played) -> RenderableType:
    status = played.status
    outcomes = {outcome for counts in status.outcomes.values() for outcome in counts}
    kinds = sorted(outcomes, key=lambda kind: (kind != "scored", kind))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("metric", "eligible", *kinds):
        table.add_column(
            column.replace("_", "\n"),
            justify="left" if column == "metric" else "right",
            vertical="bottom",
            overflow="fold",
        )
    for metric, eligible in sorted(status.eligible.items()):
        counts = status.outcomes.get(metric, {})
        table.add_row(metric, str(eligible), *(str(counts.get(kind, 0)) for kind in kinds))
    return table


def _reasons(played: Played) -> Iterator[RenderableType]:
    rate = played.options.rate
    yield _dim(
        f"A chain run is scored with probability {rate:g}, an agent turn always (a rule); the means weigh each score with "
        "1 / its probability. Every eligible unit has exactly one outcome:"
    )
    by_reason: dict[str, list[str]] = {}
    for key, why in sorted(played.status.reasons.items()):
        metric, _, outcome = key.partition(" ")
        units = (units for word, units in _MISSING_FIELD_UNITS if outcome == "missing_field" and word in why)
        reason = next(units, why.partition(";")[0])
        by_reason.setdefault(f"{outcome.replace('_', ' ')}: {reason}", []).append(metric)
    for reason, metrics in by_reason.items():
        yield _dim(f"{', '.join(metrics)} {reason}")


# --- findings ----------------------------------------------------------------------------------------------------------


def _findings(results: Results) -> Iterator[RenderableType]:
    drops = results.drops()
    requests = results.requests("during")
    if requests is None or not drops:
        yield Text("The demo ended before retrieval was broken, so there are no means to compare.")
    else:
        yield from _compare_stretches(drops, *requests)
    first = results.open_first()
    if first is not None:
        fallen = (drop for drop in drops if drop.clear and first.stretch == "during")
        yield from _describe_first(first, next(fallen, None), results)


def _compare_stretches(drops: Sequence[Drop], begin: int, end: int) -> Iterator[RenderableType]:
    clear = [drop for drop in drops if drop.clear]
    if not clear:
        yield Text(f"Retrieval was broken in requests {begin}–{end}. No metric fell by more than chance explains.")
        return
    yield Text(f"Retrieval was broken in requests {begin}–{end}:")
    for drop in clear:
        text = Text(f"{drop.metric} fell by ").append(f"{drop.by:.2f}", style="bold red")
        text.append(f", from {drop.before.mean:.2f} to {drop.during.mean:.2f}; the intervals do not overlap")
        yield text.append(f". After it: {drop.after.mean:.2f}." if drop.after else ".")
    if any(drop.metric == _RETRIEVAL_METRIC for drop in clear):
        yield Text("Retrieval fell together with the answers: look at the retriever before the model.")
    steady = [drop.metric for drop in drops if not drop.clear]
    if steady:
        yield Text(
            f"{' and '.join(steady)} did not fall by more than chance explains, and would not have shown the fault."
        )


def _describe_first(trace: Trace, drop: Drop | None, results: Results) -> Iterator[RenderableType]:
    yield Text()
    yield Text("Open first: trace ").append(trace.trace_id, style="bold").append(f" (request {trace.number}).")
    value = None if drop is None else trace.quality_of(drop.metric)
    if drop is not None and value is not None:
        alike = results.as_low.get(drop.metric, 1)
        among = f"{value_among(value, alike)}{' in the bad stretch' if alike > 1 else ''}"
        yield Text(f"Its {drop.metric} is {among}; {drop.before.mean:.2f} was usual.")
    documents = ", ".join(trace.documents) or "nothing"
    yield Text(f"Asked “{trace.question}”, it retrieved {documents} and answered “{trace.answer}”")
    failures = [
        evaluation
        for evaluation in trace.evaluations
        if evaluation.label == "fail" and (drop is None or evaluation.metric == drop.metric)
    ]
    for evaluation in failures[:1]:
        yield Text(f"The judge: {_note(evaluation)}")


def _next_steps(played: Played, written: Mapping[str, tuple[str, int]]) -> Iterator[RenderableType]:
    for path, size in written.values():
        yield _step("written", f"{path} ({format_bytes(size)})")
    if {"report", "out"} & written.keys() and not played.options.seconds:
        yield _step("", f"the spans' times are spread over {MINUTES} minutes, like those of live traffic")
    for signal, last in played.deliveries.items():
        yield _step(f"{signal} sent", last)
    if played.deliveries:
        yield _step("in the backend", "service spanscore-demo")
    else:
        yield _step("in a backend", "spanscore demo --otlp http://localhost:4318 --seconds 60")
    yield _step("  Jaeger", "search the tag spanscore.verdict=fail")
    yield _step("  Tempo", '{ span.spanscore.label.faithfulness = "fail" }')
    options = " ".join(f"--{option} {name}" for option, name in _FILE_OPTIONS.items() if option not in written)
    if options:
        yield _step("to keep it", f"spanscore demo {options}")
    yield _step("a real model", "spanscore demo --model openai:gpt-4o-mini")
    yield _step("your own chain", "scorer = OnlineScorer([Faithfulness(llm)], sample_rate=0.1)")
    yield _step("", 'chain.invoke(question, config={"callbacks": [scorer.handler]})')


def _step(label: str, text: str) -> RenderableType:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=15)
    row.add_row(_dim(label), Text(text))
    return row
