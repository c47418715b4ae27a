"""``spanscore check CONFIG``: what a configuration will do, and what is wrong with it, before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spanscore.cli._plan import AlertPlan, MetricPlan, Plan, plan_of
from spanscore.errors import ConfigurationError
from spanscore.settings import Settings

__all__ = ["check"]

_WRONG = 2
_KINDS = {"single_turn": "", "multi_turn": "of a conversation: "}
_HOUR_S = 3_600.0


def check(
    config: Annotated[Path, typer.Argument(help="A spanscore.yaml.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan, or the faults, as JSON.")] = False,
) -> None:
    """Read a configuration and say what will be scored, at which rate, by which judge, and from which fields of a trace.

    What cannot be is named with its key, the value and what is allowed, and the exit code is 2; else it is 0. No judge, no
    Collector is contacted. [bold]SPANSCORE_*[/bold] variables of the environment count, as they will for the scorer.
    """
    try:
        plan = plan_of(Settings.read(config))
    except ConfigurationError as error:
        if not as_json:
            raise
        typer.echo(json.dumps({"ok": False, "faults": str(error).splitlines()}, indent=2))
        raise typer.Exit(_WRONG) from None
    if as_json:
        typer.echo(json.dumps({"ok": not plan.faults, **asdict(plan)}, indent=2))
    else:
        _tell(plan, config)
    if plan.faults:
        raise typer.Exit(_WRONG)


def _tell(plan: Plan, config: Path) -> None:
    console = Console()
    console.print(_table(plan))
    for line in _lines(plan):
        console.print(Text(line))
    if not plan.faults:
        console.print(Text(f"{config} can be used."))
        return
    errors = Console(stderr=True)
    count = len(plan.faults)
    errors.print(Text(f"{config}: {count} wrong setting{'s' if count > 1 else ''}", style="red"))
    for fault in plan.faults:
        errors.print(Text(f"  {fault}"), soft_wrap=True)


def _table(plan: Plan) -> Table:
    table = Table("metric", "rate", "needs", title=f"judge: {plan.judge}", title_justify="left")
    for metric in plan.metrics:
        table.add_row(metric.name, _rate(metric), _needs(metric))
    return table


def _needs(metric: MetricPlan) -> str:
    kinds = [_KINDS[kind] + (", ".join(fields) or "any field") for kind, fields in metric.fields.items()]
    return "; ".join(kinds)


def _rate(metric: MetricPlan) -> str:
    return f"{metric.rate:g}" + (f" … {metric.highest:g}" if metric.highest > metric.rate else "")


def _lines(plan: Plan) -> Iterator[str]:
    kinds = [(kind, fields) for metric in plan.metrics for kind, fields in metric.fields.items()]
    found = {(kind, name): where for kind, fields in kinds for name, where in fields.items()}
    places = {f"{name}: {where}" for (_, name), where in found.items()}
    yield from sorted(places, key=lambda line: ("expected(" in line, line))
    if plan.embeddings:
        yield f"embeddings: {plan.embeddings}"
    for model, price in plan.prices.items():
        yield f"price of {model}: {price['input']:g} USD per million tokens read, {price['output']:g} written"
    yield from (f"sampling rule: {rule}" for rule in plan.rules)
    for alert in plan.alerts:
        yield f"alert on {alert.metric}: {_alert(alert)}"
        yield from (f"  {note}" for note in alert.notes)
    yield from plan.notes


def _alert(alert: AlertPlan) -> str:
    watched = []
    if alert.baseline is not None:
        watched.append(f"a drop of {alert.min_drop:g} or more below {alert.baseline:g}")
    if alert.threshold is not None:
        watched.append(f"a mean below {alert.threshold:g}")
    told = " and ".join(watched) or "missing scores only"
    windows = ", ".join(_span(window) for window in alert.windows)
    needed = "never: its rate is 0" if alert.requests is None else f"{alert.requests:,} requests at its rate"
    return f"{told}; a window ({windows}) speaks from {alert.min_scores} scores on, which takes {needed}"


def _span(seconds: float) -> str:
    for unit, length in (("d", 24 * _HOUR_S), ("h", _HOUR_S), ("m", 60.0)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"
