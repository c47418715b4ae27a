"""The report page: one HTML file with the summary and the excerpts of scored units, which needs no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

from spanscore import semconv
from spanscore.core.codecs.text import safe_text
from spanscore.core.printable import format_count, format_usd
from spanscore.core.sample import Annotation
from spanscore.core.score import PASS_FAIL, known_sum
from spanscore.core.span import SpanData
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.metrics.catalog.registry import COMPARES_WORDS
from spanscore.monitoring.calibration import SavedCalibration
from spanscore.monitoring.estimates import WORTH_TELLING
from spanscore.outputs.scope import version
from spanscore.report import charts, findings, jinja2_page
from spanscore.report.conversations import Conversation, cards, conversations
from spanscore.report.excerpts import (
    ReportUnits,
    build_score_chip,
    cut_contexts,
    cut_text,
    excerpt_of_rows,
    excerpt_of_spans,
    format_comments,
    format_time,
    human_label_chip,
    human_labels_of,
    score_row,
    shorten_to_line,
)
from spanscore.report.rows import (
    Case,
    ReportRow,
    WorstUnit,
    by_unit,
    cases_by_question,
    count_equally_low,
    failed_metrics,
    failing,
    select_cases,
)
from spanscore.report.spans import Spans
from spanscore.report.summaries import (
    MIN_DROP,
    MIN_EVIDENCE,
    Bucket,
    FunnelStep,
    MetricSummary,
    ReportSummary,
    percent,
    summarize,
)

MAX_LABELLED = 50
"""Labelled units that are shown."""
MAX_OTHERS = 10
"""Other units of a question that are listed below the one that is shown."""
_EXPLAINED_CHARS = 280
_NO_TITLE = "(question not captured)"


def page(summary: ReportSummary, units: ReportUnits, *, title: str, conversations: Sequence[Conversation] = ()) -> str:
    """Return the page as one HTML text.

    Args:
        title: name of the scored application, shown next to the finding.
        conversations: conversations in any order.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    metrics = [metric for metric in summary.metrics if metric.metric]
    every = cases_by_question(summary.ranking, lambda worst: units.excerpt(worst.unit).question)
    shown = select_cases(every, summary.falls)
    worst = [_unit_card(case, units, summary, metrics) for case in shown]
    conversation_cards = cards(conversations, units, summary)
    return jinja2_page.render(
        "page.html.j2",
        title=safe_text(title),
        headline=findings.headline(summary),
        period=findings.period(summary),
        lede=_subtitle(summary),
        first=_open_first(worst, conversation_cards, summary),
        metrics=[_metric_section(metric, at, summary) for at, metric in enumerate(metrics)],
        width=findings.width_words(summary.width_ns),
        funnel_finding=_funnel_finding(summary.steps),
        alone=f"{summary.alone:,} of {summary.units:,} units were a model called alone." if summary.alone else "",
        steps=[_funnel_step(step, summary.steps) for step in summary.steps],
        unscored=[row for metric in metrics for row in _unscored_rows(metric)],
        worst_finding=_worst_finding(summary),
        worst_note=_worst_note(shown, every),
        units=worst,
        empty=not (summary.units or summary.conversations or conversation_cards),
        conversation_cards=conversation_cards,
        conversations_note=(
            f"Shown: {len(conversation_cards)} of {len(conversations):,}, failed ones first."
            if len(conversation_cards) < len(conversations)
            else ""
        ),
        conversations_finding=_conversations_finding(summary, conversation_cards),
        people=_human_label_section(units, summary),
        min_drop=findings.figure(MIN_DROP, 1),
        min_evidence=findings.figure(MIN_EVIDENCE, 1),
        version=version(),
    )


def _unscored_rows(metric: MetricSummary) -> Iterator[tuple[str, str, str, str]]:
    """Yield the cells of each reason for missing scores: metric, reason, number of units, latest unit."""
    for reason in metric.unscored:
        why = safe_text(findings.why_unscored(reason))
        yield findings.readable(metric.metric), why, f"{reason.units:,}", reason.latest


def _human_label_section(units: ReportUnits, summary: ReportSummary) -> dict[str, Any] | None:
    """Return the section that compares human labels with scores of the same units; None without a label.

    Its table has a row per value of a label: label, value, number of units, and a mean for each metric with a score on a
    labelled unit.
    """
    labels = units.human_labels
    if not labels:
        return None
    scored = {unit: {row.metric: row for row in units.rows.get(unit, ()) if row.value is not None} for unit in labels}
    metrics = sorted({metric for rows in scored.values() for metric in rows})
    order = sorted(labels, key=lambda unit: (min(map(_quality, labels[unit])), -(labels[unit][-1].when_ns or 0)))
    shown = order[:MAX_LABELLED]
    is_cut = len(shown) < len(order)
    return {
        "finding": f"People rated {format_count(len(labels), 'unit')}",
        "note": f"Shown: {len(shown)} of {len(order):,} units, the worst label first." if is_cut else "",
        "metrics": [findings.readable(metric) for metric in metrics],
        "table": [*_label_rows(labels, scored, metrics)],
        "units": [_labelled_unit(unit, units, scored[unit], summary) for unit in shown],
    }


def _label_rows(
    labels: Mapping[str, Sequence[Annotation]], scored: Mapping[str, Mapping[str, ReportRow]], metrics: Sequence[str]
) -> Iterator[list[str]]:
    labelled = [(label, unit) for unit, own in labels.items() for label in own]
    units_of: dict[tuple[str, str], set[str]] = {}
    for label, unit in sorted(labelled, key=lambda pair: (pair[0].name, _quality(pair[0]), str(pair[0].value))):
        units_of.setdefault((label.name, str(label.value)), set()).add(unit)
    for (name, value), units in units_of.items():
        means = list[str]()
        for metric in metrics:
            rows = (scored[unit].get(metric) for unit in units)
            means.append(_mean_cell([row for row in rows if row is not None and row.value is not None]))
        yield [findings.readable(name), value, f"{len(units):,}", *means]


def _mean_cell(rows: Sequence[ReportRow]) -> str:
    """Return the mean of a metric's values, or its most frequent category, with the number of units."""
    if not rows:
        return "–"
    if words := Counter(str(row.value) for row in rows if row.number is None):
        word, units = words.most_common(1)[0]
        return f"{safe_text(word)} ({units:,} of {len(rows):,})"
    return f"{findings.figure(fmean(row.number for row in rows if row.number is not None))} ({len(rows):,})"


def _labelled_unit(
    unit: str, units: ReportUnits, rows: Mapping[str, ReportRow], summary: ReportSummary
) -> dict[str, Any]:
    labels = units.human_labels[unit]
    return {
        "when": format_time(labels[-1].when_ns, summary),
        "title": shorten_to_line(units.excerpt(unit).question) or "(question not in this file)",
        "chips": [*map(human_label_chip, labels), *map(build_score_chip, rows.values())],
        "comments": format_comments(labels),
        "trace_id": unit.partition("/")[0],
    }


def _quality(label: Annotation) -> float:
    return 1.0 if label.quality is None else label.quality


def _subtitle(summary: ReportSummary) -> str:
    judges = sorted({judge for metric in summary.metrics for judge in metric.judges})
    tokens = sum(metric.tokens for metric in summary.metrics)
    cost_usd = known_sum(metric.cost_usd for metric in summary.metrics)
    spent = [f"{tokens:,} tokens"] if tokens else []
    spent += [] if cost_usd is None else [f"${format_usd(cost_usd)}"]
    judged = f" Judge {', '.join(map(safe_text, judges))}{': ' if spent else ''}{', '.join(spent)}." if judges else ""
    offline = f" {COMPARES_WORDS}" if LexicalJudge.model in judges else ""
    return f"{_describe_size(summary)}, {format_count(summary.scores, 'score')}.{judged}{offline}"


def _describe_size(summary: ReportSummary) -> str:
    units = f"{format_count(summary.units, 'unit')} of work"
    if not summary.conversations:
        return units
    whole = format_count(summary.conversations, "conversation")
    return f"{units}, {whole}" if summary.units else whole


# --- metrics ----------------------------------------------------------------------------------------------------


def _metric_section(metric: MetricSummary, at: int, summary: ReportSummary) -> dict[str, Any]:
    return {
        "key": f"m{at}",
        "of_conversations": metric.of_conversations,
        "name": findings.readable(metric.metric),
        "mean": _main_figure(metric),
        "unit": _unit_of(metric),
        "lines": [*_tile_lines(metric)],
        "fell": _describe_stretch(metric, summary),
        "lost": any(bucket.lost for bucket in metric.buckets),
        "absent": any(bucket.nothing_to_score for bucket in metric.buckets),
        "finding": findings.metric_finding(metric, summary),
        "about": _describe_numbers(metric),
        "trend": None if metric.mean is None and metric.shares else charts.trend(metric, summary),
        "spreads": {} if metric.shares else charts.histograms(metric),
        "shares": charts.shares(metric, summary),
        "share_keys": [(place, safe_text(word)) for place, word in enumerate(charts.drawn_categories(metric))],
        "share_table": [
            (safe_text(word), percent(share.mean), f"{percent(share.low)} to {percent(share.high)}")
            for word, share in metric.shares.items()
        ],
        "table": [_bucket_cells(bucket, summary) for bucket in metric.buckets if bucket.scores or bucket.outcomes],
    }


def _main_figure(metric: MetricSummary) -> str:
    if metric.mean is not None:
        return findings.level(metric, metric.mean)
    return findings.largest_share(metric)[1] if metric.shares else "–"


def _unit_of(metric: MetricSummary) -> str:
    if metric.on_quality:
        return "pass" if metric.kind in PASS_FAIL else "mean quality"
    return findings.largest_share(metric)[0] if metric.shares else "mean value"


def _tile_lines(metric: MetricSummary) -> Iterator[str]:
    if metric.low is not None and metric.high is not None:
        yield f"95 % interval {findings.level(metric, metric.low)} to {findings.level(metric, metric.high)}"
    if metric.pass_share is not None and metric.kind not in PASS_FAIL:
        threshold = findings.threshold(metric.kind, metric.pass_at)
        yield f"{percent(metric.pass_share)} {threshold or 'pass'}"
    if metric.applies is not None:
        yield str(metric.applies)
    if metric.corrected is not None:
        yield metric.corrected.line
    yield f"{metric.scores:,} of {format_count(sum(metric.outcomes.values()), metric.noun)} scored"


def _describe_stretch(metric: MetricSummary, summary: ReportSummary) -> str:
    if metric.stretch is None:
        return ""
    first, last = (metric.buckets[at] for at in (metric.stretch.first, metric.stretch.last))
    when = f"{findings.clock(first.start_ns, summary)} to {findings.clock(last.end_ns, summary)}"
    return f"{findings.level(metric, metric.stretch.inside)} from {when}"


def _describe_numbers(metric: MetricSummary) -> str:
    """Return a description of a metric's numbers: scale, direction, judge, missing scores."""
    scale = "an open scale" if metric.range is None else f"{metric.range[0]:g} to {metric.range[1]:g}"
    parts = [f"Own scale: {scale}, {metric.direction} is better".replace("-", "−")]
    if metric.shares:
        parts = [f"{len(metric.shares)} categories"]
    if threshold := findings.threshold(metric.kind, metric.pass_at):
        parts.append(threshold.replace("pass at", "pass at quality"))
    if metric.own_mean is not None and metric.range != (0.0, 1.0) and not metric.shares:
        parts.append(f"mean value {findings.figure(metric.own_mean)}")
    if metric.judges:
        parts.append(f"judge {', '.join(map(safe_text, metric.judges))}")
    if metric.tokens:
        spent = f"{metric.tokens:,} tokens"
        if metric.cost_usd is not None:
            spent += f", ${format_usd(metric.cost_usd)}"
            spent += "" if metric.usd_per_day is None else f", ${format_usd(metric.usd_per_day)} a day"
        parts.append(spent)
    return f"{'. '.join(['; '.join(parts), *_remarks(metric)])}."


def _remarks(metric: MetricSummary) -> Iterator[str]:
    if missing := findings.outcome_words(metric.outcomes):
        yield f"Without a score: {missing}"
    if metric.excluded is not None and metric.excluded[0] >= WORTH_TELLING:
        share, low, high = metric.excluded
        lacking = f"{100 * share:.0f} % of the sampled units were not scored: the mean covers the rest"
        yield f"{lacking}, over all units it is {low:.2f} at worst, {high:.2f} at best"
    if cut := metric.mostly_left_out:
        yield f"The judge read less than half of a question for {format_count(cut, 'score')}, as it was too long"
    if metric.applies is not None:
        yield f"It {metric.applies}"
    if metric.corrected is not None:
        yield metric.corrected.sentence
    yield from (f"Second judge {safe_text(shadow)}" for shadow in metric.shadows)


def _bucket_cells(bucket: Bucket, summary: ReportSummary) -> tuple[str, ...]:
    interval = "–" if bucket.low is None else f"{findings.figure(bucket.low)} to {findings.figure(bucket.high)}"
    return (
        findings.clock(bucket.start_ns, summary),
        findings.figure(bucket.mean),
        interval,
        f"{bucket.scores:,}",
        findings.outcome_words(bucket.outcomes) or "–",
    )


# --- the funnel -------------------------------------------------------------------------------------------------


def _funnel_finding(steps: Sequence[FunnelStep]) -> str:
    scored = next(step.remaining for step in steps if step.name == "scored")
    arrived = steps[0].remaining
    return f"{scored:,} of {format_count(arrived, 'evaluation')} have a score" if arrived else "No unit arrived"


def _funnel_step(step: FunnelStep, steps: Sequence[FunnelStep]) -> dict[str, Any]:
    return {
        "number": step.remaining,
        "remaining": f"{step.remaining:,}",
        "name": step.name,
        "share": f"{100 * step.remaining / max(1, steps[0].remaining):.2f}",
        "lost": ", ".join(f"−{count:,} {findings.outcome_name(outcome)}" for outcome, count in step.lost.items()),
    }


# --- the worst units --------------------------------------------------------------------------------------------


def _open_first(
    units: Sequence[Mapping[str, Any]], conversation_cards: Sequence[Mapping[str, Any]], summary: ReportSummary
) -> dict[str, Any] | None:
    """Return the unit or conversation to open first, with the metrics that it fails; None if nothing fails."""
    fallen = [fall.metric for fall in summary.falls]
    whole = {metric.metric for metric in summary.metrics if metric.of_conversations}
    if summary.failed and (not units or (fallen and fallen[0] in whole)):
        first, title, href = summary.failed[0], conversation_cards[0]["title"], "#talk-1"
        example = {"answer": "", "when": conversation_cards[0]["about"], "trace_id": summary.failed[0].rows[0].trace_id}
    elif units:
        first, title, href = summary.ranking[0], units[0]["title"], "#unit-1"
        example = {"answer": units[0]["rough_answer"], "when": units[0]["when"], "trace_id": units[0]["trace_id"]}
    else:
        return None
    failed = failing(first.rows)
    failed.sort(key=lambda row: fallen.index(row.metric) if row.metric in fallen else len(fallen))
    return {"title": title, "href": href, **example, "reasons": [_failure_reason(row, summary) for row in failed]}


def _failure_reason(row: ReportRow, summary: ReportSummary) -> dict[str, str]:
    score = findings.format_score(row.value, None, None)
    return {
        "metric": f"{findings.readable(row.metric)} {score}{_compare_with_usual(row, summary)}",
        "explanation": shorten_to_line(row.explanation, _EXPLAINED_CHARS),
    }


def _compare_with_usual(row: ReportRow, summary: ReportSummary) -> str:
    """Return the usual level of a metric before its bad stretch, and the number of equally low scores in the stretch."""
    metric = next((each for each in summary.metrics if each.metric == row.metric), None)
    fall = next((each for each in summary.falls if each.metric == row.metric), None)
    if metric is None or metric.stretch is None or fall is None or row.value is None:
        return ""
    alike = count_equally_low(summary.failed if metric.of_conversations else summary.ranking, fall, row.value)
    others = f"{findings.value_among(row.value, alike)}; " if alike > 1 else ""
    return f" ({others}usual: {findings.level(metric, metric.stretch.usual)})"


def _unit_card(
    case: Case, units: ReportUnits, summary: ReportSummary, metrics: Sequence[MetricSummary]
) -> dict[str, Any]:
    worst, *others = case
    first, excerpt = worst.rows[0], units.excerpt(worst.unit)
    labels = units.human_labels.get(worst.unit, ())
    own = [row for row in worst.rows if row.metric]
    return {
        "title": shorten_to_line(excerpt.question) or safe_text(first.name) or _NO_TITLE,
        "times": f"×{len(case):,}" if others else "",
        "when": ", ".join(
            filter(None, [format_time(first.time_ns, summary), safe_text(first.name) if excerpt.question else ""])
        ),
        "low": _failed_keys(case, metrics),
        "chips": [*(build_score_chip(row) for row in own if row.value is not None), *map(human_label_chip, labels)],
        "comments": format_comments(labels),
        "captured": excerpt.captured,
        "question": cut_text(excerpt.question),
        "answer": cut_text(excerpt.answer),
        "rough_answer": shorten_to_line(excerpt.answer),
        "contexts": cut_contexts(excerpt.contexts),
        "rows": [score_row(row) for row in own],
        "branches": _tree_nodes(excerpt.branches),
        "more_spans": excerpt.left_out,
        "trace_id": first.trace_id,
        "stands_for": _stands_for(own),
        "others": [_describe_other(other, summary) for other in others[:MAX_OTHERS]],
        "more": max(0, len(others) - MAX_OTHERS),
    }


def _failed_keys(case: Case, metrics: Sequence[MetricSummary]) -> str:
    failed = failed_metrics(case)
    return " ".join(f"m{at}" for at, metric in enumerate(metrics) if metric.metric in failed)


def _stands_for(rows: Sequence[ReportRow]) -> str:
    """Return the number of units of the traffic that a sampled unit represents, in words; empty for a weight below 1.5."""
    weight = max((row.weight for row in rows if row.value is not None), default=1.0)
    return f"represents {weight:,.0f} units" if weight >= 1.5 else ""  # noqa: PLR2004  (rounds to two)


def _tree_nodes(branches: Sequence[tuple[SpanData, int]]) -> list[dict[str, Any]]:
    """Return the spans of a tree. The bar of a span has ``left`` and ``width``, in per cent of the time of all spans."""
    begin_ns = branches[0][0].start_ns if branches else 0
    after_ms = [max(0, span.start_ns - begin_ns) / 1e6 for span, _ in branches]
    took_ms = [max(0, span.end_ns - span.start_ns) / 1e6 for span, _ in branches]
    whole_ms = max(map(sum, zip(after_ms, took_ms, strict=True)), default=0.0) or 1.0
    nodes = list[dict[str, Any]]()
    for (span, depth), after, ms in zip(branches, after_ms, took_ms, strict=True):
        left, width = 100 * after / whole_ms, 100 * ms / whole_ms
        nodes.append(
            {
                "name": safe_text(span.name),
                "depth": depth,
                "status": span.status,
                "left": f"{min(99.0, left):.2f}",
                "width": f"{max(0.0, min(100 - left, width)):.2f}",
                "took": f"{ms / 1000:,.2f} s" if ms >= 1000 else f"{ms:.1f} ms",  # noqa: PLR2004
            }
        )
    return nodes


def _describe_other(worst: WorstUnit, summary: ReportSummary) -> dict[str, str]:
    scores = ", ".join(build_score_chip(row).text for row in failing(worst.rows))
    first = worst.rows[0]
    return {
        "text": ": ".join(filter(None, [format_time(first.time_ns, summary), scores])),
        "trace_id": first.trace_id or "",
    }


def _worst_finding(summary: ReportSummary) -> str:
    number = len(summary.ranking)
    if not number:
        return "No unit fails a metric" if summary.scores else "There are no scores to rank"
    first = ", those of the bad stretch first" if number > 1 and summary.ranking[0].fell else ""
    return f"{format_count(number, 'unit')} {'fails' if number == 1 else 'fail'} a metric{first}"


def _conversations_finding(summary: ReportSummary, conversation_cards: Sequence[Mapping[str, Any]]) -> str:
    judged = format_count(summary.conversations, "conversation")
    if not summary.conversations:
        return f"{format_count(len(conversation_cards), 'conversation')}, none judged as a whole"
    return (
        f"{judged} judged as a whole, {len(summary.failed):,} of them {'fails' if len(summary.failed) == 1 else 'fail'}"
    )


def _worst_note(shown: Sequence[Case], every: Sequence[Case]) -> str:
    of = f"{len(every):,} {'questions' if any(len(case) > 1 for case in every) else 'units'}"
    some = f"Shown: {len(shown)} of {of}, the worst of each metric.  " if len(shown) < len(every) else ""
    has_multiples = any(len(case) > 1 for case in shown)
    multiples = "×2: two units failed on the same question; the worse one is shown." if has_multiples else ""
    return (some + multiples).strip()


# --- writing ----------------------------------------------------------------------------------------------------

_UNKNOWN = "unknown_service"
"""OpenTelemetry's name of a service without a name; the process may follow: ``unknown_service:java``."""


def summary(spans: Iterable[SpanData]) -> ReportSummary:
    """Return the summary of the scores on spans: means per metric and bucket, outcomes, the worst units."""
    read = Spans.read(spans)
    return summarize(read.rows(), read.shadow_rows(), alone=_count_single_calls(read))


def write(
    spans: Iterable[SpanData],
    path: Path,
    *,
    title: str | None = None,
    calibrations: Mapping[str, SavedCalibration] = MappingProxyType({}),
) -> ReportSummary:
    """Write the page of the scores on spans, and return its summary.

    Args:
        spans: spans of applications and evaluations, in any order; each score counts once.
        path: file to write; an existing file is replaced.
        title: title of the page; None = the names of the services.
        calibrations: metric → calibration of its judge by human labels, by which its pass rate is also corrected.

    Raises:
        MissingExtraError: jinja2 is not installed.
        OSError: the file cannot be written.
    """
    read = Spans.read(spans)
    rows = read.rows()
    summary = summarize(rows, read.shadow_rows(), calibrations, alone=_count_single_calls(read))
    units = ReportUnits(
        by_unit([*rows, *read.feedback_rows()]), human_labels_of(read), lambda unit: excerpt_of_spans(unit, read)
    )
    html = page(summary, units, title=title or _service_names(read), conversations=conversations(read))
    path.write_text(html, encoding="utf-8")
    return summary


def write_scores(rows: Iterable[ReportRow], path: Path, *, title: str = "Scores of a data set") -> ReportSummary:
    """Write the page of scores without spans, and return its summary. Raises as ``write`` does."""
    rows = list(rows)
    summary, of_unit = summarize(rows), by_unit(rows)
    units = ReportUnits(of_unit, {}, lambda unit: excerpt_of_rows(of_unit[unit]))
    path.write_text(page(summary, units, title=title), encoding="utf-8")
    return summary


def _count_single_calls(read: Spans) -> int:
    """Return the number of units that are a single model call."""
    return sum(span.operation in semconv.MODEL_OPERATIONS for span in read.units.values())


def _service_names(read: Spans) -> str:
    """Return the names of the services, without the name that an SDK gives to an unnamed service."""
    values = ((span.resource or {}).get(semconv.SERVICE_NAME) for span in read.units.values())
    names = dict.fromkeys(safe_text(str(value)) for value in values if value is not None)
    services = [name for name in names if not name.startswith(_UNKNOWN)]
    return ", ".join(services) or "Scores of live traces"
