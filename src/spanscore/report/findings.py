"""Texts of a report: headline, findings, times, figures and outcomes in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from spanscore.core.codecs.text import safe_text
from spanscore.core.printable import format_count, printable
from spanscore.core.score import PASS_FAIL, Kind, ScoreValue
from spanscore.report.rows import default_threshold
from spanscore.report.summaries import MetricSummary, ReportSummary, Unscored, percent

_SECOND = 1_000_000_000
_TENTH = 100_000_000
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_SOME_BUCKETS = 3
_MOST_DIGITS = 6

_WORDS = {
    "not_sampled": "not chosen by sampling",
    "filtered": "filtered out by a hook or rule",
    "trace_not_sampled": "trace not exported (head sampling)",
    "delegated": "scored by another process",
    "no_sample": "no question or answer found",
    "missing_field": "a field that the metric needs is missing",
    "incomplete": "unit closed before its end",
    "expired": "waited too long in the spool",
    "event_queue_full": "event queue full",
    "queue_full": "queue full",
    "judge_unavailable": "judge at its limit, down, or out of money",
    "budget_exhausted": "budget spent",
    "timeout": "timed out",
    "judge_error": "judge failed",
    "metric_error": "metric failed",
    "redaction_error": "redaction failed",
    "shutdown": "shut down before it was scored",
    "not_applicable": "metric's condition does not hold",
    "no_value": "metric has no value on this sample",
    "pending": "score not in this file yet",
}


def headline(summary: ReportSummary) -> str:
    """Return the page's headline: the clearest bad stretch, or else the means of the metrics."""
    metrics = [metric for metric in summary.metrics if metric.metric]
    fallen = [metric for metric in metrics if metric.stretch is not None]
    if fallen:
        others = fallen[1:]
        who = readable(others[0].metric) if len(others) == 1 else f"{len(others)} other metrics"
        return metric_finding(fallen[0], summary) + (f", and {who} with it" if others else "")
    scored = _metrics_with_figures(metrics)
    if len(scored) == 1:
        return metric_finding(scored[0], summary)
    if scored:
        return _list_means(scored)
    return f"No score yet for {format_count(summary.units, 'unit')}" if summary.units else "There is nothing to report"


def _metrics_with_figures(metrics: Sequence[MetricSummary]) -> list[MetricSummary]:
    """Return the metrics with a mean; without any, those with shares."""
    return [metric for metric in metrics if metric.mean is not None] or [metric for metric in metrics if metric.shares]


def _list_means(scored: Sequence[MetricSummary]) -> str:
    each = ", ".join(f"{readable(metric.metric)} {_mean_or_category(metric)}" for metric in scored[:3])
    more = f" and {format_count(len(scored) - 3, 'more metric')}" if len(scored) > 3 else ""  # noqa: PLR2004  (the three above)
    has_trend = any(_has_trend(metric) for metric in scored)
    return f"{'No drop found: ' if has_trend else ''}{each}{more}"


def _mean_or_category(metric: MetricSummary) -> str:
    """Return a metric's mean; for categories without a quality the largest category with its share."""
    return level(metric, metric.mean) if metric.mean is not None else " ".join(largest_share(metric))


def largest_share(metric: MetricSummary) -> tuple[str, str]:
    """Return the largest category of a metric, and its share in per cent."""
    word, share = max(metric.shares.items(), key=lambda item: item[1].mean)
    return safe_text(word), percent(share.mean)


def metric_finding(metric: MetricSummary, summary: ReportSummary) -> str:
    """Return a sentence with numbers on a metric's mean or fall."""
    name = readable(metric.metric) or "All metrics"
    if metric.mean is None:
        return f"{name}: {_without_mean(metric)}"
    stretch = metric.stretch
    if stretch is None:
        verb = "held at" if _has_trend(metric) else "is"
        return f"{name} {verb} {level(metric, metric.mean)} on {format_count(metric.scores, 'score')}"
    low, high = (level(metric, share) for share in (stretch.inside, stretch.usual))
    subject = name
    if metric.kind in PASS_FAIL:
        subject = f"{name}: the pass rate"
    elif metric.direction == "lower":
        subject = f"the quality of {name}"
    begin, end = metric.buckets[stretch.first].start_ns, metric.buckets[stretch.last].end_ns
    filled = [at for at, bucket in enumerate(metric.buckets) if bucket.scores]
    if stretch.last == filled[-1]:
        return f"{subject} fell from {high} to {low} at {clock(begin, summary)} and has not recovered"
    if stretch.first == filled[0]:
        return f"{subject} was {low} until {clock(end, summary)}, then {high}"
    return f"{subject} fell from {high} to {low} between {clock(begin, summary)} and {clock(end, summary)}"


def _without_mean(metric: MetricSummary) -> str:
    """Return the finding on a metric without a mean: the largest category, or the missing scores."""
    if metric.shares:
        word, share = largest_share(metric)
        return f"{word} is the largest category, {share} of {format_count(metric.scores, 'score')}"
    among = format_count(sum(metric.outcomes.values()), metric.noun)
    return f"no score among {among} ({outcome_words(metric.outcomes)})"


def readable(metric: str) -> str:
    """Return a metric's name in words, on one line."""
    return printable(metric.replace("_", " ").strip())


def figure(value: float | None, digits: int = 2) -> str:
    """Return a number with two digits after the point, an en dash for None; -0.00 is 0.00."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text.replace("-", "−")


def format_score(value: ScoreValue | None, quality: float | None, pass_at: float | None, digits: int = 2) -> str:
    """Return a score with two digits, or with the digits that show that it just fails: 0.497 below 0.5, not "0.50".

    A category is returned as it is.
    """
    if isinstance(value, str):
        return safe_text(value)
    fails = quality is not None and pass_at is not None and quality < pass_at
    while fails and digits < _MOST_DIGITS and round(quality or 0.0, digits) >= (pass_at or 0.0):
        digits += 1
    return figure(value, digits)


def clock(time_ns: int, summary: ReportSummary) -> str:
    """Return a time of day, with its date if the summary spans several days, and with seconds if buckets are short."""
    at = datetime.fromtimestamp(time_ns // _SECOND, UTC)
    if summary.width_ns >= _DAY_S * _SECOND:
        return f"{at.day} {at:%b}"
    tenths = f".{time_ns % _SECOND // _TENTH}" if summary.width_ns < _SECOND else ""
    seconds = f"{at:%H:%M:%S}{tenths}" if summary.width_ns < _MINUTE_S * _SECOND else f"{at:%H:%M}"
    return seconds if _is_one_day(summary) else f"{at.day} {at:%b} {seconds}"


def period(summary: ReportSummary) -> str:
    """Return the period of the rows with date and zone; empty if no row has a time."""
    if summary.start_ns is None or summary.end_ns is None:
        return ""
    begin, end = (datetime.fromtimestamp(ns // _SECOND, UTC) for ns in (summary.start_ns, summary.end_ns))
    if _is_one_day(summary):
        minutes = "%H:%M" if (end - begin).total_seconds() >= _MINUTE_S else "%H:%M:%S"
        return f"{begin.day} {begin:%b %Y}, {begin:{minutes}} to {end:{minutes}} UTC"
    return f"{begin.day} {begin:%b %Y %H:%M} to {end.day} {end:%b %Y %H:%M} UTC"


def width_words(width_ns: int) -> str:
    """Return a bucket's width: "30 seconds", "1 hour"."""
    if width_ns < _SECOND:
        return f"{width_ns / _SECOND:g} seconds"
    seconds = width_ns // _SECOND
    for length, noun in ((_DAY_S, "day"), (_HOUR_S, "hour"), (_MINUTE_S, "minute")):
        if seconds and seconds % length == 0:
            return format_count(seconds // length, noun)
    return format_count(seconds, "second")


def outcome_words(outcomes: Mapping[str, int]) -> str:
    """Return the outcomes other than ``scored`` in words, the most frequent first."""
    rest = sorted(((name, count) for name, count in outcomes.items() if name != "scored"), key=lambda item: -item[1])
    return ", ".join(f"{outcome_name(name)} {count:,}" for name, count in rest)


def outcome_name(outcome: str) -> str:
    """Return an outcome in words; an outcome with several meanings names each."""
    return " or ".join(_WORDS.get(part, readable(part)) for part in outcome.split(" or "))


def why_unscored(why: Unscored) -> str:
    """Return the reason of a missing score in words: "judge failed: unparseable"."""
    return ": ".join(filter(None, (outcome_name(why.outcome), why.reason)))


def threshold(kind: Kind, pass_at: Sequence[float]) -> str:
    """Return the lowest quality that passes in words: "pass at 0.5 (default)"; empty for pass/fail metrics, and if not known.

    ``pass_at`` has several qualities, ascending, if it was changed.
    """
    if kind in PASS_FAIL or not pass_at:
        return ""
    default = " (default)" if tuple(pass_at) == (default_threshold(kind),) else ""
    return f"pass at {' or '.join(f'{quality:g}' for quality in pass_at)}{default}"


def value_among(value: ScoreValue, alike: int) -> str:
    """Return a value of a bad stretch, with the number of units there that have it: "one of 5 at 0.00"."""
    shown = format_score(value, None, None)
    return f"one of {alike:,} at {shown}" if alike > 1 else shown


def level(metric: MetricSummary, mean: float) -> str:
    """Return a mean of a metric as text: "97 %" for pass/fail, "0.86" for other metrics."""
    return percent(mean) if metric.kind in PASS_FAIL and metric.on_quality else figure(mean)


def _has_trend(metric: MetricSummary) -> bool:
    return sum(bucket.scores > 0 for bucket in metric.buckets) >= _SOME_BUCKETS


def _is_one_day(summary: ReportSummary) -> bool:
    return len({(ns or 0) // (_DAY_S * _SECOND) for ns in (summary.start_ns, summary.end_ns)}) == 1
