"""Metrics, prices, budgets and traffic → what a score costs, how many scores the budgets buy, and whether that is enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spanscore.errors import ConfigurationError
from spanscore.judges.prices import Price, cost_usd, price_of, prices_of
from spanscore.metrics.catalog.configured import entries, prices_in
from spanscore.metrics.catalog.cost import Cost, cost_of
from spanscore.sampling.pacing import KEPT_BACK, largest_factor
from spanscore.settings.budget import Budget, Spent
from spanscore.settings.tree import AskedSettings, Settings

__all__ = ["CostPlan", "asked_model", "cost_lines", "costs_of", "enough", "price_in"]

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPlan:
    """What one metric costs.

    Attributes:
        calls: questions of one score, on the fixed sample of short contexts.
        input_tokens: that its judge reads.
        output_tokens: that it writes.
        usd: None where the judge's model has no price.
        per_day: scores that the rate asks for; None where the traffic is not told.
        factor: on the rate, by the budgets; 1 where they are enough, and where the traffic is not told.
    """

    metric: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    per_day: float | None
    factor: float

    @property
    def spent(self) -> Spent:
        """What one score costs, in the units of budgets."""
        return Spent(self.usd or 0.0, self.input_tokens + self.output_tokens, self.calls)

    @property
    def scores_per_day(self) -> float | None:
        """Scores that are paid for; None where the traffic is not told."""
        return None if self.per_day is None else self.per_day * self.factor


def costs_of(
    settings: Settings, rates: Mapping[str, float], budgets: Sequence[Budget], requests_per_day: int | None
) -> tuple[CostPlan, ...]:
    """Return what the metrics cost that ask a judge; nothing beside the offline one, which is free.

    Args:
        rates: metric → its sampling rate, without the rules that raise it.
        budgets: of all replicas together.
        requests_per_day: units that these are expected to see; they come evenly.
    """
    if settings.judge.model == "lexical":
        return ()
    price = price_in(settings, settings.judge)
    costs = [
        CostPlan(
            metric=metric,
            calls=cost.calls,
            input_tokens=cost.input_tokens,
            output_tokens=cost.output_tokens,
            usd=None if price is None else cost_usd(price, cost.input_tokens, cost.output_tokens),
            per_day=None if requests_per_day is None else requests_per_day * rates[metric],
            factor=1.0,
        )
        for metric, cost in _known_costs(settings, [*rates])
    ]
    return tuple(_paid(costs, budgets))


def cost_lines(costs: Sequence[CostPlan], budgets: Sequence[Budget]) -> Iterator[str]:
    """Yield what each metric costs, and what the budgets buy."""
    if costs:
        yield "what a score costs, on a short sample (three contexts of a sentence or two; longer ones cost more):"
    for cost in costs:
        money = "" if cost.usd is None else f", {cost.usd:.2g} USD"
        tokens = f"{cost.input_tokens:,} tokens read and {cost.output_tokens:,} written"
        yield f"  {cost.metric}: {cost.calls} question{'s' * (cost.calls != 1)}, {tokens}{money}"
    for budget in budgets:
        yield f"budget of {budget}: {_bought(budget, costs)}"
    for cost in costs:
        if cost.per_day is not None and cost.scores_per_day is not None:
            lowered = f", by a budget: its rate is multiplied by {cost.factor:.2g}" if cost.factor < 1 else ""
            yield f"  {cost.metric}: {cost.scores_per_day:,.0f} of {cost.per_day:,.0f} scores a day{lowered}"


def enough(cost: CostPlan | None, needed: int, windows: Sequence[float]) -> list[tuple[float, float, bool]]:
    """Return each window with the scores that it will hold, and whether they are enough; empty where that is not known."""
    if cost is None or cost.scores_per_day is None:
        return []
    held = [(window, cost.scores_per_day * window / _DAY_S) for window in windows]
    return [(window, scores, scores >= needed) for window, scores in held]


def asked_model(asked: AskedSettings) -> str:
    """Return the model that a judge asks, without its provider."""
    return asked.model.partition(":")[2] or asked.model


def price_in(settings: Settings, asked: AskedSettings) -> Price | None:
    """Return the price that a configuration has for the model of one of its judges; None where it has none."""
    return price_of(asked_model(asked), prices_of(prices_in(settings)))


def _known_costs(settings: Settings, metrics: Sequence[str]) -> Iterator[tuple[str, Cost]]:
    for metric, (name, parameters) in zip(metrics, entries(settings), strict=True):
        try:
            cost = cost_of(name, **parameters)
        except ConfigurationError:
            continue  # it asks what the offline judge cannot answer
        if cost.calls:
            yield metric, cost


def _bought(budget: Budget, costs: Sequence[CostPlan]) -> str:
    one = sum(cost.spent.of(budget.unit) for cost in costs if budget.holds_for(cost.metric))
    if not one:
        return "nothing that is paid for is paid from it"
    units = budget.amount * (1 - KEPT_BACK) / one
    return f"{units:,.0f} units with all its scores per window, {units * _DAY_S / budget.window_s:,.0f} a day"


def _paid(costs: Sequence[CostPlan], budgets: Sequence[Budget]) -> Iterator[CostPlan]:
    """Yield costs with the factor that budgets leave; those of one metric first, as what it may not have is the others'."""
    factors = dict.fromkeys((cost.metric for cost in costs), 1.0)
    for budget in sorted(budgets, key=lambda one: one.metric is None):
        held = [cost for cost in costs if budget.holds_for(cost.metric) and cost.per_day]
        wanted = [(factors[cost.metric], cost.spent.of(budget.unit) * (cost.per_day or 0.0)) for cost in held]
        left = budget.amount * (1 - KEPT_BACK) * _DAY_S / budget.window_s
        factor = largest_factor(left, wanted)
        factors |= {cost.metric: min(factors[cost.metric], factor) for cost in held}
    return (replace(cost, factor=factors[cost.metric]) for cost in costs)
