"""One run of ``spanscore compare``: reads the scores of two releases and prints a verdict for each metric."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Final

import typer
from rich.progress import track

from spanscore import semconv
from spanscore.cli._config_report import valid
from spanscore.config.monitoring import Compare
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.printable import TextTable, names_listed, parse_duration, printable
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError
from spanscore.monitoring.estimates import Moments, mean
from spanscore.monitoring.prometheus_api import PrometheusApi, ReleaseHistory, read_history
from spanscore.monitoring.releases import LEAST_BLOCKS, ReleaseComparison, ReleasePair, ReleaseVerdict, compared
from spanscore.protocols import Metric
from spanscore.report.releases import release_pair, release_scores, rows_by_value
from spanscore.report.rows import ReportRow
from spanscore.report.spans import Spans
from spanscore.stored.trace_stores import time_of

WORSE, TOO_LITTLE = 1, 3
"""Exit codes: a metric is worse than the tolerance allows; or no metric is worse, but a verdict is still undecided."""
_LOWEST_LEVEL: Final = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRun:
    """One run of ``spanscore compare``, with its options; an empty text is an option that was not given."""

    config: Path
    files: Sequence[str]
    prometheus: str
    control: str
    candidate: str
    since: str
    tolerance: float
    level: float
    metrics: Sequence[str]
    job: str
    as_json: bool

    def run(self) -> int:
        """Compare the releases and print the verdicts; return the exit code.

        Raises:
            SpanscoreError: an option or the configuration is wrong, or there are no scores to compare.
        """
        self._check()
        report = valid(self.config, judge=False, embeddings=False)
        section: Compare | None = report.settings.compare
        by = "" if section is None else section.by
        metrics = self._choose_metrics(report.metrics)
        pair = self._read_sums(by) if self.prometheus else self._read_spans(by)
        across = by == semconv.EVALUATOR_VERSION
        comparisons = list(
            compared(metrics, pair, across_evaluator_versions=across, tolerance=self.tolerance, level=self.level)
        )
        verdicts = {comparison.verdict for comparison in comparisons}
        exit_code = TOO_LITTLE if ReleaseVerdict.UNDECIDED in verdicts else 0
        if ReleaseVerdict.WORSE in verdicts:
            exit_code = WORSE
        if self.as_json:
            of_metrics = [comparison.as_json() for comparison in comparisons]
            typer.echo(json.dumps({"metrics": of_metrics, "notes": [*pair.notes], "exit_code": exit_code}, indent=2))
            return exit_code
        terminal = Terminal(highlight=False, markup=False)
        terminal.print(_table(comparisons))
        for line in [*map(str, comparisons), *pair.notes]:
            terminal.print_line(f"– {line}")
        return exit_code

    def _check(self) -> None:
        if not 0.0 <= self.tolerance <= 1.0:
            raise ConfigurationError(f"--tolerance is {self.tolerance:g}; it is a difference of qualities, from 0 to 1")
        if not _LOWEST_LEVEL <= self.level < 1.0:
            raise ConfigurationError(f"--level is {self.level:g}; allowed is {_LOWEST_LEVEL} to below 1, such as 0.95")
        if bool(self.prometheus) == bool(self.files):
            raise ConfigurationError(
                "give --prometheus URL, the server that has the sums, or files of spans: A.jsonl B.jsonl, or one with "
                "--control and --candidate"
            )
        named = bool(self.control) + bool(self.candidate)
        if named == 1 or (not named and self.prometheus):
            raise ConfigurationError("give --control and --candidate, the releases: --control 1.4 --candidate 1.5")
        if named and self.control == self.candidate:
            raise ConfigurationError(
                f"--control and --candidate are both {self.control!r}; a release is not compared with itself"
            )
        if self.files and not named and len(self.files) != 2:  # noqa: PLR2004
            raise ConfigurationError(
                "give two files, A.jsonl B.jsonl; or name the releases in one file with --control and --candidate"
            )

    def _choose_metrics(self, made: Iterable[Metric]) -> list[str]:
        """Return the chosen metrics that have a quality."""
        scales = {metric.name: metric.scale for metric in made}
        for name in self.metrics:
            if name not in scales:
                raise ConfigurationError(
                    f"--metric {name}: {self.config} has no metric of this name; it has {_list_names(scales)}"
                )
        names = [name for name in self.metrics or scales if scales[name].has_quality]
        if not names:
            raise ConfigurationError(
                "no metric has a quality to compare: give metrics with an open scale the parameter range, if they have it, and "
                "categories the words in bad"
            )
        return names

    def _read_sums(self, by: str) -> ReleasePair:
        """Read the sums of both releases from Prometheus."""
        if not by:
            raise ConfigurationError(
                f"{self.config} has no compare, so its sums combine all releases; write compare: {{by: service.version}}"
            )
        history = self._history()
        if not history.values:
            raise ConfigurationError(
                f"{self.prometheus} has no sums by release since {self.since}: does the scorer run with compare: {{by: {by}}}, "
                "and is it scraped?"
            )
        if self.control not in history.values:
            raise ConfigurationError(
                f"--control {self.control}: no scores since {self.since}; there are scores of {_list_names(history.values)}"
            )
        pair = history.pair(self.control, self.candidate)
        if self.candidate in history.values:
            return pair
        return replace(
            pair, notes=(f"{self.candidate} has no scores yet; there are scores of {_list_names(history.values)}",)
        )

    def _history(self) -> ReleaseHistory:
        now_s = time.time()
        notes = Terminal(stderr=True)
        return read_history(
            PrometheusApi(self.prometheus),
            begin_s=time_of(self.since, now_s),
            end_s=now_s,
            is_fixed=not _is_duration(self.since),
            where={"job": self.job} if self.job else {},
            progress=partial(track, description=f"sums since {self.since}", console=notes, transient=True),
        )

    def _read_spans(self, by: str) -> ReleasePair:
        """Read the scores of both releases from files of spans."""
        notes, read = Terminal(stderr=True), list[Spans]()
        for file in self.files:
            with stored_spans(file) as spans:
                shown = track(spans, f"spans of {printable(file)}", None, console=notes, transient=True)
                read.append(Spans.read(shown))
        if not self.control:
            names = [Path(file).stem for file in self.files]
            names = names if len({*names}) > 1 else [*self.files]
            a, b = (
                release_scores(printable(name), _require_rows(spans.rows(), file))
                for name, spans, file in zip(names, read, self.files, strict=True)
            )
            return release_pair(a, b)
        if not by:
            raise ConfigurationError(
                f"{self.config} has no compare; write compare: {{by: service.version}}. --control and --candidate are values "
                "of that attribute of the resource: OTEL_RESOURCE_ATTRIBUTES=service.version=1.4 for the first"
            )
        rows = [row for spans in read for row in _require_rows(spans.rows(), ", ".join(self.files))]
        values = rows_by_value(read, by)
        for option, name in (("--control", self.control), ("--candidate", self.candidate)):
            if name not in values:
                raise ConfigurationError(
                    f"{option} {name}: none of the {len(rows):,} evaluations has this {by}; there are {_list_names(values)}"
                )
        return release_pair(*(release_scores(name, values[name]) for name in (self.control, self.candidate)))


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except ValueError:
        return False
    return True


def _require_rows(rows: Sequence[ReportRow], where: str) -> Sequence[ReportRow]:
    if not rows:
        raise ConfigurationError(f"{printable(where)} holds no evaluations; give a file of scored spans")
    return rows


def _list_names(names: Collection[str]) -> str:
    return names_listed(names) or "none"


def _table(comparisons: Sequence[ReleaseComparison]) -> TextTable:
    first = comparisons[0]
    headers = (
        "metric",
        first.a.name,
        first.b.name,
        "difference",
        f"{first.level:.4g}, at every look",
        "excluded",
        "verdict",
    )
    rows = [
        (
            printable(comparison.metric),
            _mean(comparison.sums.a),
            _mean(comparison.sums.b),
            *_ends(comparison),
            f"{comparison.a.excluded:.1%} and {comparison.b.excluded:.1%}",
            comparison.verdict.value,
        )
        for comparison in comparisons
    ]
    return TextTable(headers, rows)


def _mean(of: Moments) -> str:
    return f"{mean(of):.3f}" if of.n else "–"


def _ends(of: ReleaseComparison) -> Iterator[str]:
    by, low, high = of.difference
    yield _format_signed(by) if of.sums.blocks else "–"
    if isfinite(low):
        yield f"{_format_signed(low)} to {_format_signed(high)}"
    else:
        yield "not yet" if of.sums.blocks < LEAST_BLOCKS else "too few scores"


def _format_signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")
