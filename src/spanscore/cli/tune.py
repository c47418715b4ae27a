"""``spanscore tune``: human labels → a judge that is right more often, or the finding that nothing that was tried is."""

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
    "answers.sqlite, answers that are there are not paid for again."
)


def tune(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A spanscore.yaml with the metric and its judge.")],
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS",
            help='Labelled samples, one a line: {"user_input": …, "response": …, "human": true}; or the JSON of ragas\'s '
            "annotations. 100 or more.",
        ),
    ],
    metric: Annotated[str, typer.Option("--metric", "-m", help="The metric of CONFIG whose judge is taught.")],
    label: Annotated[
        str | None,
        typer.Option(
            help="Only labels of this name, where the file has several; of ragas's annotations, those of this metric."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("fitted.json"),
    demonstrations: Annotated[int, typer.Option(min=0, metavar="N", help="Worked cases in the judge's prompt.")] = 4,
    candidates: Annotated[int, typer.Option(min=1, metavar="N", help="How many are tried.")] = 16,
    rewriter: Annotated[
        str,
        typer.Option(
            help="provider:model that proposes instructions from what the judge got wrong; none if not given."
        ),
    ] = "",
    redactor: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Run on each text before it is shown to a model; else that of the configuration.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Of the split, and of what is tried.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what came of it as JSON.")] = False,
) -> None:
    """Teach a metric's judge by human labels: worked cases in its prompt, kept only where they are shown to help.

    [bold]spanscore tune spanscore.yaml labels.jsonl --metric polite --out fitted.json[/bold]

    30 % of the labels give demonstrations, 35 % choose among the candidates, and on the last 35 % the best one must be right
    more often than the judge is now (exact McNemar test, p ≤ .05); else the file holds the unchanged metric. What every later
    question will hold is printed: it is content of your users.
    """
    notes = Terminal(stderr=True, highlight=False, markup=False)
    notes.print(f"Fitting {printable(metric)}: loading what it takes …")  # that is seconds
    configured = valid(config)
    taught = _metric(configured, metric)
    labelled = read_annotations(labels, metric=label or taught.name, name=label)
    for warning in warnings_for(len(labelled)):
        notes.print(warning, soft_wrap=True)
    if not out.parent.is_dir():  # told before anything is paid for
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
        place = f"prompts: {{file: {out}}} beside {fitted.metric.name}'s parameters"
        line = f"\n{out} is written; for the configuration: {place}."
    notes.print(line, soft_wrap=True)


def _metric(configured: ConfigReport, name: str) -> JudgedMetric:
    """Return a metric of a configuration by its name, with the configuration's judge."""
    with configured.as_written.told():
        made = {metric.name: metric for metric in metrics_of(configured.settings)}
    metric = made.get(name) or made.get(own_name(name))
    if metric is None:
        hint = did_you_mean(name, made) or f"it has {', '.join(made)}."
        raise ConfigurationError(f"--metric {name}: the configuration has no such metric; {hint}")
    if not isinstance(metric, JudgedMetric):
        raise ConfigurationError(f"--metric {name}: it asks no judge by steps of its own, so there is nothing to teach")
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
