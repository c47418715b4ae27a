"""Result: what came of scoring a data set. ``print`` it for a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import repeat
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from spanscore.core.printable import format_count, printable
from spanscore.core.score import Outcome, Scale, known_sum
from spanscore.dataset.reading import Bad
from spanscore.dataset.rows import Row, write_rows
from spanscore.monitoring.estimates import mean_interval

__all__ = ["Result", "Summary"]

T = TypeVar("T")

_NAMED = 5
"""Bad lines that are printed one by one."""
_WIDEST_NAME = 22
"""Characters of a metric's name on one line of the table."""
_LOWER = "↓: a lower mean is better; quality and its 95 % interval are 1 where it is good."
_REASONS = 3
"""Different reasons of one outcome that are printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One metric over a data set, as the configured judge sees it: what a fallback judged is counted apart.

    Attributes:
        mean: of the values, on the metric's own scale; None where nothing was scored.
        quality: mean quality, 0…1, 1 good; None where nothing was scored, or the scale is open.
        low: lower end of the 95 % interval of ``quality``.
        high: upper end.
        passed: share of the scored with label ``pass``, 0…1; None where there is no label.
        outcomes: outcome → rows; what was not scored is in no mean.
        fallback: rows that a fallback judged; in none of the other numbers, but tokens and cost.
        failed: rows whose evaluation failed; whatever they would have been, they are in no mean.
        cost_usd: of the rows with a known price; None where none is known.
    """

    metric: str
    rows: int
    scored: int
    mean: float | None = None
    quality: float | None = None
    low: float | None = None
    high: float | None = None
    passed: float | None = None
    direction: str = "higher"
    outcomes: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    fallback: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The rows of a scored data set, in the order of the samples and metrics.

    Attributes:
        rows: one per sample and metric that was come to.
        samples: how many were come to.
        bad: records that are not samples.
        taken_over: rows of an earlier run that were not paid for again.
        interrupted: whether samples are missing because it was stopped.
        scales: metric → the scale of its values; its keys are all the metrics.
        notes: what must be known of the numbers, a sentence each.
    """

    rows: Sequence[Row]
    samples: int = 0
    bad: Sequence[Bad] = ()
    taken_over: int = 0
    interrupted: bool = False
    scales: Mapping[str, Scale] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric's values, on its own scale; None where nothing was scored.

        Raises:
            KeyError: no such metric was asked for.
        """
        return self.summary(metric).mean

    def summary(self, metric: str) -> Summary:
        """Return what came of one metric.

        Raises:
            KeyError: no such metric was asked for.
        """
        if metric not in self.scales:
            raise KeyError(f"{metric!r} was not scored; the metrics are {', '.join(self.scales)}")
        rows = [row for row in self.rows if row.metric == metric]
        own = [row for row in rows if row.source is None]
        return replace(_summary(metric, own, self.scales[metric]), fallback=len(rows) - len(own), **_spent(rows))

    def summaries(self) -> list[Summary]:
        """Return what came of each metric."""
        return [self.summary(metric) for metric in self.scales]

    def to_jsonl(self, path: str | Path) -> None:
        """Write the rows as JSON lines, whatever the file's ending."""
        write_rows(path, self.rows, ending=".jsonl")

    def to_csv(self, path: str | Path) -> None:
        """Write the rows as CSV, whatever the file's ending."""
        write_rows(path, self.rows, ending=".csv")

    def as_json(self) -> dict[str, Any]:
        """Return the summaries and counts as plain values, for another program."""
        return {
            "samples": self.samples,
            "rows": len(self.rows),
            "taken_over": self.taken_over,
            "interrupted": self.interrupted,
            "notes": list(self.notes),
            "bad": [asdict(bad) for bad in self.bad],
            "metrics": {summary.metric: asdict(summary) for summary in self.summaries()},
        }

    def __str__(self) -> str:
        from spanscore.core.terminal import Terminal

        console = Terminal(width=110, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    def __rich__(self) -> Any:
        """Return the table, and below it what a mean alone would hide."""
        from rich.console import Group
        from rich.text import Text

        return Group(self._table(), *(Text(printable(line)) for line in self._lines()))

    def _table(self) -> Any:
        from rich.table import Table

        summaries = self.summaries()
        two = any(_digits(summary.mean) != _digits(summary.quality) for summary in summaries)
        table = Table(title=format_count(self.samples, "sample"), title_justify="left")
        table.add_column("metric", overflow="fold")
        for title in ("mean", *(("quality",) if two else ()), "95 %", "passed", "scored"):
            table.add_column(title, justify="right", no_wrap=True)
        for summary in summaries:
            table.add_row(*_cells(summary, two=two))
        return table

    def _lines(self) -> list[str]:
        summaries = self.summaries()
        lines = [_LOWER] if any(summary.direction == "lower" for summary in summaries) else []
        lines += self.notes
        lines += [line for summary in summaries for line in self._reasons(summary)]
        lines += [f"Not read, {bad}" for bad in self.bad[:_NAMED]]
        if len(self.bad) > _NAMED:
            lines.append(f"Not read: {len(self.bad) - _NAMED} more lines.")
        if self.taken_over:
            lines.append(f"{format_count(self.taken_over, 'row')} taken over from an earlier run, not paid for again.")
        if self.interrupted:
            lines.append(f"Interrupted after {format_count(self.samples, 'sample')}: the means are of these.")
        return [*lines, *self._price()]

    def _reasons(self, summary: Summary) -> list[str]:
        """Return how often each outcome came, by reason; the last line of an outcome is for all that the others do not tell.

        And how many rows are the configured judge's no more.
        """
        metric = summary.metric
        lines = []
        for outcome, rows in summary.outcomes.items():
            why = Counter(
                row.reason
                for row in self.rows
                if (row.metric, row.outcome.value, row.source) == (metric, outcome, None) and row.reason
            )
            told = why.most_common(_REASONS)
            lines += [f"{metric}: {outcome} ×{times}: {reason}" for reason, times in told]
            rest = rows - sum(times for _, times in told)
            if rest and outcome != Outcome.SCORED.value:
                lines.append(f"{metric}: {outcome} ×{rest}" + (", for other reasons" if told else ""))
        if summary.fallback:
            lines.append(f"{metric}: {format_count(summary.fallback, 'row')} judged by a fallback, in no mean.")
        return lines

    def _price(self) -> list[str]:
        tokens = sum(row.input_tokens for row in self.rows), sum(row.output_tokens for row in self.rows)
        calls = sum(row.judge_calls for row in self.rows)
        if not calls:
            return []
        cost_usd = known_sum(row.cost_usd for row in self.rows)
        price = ("" if cost_usd is None else f", {cost_usd:.4f} USD") + (", in all" if self.taken_over else "")
        cached = sum(row.cached_calls for row in self.rows)
        asked = format_count(calls, "judge call") + (f", {cached:,} of them answered before" if cached else "")
        return [f"{asked}: {tokens[0]:,} tokens sent, {tokens[1]:,} received{price}."]


def _summary(metric: str, rows: Sequence[Row], scale: Scale) -> Summary:
    values = _known(row.value for row in rows)
    labels = _known(row.label for row in rows)
    every = zip(_known(row.quality for row in rows), repeat(1.0), strict=False)  # all were taken
    quality, low, high = mean_interval(every) or (None, None, None)
    return Summary(
        metric=metric,
        rows=len(rows),
        scored=len(values),
        mean=fmean(values) if values else None,
        quality=quality,
        low=low,
        high=high,
        passed=labels.count("pass") / len(labels) if labels else None,
        direction=scale.direction,
        outcomes=dict(Counter(row.outcome.value for row in rows)),
        failed=sum(row.outcome.failed for row in rows),
    )


def _spent(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "input_tokens": sum(row.input_tokens for row in rows),
        "output_tokens": sum(row.output_tokens for row in rows),
        "cost_usd": known_sum(row.cost_usd for row in rows),
    }


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _cells(summary: Summary, *, two: bool) -> list[str]:
    ends = "–" if summary.low is None or summary.high is None else f"{summary.low:.2f}…{summary.high:.2f}"
    arrow = "" if summary.direction == "higher" else " ↓"
    return [
        _broken(summary.metric) + arrow,
        _digits(summary.mean),
        *([_digits(summary.quality)] if two else []),
        ends,
        "–" if summary.passed is None else f"{100 * summary.passed:.0f} %",
        f"{summary.scored} of {summary.rows}",
    ]


def _broken(name: str) -> str:
    """Return a long name over lines that end at an underscore: a table of 80 columns would cut it anywhere."""
    lines = [""]
    for part in name.split("_"):
        lines[-1:] = [lines[-1], part] if len(lines[-1]) + len(part) > _WIDEST_NAME else [lines[-1] + part]
        lines[-1] += "_"
    return "\n".join(filter(None, lines)).removesuffix("_")


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
