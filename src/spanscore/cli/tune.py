"""``spanscore tune``: searches a judge's prompt by human labels; a change is kept only if it is shown to be better."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from spanscore.cli._config_report import ConfigReport, named_problems, valid
from spanscore.cli._evaluate_run import INCOMPLETE, PausedAccounts, named_clocks
from spanscore.cli._options import INTERRUPTED
from spanscore.config.tree import Configuration
from spanscore.core.codecs.annotation_file import read_annotations
from spanscore.core.printable import did_you_mean, format_usd, printable, printable_lines
from spanscore.core.sample import AnnotatedSample
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, JudgeBudgetSpent
from spanscore.judges.score_context import ScoreContext, asked_by
from spanscore.metrics.catalog.configured import judge_named, metrics_of
from spanscore.metrics.catalog.registry import own_name
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.tuned_prompts import Fitted
from spanscore.metrics.kit.tuning import FittingProgress, warnings_for
from spanscore.pipeline.jobs import redactor_in
from spanscore.protocols import Judge
from spanscore.wiring.accounts import Accounts, purse_for

_TO_GO_ON = (
    "Run the command again in the next window (windows are aligned to UTC), or raise judge.budget; with judge.cache: "
    "answers.sqlite, answers in the cache are not paid for again."
)


def tune(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A spanscore.yaml with the metric and its judge.")],
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS",
            help='Labelled samples, one a line: {"user_input": …, "response": …, "human": true}; or the JSON of ragas\'s '
            "annotations. Give 100 or more.",
        ),
    ],
    metric: Annotated[str, typer.Option("--metric", "-m", help="The metric of CONFIG to tune.")],
    label: Annotated[
        str | None,
        typer.Option(
            help="Only labels of this name, if the file has several names; with ragas's annotations, those of this metric."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("fitted.json"),
    demonstrations: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of examples in the judge's prompt.")
    ] = 4,
    candidates: Annotated[int, typer.Option(min=1, metavar="N", help="Number of candidate prompts to try.")] = 16,
    rewriter: Annotated[
        str,
        typer.Option(help="provider:model that proposes instructions from the judge's errors. Default: no rewriter."),
    ] = "",
    redactor: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that runs on each text before a model reads it. Default: the redactor of the configuration.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of the split and of the candidates.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Tune a metric's judge with human labels: examples are added to its prompt only if they are shown to help.

    [bold]spanscore tune spanscore.yaml labels.jsonl --metric polite --out fitted.json[/bold]

    30 % of the labels give examples, and 35 % select among the candidates. On the last 35 % the best candidate must be right
    more often than the present judge (exact McNemar test, p ≤ .05); otherwise the file holds the unchanged metric. The command
    prints the examples that every later question will contain, because they are content of your users.
    """
    notes = Terminal(stderr=True, highlight=False, markup=False)
    notes.print(f"Fitting {printable(metric)}: loading libraries …")  # this takes seconds
    configured = valid(config)
    taught = _metric(configured, metric)
    labelled = read_annotations(labels, metric=label or taught.name, name=label)
    for warning in warnings_for(len(labelled)):
        notes.print(warning, soft_wrap=True)
    if not out.parent.is_dir():  # refused before anything is paid for
        raise ConfigurationError(f"--out {out}: the folder {out.parent} does not exist")
    how: dict[str, Any] = {"demonstrations": demonstrations, "candidates": candidates, "seed": seed}
    how |= {
        "rewriter": _rewriter(configured.settings, rewriter),
        "redactor": redactor_in(redactor or configured.settings.redactor),
    }
    purse = purse_for(configured.settings, {taught.name: taught})
    try:
        with asked_by(ScoreContext(taught.name, purse=purse)):
            fitted = _fit(taught, labelled, how, notes)
    except JudgeBudgetSpent as error:
        notes.print(f"{error}. Nothing was written. {_TO_GO_ON}", soft_wrap=True)
        raise typer.Exit(INCOMPLETE) from None
    except KeyboardInterrupt:
        notes.print("Interrupted: nothing was written.")
        raise typer.Exit(INTERRUPTED) from None
    fitted.save(out)
    typer.echo(json.dumps(fitted.as_json(), indent=2) if as_json else printable_lines(str(fitted)))
    line = f"\n{out} holds the unchanged metric."
    if fitted.kept:
        place = f"prompts: {{file: {out}}} among {fitted.metric.name}'s parameters"
        line = f"\n{out} is written; for the configuration: {place}."
    notes.print(line, soft_wrap=True)


def _metric(configured: ConfigReport, name: str) -> JudgedMetric:
    """Return the named metric of a configuration, with the configuration's judge."""
    with configured.as_written.told():
        made = {metric.name: metric for metric in metrics_of(configured.settings)}
    metric = made.get(name) or made.get(own_name(name))
    if metric is None:
        hint = did_you_mean(name, made) or f"it has {', '.join(made)}."
        raise ConfigurationError(f"--metric {name}: the configuration has no such metric; {hint}")
    if not isinstance(metric, JudgedMetric):
        raise ConfigurationError(f"--metric {name}: it has no judge prompts of its own, so there is nothing to tune")
    return metric


def _rewriter(settings: Configuration, named: str) -> Judge | None:
    if not named:
        return None
    make = partial(judge_named, settings, named)
    for problem in named_problems("--rewriter", named, make):
        raise problem
    return make()


def _fit(metric: JudgedMetric, labels: list[AnnotatedSample], how: dict[str, Any], console: Terminal) -> Fitted:
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TextColumn("{task.fields[spent]}"), *named_clocks(), PausedAccounts(Accounts([metric]))]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("judged", total=None, spent="")

        def show(at: FittingProgress) -> None:
            usd = "" if at.cost_usd is None else f", {format_usd(at.cost_usd)} USD"
            bar.update(task, completed=at.done, total=at.total, spent=f"{at.judge_calls:,} calls{usd}")

        return metric.fit_sync(labels, progress=show, **how)
