"""``spanscore metrics``: lists the metrics with their question, range, fields, cost and blind spot."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spanscore.cli._options import NO_KEYS
from spanscore.cli._plan import FOUND
from spanscore.core.printable import format_count, format_usd
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError
from spanscore.judges.tiktoken_count import counter
from spanscore.metrics.catalog.cost import Cost, cost_of
from spanscore.metrics.catalog.registry import (
    ALIASES,
    RENAMED,
    MetricDoc,
    built_ins,
    find_metric,
    metric_doc_of,
    own_name,
)

ONLINE = "live traffic: no reference needed"
_GROUPS = {
    ONLINE: "a trace holds each field",
    "with a reference": "live by spanscore.references(reference=…)",
    "conversations and agents": "with the expected outcome of the whole",
    "text against text": "the answer against a reference, without a judge",
}
"""Title of a group → the fields that its samples need; in the order of the page."""
_RANGE_WIDTH = 13
"""Width of the column in characters: the longest range that is not broken over lines."""
_PAIR = {"response", "reference"}
"""Fields of the metrics that compare two texts."""


def _price_in(text: str) -> tuple[float, float]:
    """Return the prices of tokens read and tokens written, USD per million."""
    try:
        read, written = map(float, text.split(","))
    except ValueError:
        read = written = -1.0
    if not all(0 <= usd < inf for usd in (read, written)):
        raise typer.BadParameter(
            f"{text!r} is not a price; write USD per million tokens read and written: 0.15,0.60", param_hint="--price"
        )
    return read, written


def metrics(
    metric: Annotated[
        str,
        typer.Option(
            "--metric", "-m", help="Details of one metric: a built-in's name or alias, or 'my_pkg.metrics:Politeness'."
        ),
    ] = "",
    online: Annotated[
        bool, typer.Option("--online", help="Only metrics that can score live traffic, because they need no reference.")
    ] = False,
    price: Annotated[
        str,
        typer.Option(
            metavar="READ,WRITTEN",
            help="USD per million tokens that a judge reads and writes: 0.15,0.60. Adds the cost of 1,000 scores.",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the metrics: the question each answers, its range, the fields it needs, judge calls and tokens per score.

    The metrics are grouped by the fields that a sample needs; [bold]spanscore metrics --online[/bold] shows the metrics that
    need no reference.

    [bold]spanscore check CONFIG --requests-per-day 1e6[/bold] shows the cost of a day for your own configuration.

    Calls and tokens are counted on a fixed sample: a question with three short contexts, or a conversation with one tool call.

    [bold]spanscore metrics --metric faithfulness[/bold] shows a metric's formula, blind spot, source, and deviations from it.
    """
    names = [own_name(metric)] if metric else sorted(built_ins())
    prices = _price_in(price) if price else None
    rows = [row for row in (_row(name, prices) for name in names) if row["group"] == ONLINE or metric or not online]
    if as_json:
        typer.echo(json.dumps(rows[0] if metric else rows, indent=2))
    elif metric:
        Terminal().print(_detail(rows[0]))
    else:
        Terminal().print(_table(rows))


def _row(name: str, price: tuple[float, float] | None) -> dict[str, Any]:
    kind = find_metric(name)
    cost, why = _cost(name)
    requires = {sample_kind: list(fields) for sample_kind, fields in getattr(kind, "requires", {}).items()}
    optional = {sample_kind: list(fields) for sample_kind, fields in getattr(kind, "optional", {}).items()}
    doc = {part: text.replace("``", "") for part, text in asdict(metric_doc_of(kind)).items()}
    return {
        "name": name,
        "group": _group(requires, cost),
        "aliases": [alias for alias, target in {**ALIASES, **RENAMED}.items() if target == name],
        **doc,
        "requires": requires,
        "optional": optional,
        "parameters": _parameters(kind),
        "aspects": {name: aspect._asdict() for name, aspect in getattr(kind, "aspects", {}).items()},
        "cost": None if cost is None else asdict(cost),
        "cost_unknown": why,
        # A thousand scores, at prices per million tokens.
        "usd_per_1000": None
        if cost is None or price is None
        else (cost.input_tokens * price[0] + cost.output_tokens * price[1]) / 1_000,
    }


def _group(requires: Mapping[str, list[str]], cost: Cost | None) -> str:
    """Return the group of a metric, by the fields that its samples need and that a live trace does not have."""
    online, reference, conversation, texts = _GROUPS
    if any(FOUND.keys() >= set(fields) for fields in requires.values()):
        return online
    if "single_turn" not in requires:
        return conversation
    return texts if set(requires["single_turn"]) == _PAIR and cost is not None and not cost.calls else reference


def _cost(name: str) -> tuple[Cost | None, str | None]:
    try:
        return cost_of(name), None
    except ConfigurationError as error:  # usually a library that is not installed
        return None, str(error)


def _parameters(kind: Any) -> dict[str, Any]:
    """Return parameter → default of a metric."""
    defaults = dict[str, Any]()
    for name, parameter in inspect.signature(kind).parameters.items() if callable(kind) else ():
        value = parameter.default
        if value is None and name == "name":
            value = getattr(kind, "name", None)  # the default is an attribute of the class
        elif value is parameter.empty:
            value = "(must be given)"
        if name not in NO_KEYS:
            defaults[name] = value if value is None or isinstance(value, str | int | float) else str(value)
    return defaults


def _table(rows: list[dict[str, Any]]) -> Group:
    """Return one table per group."""
    groups = {title: [row for row in rows if row["group"] == title] for title in _GROUPS}
    return Group(
        *(_group_table(title, members) for title, members in groups.items() if members),
        *(_aspects(row) for row in rows if row["aspects"]),
        Text(
            f"calls, tokens: those of the judge for one score on a fixed short sample ({counter().name}); '–': see --metric."
        ),
        Text("USD: cost of 1,000 scores, by --price 0.15,0.60 (per million tokens read, written)."),
        Text("↓: lower is better. Details of one metric: spanscore metrics --metric NAME"),
    )


def _group_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """Return a table with a row per metric, its name above its question, so that 80 columns are enough for names."""
    headline = Text.assemble((title, "bold"), f"; {_GROUPS[title]} ({len(rows)})")
    table = Table(
        title=headline, title_justify="left", title_style="", box=box.SIMPLE_HEAD, padding=(0, 1), expand=True
    )
    table.add_column("metric: question, fields it needs", ratio=1, overflow="fold")  # a narrow terminal cuts no name
    table.add_column("range", width=_RANGE_WIDTH)
    is_priced = any(row["usd_per_1000"] is not None for row in rows)
    for name in (*(("USD",) if is_priced else ()), "calls", "tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        description = Text.assemble(row["question"], "\n", (_needs(row["requires"], row["optional"]), "dim"))
        cell = Group(Text.assemble((row["name"], "bold"), _list_aliases(row)), Padding(description, (0, 0, 0, 2)))
        money = (format_usd(row["usd_per_1000"], "–"),) if is_priced else ()
        cost, amounts = row["cost"], ("–", "–")
        if cost is not None:
            tokens = cost["input_tokens"] + cost["output_tokens"] if cost["calls"] else 0
            amounts = str(cost["calls"]), f"{tokens:,}"
        table.add_row(cell, _range(row), *money, *amounts)
    return table


def _aspects(row: Mapping[str, Any]) -> Padding:
    """Return the built-in aspects of a metric, each with its definition."""
    title = Text.assemble(("ready aspects", "bold"), f"; {row['name']}: {{aspect: NAME}} ({len(row['aspects'])})")
    table = Table(title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD, padding=(0, 1), expand=True)
    table.add_column("aspect", no_wrap=True)
    table.add_column("definition: 1 if it holds", ratio=1)
    for name, aspect in row["aspects"].items():
        table.add_row(name + _arrow(aspect), aspect["definition"])
    return Padding(table, (0, 0, 0, 2))  # indented further than the rows of metrics


def _arrow(row: Mapping[str, Any]) -> str:
    return " ↓" if row["direction"] == "lower" else ""


def _list_aliases(row: Mapping[str, Any]) -> str:
    return f", also {', '.join(row['aliases'])}" if row["aliases"] else ""


def _range(row: Mapping[str, Any]) -> str:
    if "grade" in row["range"]:
        return "by the rubric"
    ends = re.match(r"[\[{].*?[\]}]", row["range"])  # --metric shows the rest of "[0, 1] in steps of 1/4"
    return (ends[0] if ends else row["range"]) + _arrow(row)


def _needs(requires: Mapping[str, list[str]], optional: Mapping[str, list[str]]) -> str:
    """Return the fields of each kind of sample, optional ones in brackets; in a conversation ``user_input`` is its messages."""
    names = {"single_turn": "one turn: " if len(requires) > 1 else "", "multi_turn": "conversation: "}
    shown = {
        sample_kind: [*fields, *(f"[{name}]" for name in optional.get(sample_kind, ()))]
        for sample_kind, fields in requires.items()
    }
    return "; ".join(names[sample_kind] + (", ".join(fields) or "any field") for sample_kind, fields in shown.items())


def _detail(row: Mapping[str, Any]) -> Table:
    table = Table(
        title=row["name"] + _list_aliases(row), title_justify="left", show_header=False, box=None, padding=(0, 2, 1, 0)
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for part in MetricDoc.__slots__:
        table.add_row(part.replace("_", " "), Text(row[part] or "–"))
    table.add_row("needs", Text(_needs(row["requires"], row["optional"])))
    table.add_row("parameters", Text("\n".join(f"{name}: {default}" for name, default in row["parameters"].items())))
    table.add_row("cost of a score", Text(_describe_cost(row)))
    if row["aspects"]:
        table.add_row("ready aspects", _aspects(row))
    return table


def _describe_cost(row: Mapping[str, Any]) -> str:
    cost = row["cost"]
    if cost is None:
        return f"not counted: {row['cost_unknown']}"
    if not cost["calls"]:
        return "no judge, no tokens"
    money = "" if row["usd_per_1000"] is None else f"{format_usd(row['usd_per_1000'])} USD per 1,000 scores: "
    return (
        f"{money}{format_count(cost['calls'], 'judge call')}, {cost['input_tokens']:,} tokens read and "
        f"{cost['output_tokens']:,} written on a fixed short sample ({cost['counted_by']})"
    )
