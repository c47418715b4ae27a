"""The result of scoring a data set: the rows, their file, and summaries per metric."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from itertools import repeat
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Self, TextIO, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from spanscore.core.codecs.text import json_in, wire_value
from spanscore.core.files import whole_file
from spanscore.core.printable import format_count, format_usd, printable
from spanscore.core.score import Label, Outcome, Scale, Score, ScoreValue, known_sum
from spanscore.errors import ConfigurationError, writing
from spanscore.monitoring.estimates import category_shares, format_shares, mean_interval
from spanscore.stored.dataset import WIDEST_CELL, BadRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric on one sample.

    Attributes:
        line: line of the sample in its file, or its place, from 1.
        id: id of the sample in its record; None if it has no id.
        key: 32 hex digits, equal for equal sample, metric version, judge model and votes. Repeated equal samples get different
            keys. A later run finds paid rows by their keys.
        metric: name of the metric.
        version: version of the metric.
        evaluator_version: metric version, judge model and votes; empty in a file of an earlier release.
        made_by: hash of the judge's address and parameters and of the user's own code (``hash_setup``), which are not in the
            evaluator version; empty for a built-in metric without a judge, and in a file of an earlier release.
        outcome: outcome of the evaluation.
        value: value on the metric's own scale, a word of a categorical one; None unless ``outcome`` is ``scored``.
        quality: [0, 1], 1 is good; None for a scale without quality.
        label: ``pass`` or ``fail``; None without a quality.
        reason: detail of an outcome other than ``scored``, without content.
        explanation: the judge's words or the counts behind the value; may quote the sample.
        error_type: name of the error; None = there was no error.
        judge_model: model of the judge; None = the metric has no judge.
        source: ``fallback`` if a fallback judge was used; otherwise None.
        judge_calls: number of calls of the judge.
        cached_calls: number of these calls that were answered from a cache, and so are no independent draws.
        input_tokens: tokens that the judge read.
        output_tokens: tokens that the judge wrote.
        cost_usd: price in US dollars; None = no price is known.
        duration_s: duration in seconds.
    """

    line: int
    id: str | int | None = None
    key: str
    metric: str
    version: str
    evaluator_version: str = ""
    made_by: str = ""
    outcome: Outcome
    value: Annotated[ScoreValue | None, Field(union_mode="left_to_right")] = None
    quality: float | None = None
    label: Label | None = None
    reason: str | None = None
    explanation: str | None = None
    error_type: str | None = None
    judge_model: str | None = None
    source: str | None = None
    judge_calls: int = 0
    cached_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    duration_s: float = 0.0

    @classmethod
    def of(cls, score: Score, *, line: int, key: str, own_id: str | int | None = None, made_by: str = "") -> Self:
        """Return the row of a score."""
        usage = score.usage
        return cls(
            line=line,
            id=own_id,
            key=key,
            metric=score.metric,
            version=score.version,
            evaluator_version=score.evaluator_version,
            made_by=made_by,
            outcome=score.outcome,
            value=score.value,
            quality=score.quality,
            label=score.label,
            reason=score.reason,
            explanation=score.explanation,
            error_type=score.error_type,
            judge_model=score.judge_model,
            source=score.source,
            judge_calls=len(usage.calls),
            cached_calls=usage.cached_calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            duration_s=round(usage.duration_s, 6),
        )

    @property
    def settled(self) -> bool:
        """Whether a later run takes the row over; False after a failure or a shutdown, or for a score of a fallback judge."""
        return not self.outcome.failed and self.outcome is not Outcome.SHUTDOWN and self.source is None


COLUMNS = tuple(field.name for field in fields(Row))
_ROW = TypeAdapter(Row)


def row_key(content: str, occurrence: int, metric: str, evaluator_version: str) -> str:
    """Return the key of a row; ``content``: hash of the sample, ``occurrence``: number of equal samples before it."""
    text = f"{content}/{occurrence}/{metric}/{evaluator_version}"
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


class _Lines:
    """Rows as JSON lines."""

    def read(self, stream: TextIO) -> Iterator[Mapping[str, Any] | None]:
        for line in stream:
            try:
                record = json_in(line)
            except ValueError:
                record = None
            yield record if isinstance(record, dict) else None

    def writer(self, stream: TextIO, *, opening: bool) -> Callable[[Row], object]:
        return lambda row: stream.write(json.dumps(asdict(row), allow_nan=False) + "\n")


class _Cells:
    """Rows as CSV."""

    def read(self, stream: TextIO) -> Iterator[Mapping[str, Any] | None]:
        csv.field_size_limit(WIDEST_CELL)
        for row in csv.DictReader(stream):
            yield {name: cell or None for name, cell in row.items() if name}

    def writer(self, stream: TextIO, *, opening: bool) -> Callable[[Row], object]:
        cells = csv.DictWriter(stream, COLUMNS)
        if opening:
            cells.writeheader()

        return lambda row: cells.writerow({name: wire_value(value) for name, value in asdict(row).items()})


def _format(path: Path, ending: str | None = None) -> _Lines | _Cells:
    ending = ending or path.suffix.lower()
    if ending == ".csv":
        return _Cells()
    if ending in (".jsonl", ".ndjson"):
        return _Lines()
    raise ConfigurationError(f"{path}: results are written as .jsonl or .csv")


def write_rows(path: str | Path, rows: Iterable[Row], *, ending: str | None = None) -> None:
    """Write rows as JSON lines or CSV to a file that only its owner may read; an existing file is replaced at the end.

    ``ending`` is ``.jsonl`` or ``.csv``; None = that of the file.

    Raises:
        ConfigurationError: the file has another ending, or cannot be written.
    """
    file = Path(path)
    form = _format(file, ending)
    with writing(path), whole_file(file, mode=0o600) as stream:
        write = form.writer(stream, opening=True)
        for row in rows:
            write(row)


class RowFile:
    """The file of a run's rows. Rows are written as soon as they are ready, so that they survive a killed process.

    Args:
        path: a ``.jsonl`` or ``.csv`` file. Rows in the file are kept, unless ``fresh``.
        fresh: whether rows of an earlier run are dropped.

    Raises:
        ConfigurationError: the file has another ending, contains other lines than rows, or cannot be written.
    """

    def __init__(self, path: str | Path, *, fresh: bool = False) -> None:
        self.path = Path(path)
        self._form = _format(self.path)
        self._earlier = {} if fresh else {row.key: row for row in read_rows(self.path)}
        write_rows(self.path, self._earlier.values())  # drops an incomplete line, and shows that the file is writable
        self._stream = self.path.open("a", encoding="utf-8", newline="")
        self._write = self._form.writer(self._stream, opening=False)

    def find_settled(self, key: str, made_by: str) -> Row | None:
        """Return the row of an earlier run; None if it is missing, it failed, or another judge or code made it."""
        row = self._earlier.get(key)
        return row if row is not None and row.settled and row.made_by == made_by else None

    def add(self, row: Row) -> None:
        """Append a row and flush the file.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        with writing(self.path):
            self._write(row)
            self._stream.flush()

    def close(self, rows: Iterable[Row]) -> int:
        """Write the run's rows in order, then earlier rows of other samples, metrics or versions; return how many these are."""
        self._stream.close()
        own = list(rows)
        keys = {row.key for row in own}
        others = [row for key, row in self._earlier.items() if key not in keys]
        write_rows(self.path, [*own, *others])
        return len(others)


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a ``.jsonl`` or ``.csv`` file; a missing file has none.

    Raises:
        ConfigurationError: the file has another ending, or contains other lines than rows.
    """
    form = _format(path)
    if not path.exists():
        return
    unreadable = read = 0
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for record in form.read(stream):
                row = None if record is None else _row(record)
                read, unreadable = read + (row is not None), unreadable + (row is None)
                if row is not None:
                    yield row
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if unreadable > 1 or (unreadable and not read):  # a killed run may leave one incomplete line
        raise ConfigurationError(f"{path} holds other lines than rows that spanscore has written; name another file")


def _row(record: Mapping[str, Any]) -> Row | None:
    """Return the row of a line or of cells; None if it is another record, or incomplete."""
    if record.get(COLUMNS[-1]) is None:  # each written row has the last column, so the line was cut off
        return None
    try:
        return _ROW.validate_python({name: value for name, value in record.items() if value is not None})
    except ValidationError:
        return None


T = TypeVar("T")

_NAMED = 5
"""Maximum number of bad lines that are printed one by one."""
_WIDEST_NAME = 22
"""Characters of a metric's name on one line of the table."""
_LOWER = "↓: a lower mean is better; quality and its 95 % interval are 1 for the best value."
_REASONS = 3
"""Different reasons of one outcome that are printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One metric over a data set, by the configured judge; rows of a fallback judge are counted separately.

    Attributes:
        metric: name of the metric.
        rows: number of rows.
        scored: number of rows with a value.
        mean: mean value on the metric's own scale; None = there is no value.
        quality: mean quality, [0, 1], 1 is good; None = there is no value, or the scale is open.
        low: lower end of the 95 % interval of ``quality``; None without ``quality``.
        high: upper end of the interval; None without ``quality``.
        passed: share of ``pass`` among the rows with a label, [0, 1]; None = there is no label.
        direction: ``higher`` or ``lower``, the better end of the metric's own scale.
        shares: category → share of the values and both ends of its 95 % interval, [0, 1]; empty for other kinds of scale.
        outcomes: outcome → number of rows.
        failed: number of rows with a failed evaluation; no mean includes these rows.
        fallback: number of rows of a fallback judge; of the other numbers only tokens and cost include them.
        input_tokens: tokens that the judges read.
        output_tokens: tokens that the judges wrote.
        cost_usd: price in US dollars of the rows with a known price; None = no price is known.
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
    shares: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    fallback: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The rows of a scored data set, in the order of samples and metrics; ``print`` it for a table.

    Attributes:
        rows: one row per sample and metric that was reached.
        samples: number of samples that were reached.
        bad: records that are not samples.
        taken_over: number of rows of an earlier run, which were not paid for again.
        interrupted: whether samples are missing because the run was stopped.
        scales: metric → scale of its values, for all metrics.
        notes: remarks on the numbers, a sentence each.
    """

    rows: Sequence[Row]
    samples: int = 0
    bad: Sequence[BadRecord] = ()
    taken_over: int = 0
    interrupted: bool = False
    scales: Mapping[str, Scale] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric's values, on its own scale; None if there is no value, or if it is a category.

        Raises:
            KeyError: the metric was not scored.
        """
        return self.summary(metric).mean

    def summary(self, metric: str) -> Summary:
        """Return the summary of one metric.

        Raises:
            KeyError: the metric was not scored.
        """
        if metric not in self.scales:
            raise KeyError(f"{metric!r} was not scored; the metrics are {', '.join(self.scales)}")
        rows = [row for row in self.rows if row.metric == metric]
        own = [row for row in rows if row.source is None]
        return _summarize(metric, rows, own, self.scales[metric])

    def summaries(self) -> list[Summary]:
        """Return the summary of each metric."""
        return [self.summary(metric) for metric in self.scales]

    def to_jsonl(self, path: str | Path) -> None:
        """Write the rows as JSON lines, for any file ending."""
        write_rows(path, self.rows, ending=".jsonl")

    def to_csv(self, path: str | Path) -> None:
        """Write the rows as CSV, for any file ending."""
        write_rows(path, self.rows, ending=".csv")

    def as_json(self) -> dict[str, Any]:
        """Return the summaries and counts as JSON types, for another program."""
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
        """Return the table with lines on reasons, bad records and price below it."""
        from rich.console import Group
        from rich.text import Text

        return Group(self._table(), *(Text(printable(line)) for line in self._lines()))

    def _table(self) -> Any:
        from rich.table import Table

        summaries = self.summaries()
        has_quality = any(_format_number(summary.mean) != _format_number(summary.quality) for summary in summaries)
        table = Table(title=format_count(self.samples, "sample"), title_justify="left")
        table.add_column("metric", overflow="fold")
        for title in ("mean", *(("quality",) if has_quality else ()), "95 %", "passed", "scored"):
            table.add_column(title, justify="right", no_wrap=True)
        for summary in summaries:
            table.add_row(*_cells(summary, has_quality=has_quality))
        return table

    def _lines(self) -> list[str]:
        summaries = self.summaries()
        lines = [_LOWER] if any(summary.direction == "lower" for summary in summaries) else []
        lines += self.notes
        lines += [f"{summary.metric}: {format_shares(summary.shares)}" for summary in summaries if summary.shares]
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
        """Return lines with the frequent reasons of each outcome, the number of other reasons, and the rows of a fallback."""
        metric, lines = summary.metric, []
        for outcome, rows in summary.outcomes.items():
            reasons = Counter(
                row.reason
                for row in self.rows
                if (row.metric, row.outcome.value, row.source) == (metric, outcome, None) and row.reason
            ).most_common(_REASONS)
            lines += [f"{metric}: {outcome} ×{times}: {reason}" for reason, times in reasons]
            rest = rows - sum(times for _, times in reasons)
            if rest and outcome != Outcome.SCORED.value:
                lines.append(f"{metric}: {outcome} ×{rest}" + (", for other reasons" if reasons else ""))
        if summary.fallback:
            lines.append(f"{metric}: {format_count(summary.fallback, 'row')} judged by a fallback, in no mean.")
        return lines

    def _price(self) -> list[str]:
        tokens = sum(row.input_tokens for row in self.rows), sum(row.output_tokens for row in self.rows)
        calls = sum(row.judge_calls for row in self.rows)
        if not calls:
            return []
        cost_usd = known_sum(row.cost_usd for row in self.rows)
        price = ("" if cost_usd is None else f", {format_usd(cost_usd)} USD") + (", in all" if self.taken_over else "")
        cached = sum(row.cached_calls for row in self.rows)
        text = format_count(calls, "judge call") + (f", {cached:,} of them answered before" if cached else "")
        return [f"{text}: {tokens[0]:,} tokens sent, {tokens[1]:,} received{price}."]


def _summarize(metric: str, rows: Sequence[Row], own: Sequence[Row], scale: Scale) -> Summary:
    """Return the summary of a metric; ``own``: rows of the configured judge."""
    values: list[ScoreValue] = _without_none(row.value for row in own)
    labels = _without_none(row.label for row in own)
    qualities = zip(_without_none(row.quality for row in own), repeat(1.0), strict=False)  # every sample was chosen
    quality, low, high = mean_interval(qualities) or (None, None, None)
    return Summary(
        metric=metric,
        rows=len(own),
        scored=len(values),
        mean=_mean(values),
        quality=quality,
        low=low,
        high=high,
        passed=labels.count("pass") / len(labels) if labels else None,
        direction=scale.direction,
        shares=_shares(values, scale),
        outcomes=dict(Counter(row.outcome.value for row in own)),
        failed=sum(row.outcome.failed for row in own),
        fallback=len(rows) - len(own),
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        cost_usd=known_sum(row.cost_usd for row in rows),
    )


def _mean(values: Iterable[ScoreValue]) -> float | None:
    numbers = [value for value in values if not isinstance(value, str)]
    return fmean(numbers) if numbers else None


def _shares(values: Iterable[ScoreValue], scale: Scale) -> dict[str, tuple[float, float, float]]:
    """Return category → share and its interval. Each sample was chosen, so the probability of each is 1."""
    return dict(category_shares(((value, 1.0) for value in values if isinstance(value, str)), scale.categories))


def _without_none(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _cells(summary: Summary, *, has_quality: bool) -> list[str]:
    ends = "–" if summary.low is None or summary.high is None else f"{summary.low:.2f}…{summary.high:.2f}"
    arrow = "" if summary.direction == "higher" else " ↓"
    return [
        _break_name(summary.metric) + arrow,
        _format_number(summary.mean),
        *([_format_number(summary.quality)] if has_quality else []),
        ends,
        "–" if summary.passed is None else f"{100 * summary.passed:.0f} %",
        f"{summary.scored} of {summary.rows}",
    ]


def _break_name(name: str) -> str:
    """Break a long name after underscores, because a table of 80 columns would cut it anywhere."""
    lines = [""]
    for part in name.split("_"):
        lines[-1:] = [lines[-1], part] if len(lines[-1]) + len(part) > _WIDEST_NAME else [lines[-1] + part]
        lines[-1] += "_"
    return "\n".join(filter(None, lines)).removesuffix("_")


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
