"""Parts of the commands that change a metric's prompts, ``tune`` and ``adapt``: the metric and the progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from spanscore.cli._evaluate_run import INCOMPLETE, PausedAccounts, named_clocks
from spanscore.cli._options import INTERRUPTED
from spanscore.cli._topics import ConfigReport
from spanscore.config.tree import Configuration
from spanscore.core.printable import did_you_mean, format_usd
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, JudgeBudgetSpent
from spanscore.judges.score_context import ScoreContext, asked_by
from spanscore.metrics.catalog.configured import metrics_of
from spanscore.metrics.catalog.registry import own_name
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.tuning import FittingProgress, OnProgress
from spanscore.wiring.accounts import Accounts, configured_budget_ledger

_TO_GO_ON = (
    "Run the command again in the next window (windows are aligned to UTC), or raise judge.budget; with judge.cache: "
    "answers.sqlite, answers in the cache are not paid for again."
)


def judged_metric(configured: ConfigReport, name: str, *, place: str, purpose: str) -> JudgedMetric:
    """Return the named metric of a configuration, with the configuration's judge.

    Args:
        place: the option or argument that names it, for messages.
        purpose: the command's use of the prompts, a verb.

    Raises:
        ConfigurationError: the configuration has no such metric, or the metric has no prompts.
    """
    with configured.as_written.mask_errors():
        made = {metric.name: metric for metric in metrics_of(configured.settings)}
    metric = made.get(name) or made.get(own_name(name))
    if metric is None:
        hint = did_you_mean(name, made) or f"it has {', '.join(made)}."
        raise ConfigurationError(f"{place} {name}: the configuration has no such metric; {hint}")
    if not isinstance(metric, JudgedMetric):
        raise ConfigurationError(
            f"{place} {name}: it has no judge prompts of its own, so there is nothing to {purpose}"
        )
    return metric


@contextmanager
def paid_run(settings: Configuration, metric: JudgedMetric, console: Terminal, unit: str) -> Iterator[OnProgress]:
    """Show a progress bar during the judge calls of the block, and pay for them from the configured budget.

    A spent budget ends the command with exit code 3, an interrupt with 130.

    Args:
        settings: the configuration, with the budget.
        metric: the metric, for the budget and for the accounts in the bar.
        unit: text in front of the count of finished samples or steps ("judged").
    """
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TextColumn("{task.fields[spent]}"), *named_clocks(), PausedAccounts(Accounts([metric]))]
    budget_ledger = configured_budget_ledger(settings, {metric.name: metric})
    try:
        with (
            asked_by(ScoreContext(metric.name, budget_ledger=budget_ledger)),
            Progress(*columns, console=console) as bar,
        ):
            task = bar.add_task(unit, total=None, spent="")

            def show(at: FittingProgress) -> None:
                usd = "" if at.cost_usd is None else f", {format_usd(at.cost_usd)} USD"
                bar.update(task, completed=at.done, total=at.total, spent=f"{at.judge_calls:,} calls{usd}")

            yield show
    except JudgeBudgetSpent as error:
        console.print(f"{error}. Nothing was written. {_TO_GO_ON}", soft_wrap=True)
        raise typer.Exit(INCOMPLETE) from None
    except KeyboardInterrupt:
        console.print("Interrupted: nothing was written.")
        raise typer.Exit(INTERRUPTED) from None
