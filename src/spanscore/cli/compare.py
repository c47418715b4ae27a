"""``spanscore compare``: whether the second of two releases is worse than the first on live traffic."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import track

from spanscore import semconv
from spanscore.cli._config_report import valid
from spanscore.cli._options import OnlyJob, OnlyMetrics
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.codecs.text import safe_text
from spanscore.core.printable import TextTable, names_listed, parse_duration, printable
from spanscore.core.span import Unit
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError
from spanscore.monitoring.estimates import Moments, mean, moments
from spanscore.monitoring.prometheus_api import PrometheusApi, read_history
from spanscore.monitoring.releases import (
    LEAST_BLOCKS,
    ReleaseComparison,
    ReleasePair,
    ReleaseScores,
    ReleaseVerdict,
    Steps,
    compare_releases,
)
from spanscore.outputs.aggregates import UNKNOWN, ComparedValues
from spanscore.protocols import Metric
from spanscore.report.rows import ReportRow, by_metric, name_within
from spanscore.report.spans import Spans, lost_units
from spanscore.stored.trace_stores import time_of

_WORSE, _TOO_LITTLE = 1, 3
"""Exit codes: a metric is worse by more than the tolerance; no metric is, but a verdict is still undecided."""
_LOWEST_LEVEL: Final = 0.7


def compare(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The scorer's configuration, with 'compare'.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILES",
            help="In place of --prometheus: two files of spans as OTLP-JSON lines, or one file with --control and --candidate.",
        ),
    ] = None,
    *,
    prometheus: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Server with the sums (http://localhost:9090); needs --control and --candidate."
        ),
    ] = "",
    control: Annotated[str, typer.Option("--control", metavar="VALUE", help="The earlier release, such as 1.4.")] = "",
    candidate: Annotated[
        str, typer.Option("--candidate", metavar="VALUE", help="The release that may be worse, such as 1.5.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How far back: 6h, or a time, such as that of the release: 2026-07-01T12:00Z."
        ),
    ] = "1d",
    tolerance: Annotated[
        float, typer.Option(metavar="X", help="Tolerated decrease of the mean quality, 0 to 1.")
    ] = 0.0,
    level: Annotated[
        float, typer.Option(metavar="X", help="Confidence level of each interval, 0.7 to below 1.")
    ] = 0.95,
    metric: OnlyMetrics = None,
    job: OnlyJob = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two releases on live traffic: is the second release worse?

    [bold]spanscore compare spanscore.yaml --prometheus http://localhost:9090 --control 1.4 --candidate 1.5 --tolerance
    0.05[/bold]

    The result is the weighted difference within the hour, per metric. The interval holds at every look: run the command as
    often as you like. A verdict needs scores in ten quarters of an hour, of hours in which both releases have scores. Until
    then it is "not yet", with the time of the first verdict. In the configuration, [bold]compare: {by:
    service.version}[/bold] names the attribute that identifies a release.

    The exit code is 0 if no metric is worse by more than --tolerance, and 1 if a metric is. The exit code is 3 if a verdict
    is still open; the time that it needs at this traffic is then printed. Set a tolerance: with 0, an equally good release
    is never distinguished from a worse release.
    """
    files, named = files or [], (control, candidate)
    _refuse_options(tolerance, level)
    _refuse_sources(prometheus, files, *named)
    report = valid(config, judge=False, embeddings=False)
    by = "" if report.settings.compare is None else report.settings.compare.by
    metrics = _choose_metrics(report.metrics, metric or (), config)
    if prometheus:
        pair = _read_sums(prometheus, config, by, *named, since=since, job=job)
    else:
        pair = _read_spans(files, config, by, *named)
    compares_judges = by == semconv.EVALUATOR_VERSION
    comparisons = [
        *compare_releases(metrics, pair, across_evaluator_versions=compares_judges, tolerance=tolerance, level=level)
    ]
    verdicts = {comparison.verdict for comparison in comparisons}
    exit_code = _TOO_LITTLE if ReleaseVerdict.UNDECIDED in verdicts else 0
    if ReleaseVerdict.WORSE in verdicts:
        exit_code = _WORSE
    if as_json:
        of_metrics = [comparison.as_json() for comparison in comparisons]
        typer.echo(json.dumps({"metrics": of_metrics, "notes": [*pair.notes], "exit_code": exit_code}, indent=2))
    else:
        terminal = Terminal(highlight=False, markup=False)
        terminal.print(_table(comparisons))
        for line in [*map(str, comparisons), *pair.notes]:
            terminal.print_line(f"– {line}")
    raise typer.Exit(exit_code)


def _refuse_options(tolerance: float, level: float) -> None:
    if not 0.0 <= tolerance <= 1.0:
        raise ConfigurationError(f"--tolerance is {tolerance:g}; it is a difference of qualities, from 0 to 1")
    if not _LOWEST_LEVEL <= level < 1.0:
        raise ConfigurationError(f"--level is {level:g}; allowed is {_LOWEST_LEVEL} to below 1, such as 0.95")


def _refuse_sources(prometheus: str, files: Sequence[str], control: str, candidate: str) -> None:
    if bool(prometheus) == bool(files):
        raise ConfigurationError(
            "give --prometheus URL, the server that has the sums, or files of spans: A.jsonl B.jsonl, or one with "
            "--control and --candidate"
        )
    named = bool(control) + bool(candidate)
    if named == 1 or (not named and prometheus):
        raise ConfigurationError("give --control and --candidate, the releases: --control 1.4 --candidate 1.5")
    if named and control == candidate:
        raise ConfigurationError(
            f"--control and --candidate are both {control!r}; a release is not compared with itself"
        )
    if files and not named and len(files) != 2:  # noqa: PLR2004
        raise ConfigurationError(
            "give two files, A.jsonl B.jsonl; or name the releases in one file with --control and --candidate"
        )


def _choose_metrics(made: Iterable[Metric], wanted: Sequence[str], config: Path) -> list[str]:
    """Return the wanted metrics that have a quality; ``wanted``: empty = all metrics."""
    scales = {metric.name: metric.scale for metric in made}
    for name in wanted:
        if name not in scales:
            raise ConfigurationError(
                f"--metric {name}: {config} has no metric of this name; it has {_list_names(scales)}"
            )
    names = [name for name in wanted or scales if scales[name].has_quality]
    if not names:
        raise ConfigurationError(
            "no metric has a quality to compare: give metrics with an open scale the parameter range, if they have it, and "
            "categories the words in bad"
        )
    return names


def _read_sums(
    prometheus: str, config: Path, by: str, control: str, candidate: str, *, since: str, job: str
) -> ReleasePair:
    """Read the sums of both releases from Prometheus; ``by``: empty = the configuration compares by no attribute."""
    if not by:
        raise ConfigurationError(
            f"{config} has no compare, so its sums combine all releases; write compare: {{by: service.version}}"
        )
    now_s = time.time()
    history = read_history(
        PrometheusApi(prometheus),
        begin_s=time_of(since, now_s),
        end_s=now_s,
        is_fixed=not _is_duration(since),
        where={"job": job} if job else {},
        progress=partial(track, description=f"sums since {since}", console=Terminal(stderr=True), transient=True),
    )
    if not history.values:
        raise ConfigurationError(
            f"{prometheus} has no sums by release since {since}: does the scorer run with compare: {{by: {by}}}, "
            "and is it scraped?"
        )
    if control not in history.values:
        raise ConfigurationError(
            f"--control {control}: no scores since {since}; there are scores of {_list_names(history.values)}"
        )
    pair = history.pair(control, candidate)
    if candidate in history.values:
        return pair
    return replace(pair, notes=(f"{candidate} has no scores yet; there are scores of {_list_names(history.values)}",))


def _read_spans(files: Sequence[str], config: Path, by: str, control: str, candidate: str) -> ReleasePair:
    """Read the scores of both releases from files of spans; ``control``: empty = each file has one release."""
    notes, read = Terminal(stderr=True), list[Spans]()
    for file in files:
        with stored_spans(file) as spans:
            progress = track(spans, f"spans of {printable(file)}", None, console=notes, transient=True)
            read.append(Spans.read(progress))
    if not control:
        names = [Path(file).stem for file in files]
        names = names if len({*names}) > 1 else [*files]
        a, b = (
            _release_scores(printable(name), _require_rows(spans.rows(), file))
            for name, spans, file in zip(names, read, files, strict=True)
        )
        return _release_pair(a, b)
    if not by:
        raise ConfigurationError(
            f"{config} has no compare; write compare: {{by: service.version}}. --control and --candidate are values "
            "of that attribute of the resource: OTEL_RESOURCE_ATTRIBUTES=service.version=1.4 for the first"
        )
    rows = [(spans, row) for spans in read for row in _require_rows(spans.rows(), ", ".join(files))]
    values = _rows_by_value(rows, by)
    for option, name in (("--control", control), ("--candidate", candidate)):
        if name not in values:
            raise ConfigurationError(
                f"{option} {name}: none of the {len(rows):,} evaluations has this {by}; there are {_list_names(values)}"
            )
    return _release_pair(*(_release_scores(name, values[name]) for name in (control, candidate)))


def _rows_by_value(rows: Iterable[tuple[Spans, ReportRow]], by: str) -> dict[str, list[ReportRow]]:
    """Return compared value → its rows. Each row comes with the spans of its file; ``by`` is as in ``Compare.by``."""
    values, by_value = ComparedValues(by, most=inf), dict[str, list[ReportRow]]()
    for spans, row in rows:
        value = (
            row.evaluator_version or UNKNOWN
            if by == semconv.EVALUATOR_VERSION
            else safe_text(values.of_unit(_unit_of(spans, row)))
        )
        by_value.setdefault(value, []).append(row)
    return by_value


def _release_scores(name: str, rows: Iterable[ReportRow]) -> ReleaseScores:
    """Return the scores of a release, per minute; rows without a time are left out.

    Rows without an evaluator version are grouped under the empty string.
    """
    of_metric = by_metric(rows)
    fallback = {metric: name_within(metric, semconv.SOURCE_FALLBACK) for metric in of_metric}
    own = of_metric.keys() - {*fallback.values()}  # a fallback's scores count as lost, because another judge made them
    return ReleaseScores(
        name,
        scored={metric: _by_evaluator_version(of_metric[metric]) for metric in own},
        lost={metric: _sum_lost(of_metric[metric], of_metric.get(fallback[metric], [])) for metric in own},
    )


def _release_pair(a: ReleaseScores, b: ReleaseScores) -> ReleasePair:
    """Return two releases with a common end, in seconds since the epoch: the end of the minute with the last score of both."""
    ends = [side.span_s[1] + 60 for side in (a, b) if side.span_s]
    return ReleasePair(a, b, max(ends, default=0))


def _by_evaluator_version(rows: Sequence[ReportRow]) -> dict[str, Steps]:
    by_evaluator_version: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for row in rows:
        if row.quality is not None and row.time_ns is not None:
            minutes = by_evaluator_version.setdefault(row.evaluator_version or "", {})
            probability = 1.0 / row.weight
            minutes.setdefault(_minute(row.time_ns), []).append((row.quality, probability))
    return {
        evaluator_version: {start: moments(values) for start, values in minutes.items()}
        for evaluator_version, minutes in by_evaluator_version.items()
    }


def _sum_lost(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> Steps:
    by_minute: dict[int, list[float]] = {}
    for row, probability in lost_units(rows, fallback):
        if row.time_ns is not None:
            by_minute.setdefault(_minute(row.time_ns), []).append(probability)
    return {start: moments((), values) for start, values in by_minute.items()}


def _minute(time_ns: int) -> int:
    """Return the start of a minute, in seconds since the epoch."""
    return time_ns // 60_000_000_000 * 60


def _unit_of(spans: Spans, row: ReportRow) -> Unit:
    """Return the unit of a row. If the file has only evaluation spans, the unit has their resource and model."""
    key, spans_of_unit = spans.unit(row.unit)
    if spans_of_unit:
        return Unit(key, spans_of_unit)
    evaluation = next(iter(spans.evaluations.get(key, {}).values()), None)
    if evaluation is None:
        return Unit(key, ())
    model = evaluation.attributes.get(semconv.SCORED_REQUEST_MODEL)
    attributes = {**evaluation.without_content().attributes, semconv.REQUEST_MODEL: model}
    return Unit(key, (replace(evaluation, span_id=key.span_id, attributes=attributes),))


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
    level = f"{first.level:.4g}, at every look"
    headers = ("metric", first.a.name, first.b.name, "difference", level, "excluded", "verdict")
    rows = [
        (
            printable(comparison.metric),
            _format_mean(comparison.sums.a),
            _format_mean(comparison.sums.b),
            *_format_difference(comparison),
            f"{comparison.a.excluded:.1%} and {comparison.b.excluded:.1%}",
            comparison.verdict.value,
        )
        for comparison in comparisons
    ]
    return TextTable(headers, rows)


def _format_mean(sums: Moments) -> str:
    return f"{mean(sums):.3f}" if sums.n else "–"


def _format_difference(comparison: ReleaseComparison) -> tuple[str, str]:
    value, low, high = comparison.difference
    blocks = comparison.sums.blocks
    interval = "not yet" if blocks < LEAST_BLOCKS else "too few scores"
    if isfinite(low):
        interval = f"{_format_signed(low)} to {_format_signed(high)}"
    return _format_signed(value) if blocks else "–", interval


def _format_signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")
