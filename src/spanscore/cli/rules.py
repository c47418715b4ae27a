"""``spanscore rules``: a configuration → what an operator loads into Prometheus, Alertmanager and Grafana."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from spanscore.errors import ConfigurationError
from spanscore.judges import judge
from spanscore.metrics import create
from spanscore.monitoring import assets, promql
from spanscore.monitoring.alerts import Plan, plans_of
from spanscore.monitoring.rules import rule_files
from spanscore.protocols import Metric
from spanscore.settings import Settings

__all__ = ["rules"]

_HOW_TO_GET_A_BASELINE = (
    "no baseline, so no drop is watched. Let it run for a week of normal traffic, read the mean and its interval on the "
    "dashboard 'spanscore: overview', and write alerts: {{{name}: {{baseline: <that mean>}}}}"
)
_FALSE_ALARMS = (
    "a continuous metric with a baseline below 0.5: false alarms may be more frequent than false_alarm_every says"
)
_NO_QUALITY = "an open scale, so no mean is watched; give the metric range="


def rules(
    config: Annotated[Path, typer.Argument(help="The scorer's configuration, a YAML file.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The folder to write to; files of the same names are replaced.")] = Path(
        "monitoring"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written and planned as JSON.")] = False,
) -> None:
    """Write alert rules, their unit tests, a route and dashboards for a configuration.

    [bold]alerts: {faithfulness: {baseline: 0.85, min_drop: 0.1, false_alarm_every: 30d, threshold: 0.7}}[/bold] says when a
    metric is worth a page; [bold]monitoring:[/bold] holds windows, segments, interval and links. No judge is asked.

    Then: promtool check rules and promtool test rules on the files in prometheus/, amtool check-config on Alertmanager's.
    """
    settings = Settings.read(config)
    metrics = _metrics(settings)
    written = [
        _write(out / path, text) for path, text in rule_files(settings.alerts, metrics, settings.monitoring).items()
    ]
    written += _dashboards(out / "grafana" / "dashboards")
    plans = plans_of(settings.alerts, metrics, settings.monitoring)
    notes = _notes(settings, metrics, plans)
    if as_json:
        typer.echo(json.dumps(_as_json(written, plans, settings, notes), indent=2))
        return
    console = Console()
    if plans:
        console.print(_table(plans, settings))
    for note in notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    for path in written:
        console.print(str(path), highlight=False, markup=False, soft_wrap=True)


def _metrics(settings: Settings) -> list[Metric]:
    """Return the metrics, judged by nobody: what is asked of them is their name and their scale."""
    nobody: dict[str, Any] = {"judge": judge("lexical"), "embeddings": "lexical"}
    named = [{entry: None} if isinstance(entry, str) else entry for entry in settings.metrics]
    return [create(name, **nobody, **(given or {})) for entry in named for name, given in entry.items()]


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _dashboards(to: Path) -> list[Path]:
    found = sorted((assets.folder("grafana") / "dashboards").glob("*.json"))
    return [_write(to / dashboard.name, dashboard.read_text(encoding="utf-8")) for dashboard in found]


def _notes(settings: Settings, metrics: Sequence[Metric], plans: Sequence[Plan]) -> list[str]:
    watched = {plan.metric for plan in plans}
    notes = [f"{plan.metric}: {_FALSE_ALARMS}" for plan in plans if not plan.holds]
    for metric in metrics:
        if metric.scale.range is None:
            notes.append(f"{metric.name}: {_NO_QUALITY}")
        elif metric.name not in watched:
            notes.append(f"{metric.name}: {_HOW_TO_GET_A_BASELINE.format(name=metric.name)}")
    return notes


def _table(plans: Sequence[Plan], settings: Settings) -> Table:
    windows = ", ".join(map(promql.duration, settings.monitoring.windows))
    table = Table(title=f"drops, watched over {windows}", title_justify="left")
    for title in ("metric", "baseline", "min drop", "z", "scores needed", "to see min drop"):
        table.add_column(title, justify="left" if title == "metric" else "right")
    for plan in plans:
        one = plan.settings
        seen = f"{plan.to_see:,.0f}" if isfinite(plan.to_see) else "never"
        table.add_row(plan.metric, f"{one.baseline:g}", f"{one.min_drop:g}", f"{plan.z:.2f}", str(plan.least), seen)
    table.caption = "effective scores in a window; a continuous metric needs fewer to see a drop than is said here"
    return table


def _as_json(
    written: Sequence[Path], plans: Sequence[Plan], settings: Settings, notes: Sequence[str]
) -> dict[str, Any]:
    return {
        "files": [str(path) for path in written],
        "windows": [promql.duration(window) for window in settings.monitoring.windows],
        "drops": [
            {
                "metric": plan.metric,
                "baseline": plan.settings.baseline,
                "min_drop": plan.settings.min_drop,
                "false_alarm_every_s": plan.settings.false_alarm_every,
                "z": plan.z,
                "null": plan.null,
                "min_scores": plan.least,
                "scores_to_see_min_drop": plan.to_see,
                "rate_holds": plan.holds,
            }
            for plan in plans
        ],
        "notes": list(notes),
    }
