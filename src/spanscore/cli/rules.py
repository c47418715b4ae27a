"""``spanscore rules``: writes the Prometheus, Alertmanager and Grafana files that monitor a configuration's scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from spanscore.cli._config_report import valid
from spanscore.cli._plan import Volume, drops_in
from spanscore.config.monitoring import Monitoring
from spanscore.config.tree import Configuration
from spanscore.core.printable import TextTable
from spanscore.core.terminal import Terminal
from spanscore.errors import NotReadyError, writing
from spanscore.monitoring import promql
from spanscore.monitoring.drops import DropPlan
from spanscore.monitoring.rules import RULES, operator_files, rule_files
from spanscore.monitoring.rules import folder as asset_folder
from spanscore.protocols import Metric

_HOW_TO_GET_A_BASELINE = (
    "no baseline, so no drop is watched. After a week of normal traffic, run `spanscore baseline` to measure the normal mean, "
    "or read the mean on the dashboard 'spanscore: overview', and write alerts: {{{name}: {{baseline: <that mean>}}}}"
)
_FALSE_ALARMS = (
    "a continuous metric with a baseline below 0.5: false alarms may be more frequent than false_alarm_every"
)
_NO_QUALITY = "an open scale, so the mean is not watched; give the metric the parameter range, if it has one"
_NO_SHARE = (
    "categories without a quality, so no mean is watched; name the bad ones in bad, or write alerts: {{{name}: {{share_of: \
{category}, max: 0.1}}}}"
)
_COLUMNS = {
    "drop": "min_drop, the smallest drop that matters",
    "z": "standard errors below the tolerated mean (baseline minus a quarter of the drop), computed from false_alarm_every; "
    "here of the window with the highest value",
    "to alert": "minimum for a window to alert",
    "scores": "effective scores in a window. With one sampling rate this is their number; it is lower if sampling rules take "
    "some units more often. A continuous metric needs fewer than shown to detect half of the drops",
    "requests": "units of the application in a window that yield these scores, at the metric's rate without rules",
    "inner units": "spans of an entry of units.also, below recorded roots, that yield these scores at the entry's rate",
}
"""Words of the table of drops → their meaning, printed below the table."""
_UNITS = frozenset({"requests", "inner units"})
"""Words of which the table may lack one."""
_DEFAULT_URL = Monitoring.model_fields["dashboard_url"].default


class RulesFormat(StrEnum):
    """Forms of the written files."""

    PROMETHEUS = "prometheus"
    OPERATOR = "operator"


def rules(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration of the scorer, a YAML file.")],
    out: Annotated[Path, typer.Option(help="The folder to write to; files of the same names are replaced.")] = Path(
        "monitoring"
    ),
    form: Annotated[
        RulesFormat,
        typer.Option("--format", help="prometheus: files to load; operator: objects of a Kubernetes cluster."),
    ] = RulesFormat.PROMETHEUS,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="KEY=VALUE", help="With operator: a label for every object. Repeat for more labels."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files and the alert plan as JSON.")] = False,
) -> None:
    """Write the monitoring of a configuration's scores: Prometheus rules and tests, an Alertmanager route, Grafana dashboards.

    In the configuration, [bold]alerts: {faithfulness: {baseline: 0.85, min_drop: 0.1, false_alarm_every: 30d,
    threshold: 0.7}}[/bold] states which drop of a metric alerts. [bold]monitoring: {dashboard_url: …, trace_url: …}[/bold]
    has the links of an alert, and the windows, dimensions and interval. No judge is called.

    Next, add prometheus/spanscore.rules.yml to rule_files of prometheus.yml, and grafana/ to Grafana's provisioning;
    alertmanager.yml is an example to copy from. To test the files first: [bold]promtool check rules[/bold] and [bold]promtool
    test rules[/bold] on prometheus/, [bold]amtool check-config[/bold] on Alertmanager's file.

    With [bold]--format operator[/bold], apply the files with [bold]kubectl apply --server-side -f operator/[/bold]: a
    PrometheusRule, a PodMonitor of pods with the label spanscore/scrape=true and the port spanscore, and dashboards as
    ConfigMaps. Add [bold]--label release=prometheus[/bold] if your Prometheus selects objects by a label.
    """
    report = valid(config)
    if report.unmade:
        lacking = f"{', '.join(report.unmade)} cannot be made here, and the rules need each metric:"
        raise NotReadyError("\n".join([lacking, *report.missing]))
    settings, metrics, judge_check = report.settings, report.metrics, report.settings.judge_check
    prometheus_files = rule_files(settings.alerts, metrics, settings.monitoring, judge_check, settings.units.also)
    files = _choose_files(prometheus_files, form, labels or [])
    for name, text in files.items():
        with writing(out / name):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
    plans, volumes = drops_in(report)
    notes = _notes(settings, metrics, plans)
    if as_json:
        typer.echo(json.dumps(_as_json([str(out / name) for name in files], plans, volumes, settings, notes), indent=2))
        return
    console = Terminal(highlight=False, markup=False)
    if plans:
        units = {volume.units for volume in volumes.values()}
        columns = [(name, meaning) for name, meaning in _COLUMNS.items() if name not in _UNITS - units]
        console.print(_table(plans, volumes, settings), _build_list(columns), "")
    console.print(_build_list(("–", note) for note in _merge_notes(notes, metrics)))
    console.print(f"\nwritten to {out}:", soft_wrap=True)
    for name in files:
        console.print(f"  {name}", soft_wrap=True)


def _choose_files(prometheus_files: dict[str, str], form: RulesFormat, labels: Sequence[str]) -> dict[str, str]:
    folder = asset_folder("grafana") / "dashboards"
    dashboards = {f"grafana/dashboards/{file.name}": file.read_text("utf-8") for file in sorted(folder.glob("*.json"))}
    if form is RulesFormat.OPERATOR:
        return operator_files(prometheus_files[RULES], dashboards, dict(map(_parse_label, labels)))
    if labels:
        raise typer.BadParameter("only objects of a cluster have labels; add --format operator", param_hint="--label")
    return prometheus_files | dashboards


def _parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not a label; write for example release=prometheus", param_hint="--label")
    return key, value


def _notes(settings: Configuration, metrics: Sequence[Metric], plans: Sequence[DropPlan]) -> list[str]:
    watched = {plan.watched.subject for plan in plans}
    notes = [f"{plan.watched.subject}: {_FALSE_ALARMS}" for plan in plans if not plan.is_rate_proven]
    shares = {name for name, alert in settings.alerts.items() if alert.share_of}
    unwatched = (metric for metric in metrics if metric.name not in watched | shares)
    notes += (f"{metric.name}: {_how_to_watch(metric)}" for metric in unwatched)
    if settings.monitoring.dashboard_url == _DEFAULT_URL:
        notes.append("monitoring.dashboard_url is the default: alerts link to localhost:3000; set it to your Grafana's")
    if settings.monitoring.trace_url is None:
        notes.append("monitoring.trace_url is not set: alerts link to no traces")
    return notes


def _how_to_watch(metric: Metric) -> str:
    if metric.scale.has_quality:
        return _HOW_TO_GET_A_BASELINE.format(name=metric.name)
    if metric.scale.categories:
        return _NO_SHARE.format(name=metric.name, category=metric.scale.categories[0])
    return _NO_QUALITY


def _merge_notes(notes: Sequence[str], metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield the notes. The metrics without a baseline share one note, on how to get it."""
    without_baseline = {
        f"{metric.name}: {_HOW_TO_GET_A_BASELINE.format(name=metric.name)}": metric.name for metric in metrics
    }
    names = [without_baseline[note] for note in notes if note in without_baseline]
    if names:
        how, _, line = _HOW_TO_GET_A_BASELINE.format(name=names[0]).partition("alerts: ")
        yield f"{', '.join(names)}: {how.rstrip()}\nalerts: {line}"
    yield from (note for note in notes if note not in without_baseline)


def _build_list(lines: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and texts; a long text is wrapped in its column."""
    table = Table.grid(padding=(0, 1))
    for name, text in lines:
        table.add_row(Text(name), Text(text))
    return table


def _table(plans: Sequence[DropPlan], volumes: Mapping[str, Volume], settings: Configuration) -> TextTable:
    windows = ", ".join(map(promql.duration, settings.monitoring.windows))
    rows = []
    for plan in plans:
        volume = volumes[plan.watched.subject]
        to_alert = _format_needed(volume.min_scores, volume.min_requests, volume.units)
        to_detect = _format_needed(volume.scores_to_see, volume.requests_to_see, volume.units)
        drop = f"{plan.watched.settings.least_change:g}"
        baseline = plan.baseline.short if plan.baseline.is_recorded else f"{plan.stated_baseline:g}"
        rows.append((plan.watched.name, baseline, drop, f"{plan.z:.2f}", to_alert, to_detect))
    headers = ("metric", "baseline", "drop", "z", "to alert", "to detect the drop")
    return TextTable(headers, rows, title=f"drops, watched over {windows}")


def _format_needed(scores: int | None, requests: int | None, units: str) -> str:
    if scores is None:
        return "never: it varies\nby as much"
    return f"{scores:,} scores\n" + ("never: rate 0" if requests is None else f"{requests:,} {units}")


def _as_json(
    files: Sequence[str],
    plans: Sequence[DropPlan],
    volumes: Mapping[str, Volume],
    settings: Configuration,
    notes: Sequence[str],
) -> dict[str, Any]:
    return {
        "files": files,
        "windows": [promql.duration(window) for window in settings.monitoring.windows],
        "drops": [
            {
                "metric": plan.watched.subject,
                "share_of": plan.watched.settings.share_of,
                "baseline": plan.baseline.short if plan.baseline.is_recorded else plan.stated_baseline,
                "min_drop": plan.watched.settings.least_change,
                "false_alarm_every_s": plan.watched.settings.false_alarm_every,
                "z": plan.z,
                "null": plan.null,
                **asdict(volumes[plan.watched.subject]),
                "rate_holds": plan.is_rate_proven,
            }
            for plan in plans
        ],
        "notes": notes,
    }
