"""Configuration → what judges may be paid, and the sampler's pace by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from spanscore.config.judging import Budget
from spanscore.config.tree import ScorerSettings
from spanscore.core.threads import start_daemon
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.budget_ledger import Purse
from spanscore.judges.tiktoken_count import load_counter
from spanscore.line.accounts import judges_of, models_of
from spanscore.metrics.catalog.registry import under_current_names
from spanscore.pipeline.sampling import BudgetPacer
from spanscore.protocols import Metric

__all__ = ["budget_of", "pacer_of", "purse_for", "purse_of", "shadow_purse_of"]


def purse_of(budgets: Sequence[Budget], share: float, metrics: Mapping[str, Metric]) -> Purse | None:
    """Return what the judges of a scorer may be paid; None where nothing says so.

    Raises:
        ConfigurationError: a budget is of no metric of the scorer, or in USD while a model has no price; or the share is none.
    """
    parts = [budget_of(budget, metrics).part(share) for budget in budgets]
    for part in parts:
        if part.unit == "usd":
            _check_prices(part, metrics)
    purse = Purse(parts) if parts else None
    if purse is not None and purse.in_tokens:
        start_daemon(partial(_load_counters, [*metrics.values()]), "spanscore-tokens")
    return purse


def shadow_purse_of(settings: ScorerSettings, shadows: Mapping[str, Metric]) -> Purse | None:
    """Return what second judges may be paid: of a purse of their own, so that they take nothing from the metrics.

    Raises:
        ConfigurationError: as ``purse_of``.
    """
    if not shadows:
        return None
    own = settings.judge.shadow_budget
    return purse_for(settings, shadows) if own is None else purse_of(own, settings.judge.replica_share, shadows)


def purse_for(settings: ScorerSettings, metrics: Mapping[str, Metric]) -> Purse | None:
    """Return what the judges of some of a configuration's metrics may be paid; budgets of its other metrics are left out.

    Raises:
        ConfigurationError: a budget is in USD while a model has no price; or the share is none.
    """
    own = [
        budget
        for budget in settings.judge.budget
        if budget.metric is None or _name_now(budget.metric, metrics) in metrics
    ]
    return purse_of(own, settings.judge.replica_share, metrics)


def pacer_of(purse: Purse | None, under_way: Callable[[], Mapping[str, int]]) -> BudgetPacer | None:
    """Return what lowers the rates so that a purse lasts; None where there is none.

    Args:
        purse: what may be paid.
        under_way: metric → units that it took and that are not done yet.
    """
    if purse is None:
        return None
    pacer = BudgetPacer(purse.budgets, purse, under_way)
    purse.factors = pacer.factors
    return pacer


def budget_of(budget: Budget, metrics: Mapping[str, Metric]) -> Budget:
    """Return a budget under the name that its metric has now.

    Raises:
        ConfigurationError: there is no such metric.
    """
    if budget.metric is None:
        return budget
    name = _name_now(budget.metric, metrics)
    if name not in metrics:
        raise ConfigurationError(
            f"judge.budget names {budget.metric!r}, which is no metric of this scorer; it has {', '.join(metrics)}"
        )
    return budget.model_copy(update={"metric": name})


def _name_now(metric: str, metrics: Mapping[str, Metric]) -> str:
    return next(iter(under_current_names({metric: None}, metrics)))


def _load_counters(metrics: Sequence[Metric]) -> None:
    for model in {judge.model for metric in metrics for judge in judges_of(metric)}:
        load_counter(model)


def _check_prices(budget: Budget, metrics: Mapping[str, Metric]) -> None:
    for name, metric in metrics.items():
        unpriced = [model for model, price in models_of(metric).items() if price is None]
        if unpriced and budget.holds_for(name):
            model = unpriced[0]
            raise ConfigurationError(
                f"judge.budget is in usd, and {model!r}, which {name} asks, has no price: set judge.prices, "
                f"{{{model}: {{input: …, output: …}}}}, or judge(…, prices={{{model!r}: (…, …)}})"
            )
