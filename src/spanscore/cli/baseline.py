"""``spanscore baseline``: learns the normal mean of each hour of the week from scores in Prometheus, and tests it."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track
from rich.text import Text

from spanscore import semconv
from spanscore.cli._options import OnlyJob, OnlyMetrics
from spanscore.core.printable import TextTable, parse_duration
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, writing
from spanscore.monitoring import promql
from spanscore.monitoring.baselines import (
    DAY_S,
    LEAST_DAYS,
    LearnedBaseline,
    TooShortError,
    learn_baseline,
    profiles_text,
)
from spanscore.monitoring.estimates import Moments
from spanscore.monitoring.prometheus_api import PrometheusApi, ScoredEvaluator, scored_days
from spanscore.monitoring.promql import label

_HOUR_S = 3_600


def baseline(
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Address of the Prometheus server, such as http://localhost:9090.")
    ],
    since: Annotated[str, typer.Option(help="How far back: at least 7d; weeks are compared from 14d on.")] = "28d",
    metric: OnlyMetrics = None,
    evaluator_version: Annotated[
        str | None,
        typer.Option(
            help="Only this evaluator version (spanscore_evaluator_version). Default: the latest version of each metric."
        ),
    ] = None,
    job: OnlyJob = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("baseline.yaml"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the learned baselines as JSON.")] = False,
) -> None:
    """Learn the normal mean of each hour of the week from scores in Prometheus: a baseline for traffic that varies.

    [bold]false_alarm_every[/bold] holds for independent scores around a constant mean. If the mean varies with the day or the
    week, use the file that this command writes as the baseline: [bold]alerts: {faithfulness: {baseline: {hour_of_week:
    baseline.yaml}}}[/bold]. The file does not change by itself: run the command again after an intended change. Units of an
    entry of [bold]units.also[/bold] have a baseline of their own, for the entry's alerts.

    The mean of each hour is shrunk towards the mean of its hour of the day, and towards the overall mean, depending on its
    noise. The printed figures come from comparing each week (with less than 14 d each day) with the profile of the others.
    The figures are the share of variance that the profile explains, whether the residuals are autocorrelated, and the
    baseline SD. The baseline SD is how far the mean varies by itself; its square is added to the squared standard error of
    a window.
    """
    where = {"job": job, label(semconv.EVALUATOR_VERSION): evaluator_version}
    history = _read_history(
        PrometheusApi(prometheus), _parse_days(since), {name: value for name, value in where.items() if value}
    )
    baselines, too_short = _learn_baselines(_select_latest(history, metric or []))
    if not baselines:
        raise ConfigurationError("\n".join(too_short) or f"{prometheus} has no such scores in the last {since}")
    with writing(out):
        out.write_text(
            profiles_text({evaluator.subject: baseline for evaluator, baseline in baselines.items()}), encoding="utf-8"
        )
    notes = [
        *too_short,
        *(line for evaluator, baseline in baselines.items() for line in _notes(evaluator.subject, baseline)),
    ]
    if as_json:
        typer.echo(json.dumps(_as_json(baselines, notes, out), indent=2))
        return
    console = Terminal(highlight=False, markup=False)
    console.print(_table(baselines))
    for line in notes:
        console.print(Text(f"– {line}"))
    console.print(Text(f"\nwritten to {out}; for the configuration:"), soft_wrap=True)
    for line in _alert_lines(baselines, out):
        console.print(Text(line), soft_wrap=True)


def _parse_days(since: str) -> int:
    try:
        days = ceil(parse_duration(since) / DAY_S)
    except ValueError as error:
        raise ConfigurationError(f"--since: {error}") from None
    if days < LEAST_DAYS:
        raise ConfigurationError(f"--since {since}: a baseline for each hour of the week needs at least {LEAST_DAYS}d")
    return days


def _read_history(api: PrometheusApi, days: int, where: Mapping[str, str]) -> dict[ScoredEvaluator, dict[int, Moments]]:
    """Return evaluator → its scores in the series with these labels: start of a step, Unix s → sums."""
    history: defaultdict[ScoredEvaluator, dict[int, Moments]] = defaultdict(dict)
    read = scored_days(api, end_s=time.time(), days=days, where=where)
    notes = Terminal(stderr=True)
    for day in track(read, f"{days} days of scores", total=days, console=notes, transient=True):
        for evaluator, steps in day.items():
            history[evaluator].update(steps)
    return {evaluator: steps for evaluator, steps in sorted(history.items()) if steps}


def _select_latest(
    history: Mapping[ScoredEvaluator, dict[int, Moments]], metrics: Sequence[str]
) -> dict[ScoredEvaluator, dict[int, Moments]]:
    """Return the scores of the latest evaluator version of each metric in ``metrics``, of roots and of each entry of
    ``units.also``; empty = all metrics.
    """
    names = {evaluator.metric for evaluator in history}
    unknown = [name for name in metrics if name not in names]
    if unknown and names:
        raise ConfigurationError(
            f"--metric {unknown[0]}: no scores of this metric; there are scores of {', '.join(sorted(names))}"
        )
    latest: dict[str, ScoredEvaluator] = {}
    for evaluator, steps in history.items():
        other = latest.get(evaluator.subject)
        if other is None or max(steps) > max(history[other]):
            latest[evaluator.subject] = evaluator
    return {evaluator: history[evaluator] for evaluator in latest.values() if evaluator.metric in (metrics or names)}


def _learn_baselines(
    history: Mapping[ScoredEvaluator, dict[int, Moments]],
) -> tuple[dict[ScoredEvaluator, LearnedBaseline], list[str]]:
    """Return the baseline of each evaluator, and a line for each evaluator whose scores cover too short a time."""
    baselines, too_short = {}, []
    for evaluator, steps in history.items():
        try:
            baselines[evaluator] = learn_baseline(steps)
        except TooShortError as error:
            too_short.append(f"{evaluator.subject} ({evaluator.evaluator_version}): {error}")
    return baselines, too_short


def _table(baselines: Mapping[ScoredEvaluator, LearnedBaseline]) -> TextTable:
    headers = ("metric", "evaluator_version", "days", "scores", "mean", "hours", "explained", "autocorrelation")
    rows = [
        (
            evaluator.subject,
            evaluator.evaluator_version,
            str(baseline.days),
            f"{baseline.scores:,.0f}",
            f"{baseline.mean:.4f}",
            f"{min(baseline.hours):.3f} to {max(baseline.hours):.3f}",
            "nothing to" if baseline.explained is None else f"{max(0.0, baseline.explained):.0%}",
            f"{baseline.autocorrelation:.2f} ± {baseline.autocorrelation_error:.2f}",
            ", ".join(_format_sd(baseline, length) for length in (_HOUR_S, DAY_S)),
        )
        for evaluator, baseline in baselines.items()
    ]
    return TextTable((*headers, "baseline SD of 1h, 1d"), rows)


def _format_sd(baseline: LearnedBaseline, length: int) -> str:
    return f"{baseline.baseline_sd[length]:.4f}" if length in baseline.baseline_sd else "?"


def _notes(metric: str, baseline: LearnedBaseline) -> Iterator[str]:
    if baseline.explained is None or baseline.explained <= 0:
        flat = f"a baseline of {baseline.mean:.4f} with this baseline SD does as well"
        yield f"{metric}: the hours do not differ beyond chance, so {flat}"
    if baseline.is_autocorrelated:
        yield (
            f"{metric}: the residuals of the profile are autocorrelated: the mean drifts for hours, by about "
            f"{_format_sd(baseline, _HOUR_S)}. "
            "The baseline SD keeps false alarms at the configured rate; a drop below z times this SD is not detected"
        )
    if baseline.min_scores is not None:
        yield (
            f"{metric}: {baseline.design_effect:.0f} scores carry the information of one, as equal answers come in bursts: "
            "without the file's design effect and min_scores as below, false alarms are far more frequent than configured"
        )
    if _HOUR_S not in baseline.baseline_sd:
        yield f"{metric}: no hour has enough scores for a baseline SD; the rate or the traffic is too low"


def _format_alert(baseline: LearnedBaseline, out: Path) -> str:
    fewest = "" if baseline.min_scores is None else f", min_scores: {baseline.min_scores}"
    return f"{{baseline: {{hour_of_week: {out}}}{fewest}}}"


def _alert_lines(baselines: Mapping[ScoredEvaluator, LearnedBaseline], out: Path) -> Iterator[str]:
    """Yield the lines for the configuration: the alerts of roots, and those of each entry of ``units.also``."""
    for inner in dict.fromkeys(evaluator.inner for evaluator in baselines):
        yield f"units.also ({inner}): alerts:" if inner else "alerts:"
        own = (evaluator for evaluator in baselines if evaluator.inner == inner)
        yield from (f"  {evaluator.metric}: {_format_alert(baselines[evaluator], out)}" for evaluator in own)


def _as_json(baselines: Mapping[ScoredEvaluator, LearnedBaseline], notes: Sequence[str], out: Path) -> dict[str, Any]:
    return {
        "file": str(out),
        "baselines": [
            {
                **evaluator._asdict(),
                **asdict(baseline),
                "baseline_sd": {promql.duration(length): value for length, value in baseline.baseline_sd.items()},
                "is_autocorrelated": baseline.is_autocorrelated,
                "alert": _format_alert(baseline, out),
            }
            for evaluator, baseline in baselines.items()
        ],
        "notes": notes,
    }
