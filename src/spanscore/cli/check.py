"""``spanscore check CONFIG``: the errors of a configuration, or a plan of its work and cost, before anything runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from spanscore import semconv
from spanscore.cli._config_report import config_report
from spanscore.cli._cost_plan import (
    FORMS,
    DayPlan,
    Sizes,
    money_line,
    read_measured_costs,
    requests_per_day_in,
    traffic_in,
)
from spanscore.cli._options import ContextTokens, option_parser
from spanscore.cli._plan import WITHIN, AlertPlan, ConfigPlan, plan_of
from spanscore.cli._topics import ConfigReport, Topic
from spanscore.config.messages import wrong_settings
from spanscore.config.serving import ServeSettings
from spanscore.core.printable import TextTable, format_duration, format_number, format_usd
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.graded import ContextsHiddenWarning
from spanscore.report.rows import name_within
from spanscore.service import plan as plan_of_serve
from spanscore.service import worker_plan

_WRONG = 2
_NOT_READY = 3
_KINDS = {"single_turn": "", "multi_turn": "of a conversation: "}


def _print_file(option: typer.CallbackParam, is_set: bool) -> None:
    if is_set:
        from spanscore.cli._schema import example_file, schema_file  # the other uses of the command need no schema

        typer.echo(example_file() if option.name == "example" else schema_file(), nl=False)
        raise typer.Exit


def check(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, such as spanscore.yaml.")],
    ready: Annotated[
        bool,
        typer.Option(
            "--ready",
            help="Exit with 3 if this environment lacks a key, a library, a file or a folder. Use it on the scorer's machine.",
        ),
    ] = False,
    requests_per_day: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            parser=option_parser(requests_per_day_in),
            help=f"Requests to all replicas together: {FORMS}. Adds the cost of a day, the rates that the budgets pay for, "
            "and the drops that the alerts detect.",
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="CSV with the columns hour,requests: 24 rows (a day) or 168 rows (a week). With --requests-per-day, only "
            "the shape is used.",
        ),
    ] = None,
    context_tokens: ContextTokens = None,
    measured: Annotated[
        str | None,
        typer.Option(
            "--costs-from",
            metavar="SPANS.jsonl",
            help="Stored spans with scores, as OTLP-JSON lines. Their measured costs replace the estimates.",
        ),
    ] = None,
    example: Annotated[
        bool,
        typer.Option(
            "--example",
            is_eager=True,
            callback=_print_file,
            help="Print a configuration with every key, its description and its default, and exit.",
        ),
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            is_eager=True,
            callback=_print_file,
            help="Print the JSON Schema of a configuration, which lets an editor complete and explain keys, and exit.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print ok, ready, faults, gaps and, if there is no fault, the plan as JSON. Errors of --profile and "
            "--costs-from are text on stderr, with exit code 2.",
        ),
    ] = False,
) -> None:
    """Report the errors of a configuration, or its plan: the metrics, their rates, the judge and the fields.

    An error names its key, the value and the allowed values; the exit code is then 2. A key, a library, a file or a folder that
    this environment lacks is a warning; with [bold]--ready[/bold] the exit code is then 3. Otherwise the exit code is 0.

    No judge and no Collector is contacted. [bold]SPANSCORE_*[/bold] variables of the environment apply, as they do for the
    scorer.
    """
    warnings.simplefilter("ignore", ContextsHiddenWarning)  # the plan's notes have it
    try:
        report = config_report(config, further={"serve": _serve, "worker": _work})
    except ConfigurationError as error:
        if not as_json:
            raise
        _print_json(errors=[str(error)])
        raise typer.Exit(_WRONG) from None
    traffic = traffic_in(requests_per_day, profile)
    plan = None
    if not report.errors:
        costs = {} if measured is None else read_measured_costs(measured, [metric.name for metric in report.metrics])
        plan = plan_of(report, traffic, Sizes(context_tokens, costs))
    if as_json:
        _print_json(errors=report.errors, missing=report.missing, **({} if plan is None else asdict(plan)))
    else:
        _print(config, report, plan)
    if plan is None:
        raise typer.Exit(_WRONG)
    if report.missing and ready:
        raise typer.Exit(_NOT_READY)


def _serve(report: ConfigReport) -> Topic:
    serve = report.settings.serve
    if serve != ServeSettings():
        yield from plan_of_serve.problems(serve)
        yield from plan_of_serve.describe_serve(serve)


def _work(report: ConfigReport) -> Topic:
    if worker_plan.reads(report.settings):
        yield from worker_plan.problems(report.settings)
        yield from (f"spanscore worker: {line}" for line in worker_plan.describe_sources(report.settings))


def _print_json(*, errors: Sequence[str], missing: Sequence[str] = (), **rest: Any) -> None:
    document = {"ok": not errors, "ready": not errors and not missing, "faults": errors, "gaps": missing, **rest}
    typer.echo(json.dumps(document, indent=2))


def _print(config: Path, report: ConfigReport, plan: ConfigPlan | None) -> None:
    notes = Terminal(stderr=True)
    if plan is None:
        headline, *errors = str(wrong_settings(config, report.errors)).splitlines()
        notes.print(Text(headline, style="red"))
        for error in errors:
            notes.print(Text(error), soft_wrap=True)
    else:
        console = Terminal()
        console.print(Text(money_line(plan), style="bold"))
        console.print(_table(plan))
        console.print(Text("\nfields: their place in a live trace"))
        console.print(_fields(plan))
        for line in _lines(plan):
            console.print(Text(line))
        for part in _day(plan):
            console.print(part)
        console.print(Text(f"{config} has no fault." if report.missing else f"{config} can be used."))
    for lacking in report.missing:
        notes.print(Text(f"not ready here: {lacking}", style="yellow"), soft_wrap=True)


def _table(plan: ConfigPlan) -> TextTable:
    rows = []
    for metric in plan.metrics:
        highest = f" … {metric.highest:g}" if metric.highest > metric.rate else ""
        reads = (_KINDS[kind] + (", ".join(fields) or "any field") for kind, fields in metric.fields.items())
        of = " of sessions" if metric.per == "session" else ""
        rows.append((metric.name, f"{metric.rate:g}{highest}{of}", "; ".join(reads)))
    return TextTable(("metric", "rate", "reads"), rows, title=f"judge: {plan.judge}")


def _fields(plan: ConfigPlan) -> Table:
    """Return a table of the place of each field; fields that only ``spanscore.references()`` gives come last."""
    places = {}
    for kind, fields in (item for metric in plan.metrics for item in metric.fields.items()):
        for name, place in fields.items():
            whole = (kind, name) == ("multi_turn", "user_input")
            places[f"{name} of a conversation" if whole else name] = place
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, place in sorted(places.items(), key=lambda item: ("references(" in item[1], item)):
        table.add_row(Text(f"  {name}"), Text(place))
    return table


def _lines(plan: ConfigPlan) -> Iterator[str]:
    yield from (f"judge.{name}: {_plain(value)}" for name, value in plan.judge_settings.items())
    if plan.embeddings:
        yield f"embeddings: {plan.embeddings}"
    for model, price in plan.prices.items():
        yield f"price of {model}: {price['input']:g} USD per million tokens read, {price['output']:g} written"
    yield from plan.spending
    yield from (f"sampling rule: {rule}" for rule in plan.rules)
    for alert in plan.alerts:
        share = f"the share of {alert.share_of} in " if alert.share_of else ""
        yield f"alert on {share}{alert.metric}: {_alert(alert)}"
        yield from (f"  {note}" for note in alert.notes)
    yield from plan.sessions
    yield from plan.judge_check
    yield from plan.notes
    if plan.requests_per_day is None:
        yield "for the cost of a day and the drops that are detected: --requests-per-day 1e6, or 500k, 12/s, 700/min"
    yield from (*plan.serve, *plan.worker)


def _day(plan: ConfigPlan) -> Iterator[Any]:
    """Yield the cost of a day of the stated traffic, and the smallest drops that it shows within an hour, a day and 14 days."""
    if plan.requests_per_day is None:
        return
    headers = ("metric", "USD", "rate", "affordable rate", "scores", "judge calls", "tokens")
    shadows = [replace(day, metric=name_within(day.metric, semconv.SOURCE_SHADOW)) for day in plan.shadow_days]
    days = [*plan.days, *shadows]
    rows = [*map(_day_row, days), _day_cells("all", "", "", days)]
    yield ""
    yield TextTable(headers, rows, title=f"a day of {plan.requests_per_day:,.0f} requests")
    beyond = {"the units that sampling rules add": plan.rules, "the judge check": plan.judge_check}
    beyond["metrics of conversations, whose number is unknown"] = plan.sessions
    if left_out := [name for name, lines in beyond.items() if lines]:
        yield Text(f"without {', '.join(left_out)}")
    if drops := [_drop_cells(alert) for alert in plan.alerts if alert.smallest]:
        windows = ("metric", "min_drop", *(f"within {time}" for time in WITHIN))
        yield ""
        yield TextTable(windows, drops, title="smallest drop (of a share: rise) that is detected, half of the time")
        if any("…" in "".join(cells) for cells in drops):
            yield Text("from … to: depending on the hour at which the drop begins")


def _drop_cells(alert: AlertPlan) -> Sequence[str]:
    name = f"{alert.metric}={alert.share_of}" if alert.share_of else alert.metric
    cells = [name, f"{alert.min_drop:g}"]
    for drop in alert.smallest:
        ends = ("not detectable" if end is None else f"{end:.2g}" for end in (drop.at_best, drop.at_worst))
        cells.append(" … ".join(dict.fromkeys(ends)))
    return cells


def _day_row(day: DayPlan) -> Sequence[str]:
    rate = f"{day.rate:g}\n→ {day.rate * day.factor:.2g}" if day.factor < 1 else f"{day.rate:g}"
    return _day_cells(day.metric, rate, "–" if day.bought is None else f"{day.bought:.2g}", [day])


def _day_cells(metric: str, rate: str, bought: str, days: Sequence[DayPlan]) -> Sequence[str]:
    """Return a row with the sums of several metrics; a sum with an unknown part is unknown."""
    columns = ([getattr(day, name) for day in days] for name in ("usd", "scores", "calls", "tokens"))
    usd, scores, calls, tokens = (None if None in column else sum(column) for column in columns)
    amounts = (format_number(number, "not known") for number in (scores, calls, tokens))
    return metric, format_usd(usd, "no price"), rate, bought, *amounts


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_plain(item)}' for name, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _alert(alert: AlertPlan) -> str:
    change, side, limit = ("rise", "above", "share above") if alert.share_of else ("drop", "below", "mean below")
    watched = []
    if alert.baseline is not None:
        normal = alert.baseline if isinstance(alert.baseline, str) else f"{alert.baseline:g}"
        watched.append(f"a {change} of {alert.min_drop:g} or more {side} {normal}")
    if alert.threshold is not None:
        watched.append(f"a {limit} {alert.threshold:g}")
    watched_values = " and ".join(watched) or "missing scores only"
    windows = ", ".join(map(format_duration, alert.windows))
    volume = alert.volume
    lines = [f"{watched_values}; at its rate of {volume.rate:g}, a window ({windows}) needs"]
    lines.append(f"  before it may alert: {_format_needed(volume.min_scores, volume.min_requests, volume.units)}")
    if volume.scores_to_see is not None:
        seen = _format_needed(volume.scores_to_see, volume.requests_to_see, volume.units)
        lines.append(f"  to detect a {change} of {alert.min_drop:g} half of the time: {seen}")
    return "\n".join(lines)


def _format_needed(scores: int, requests: int | None, units: str) -> str:
    return f"{scores:,} scores, {'never: its rate is 0' if requests is None else f'{requests:,} {units}'}"
