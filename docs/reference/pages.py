"""Code → the generated parts of outcomes.md, errors.md, cli.md and metrics.md."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import EnumType
from pathlib import Path
from typing import Any, get_args

from typer.models import CommandInfo, OptionInfo

from spanscore import errors
from spanscore.cli._schema import parameters_in, plain, summary_of
from spanscore.cli.main import app
from spanscore.core.score import Outcome
from spanscore.metrics.catalog.registry import built_ins, metric_doc_of
from spanscore.monitoring.health import REMEDIES

__all__ = ["cli", "error_classes", "metrics", "outcomes", "table"]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; a cell is on one line, and a bar in it is no border."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


# --- outcomes -----------------------------------------------------------------------------------------------------


_ACTIONS = {
    Outcome.SCORED: "nothing",
    Outcome.NOT_APPLICABLE: "nothing",
    Outcome.NO_VALUE: "read the reason",
    Outcome.NOT_SAMPLED: "raise the sampling rate if too few units have a score",
    Outcome.FILTERED: "nothing",
    Outcome.TRACE_NOT_SAMPLED: "raise the head sampler's rate if too few units have a score",
    Outcome.DELEGATED: "look up the outcome in the other process",
    Outcome.NO_SAMPLE: "read the reason; `spanscore explain` names the switch that puts content on the spans. "
    "Score such runs by `capture.score_abandoned` and `capture.score_failed`",
    Outcome.MISSING_FIELD: "record the field, or use another metric",
    Outcome.INCOMPLETE: "read the reason",
    Outcome.EXPIRED: "start more workers, or raise `spool.max_age`",
    Outcome.JUDGE_UNAVAILABLE: "lower the sampling rate, or ask the provider for higher limits",
    Outcome.BUDGET_EXHAUSTED: "raise the budget, or lower the sampling rate",
    Outcome.TIMEOUT: "raise `limits.timeout`, or `judge.timeout` if the reason names the model; or use a faster judge",
    Outcome.JUDGE_ERROR: "look up `error.type`",
    Outcome.METRIC_ERROR: "look up `error.type`, and correct the function",
    Outcome.REDACTION_ERROR: "correct the redactor",
    Outcome.SHUTDOWN: "give the process more time to end",
}


def outcomes() -> str:
    """Return every outcome."""
    parameters = parameters_in(Outcome)
    rows = [[f"`{one}`", parameters[one.name].rstrip("."), _in_the_mean(one), _action(one)] for one in Outcome]
    return table(["outcome", "when", "in the mean?", "what to do"], rows)


def _action(outcome: Outcome) -> str:
    return REMEDIES.get(outcome, "").partition(": ")[2] or _ACTIONS[outcome]


def _in_the_mean(outcome: Outcome) -> str:
    if outcome is Outcome.SCORED:
        return "yes"
    if outcome is Outcome.DELEGATED:
        return "in the mean of the process that scores it"
    if outcome.missing:
        return "no, but it should be (lost)"
    represented = outcome in (Outcome.NOT_SAMPLED, Outcome.TRACE_NOT_SAMPLED)
    return "represented by the sampled units" if represented else "no, by design"


# --- errors -------------------------------------------------------------------------------------------------------


def error_classes() -> str:
    """Return every error class."""
    classes = [kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)]
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2]
    text = (f"## {kind.__name__}\n\n{_error_page(kind)}" for kind in sorted(classes, key=lambda kind: kind.__name__))
    return "\n\n".join([f"```text\n{tree}\n```", *text])


def _error_page(kind: type) -> str:
    above = f"A `{kind.__mro__[1].__name__}`. " if kind is not errors.SpanscoreError else ""
    own_type = getattr(kind, "error_type", "")
    typed = f" `error.type` on the evaluation span: `{own_type}`, unless the error has another." if own_type else ""
    return above + summary_of(kind).replace("Remedy:", "*Remedy:*") + typed


# --- commands -----------------------------------------------------------------------------------------------------

_BUDGET_SPENT = {3: "`judge.budget` is spent, and no file is written"}
_INTERRUPTED = {130: "Ctrl-C"}
_EXITS = {
    "check": {
        0: "no error",
        2: "an error; the message names its key",
        3: "with `--ready`, this environment lacks something",
    },
    "demo": {
        2: "a given value is wrong, or `--otlp` did not receive everything; one message on stderr, and no traceback"
    },
    "worker": {3: "there is no source to read"},
    "preview": _INTERRUPTED,
    "replay": _INTERRUPTED,
    "compare": {
        1: "a metric is worse by more than `--tolerance`",
        3: "no metric is worse, and a verdict is still open",
    },
    "evaluate": {1: "a bound does not hold", 3: "too many cases have no score", **_INTERRUPTED},
    "annotations": {1: "import: a line is wrong, or an annotation may not have arrived"},
    "tune": _BUDGET_SPENT | _INTERRUPTED,
    "adapt": _BUDGET_SPENT | _INTERRUPTED,
}
"""Command → its exit codes, and their meanings."""
_EXITS_OF_ALL = {0: "", 2: "a given value is wrong; one message on stderr, and no traceback"}


def cli() -> str:
    """Return every command."""
    return "\n\n".join(_command(one) for one in app().registered_commands)


def _command(command: CommandInfo) -> str:
    """Return one by the signature of its function, because typer's rendering differs from release to release."""
    given = inspect.signature(command.callback, eval_str=True).parameters.values() if command.callback else []
    arguments, options = list[list[str]](), list[list[str]]()
    for one in given:
        kind, (info, *_) = one.annotation.__origin__, one.annotation.__metadata__
        if isinstance(info, OptionInfo):
            first = [info.default] if isinstance(info.default, str) else []  # typer takes the first name for a default
            names = [*first, *(info.param_decls or ())] or [f"--{one.name.replace('_', '-')}"]
            value = "" if kind is bool else f" {_metavar(kind, info)}"
            options.append([", ".join(f"`{name}{value}`" for name in names), _default(one.default), _help(info)])
        else:
            arguments.append([f"`{_metavar(kind, info)}`", _default(one.default) or "optional", _help(info)])
    rows = [plain(paragraph) for paragraph in _plain(command.help or "").split("\n\n")]
    parts = [
        f"## spanscore {command.name}",
        *rows,
        *([table(["argument", "default", "what it is"], arguments)] if arguments else []),
        *([table(["option", "default", "what it does"], options)] if options else []),
        f"Exit codes: {_exits(command.name or '')}.",
    ]
    return "\n\n".join(parts)


def _exits(command: str) -> str:
    codes = _EXITS_OF_ALL | _EXITS.get(command, {})
    return " · ".join(f"{code}: {codes[code]}" if codes[code] else str(code) for code in sorted(codes))


def _metavar(kind: Any, info: Any) -> str:
    if info.metavar:
        return str(info.metavar)
    kinds = [one for one in get_args(kind) or [kind] if one is not type(None)]
    if isinstance(kinds[0], EnumType):
        return "|".join(str(one.value) for one in kinds[0])
    return {int: "N", float: "NUMBER", Path: "PATH"}.get(kinds[0], "TEXT")


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    return "" if value is None or value is False or value == "" else f"`{getattr(value, 'value', value)}`"


def _help(info: Any) -> str:
    return plain(_plain(info.help or ""))


def _plain(text: str) -> str:
    return re.sub(r"\[/?bold\]", "`", text)


# --- metrics ------------------------------------------------------------------------------------------------------


def metrics() -> str:
    """Return every metric, in groups and each by itself."""
    rows = _metric_rows()
    groups = dict.fromkeys(row["group"] for row in rows)
    listed = (_group(group, [row for row in rows if row["group"] == group]) for group in groups)
    return "\n\n".join([*listed, *map(_metric, rows)])


def _metric_rows() -> list[dict[str, Any]]:
    """Return the output of the command, with a rule of thumb for tokens, which is the same on every machine."""
    command = [sys.executable, "-c", "from spanscore.cli.main import main; main()", "metrics", "--json"]
    completed = subprocess.run(
        command, env={**os.environ, "TIKTOKEN_CACHE_DIR": os.devnull}, capture_output=True, check=True
    )
    rows: list[dict[str, Any]] = json.loads(completed.stdout)
    return rows


def _group(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    headers = ["metric", "the question", "range", "calls", "tokens"]
    cells = [[f"[`{row['name']}`](#{row['name']})", row["question"], _range(row), *_cost(row)] for row in rows]
    return f"**{name[:1].upper()}{name[1:]}**\n\n{table(headers, cells)}"


def _range(row: Mapping[str, Any]) -> str:
    return str(row["range"]) + _arrow(row)


def _arrow(row: Mapping[str, Any]) -> str:
    return " ↓" if row["direction"] == "lower" else ""


def _cost(row: Mapping[str, Any]) -> tuple[str, str]:
    cost = row["cost"]
    if cost is None or not cost["calls"]:
        return ("–", "–") if cost is None else ("0", "0")
    return str(cost["calls"]), f"{cost['input_tokens'] + cost['output_tokens']:,}"


def _metric(row: Mapping[str, Any]) -> str:
    kind = built_ins()[row["name"]]
    result = parameters_in(kind)
    also = f"Also called {', '.join(f'`{alias}`' for alias in row['aliases'])}." if row["aliases"] else ""
    parts = ("formula", "fields", "judge_calls", "blind_spot", "source", "deviations")
    doc = metric_doc_of(kind)
    listed = [f"- **{part.replace('_', ' ')}**: {plain(getattr(doc, part))}" for part in parts]
    parameters = [
        [f"`{name}`", f"`{json.dumps(default)}`", result.get(name, "")] for name, default in row["parameters"].items()
    ]
    return "\n\n".join(
        filter(
            None,
            [
                f"## {row['name']}",
                f"{plain(doc.question)} {also}".strip(),
                f"In Python `spanscore.metrics.{kind.__name__}`.",
                "\n".join(listed),
                table(["parameter", "default", "what it is"], parameters),
                _aspects(row),
            ],
        )
    )


def _aspects(row: Mapping[str, Any]) -> str:
    """Return the ready aspects of a metric; empty if it has none."""
    cells = [[f"`{name}`{_arrow(one)}", one["definition"]] for name, one in row["aspects"].items()]
    return table(["ready aspect", "definition: 1 if it holds; ↓: 1 is bad"], cells) if cells else ""
