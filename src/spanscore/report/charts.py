"""Draws the charts of a metric as SVG, without a script: a trend with its interval, shares of categories, and histograms.

A chart is markup in which every text is escaped. It fills the width of its container: horizontal positions are percentages,
heights are pixels, and text keeps its size. Colours and margins are in the page's style sheet, so that charts follow the dark
mode and the printer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import chain, pairwise
from math import ceil, floor, log10
from typing import Final

import numpy as np

from spanscore.core.printable import printable_lines
from spanscore.core.score import PASS_FAIL
from spanscore.report.findings import clock, figure, outcome_words, threshold
from spanscore.report.summaries import Bucket, MetricSummary, ReportSummary, percent

BINS: Final = 20
MAX_STEPS: Final = 12
"""Grades up to which an ordinal scale has one bar each; with more grades it is drawn in bins."""
_S: Final = 1_000_000_000
_DAY: Final = 86_400 * _S
_QUALITY: Final = "quality (1 = good)"
_MEANS_PX, _COUNTS_PX, _TREND_PX, _HISTOGRAM_PX = 204, 46, 272, 174
"""Heights of the means, of the counts below the means, of means and counts with the space between, and of a histogram."""
_SHARES_PX: Final = 204
MOST_COLOURS: Final = 8
OTHERS: Final = "the others"
"""Name of the categories beyond ``MOST_COLOURS``; no category has a blank."""
_NARROW_PX: Final = 240
"""Width of a trend on a telephone."""
_CHARACTER_PX: Final = 7
_DAYS: Final = 3
_EDGE: Final = 0.3
"""Share of a histogram's width in which words would not fit on both sides of a line."""
_STEPS_S: Final = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 5, 10, 30, 90, 365)),
)
"""Seconds between two labels of time."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """A linear map from values to positions between two ends."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin), 2)


def trend(metric: MetricSummary, summary: ReportSummary) -> str | None:
    """Return the means of a metric over time; None if no row of it has a time."""
    buckets = metric.buckets
    if not any(bucket.scores or bucket.outcomes for bucket in buckets):
        return None
    x = _Axis(buckets[0].start_ns, buckets[-1].end_ns, 0, 100)
    y, ticks = _mean_axis(metric)
    most = max(1, *(bucket.scores + bucket.nothing_to_score + bucket.lost for bucket in buckets))
    count = _Axis(0, most, _TREND_PX, _TREND_PX - _COUNTS_PX)
    parts = [
        *_grid(y, ticks, _QUALITY if metric.on_quality else "value"),
        *_grid(count, _ticks(0, most, min(2, most)), "count" if metric.of_conversations else "units"),
        *_time_labels(metric, summary, x),
        *(_column(x, bucket, "gap", 0, _MEANS_PX) for bucket in buckets if not bucket.scores and bucket.outcomes),
        *_shade_stretch(metric, x),
        *chain.from_iterable(_count_bars(bucket, x, count) for bucket in buckets),
        _interval_and_mean(buckets, y),
        *_levels_of_stretch(metric, x, y),
        *_mean_points(metric, x, y),
        *(_column(x, bucket, "hover", 0, _TREND_PX, _describe_bucket(bucket, summary)) for bucket in buckets),
    ]
    return _svg(_TREND_PX, parts)


def shares(metric: MetricSummary, summary: ReportSummary) -> str | None:
    """Return the shares of a metric's categories over time, stacked; None without categories or times."""
    buckets = [bucket for bucket in metric.buckets if bucket.shares]
    if not buckets:
        return None
    x = _Axis(metric.buckets[0].start_ns, metric.buckets[-1].end_ns, 0, 100)
    y = _Axis(0, 1, _SHARES_PX, 0)
    drawn = drawn_categories(metric)
    parts = [
        *_grid(y, (0, 0.25, 0.5, 0.75, 1), f"share of {metric.noun}s"),
        *_time_labels(metric, summary, x, _SHARES_PX),
    ]
    for bucket in buckets:
        below = 0.0
        for place, word in enumerate(drawn):
            share = bucket.shares.get(word, 0.0)
            if word == OTHERS:
                share = sum(share for own, share in bucket.shares.items() if own not in drawn)
            parts.append(
                _column(x, bucket, f"category c{place}", y(below + share), y(below) - y(below + share), share=0.9)
            )
            below += share
        parts.append(_column(x, bucket, "hover", 0, _SHARES_PX, _describe_shares(bucket, summary)))
    return _svg(_SHARES_PX, parts)


def drawn_categories(metric: MetricSummary) -> list[str]:
    """Return the categories with a colour of their own; the smallest ones beyond eight share ``OTHERS``."""
    if len(metric.shares) <= MOST_COLOURS:
        return [*metric.shares]
    largest = sorted(metric.shares, key=lambda word: -metric.shares[word].mean)[: MOST_COLOURS - 1]
    return [*(word for word in metric.shares if word in largest), OTHERS]


def _describe_shares(bucket: Bucket, summary: ReportSummary) -> str:
    when = f"{clock(bucket.start_ns, summary)} to {clock(bucket.end_ns, summary)} UTC, {bucket.scores:,} scores"
    largest = sorted(bucket.shares.items(), key=lambda share: -share[1])
    return "\n".join([when, *(f"{word} {percent(share)}" for word, share in largest)])


def histograms(metric: MetricSummary) -> dict[str, str]:
    """Return scale → chart of the distribution: on quality, and on the metric's own scale if that is another scale."""
    charts = dict[str, str]()
    if not metric.points:
        return charts
    if metric.on_quality:
        pairs = [(weight, quality) for weight, quality, _ in metric.points]
        charts[_QUALITY] = _histogram(pairs, _bins(metric, (0.0, 1.0)), _QUALITY, metric, passes=True)
    if not metric.on_quality or metric.range != (0.0, 1.0) or metric.direction == "lower":
        bounds = metric.range or _bounds([value for _, _, value in metric.points])
        pairs = [(weight, value) for weight, _, value in metric.points]
        charts[_own_scale(metric)] = _histogram(pairs, _bins(metric, bounds), _own_scale(metric), metric)
    return charts


def _own_scale(metric: MetricSummary) -> str:
    """Return the metric's own scale in words: "value (−1 to 1, higher is better)"."""
    bounds = "open" if metric.range is None else " to ".join(_format_number(bound) for bound in metric.range)
    return f"value ({bounds}, {metric.direction} is better)"


# --- the trend --------------------------------------------------------------------------------------------------


def _mean_axis(metric: MetricSummary) -> tuple[_Axis, Sequence[float]]:
    if metric.on_quality:
        return _Axis(-0.02, 1.02, _MEANS_PX, 0), (0, 0.25, 0.5, 0.75, 1)
    levels = (level for bucket in metric.buckets for level in (bucket.mean, bucket.low, bucket.high))
    low, high = _bounds([level for level in levels if level is not None] or [0.0])
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)  # an open scale has a margin of 5 %
    return _Axis(low, high, _MEANS_PX, 0), _ticks(low, high, 5)


def _time_labels(metric: MetricSummary, summary: ReportSummary, x: _Axis, height: int = _TREND_PX) -> Iterator[str]:
    """Yield a few labels of the time axis, short enough for a telephone."""
    begin, end = metric.buckets[0].start_ns, metric.buckets[-1].end_ns
    form = _time_format(end - begin, summary.width_ns)
    longest = max(len(line) for line in _format_time(begin, form).split("\n"))
    most = min(5, _NARROW_PX // (longest * _CHARACTER_PX + 10))
    for place in _round_times(begin, end, most):
        for row, words in enumerate(_format_time(place, form).split("\n")):
            yield _text(f"{x(place)}%", height + 18 + 14 * row, words, "tick xtick", "middle")


def _round_times(begin: int, end: int, most: int) -> Sequence[int]:
    """Return at most ``most`` round times between two; both ends if there are fewer than two."""
    for step in (int(seconds * _S) for seconds in _STEPS_S):
        places = range(-(-begin // step) * step, end + 1, step)
        if len(places) <= most:
            return places if len(places) > 1 else (begin, end)
    return begin, end


def _time_format(whole_ns: int, width_ns: int) -> str:
    """Return the ``strftime`` format of the time axis, by its length and the width of a bucket."""
    if whole_ns > _DAYS * _DAY:
        return "%-d %b"
    if width_ns < 60 * _S:
        return "%H:%M:%S" if width_ns >= _S else "%H:%M:%S.%f"
    return "%H:%M" if whole_ns < _DAY else "%H:%M\n%-d %b"


def _format_time(time_ns: int, form: str) -> str:
    words = datetime.fromtimestamp(time_ns / _S, UTC).strftime(form)
    return words[:-5] if form.endswith("%f") else words  # tenths of a second


def _describe_bucket(bucket: Bucket, summary: ReportSummary) -> str:
    when = f"{clock(bucket.start_ns, summary)} to {clock(bucket.end_ns, summary)} UTC"
    interval = "" if bucket.low is None else f"\n95 % interval {figure(bucket.low)} to {figure(bucket.high)}"
    mean = "no score" if bucket.mean is None else f"mean {figure(bucket.mean)} of {bucket.scores:,} scores"
    return "\n".join(filter(None, [when, mean + interval, outcome_words(bucket.outcomes)]))


def _interval_and_mean(buckets: Sequence[Bucket], y: _Axis) -> str:
    """Return the intervals, as a shape per run of buckets with an interval; and the means, with gaps at empty buckets."""
    x = _Axis(buckets[0].start_ns, buckets[-1].end_ns, 0, 1_000)
    bands, means = list[str](), list[str]()
    for run in _runs(buckets):
        across = [x(run[0].start_ns), *(x(_middle(bucket)) for bucket in run), x(run[-1].end_ns)]
        ends = [run[0], *run, run[-1]]
        top = [(at, y(interval.high)) for at, interval in zip(across, ends, strict=True) if interval.high is not None]
        bottom = [(at, y(interval.low)) for at, interval in zip(across, ends, strict=True) if interval.low is not None]
        bands.append(f"M{_path([*top, *reversed(bottom)])}Z")
    for before, bucket in pairwise([None, *buckets]):
        if bucket is not None and bucket.mean is not None:
            begins = before is None or before.mean is None
            means.append(f"{'M' if begins else 'L'}{x(_middle(bucket))} {y(bucket.mean)}")
    frame = f'viewBox="0 0 1000 {_TREND_PX}" preserveAspectRatio="none" width="100%" height="{_TREND_PX}"'
    return f'<svg {frame}><path class="band" d="{"".join(bands)}"/><path class="mean" d="{"".join(means)}"/></svg>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{at} {height}" for at, height in points)


def _runs(buckets: Sequence[Bucket]) -> list[list[Bucket]]:
    """Return the runs of neighbouring buckets with an interval."""
    runs: list[list[Bucket]] = [[]]
    for bucket in buckets:
        if bucket.low is not None:
            runs[-1].append(bucket)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _mean_points(metric: MetricSummary, x: _Axis, y: _Axis) -> Iterator[str]:
    inside = range(0) if metric.stretch is None else range(metric.stretch.first, metric.stretch.last + 1)
    for at, bucket in enumerate(metric.buckets):
        if bucket.mean is not None:
            kind = "point bad" if at in inside else "point"
            yield f'<circle class="{kind}" cx="{x(_middle(bucket))}%" cy="{y(bucket.mean)}" r="3"/>'


def _count_bars(bucket: Bucket, x: _Axis, count: _Axis) -> Iterator[str]:
    """Yield bars of the numbers of scored units, of units without anything to score, and of lost scores."""
    below = 0
    for kind, units in (("count", bucket.scores), ("absent", bucket.nothing_to_score), ("lost", bucket.lost)):
        if units:
            yield _column(x, bucket, kind, count(below + units), count(below) - count(below + units), share=0.85)
        below += units


def _shade_stretch(metric: MetricSummary, x: _Axis) -> Iterator[str]:
    if metric.stretch is not None:
        begin, end = metric.buckets[metric.stretch.first].start_ns, metric.buckets[metric.stretch.last].end_ns
        yield _rect(x(begin), 0, x(end) - x(begin), _TREND_PX, "alarm")


def _levels_of_stretch(metric: MetricSummary, x: _Axis, y: _Axis) -> Iterator[str]:
    """Yield the usual level and that of a bad stretch, with their figures."""
    stretch = metric.stretch
    if stretch is None:
        return
    begin, end = x(metric.buckets[stretch.first].start_ns), x(metric.buckets[stretch.last].end_ns)
    usual, inside = y(stretch.usual), y(stretch.inside)
    yield f'<line class="dotted" x2="100%" y1="{usual}" y2="{usual}"/>'
    yield f'<line class="dotted bad" x1="{begin}%" x2="{end}%" y1="{inside}" y2="{inside}"/>'
    yield _text(f"{(begin + end) / 2:.2f}%", usual - 5, figure(stretch.usual), "", "middle")
    at_the_end = stretch.last == len(metric.buckets) - 1  # a label to the right of the last bucket has no room
    place, anchor, aside = (begin, "end", -5) if at_the_end else (end, "start", 5)
    yield _text(f"{place}%", inside + 4, figure(stretch.inside), "bad", anchor, f' dx="{aside}"')


def _middle(bucket: Bucket) -> int:
    return (bucket.start_ns + bucket.end_ns) // 2


def _column(
    x: _Axis, bucket: Bucket, kind: str, top: float, height: float, title: str = "", *, share: float = 1.0
) -> str:
    width = share * (x(bucket.end_ns) - x(bucket.start_ns))
    return _rect(x(_middle(bucket)) - width / 2, top, width, height, kind, title)


# --- histograms -------------------------------------------------------------------------------------------------


def _histogram(
    pairs: Sequence[tuple[float, float]],
    bins: Sequence[tuple[float, float, str]],
    title: str,
    metric: MetricSummary,
    *,
    passes: bool = False,
) -> str:
    weights, values = np.array(pairs).T
    inside = np.searchsorted([low for low, *_ in bins[1:]], values + _HAIR, side="right")  # the rest counts at the ends
    shares = (100 * np.bincount(inside, weights, len(bins)) / weights.sum()).tolist()
    counts = np.bincount(inside, minlength=len(bins)).tolist()
    x = _Axis(bins[0][0], bins[-1][1], 0, 100)
    y = _Axis(0, max(shares), _HISTOGRAM_PX, 0)
    ticks = [(value, _format_number(value)) for value in _ticks(bins[0][0], bins[-1][1], 5)]
    if len(bins) != BINS:
        ticks = [((low + high) / 2, name) for low, high, name in bins]
    parts = [
        *_grid(y, _ticks(0, max(shares), 4), f"{metric.noun}s, %"),
        *(_text(f"{x(value)}%", _HISTOGRAM_PX + 18, name, "tick xtick", "middle") for value, name in ticks),
        _text("50%", _HISTOGRAM_PX + 36, title, "", "middle"),
    ]
    for (low, high, name), share, scored in zip(bins, shares, counts, strict=True):
        width = x(high) - x(low)
        tooltip = f"{name}: {share:.1f} % of {metric.noun}s ({scored:,} scored)"
        parts.append(_rect(x(low) + 0.05 * width, y(share), 0.9 * width, _HISTOGRAM_PX - y(share), "share"))
        parts.append(_rect(x(low), 0, width, _HISTOGRAM_PX, "hover", tooltip))
    return _svg(_HISTOGRAM_PX, [*parts, *(_threshold_lines(metric, x) if passes else ())])


def _threshold_lines(metric: MetricSummary, x: _Axis) -> Iterator[str]:
    """Yield a line at the lowest quality that passes, with words above it; pass/fail metrics have no such line."""
    words = threshold(metric.kind, metric.pass_at)
    if words:
        yield from (f'<line class="dotted" x1="{x(at)}%" x2="{x(at)}%" y2="{_HISTOGRAM_PX}"/>' for at in metric.pass_at)
        last = metric.pass_at[-1]
        yield _text(f"{x(last)}%", -5, words, "", "start" if last < _EDGE else "end" if last > 1 - _EDGE else "middle")


def _bins(metric: MetricSummary, bounds: tuple[float, float]) -> list[tuple[float, float, str]]:
    """Return (low, high, name) of each bin; a value on a border belongs to the bin above it."""
    low, high = bounds
    if metric.kind in PASS_FAIL and bounds == (0.0, 1.0):
        return [(-0.5, 0.5, "0"), (0.5, 1.5, "1")]
    steps = high - low
    if metric.kind == "ordinal" and bounds == metric.range and steps == int(steps) and steps < MAX_STEPS:
        return [(low + n - 0.5, low + n + 0.5, _format_number(low + n)) for n in range(int(steps) + 1)]
    width = (high - low) / BINS
    edges = [low + n * width for n in range(BINS + 1)]
    return [(a, b, f"{figure(a)} to {figure(b)}") for a, b in pairwise(edges)]


_HAIR: Final = 1e-9
"""Tolerance at a border, because 0.15 is not 3 × 0.05 in binary: a value that is slightly below a border is on it."""


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


# --- shared helpers ---------------------------------------------------------------------------------------------


def _grid(y: _Axis, ticks: Sequence[float], title: str) -> Iterator[str]:
    """Yield a horizontal line and its value for each tick, and the name of the scale next to them."""
    for tick in ticks:
        yield f'<line class="grid" x2="100%" y1="{y(tick)}" y2="{y(tick)}"/>'
        yield _text("0", y(tick) + 4, _format_number(tick), "tick", "end", ' dx="-7"')
    middle = round((y.begin + y.end) / 2)
    yield _text("0", 0, title, "", "middle", f' transform="translate(-40 {middle}) rotate(-90)"')


def _ticks(low: float, high: float, most: int) -> Sequence[float]:
    """Return round values between two, about ``most``."""
    rough = (high - low) / most
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - _HAIR))
    first, last = ceil(low / step - _HAIR), floor(high / step + _HAIR)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _svg(height: int, parts: Sequence[str]) -> str:
    return f'<svg class="plot" height="{height}" aria-hidden="true">{"".join(parts)}</svg>'


def _rect(x: float, y: float, width: float, height: float, kind: str, tooltip: str = "") -> str:
    """Return a bar with a tooltip; ``x`` and ``width`` are in per cent, ``y`` and ``height`` in pixels."""
    title = f"<title>{escape(printable_lines(tooltip))}</title>" if tooltip else ""
    place = f'x="{x:.2f}%" y="{y:.2f}" width="{width:.2f}%" height="{height:.2f}"'
    return f'<rect class="{kind}" {place}>{title}</rect>'


def _text(x: str, y: float, words: str, kind: str, anchor: str, more: str = "") -> str:
    css_class = f' class="{kind}"' if kind else ""
    return f'<text{css_class} x="{x}" y="{y:g}" text-anchor="{anchor}"{more}>{escape(printable_lines(words))}</text>'


def _format_number(number: float) -> str:
    return f"{number:g}".replace("-", "−")
