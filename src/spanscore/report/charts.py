"""MetricSummary → charts, as plain values of plotly.js: a trend with its interval, and histograms.

A colour is a name with a dollar sign (``$line``): the page puts in what its style sheet says, so that charts follow the dark
mode and the printer. No text of a trace is in a chart, only numbers and words of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np

from spanscore.report.findings import clock, figure, outcome_words, threshold
from spanscore.report.summaries import Bucket, MetricSummary, ReportSummary

__all__ = ["histograms", "trend"]

Chart = dict[str, Any]

BINS = 20
MAX_STEPS = 12
"""An ordinal scale with more grades is drawn in bins."""
_SECOND = 1_000_000_000
_HOVER = "%{text}<extra></extra>"
_QUALITY = "quality (1 = good)"
_TREND_PX, _HISTOGRAM_PX = 320, 230
_TREND_MARGIN_PX = 34
"""To the right of a trend: half of its longest label of time."""
_WORDS_MARGIN_PX = 24
"""Above a histogram: one line of words."""
_EDGE = 0.3
"""Share of a histogram's width in which words would not fit on both sides of a line."""
_DAYS = 3
_COUNTS_DOMAIN, _MEANS_DOMAIN = [0.0, 0.17], [0.25, 1.0]
"""Shares of the height: how many scores below, how good they were above."""


def trend(metric: MetricSummary, summary: ReportSummary) -> Chart | None:
    """Return the means of a metric over time; None where no row has a time."""
    if not metric.buckets:
        return None
    shapes, annotations = _stretch(metric)
    counts = "count" if metric.of_conversations else "units"  # the longer word has no room there
    return {
        "data": [_band(metric.buckets), _line(metric, summary), *_counts(metric, summary)],
        "layout": {
            **_layout(_TREND_PX, right=_TREND_MARGIN_PX),
            "barmode": "stack",
            "bargap": 0.15,
            "hovermode": "closest",
            "xaxis": _axis(type="date", range=[_at(metric.buckets[0].start_ns), _at(metric.buckets[-1].end_ns)],
                           anchor="y2", showgrid=False, **_times(metric, summary)),
            "yaxis": _axis(domain=_MEANS_DOMAIN, title=_titled(_QUALITY if metric.on_quality else "value"),
                           **({"range": [-0.02, 1.02], "tickvals": [0, 0.25, 0.5, 0.75, 1]} if metric.on_quality else {})),
            "yaxis2": _axis(domain=_COUNTS_DOMAIN, title=_titled(counts), nticks=3, rangemode="tozero"),
            "shapes": [*_gaps(metric.buckets), *shapes],
            "annotations": annotations,
        },
    }  # fmt: skip


def histograms(metric: MetricSummary) -> list[Chart]:
    """Return how the scores are spread: on quality, and on the metric's own scale where that is another one."""
    if not metric.points:
        return []
    charts = []
    if metric.on_quality:
        spread = _histogram([(w, y) for w, y, _ in metric.points], _bins(metric, (0.0, 1.0)), _QUALITY, metric.noun)
        charts.append(_with_thresholds(spread, metric))
    if not metric.on_quality or metric.range != (0.0, 1.0) or metric.direction == "lower":
        bounds = metric.range or _bounds([value for _, _, value in metric.points])
        values = [(weight, value) for weight, _, value in metric.points]
        charts.append(_histogram(values, _bins(metric, bounds), _own_scale(metric), metric.noun))
    return charts


def _own_scale(metric: MetricSummary) -> str:
    """Say what the metric's own scale is: "value (−1 to 1, higher is better)"."""
    bounds = "open" if metric.range is None else " to ".join(_short(bound) for bound in metric.range)
    return f"value ({bounds}, {metric.direction} is better)"


# --- the trend --------------------------------------------------------------------------------------------------


def _line(metric: MetricSummary, summary: ReportSummary) -> Chart:
    inside = range(0) if metric.stretch is None else range(metric.stretch.first, metric.stretch.last + 1)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [_middle(bucket) for bucket in metric.buckets],
        "y": [bucket.mean for bucket in metric.buckets],  # None is a gap, never a zero
        "connectgaps": False,
        "line": {"color": "$line", "width": 2},
        "marker": {"size": 6, "color": ["$bad" if at in inside else "$line" for at in range(len(metric.buckets))]},
        "text": [_told(bucket, summary) for bucket in metric.buckets],
        "hovertemplate": _HOVER,
    }


def _times(metric: MetricSummary, summary: ReportSummary) -> Chart:
    """Return few, level labels of time, short enough that a telephone shows each whole."""
    whole_ns = metric.buckets[-1].end_ns - metric.buckets[0].start_ns
    if whole_ns > _DAYS * 86_400 * _SECOND:
        shape = "%-d %b"
    elif summary.width_ns < _SECOND:
        shape = "%H:%M:%S.%1f"
    elif summary.width_ns < 60 * _SECOND:
        shape = "%H:%M:%S"
    else:
        shape = "%H:%M" if whole_ns < 86_400 * _SECOND else "%H:%M\n%-d %b"
    return {"tickformat": shape, "tickangle": 0, "nticks": 6 if len(shape) <= len("%H:%M") + 1 else 4}


def _told(bucket: Bucket, summary: ReportSummary) -> str:
    when = f"{clock(bucket.start_ns, summary)} to {clock(bucket.end_ns, summary)} UTC"
    interval = "" if bucket.low is None else f"<br>95 % interval {figure(bucket.low)} to {figure(bucket.high)}"
    mean = "no score" if bucket.mean is None else f"mean {figure(bucket.mean)} of {bucket.scores:,} scores"
    return "<br>".join(filter(None, [when, mean + interval, outcome_words(bucket.outcomes)]))


def _band(buckets: Sequence[Bucket]) -> Chart:
    """Return the intervals as one shape per run of buckets that have one; a lone bucket is a box as wide as itself."""
    xs: list[str | None] = []
    ys: list[float | None] = []
    for run in _runs(buckets):
        there = [_at(run[0].start_ns), *(_middle(bucket) for bucket in run), _at(run[-1].end_ns)]
        high = [run[0].high, *(bucket.high for bucket in run), run[-1].high]
        low = [run[0].low, *(bucket.low for bucket in run), run[-1].low]
        xs += [*there, *reversed(there), None]
        ys += [*high, *reversed(low), None]
    return {
        "type": "scatter", "mode": "lines", "x": xs, "y": ys, "fill": "toself", "fillcolor": "$band",
        "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip


def _runs(buckets: Sequence[Bucket]) -> list[list[Bucket]]:
    runs: list[list[Bucket]] = [[]]
    for bucket in buckets:
        if bucket.low is not None:
            runs[-1].append(bucket)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _counts(metric: MetricSummary, summary: ReportSummary) -> list[Chart]:
    """Return bars of how many units were scored, how many had nothing to score, and how many scores were lost."""
    heights = {
        "$count": [bucket.scores for bucket in metric.buckets],
        "$absent": [bucket.nothing_to_score for bucket in metric.buckets],
        "$lost": [bucket.lost for bucket in metric.buckets],
    }
    x, told = [_middle(bucket) for bucket in metric.buckets], [_told(bucket, summary) for bucket in metric.buckets]
    return [_bars(x, height, colour, told, yaxis="y2") for colour, height in heights.items() if any(height)]


def _bars(x: Sequence[Any], y: Sequence[float], colour: str, told: Sequence[str], **given: Any) -> Chart:
    return {
        "type": "bar", "x": x, "y": y, "marker": {"color": colour}, "text": told, "textposition": "none",
        "hovertemplate": _HOVER, **given,
    }  # fmt: skip


def _gaps(buckets: Sequence[Bucket]) -> list[Chart]:
    """Return a shade over every bucket in which units ended without any score."""
    return [
        _box(bucket.start_ns, bucket.end_ns, "$gap", _MEANS_DOMAIN)
        for bucket in buckets
        if not bucket.scores and bucket.outcomes
    ]


def _stretch(metric: MetricSummary) -> tuple[list[Chart], list[Chart]]:
    """Return the shapes of the bad stretch and of the two levels it is about, and the levels' figures."""
    stretch = metric.stretch
    if stretch is None:
        return [], []
    begin, end = metric.buckets[stretch.first].start_ns, metric.buckets[stretch.last].end_ns
    whole = _at(metric.buckets[0].start_ns), _at(metric.buckets[-1].end_ns)
    shapes = [
        _box(begin, end, "$alarm", [0.0, 1.0]),
        _dotted(whole, [stretch.usual] * 2, "$muted"),
        _dotted((_at(begin), _at(end)), [stretch.inside] * 2, "$bad"),
    ]
    at_the_end = stretch.last == len(metric.buckets) - 1  # no room to its right
    beside = {"xanchor": "right", "xshift": -5} if at_the_end else {"xanchor": "left", "xshift": 5}
    inside = _note(_at(begin if at_the_end else end), stretch.inside, f"<b>{figure(stretch.inside)}</b>", "$bad")
    outside = _note(_at((begin + end) // 2), stretch.usual, figure(stretch.usual), "$muted")
    return shapes, [{**outside, "yshift": 9}, {**inside, **beside}]


def _note(x: str, y: float, text: str, colour: str) -> Chart:
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": {"color": colour, "size": 13}}


def _box(begin_ns: int, end_ns: int, colour: str, height: Sequence[float]) -> Chart:
    shape = {"type": "rect", "layer": "below", "line": {"width": 0}, "fillcolor": colour}
    return {**shape, **_place((_at(begin_ns), _at(end_ns)), height, "paper")}


def _dotted(x: Sequence[Any], y: Sequence[float], colour: str, yref: str = "y") -> Chart:
    return {"type": "line", "line": {"color": colour, "width": 1.5, "dash": "dot"}, **_place(x, y, yref)}


def _place(x: Sequence[Any], y: Sequence[float], yref: str) -> Chart:
    return {"xref": "x", "x0": x[0], "x1": x[1], "yref": yref, "y0": y[0], "y1": y[1]}


# --- histograms -------------------------------------------------------------------------------------------------


def _histogram(
    pairs: Sequence[tuple[float, float]], bins: Sequence[tuple[float, float, str]], title: str, noun: str
) -> Chart:
    weights, values = np.array(pairs).T
    # What rounding or another revision put outside counts at the ends.
    inside = np.searchsorted([low for low, *_ in bins[1:]], values + _HAIR, side="right")
    counts = np.bincount(inside, minlength=len(bins))
    shares = 100 * np.bincount(inside, weights, len(bins)) / weights.sum()
    told = [f"{name}: {share:.1f} % of {noun}s ({scored:,} scored)"
            for (_, _, name), share, scored in zip(bins, shares, counts, strict=True)]  # fmt: skip
    middles, widths = [(low + high) / 2 for low, high, _ in bins], [0.9 * (high - low) for low, high, _ in bins]
    return {
        "data": [_bars(middles, shares.tolist(), "$line", told, width=widths)],
        "layout": {
            **_layout(_HISTOGRAM_PX),
            "xaxis": _axis(title=_titled(title), range=[bins[0][0], bins[-1][1]], showgrid=False, **_ticks(bins)),
            "yaxis": _axis(title=_titled(f"{noun}s, %"), rangemode="tozero", nticks=4),
        },
    }  # fmt: skip


def _with_thresholds(chart: Chart, metric: MetricSummary) -> Chart:
    """Draw from where a score passes, and say it above; pass/fail metrics have nothing between."""
    words = threshold(metric.kind, metric.pass_at)
    if not words:
        return chart
    layout = chart["layout"]
    margin = {**layout["margin"], "t": _WORDS_MARGIN_PX}
    lines = [_dotted([at, at], [0, 1], "$muted", "paper") for at in metric.pass_at]
    return {**chart, "layout": {**layout, "margin": margin, "shapes": lines,
                                "annotations": [_above(metric.pass_at[-1], words)]}}  # fmt: skip


def _above(x: float, words: str) -> Chart:
    """Return words above a line, no part of them beyond the chart."""
    side = "left" if x < _EDGE else "right" if x > 1 - _EDGE else "center"
    return {
        "x": x, "xanchor": side, "y": 1, "yref": "paper", "yanchor": "bottom", "text": words, "showarrow": False,
        "font": {"color": "$muted", "size": 12},
    }  # fmt: skip


def _bins(metric: MetricSummary, bounds: tuple[float, float]) -> list[tuple[float, float, str]]:
    """Return (from, to, name) of each bin; a value on a border belongs to the bin above it."""
    low, high = bounds
    if metric.kind == "binary" and bounds == (0.0, 1.0):
        return [(-0.5, 0.5, "0"), (0.5, 1.5, "1")]
    steps = high - low
    if metric.kind == "ordinal" and bounds == metric.range and steps == int(steps) and steps < MAX_STEPS:
        return [(low + n - 0.5, low + n + 0.5, _short(low + n)) for n in range(int(steps) + 1)]
    width = (high - low) / BINS
    edges = [low + n * width for n in range(BINS + 1)]
    return [(a, b, f"{figure(a)} to {figure(b)}") for a, b in pairwise(edges)]


_HAIR = 1e-9
"""0.15 is not 3 × 0.05 in binary: a value a hair below a border is on it."""


def _ticks(bins: Sequence[tuple[float, float, str]]) -> Mapping[str, Any]:
    if len(bins) == BINS:
        return {}
    return {"tickvals": [(low + high) / 2 for low, high, _ in bins], "ticktext": [name for _, _, name in bins]}


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


# --- what both share --------------------------------------------------------------------------------------------


def _layout(height: int, right: int = 10) -> Chart:
    return {
        "height": height,
        "margin": {"l": 52, "r": right, "t": 8, "b": 40},
        "showlegend": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "$font", "size": 12, "color": "$text"},
        "hoverlabel": {"bgcolor": "$card", "bordercolor": "$muted", "font": {"color": "$text"}, "align": "left"},
    }


def _axis(**given: Any) -> Chart:
    own = {"gridcolor": "$grid", "linecolor": "$grid", "zeroline": False, "fixedrange": True, "automargin": False}
    return {**own, **given}


def _titled(text: str) -> Chart:
    return {"text": text, "font": {"size": 12, "color": "$muted"}, "standoff": 6}


def _at(time_ns: int) -> str:
    """Return a time as plotly reads it: without a zone, and so as it stands; all times of the page are UTC."""
    return datetime.fromtimestamp(time_ns / _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _middle(bucket: Bucket) -> str:
    return _at((bucket.start_ns + bucket.end_ns) // 2)


def _short(number: float) -> str:
    return f"{number:g}".replace("-", "−")
