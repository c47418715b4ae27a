"""What was played → what a person sees: trees of the worst traces, means per stretch, where to look first, what next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from io import StringIO
from types import MappingProxyType

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from spanscore import semconv
from spanscore.core.terminal import Terminal
from spanscore.demo.results import Drop, Mean, Results, Trace, documents, note_of
from spanscore.demo.run import Played
from spanscore.demo.scenario import STRETCHES
from spanscore.demo.times import MINUTES
from spanscore.report import ReportRow
from spanscore.report.findings import format_score, threshold, value_among

__all__ = ["overview", "svg"]

_SVG_WIDTH = 100
_OF_RETRIEVAL = "context_relevance"
_KEEP = MappingProxyType({"report": "demo.html", "out": "demo.jsonl"})
"""Option → an example of the file it writes."""
_MISSING = (("retrieved_contexts", "agent turns without retrieval"), ("multi-turn", "single-turn chain runs"))
"""A word of the reason for which a field is missing → which units of the demo these are."""
_KILO = 1000
_dim = partial(Text, style="dim")
_FONT_FACE = re.compile(r"@font-face\s*\{\{.*?\}\}\s*", re.DOTALL)
"""Rich's SVG fetches its font from a server; a picture in a README may not, and one of ours shall not."""


def overview(
    played: Played, results: Results, *, traces: int = 3, written: Mapping[str, tuple[str, int]] = MappingProxyType({})
) -> RenderableType:
    """Return everything, in the order in which a terminal is read: what matters most stands last.

    Args:
        written: option (``report``, ``out``, ``svg``) → the path of the file it wrote, and its size in bytes.
    """
    return Group(
        Text(_what_ran(played)),
        *_section("The worst traces", *_worst(results, traces)),
        *_section("Mean quality, with its 95 % interval", _means(results), *map(_dim, played.status.notes)),
        *_section("What was scored, and how often", _outcomes(played), *_reasons(played)),
        *_section("What happened", *_findings(results)),
        *_section("What next", *_next(played, written)),
    )


def svg(shown: RenderableType, title: str) -> str:
    """Return a terminal's picture of it."""
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
    who = (
        f"{options.model} answers and judges"
        if options.model
        else "A model and a judge that need no network answer and score"
    )
    return f"{runs}. {len(played.spans)} spans. {who}, seed {options.seed}."


# --- traces ---------------------------------------------------------------------------------------------------------


def _worst(results: Results, count: int) -> Iterator[RenderableType]:
    worst = results.worst(count)
    if not worst:
        yield Text("No trace fails a metric.")
    for trace in worst:
        yield _trace(trace, results.times(trace))


def _trace(trace: Trace, times: int) -> RenderableType:
    """Return a trace; ``times`` traces failed on its question."""
    title = _line(f"request {trace.number}", f"  {trace.stretch}  ", style="bold").append(trace.trace_id, style="dim")
    if times > 1:
        title.append(f"  failed in {times} requests", style="dim")
    talk = Table.grid(padding=(0, 1))
    talk.add_row(_dim("Q"), trace.question)
    talk.add_row(_dim("A"), trace.answer)
    root, *children = trace.spans
    tree = Tree(Group(_line(root.name), _scores(trace)), guide_style="dim")
    branches = {root.span_id: tree}
    for span in children:
        names = ", ".join(documents(span))
        line = _line(span.name, f"  → {names}" if names else "")
        branches[span.span_id] = branches.get(span.parent_id or 0, tree).add(line)
    for evaluation in trace.evaluations:
        tree.add(_evaluation(evaluation))
    return Group(Text(), title, talk, tree)


def _scores(trace: Trace) -> RenderableType:
    scores = Columns([_score(one) for one in trace.evaluations if one.value is not None], padding=(0, 2))
    return Padding(scores, (0, 0, 0, 2))


def _score(one: ReportRow) -> Text:
    value = format_score(one.value, one.quality, one.pass_at)
    return Text(f"{one.metric} ").append(value, style={"pass": "green", "fail": "bold red"}.get(one.label or "", ""))


def _evaluation(one: ReportRow) -> Text:
    """Return its line; of a failing one with all that the judge said, which may take more."""
    line = Text() if one.label == "fail" else _line("")
    return line.append(f"{semconv.EVALUATION} ").append_text(_score(one)).append(f"  {_note(one)}", style="dim")


def _note(one: ReportRow) -> str:
    return " ".join(note_of(one).split())


def _line(text: str, detail: str = "", *, style: str = "") -> Text:
    """Return one line that is cut rather than wrapped."""
    line = Text(no_wrap=True, overflow="ellipsis")
    return line.append(text, style=style).append(detail, style="dim")


# --- figures --------------------------------------------------------------------------------------------------------


def _means(results: Results) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("metric", no_wrap=True)
    for stretch in STRETCHES:
        asked = results.requests(stretch)
        table.add_column(f"{stretch}\n[dim]{asked[0]}–{asked[1]}[/dim]" if asked else stretch, no_wrap=True)
    fallen = {drop.metric for drop in results.drops() if drop.clear}
    for metric, summary in results.metrics.items():
        cells = [
            _mean(results.means[stretch].get(metric), low=stretch == "during" and metric in fallen)
            for stretch in STRETCHES
        ]
        known = threshold(summary.kind, summary.pass_at)
        table.add_row(Text(metric).append(f"\n{known}" if known else "", style="dim"), *cells)
    return table


def _mean(found: Mean | None, *, low: bool) -> Text:
    if found is None:
        return _dim("–")
    mean = Text().append(f"{found.mean:.2f}", style="bold red" if low else "")
    return mean.append(f"  {found.low:.2f}–{found.high:.2f}\n{found.scored} scored", style="dim")


def _outcomes(played: Played) -> RenderableType:
    status = played.status
    known = {outcome for counts in status.outcomes.values() for outcome in counts}
    kinds = sorted(known, key=lambda kind: (kind != "scored", kind))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("metric", "eligible", *kinds):
        table.add_column(
            column.replace("_", "\n"), justify="left" if column == "metric" else "right", vertical="bottom"
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
    for reason, metrics in _by_reason(played).items():
        yield _dim(f"{', '.join(metrics)} {reason}")


def _by_reason(played: Played) -> dict[str, list[str]]:
    """Return why there is no score → the metrics of which that is true."""
    found: dict[str, list[str]] = {}
    for key, why in sorted(played.status.reasons.items()):
        metric, _, outcome = key.partition(" ")
        ours = next(
            (told for word, told in _MISSING if outcome == "missing_field" and word in why), why.partition(";")[0]
        )
        found.setdefault(f"{outcome.replace('_', ' ')}: {ours}", []).append(metric)
    return found


# --- words ----------------------------------------------------------------------------------------------------------


def _findings(results: Results) -> Iterator[RenderableType]:
    drops = results.drops()
    asked = results.requests("during")
    if asked is None or not drops:
        yield Text("It ended before retrieval broke: there is nothing to compare.")
    else:
        yield from _compared(drops, *asked)
    first = results.open_first()
    if first is not None:
        fallen = (drop for drop in drops if drop.clear and first.stretch == "during")
        yield from _first(first, next(fallen, None), results)


def _compared(drops: Sequence[Drop], begin: int, end: int) -> Iterator[RenderableType]:
    clear = [drop for drop in drops if drop.clear]
    if not clear:
        yield Text(f"Retrieval was broken in requests {begin}–{end}. No metric shows it beyond chance.")
        return
    yield Text(f"Retrieval was broken in requests {begin}–{end}:")
    yield from map(_fall, clear)
    if any(drop.metric == _OF_RETRIEVAL for drop in clear):
        yield Text("What was retrieved fell with the answers: look at the retriever before the model.")
    unmoved = [drop.metric for drop in drops if not drop.clear]
    if unmoved:
        yield Text(f"{' and '.join(unmoved)} did not move beyond chance, and alone would not have shown it.")


def _fall(drop: Drop) -> Text:
    text = Text(f"{drop.metric} fell by ").append(f"{drop.by:.2f}", style="bold red")
    text.append(f", from {drop.before.mean:.2f} to {drop.during.mean:.2f}; the intervals are apart")
    return text.append(f"; after it {drop.after.mean:.2f}." if drop.after else ".")


def _first(trace: Trace, drop: Drop | None, results: Results) -> Iterator[RenderableType]:
    yield Text()
    yield Text("Open first: trace ").append(trace.trace_id, style="bold").append(f" (request {trace.number}).")
    value = None if drop is None else trace.of(drop.metric)
    if drop is not None and value is not None:
        alike = results.as_low.get(drop.metric, 1)
        among = f"{value_among(value, alike)}{' in the bad stretch' if alike > 1 else ''}"
        yield Text(f"Its {drop.metric} is {among}, where {drop.before.mean:.2f} was usual.")
    found = ", ".join(trace.found) or "nothing"
    yield Text(f"Asked “{trace.question}”, it retrieved {found} and said “{trace.answer}”")
    named = [one for one in trace.evaluations if one.label == "fail" and (drop is None or one.metric == drop.metric)]
    for one in named[:1]:
        yield Text(f"The judge: {_note(one)}")


def _next(played: Played, written: Mapping[str, tuple[str, int]]) -> Iterator[RenderableType]:
    for path, size in written.values():
        yield _step("written", f"{path} ({_size(size)})")
    if {"report", "out"} & written.keys() and not played.options.seconds:
        yield _step("", f"the spans' times are spread over {MINUTES} minutes, as of live traffic")
    for signal, last in played.deliveries.items():
        yield _step(f"{signal} sent", last)
    if played.deliveries:
        yield _step("look there", "service spanscore-demo")
    else:
        yield _step("in a backend", "spanscore demo --otlp http://localhost:4318 --seconds 60")
    yield _step("  Jaeger", "search the tag spanscore.verdict=fail")
    yield _step("  Tempo", '{ span.spanscore.label.faithfulness = "fail" }')
    left = " ".join(f"--{option} {name}" for option, name in _KEEP.items() if option not in written)
    if left:
        yield _step("keep it", f"spanscore demo {left}")
    yield _step("a real model", "spanscore demo --model openai:gpt-4o-mini")
    yield _step("your own chain", "scorer = OnlineScorer([Faithfulness(llm)], sample_rate=0.1)")
    yield _step("", 'chain.invoke(question, config={"callbacks": [scorer.handler]})')


def _size(size: int) -> str:
    """Return a number of bytes as a person reads it."""
    if size < _KILO:
        return f"{size} B"
    return f"{size / _KILO:.0f} kB" if size < _KILO**2 else f"{size / _KILO**2:.1f} MB"


def _step(what: str, how: str) -> RenderableType:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=15)
    row.add_row(_dim(what), Text(how))
    return row
