"""Metrics, prices, budgets and traffic → what a score costs, what a day comes to, and which rates the budgets buy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spanscore import semconv
from spanscore.cli._sizes import Sizes
from spanscore.config.judging import AskedSettings, Budget, Spent
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.cost import Price, cost_usd, price_of, prices_of
from spanscore.metrics.catalog.configured import entries, listed, prices_in, shadow_settings
from spanscore.metrics.catalog.cost import Cost
from spanscore.pipeline.sampling import KEPT_BACK, largest_factor
from spanscore.protocols import Metric
from spanscore.report.rows import name_within

__all__ = [
    "CostPlan",
    "DayPlan",
    "asked_model",
    "cost_lines",
    "costs_of",
    "days_of",
    "dear_lines",
    "judge_line",
    "money_line",
    "price_in",
    "shadow_costs_of",
    "shadow_days_of",
    "usd_told",
]

_DAY_S = 86_400.0
_FREE = Cost(calls=0, input_tokens=0, output_tokens=0, counted_by="no judge")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPlan:
    """What one score of a metric costs.

    Attributes:
        calls: questions.
        input_tokens: that its judge reads.
        output_tokens: that it writes.
        usd: None where the judge's model has no price.
        counted_by: the tokenizer, or on what the tokens were measured.
    """

    metric: str
    calls: float
    input_tokens: int
    output_tokens: int
    usd: float | None
    counted_by: str

    @property
    def spent(self) -> Spent:
        """What one score costs, in the units of budgets."""
        return Spent(self.usd or 0.0, self.input_tokens + self.output_tokens, self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlan:
    """What a day of the stated traffic comes to, for one metric, without what sampling rules add.

    Attributes:
        rate: that is asked for, [0, 1].
        factor: what the budgets leave of the rate that is asked for, [0, 1].
        bought: highest rate that the budgets pay for, [0, 1]; None = none of them is for this metric.
        scores: at the rate that is left.
        calls: questions to the judge; None where nobody knows what a score costs. Likewise ``tokens``.
        tokens: read and written.
        usd: None also where the judge's model has no price.
    """

    metric: str
    rate: float
    factor: float
    bought: float | None
    scores: float
    calls: float | None
    tokens: float | None
    usd: float | None


def costs_of(settings: Configuration, metrics: Sequence[str], sizes: Sizes) -> tuple[CostPlan, ...]:
    """Return what a score of each metric costs, those left out of which nobody knows it."""
    rows = [(metric, *of, settings.judge) for metric, of in zip(metrics, entries(settings), strict=True)]
    return tuple(_costs(settings, rows, sizes))


def shadow_costs_of(settings: Configuration, metrics: Sequence[str], sizes: Sizes) -> tuple[CostPlan, ...]:
    """Return the same of second judges, under the names of their metrics."""
    own = [metric for metric, (_, _, shadow) in zip(metrics, listed(settings), strict=True) if shadow is not None]
    rows = [(metric, *of) for metric, of in zip(own, shadow_settings(settings), strict=True)]
    return tuple(_costs(settings, rows, sizes))


def days_of(
    costs: Sequence[CostPlan], rates: Mapping[str, float], budgets: Sequence[Budget], requests: float
) -> tuple[DayPlan, ...]:
    """Return what a day comes to, for each metric.

    Args:
        costs: of one score.
        rates: metric → its sampling rate, without the rules that raise it.
        budgets: of all replicas together.
        requests: units a day that these see.
    """
    wanted = {cost.metric: requests * rates[cost.metric] for cost in costs}
    factors = _largest_factors(
        costs, {name: 1 / rates[name] for name, scores in wanted.items() if scores}, wanted, budgets
    )
    cost_of = {cost.metric: cost for cost in costs}
    return tuple(
        _day(
            metric,
            cost_of.get(metric),
            rate=rate,
            factor=min(1.0, factors.get(metric, 1.0)),
            bought=rate * factors[metric] if metric in factors and _is_paid(cost_of[metric], budgets) else None,
            requests=requests,
        )
        for metric, rate in rates.items()
    )


def shadow_days_of(
    costs: Sequence[CostPlan], days: Sequence[DayPlan], budgets: Sequence[Budget], requests: float
) -> tuple[DayPlan, ...]:
    """Return what a day comes to of second judges, which are asked of what their metrics score.

    Args:
        costs: of one of their scores.
        days: of the metrics.
        budgets: of second judges.
        requests: units a day.
    """
    scored = {day.metric: day.rate * day.factor for day in days}
    return days_of(costs, {cost.metric: scored[cost.metric] for cost in costs}, budgets, requests)


def cost_lines(
    costs: Sequence[CostPlan], shadows: Sequence[CostPlan], budgets: Sequence[Budget], sizes: Sizes
) -> Iterator[str]:
    """Yield what a score costs of the metrics that ask a judge and of second judges, and what the budgets of the first buy."""
    beside = (replace(cost, metric=name_within(cost.metric, semconv.SOURCE_SHADOW)) for cost in shadows)
    paid = [cost for cost in (*costs, *beside) if cost.calls]
    if paid:
        yield f"what a score costs, {sizes}:"
    for cost in paid:
        money = "no price" if cost.usd is None else f"{usd_told(1_000 * cost.usd)} per 1,000"
        tokens = f"{cost.input_tokens:,} tokens read and {cost.output_tokens:,} written"
        measured = f" ({cost.counted_by})" if cost.metric in sizes.measured else ""
        yield f"  {cost.metric}: {money}; {cost.calls:.3g} question{'s' * (cost.calls != 1)}, {tokens}{measured}"
    for budget in budgets:
        yield f"budget of {budget}: {_format_units_bought(budget, costs)}"


def money_line(
    metrics: Sequence[str], costs: Sequence[CostPlan], days: Sequence[DayPlan], requests: float | None
) -> str:
    """Return what judging costs, in a sentence: 1,000 units with all their scores, and first a day of the traffic, if stated.

    Args:
        metrics: their names.
        costs: of one score, those of second judges too.
        days: likewise; empty where no traffic is stated.
        requests: units a day; None likewise.
    """
    uncounted = [metric for metric in metrics if metric not in {cost.metric for cost in costs}]
    if not uncounted and not any(cost.calls for cost in costs):
        return "judging costs nothing: no metric asks a model"
    if unknown := dict.fromkeys([cost.metric for cost in costs if cost.usd is None] + uncounted):
        return f"what judging costs is not known: no price in judge.prices, or not counted: {', '.join(unknown)}"
    units = f"1,000 units with all their scores cost {usd_told(1_000 * _together(costs))}"
    if requests is None:
        return units
    day = _together(days)
    per_request = f"{usd_told(1_000 * day / requests)} per 1,000 requests"
    return f"a day of {requests:,.0f} requests costs {usd_told(day)}, {per_request}; {units}"


def _together(costs: Iterable[CostPlan | DayPlan]) -> float:
    """Return the sum of costs that are all known."""
    return sum(cost.usd or 0.0 for cost in costs)


def usd_told(usd: float) -> str:
    """Return an amount of money: two digits of small ones."""
    return f"{usd:,.2f} USD" if usd >= 1 or not usd else f"{usd:.2g} USD"


def asked_model(judge: AskedSettings) -> str:
    """Return the model that a judge asks, without its provider."""
    return judge.model.partition(":")[2] or judge.model


def price_in(settings: Configuration, judge: AskedSettings) -> Price | None:
    """Return the price that a configuration has for the model of one of its judges; None where it has none."""
    return price_of(asked_model(judge), prices_of(prices_in(settings)))


def judge_line(settings: Configuration, metrics: Sequence[Metric]) -> str:
    """Return who judges; if a metric needs a judge and none is named, how to name one."""
    model = settings.judge.model
    if model != "lexical":
        return model
    unnamed = "model" not in settings.judge.model_fields_set and any(map(_asks_a_judge, metrics))
    how = "; no judge is named: write judge: openai:gpt-4o-mini, or judge: lexical to keep this one" if unnamed else ""
    return f"{model} (the offline heuristic: a first look, no verdict{how})"


def dear_lines(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield that a paid judge is asked about every unit, and that no budget bounds it."""
    price = price_in(settings, settings.judge)
    is_free = settings.judge.model == "lexical" or (price is not None and price.input == price.output == 0)
    every = [
        metric.name for metric in metrics if _asks_a_judge(metric) and settings.sampling.rates_of(metric.name)[0] >= 1
    ]
    if every and not is_free and not settings.judge.budget:
        yield (
            f"{settings.judge.model} is asked about every unit by {', '.join(every)}, as the sampling rate is 1, and no budget "
            "bounds it; in production write sampling: {rate: 0.1}, or judge: {budget: [{usd: 5, per: 1d}]}"
        )


def _asks_a_judge(metric: Metric) -> bool:
    return getattr(metric, "_judge", None) is not None


def _costs(
    settings: Configuration, rows: Iterable[tuple[str, str, Mapping[str, Any], AskedSettings]], sizes: Sizes
) -> Iterator[CostPlan]:
    """Yield what a score costs of each metric (what it is called, its entry and parameters) with the judge that is asked."""
    for metric, name, parameters, whom in rows:
        try:
            cost = _FREE if whom.model == "lexical" else sizes.cost_of(metric, name, parameters)
        except ConfigurationError:
            continue  # it asks what the offline judge cannot answer
        yield CostPlan(
            metric=metric,
            calls=cost.calls,
            input_tokens=cost.input_tokens,
            output_tokens=cost.output_tokens,
            usd=_usd(price_in(settings, whom), cost),
            counted_by=cost.counted_by,
        )


def _usd(price: Price | None, cost: Cost) -> float | None:
    if not cost.calls:
        return 0.0
    return None if price is None else cost_usd(price, cost.input_tokens, cost.output_tokens)


def _format_units_bought(budget: Budget, costs: Sequence[CostPlan]) -> str:
    per_unit = sum(cost.spent.of(budget.unit) for cost in costs if budget.holds_for(cost.metric))
    if not per_unit:
        return "nothing that is paid for is paid from it"
    units = budget.amount * (1 - KEPT_BACK) / per_unit
    return f"{units:,.0f} units with all its scores per window, {units * _DAY_S / budget.window_s:,.0f} a day"


def _is_paid(cost: CostPlan, budgets: Sequence[Budget]) -> bool:
    return any(budget.holds_for(cost.metric) and cost.spent.of(budget.unit) for budget in budgets)


def _largest_factors(
    costs: Sequence[CostPlan], limits: Mapping[str, float], wanted: Mapping[str, float], budgets: Sequence[Budget]
) -> Mapping[str, float]:
    """Return metric → the factor that budgets leave, up to its limit.

    Those of one metric come first, as what it may not have is the others'.
    """
    factors = dict(limits)
    for budget in sorted(budgets, key=lambda budget: budget.metric is None):
        held = [cost for cost in costs if budget.holds_for(cost.metric) and cost.metric in factors]
        shares = [(factors[cost.metric], cost.spent.of(budget.unit) * wanted[cost.metric]) for cost in held]
        left = budget.amount * (1 - KEPT_BACK) * _DAY_S / budget.window_s
        factor = largest_factor(left, shares)
        factors |= {cost.metric: min(factors[cost.metric], factor) for cost in held if cost.spent.of(budget.unit)}
    return factors


def _day(
    metric: str, cost: CostPlan | None, *, rate: float, factor: float, bought: float | None, requests: float
) -> DayPlan:
    scores = requests * rate * factor
    return DayPlan(
        metric=metric,
        rate=rate,
        factor=factor,
        bought=bought,
        scores=scores,
        calls=None if cost is None else scores * cost.calls,
        tokens=None if cost is None else scores * (cost.input_tokens + cost.output_tokens),
        usd=None if cost is None or cost.usd is None else scores * cost.usd,
    )
