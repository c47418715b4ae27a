"""Sizes, traffic, prices and budgets → what a score costs, what a day costs, and the rates that budgets allow."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

from spanscore import semconv
from spanscore.config.judging import Budget, ChatModelSettings, Spent
from spanscore.config.tree import Configuration
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.codecs.text import as_text, plain_number
from spanscore.core.printable import format_usd
from spanscore.core.span import SpanData
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.cost import Price, cost_usd, price_of, prices_of
from spanscore.metrics.catalog.configured import entries, listed, prices_in, shadow_settings
from spanscore.metrics.catalog.cost import Cost, cost_of, samples_with
from spanscore.pipeline.sampling import KEPT_BACK, largest_factor
from spanscore.protocols import Metric
from spanscore.report.rows import name_within

__all__ = [
    "FORMS",
    "CostPlan",
    "DayPlan",
    "ExpectedTraffic",
    "Sizes",
    "asked_model",
    "cost_lines",
    "costs_of",
    "days_of",
    "dear_lines",
    "judge_line",
    "money_line",
    "price_in",
    "read_measured_costs",
    "requests_per_day_in",
    "shadow_costs_of",
    "shadow_days_of",
    "traffic_in",
]

# --- sizes ----------------------------------------------------------------------------------------------------------

# How long the application's samples are, stated or measured → what one score of a metric costs.


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long samples are.

    Attributes:
        context_tokens: of the contexts of a request together; None = the short ones of the metric's card.
        measured: metric → the mean cost of its stored scores; it is believed before anything else.
    """

    context_tokens: int | None = None
    measured: Mapping[str, Cost] = field(default_factory=dict)

    def cost_of(self, name: str, metric: str, parameters: Mapping[str, Any]) -> Cost:
        """Return what a score costs of a metric that is called so.

        Raises:
            ConfigurationError: it is not measured, and asks what the offline judge cannot answer.
        """
        if name in self.measured:
            return self.measured[name]
        long = () if self.context_tokens is None else (samples_with(self.context_tokens),)
        return cost_of(metric, *long, **parameters)

    def __str__(self) -> str:
        if self.context_tokens is None:
            return "on a short sample: three contexts of a sentence or two; longer ones cost more"
        return f"on a short question and answer with contexts of {self.context_tokens:,} tokens together"


def read_measured_costs(file: str, metrics: Iterable[str]) -> Mapping[str, Cost]:
    """Return metric → what its scores cost that a file of spans holds, on average.

    Args:
        file: OTLP-JSON lines; ``-`` = standard input.
        metrics: those that are wanted.

    Raises:
        ConfigurationError: it cannot be read, or holds none of them with its judge's tokens.
        SampleError: a line is not OTLP-JSON.
    """
    paid_for: dict[str, list[tuple[float, ...]]] = {name: [] for name in metrics}
    with stored_spans(file) as spans:
        for span in spans:
            of_metric = paid_for.get(as_text(span.attributes.get(semconv.EVALUATION_NAME) or ""))
            paid = _read_judge_usage(span)
            if of_metric is not None and any(paid[1:]):  # of the offline judge there are calls, and no tokens
                of_metric.append(paid)
    costs = {name: _mean(paid) for name, paid in paid_for.items() if paid}
    if not costs:
        raise ConfigurationError(
            f"--costs-from {file}: it holds no score of {', '.join(paid_for)} with its judge's tokens"
        )
    return costs


def _read_judge_usage(span: SpanData) -> tuple[float, ...]:
    """Return questions, tokens read and written; zeros of what is no score of the configured judge."""
    if span.scope != semconv.SCOPE or semconv.EVALUATION_SOURCE in span.attributes:
        return 0.0, 0.0, 0.0
    names = (
        semconv.JUDGE_CALLS_ATTRIBUTE,
        semconv.JUDGE_CACHED_CALLS,
        semconv.JUDGE_INPUT_TOKENS,
        semconv.JUDGE_OUTPUT_TOKENS,
    )
    calls, cached, read, written = (plain_number(span.attributes.get(name)) or 0.0 for name in names)
    return calls - cached, read, written


def _mean(paid: list[tuple[float, ...]]) -> Cost:
    calls, read, written = (sum(column) / len(paid) for column in zip(*paid, strict=True))
    source = f"measured on {len(paid):,} scores"
    return Cost(calls=calls, input_tokens=round(read), output_tokens=round(written), counted_by=source)


# --- traffic --------------------------------------------------------------------------------------------------------

# What an operator says of the traffic → ExpectedTraffic: requests of each hour of a day or a week.

FORMS = "1e6, 1_000_000, 500k, 1.5M (a day), 12/s, 700/min, 40k/h, 1e6/d"
"""How a rate of requests may be written."""
_A_DAY = {"s": 86_400.0, "min": 1_440.0, "h": 24.0, "d": 1.0}
_TIMES = {"": 1.0, "k": 1e3, "M": 1e6}
_RATE = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+|\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)(?P<times>[kM]?)(?:\s*/\s*(?P<unit>s|min|h|d))?"
)
_COLUMNS = ["hour", "requests"]
_HOURS = (24, 168)
"""Rows of a profile: of a day, of a week."""


@dataclass(frozen=True, slots=True)
class ExpectedTraffic:
    """Requests that all replicas together see.

    Attributes:
        hourly: of each hour of a day or a week, which then begins again; one number where all hours are alike.
    """

    hourly: tuple[float, ...]

    @property
    def per_day(self) -> float:
        """Requests of a mean day."""
        return 24 * sum(self.hourly) / len(self.hourly)

    def scale_to(self, per_day: float) -> ExpectedTraffic:
        """Return the same profile with so many requests a day."""
        return replace(self, hourly=tuple(share * per_day / self.per_day for share in self.hourly))


def traffic_in(per_day: float | None, profile: Path | None) -> ExpectedTraffic | None:
    """Return the traffic that is told: a number, a profile, or a number that comes as a profile says; None where neither is.

    Raises:
        ConfigurationError: the profile is none; names its line.
    """
    if profile is None:
        return None if per_day is None else ExpectedTraffic((per_day / 24,))
    traffic = _profile(profile)
    return traffic if per_day is None else traffic.scale_to(per_day)


def requests_per_day_in(text: str) -> float:
    """Return requests a day.

    Raises:
        ValueError: it is no rate above 0; the message says what is.
    """
    match = _RATE.fullmatch(text.strip())
    number = float(re.sub("[_,]", "", match["number"])) if match else 0.0
    per_day = number * _TIMES[match["times"]] * _A_DAY[match["unit"] or "d"] if match else 0.0
    if not 0 < per_day < float("inf"):
        raise ValueError(f"{text!r} is no rate of requests; write for example {FORMS}")
    return per_day


def _profile(file: Path) -> ExpectedTraffic:
    """Read rows of hour and requests, each hour of a day or a week once; a first row may name the columns."""
    hours = dict[int, float]()
    try:
        with file.open(newline="", encoding="utf-8-sig") as opened:
            for line, hour, requests in _rows(file, enumerate(csv.reader(opened), 1)):
                if hour in hours:
                    raise ConfigurationError(f"{file}, line {line}: hour {hour} is there twice")
                hours[hour] = requests
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    length = next(length for length in _HOURS if max(hours, default=0) < length)
    missing = [hour for hour in range(length) if hour not in hours]
    if missing:
        raise ConfigurationError(
            f"{file}: hour {missing[0]} is missing; a profile has {_HOURS[0]} rows, of a day, or {_HOURS[1]}, of a week"
        )
    if not any(hours.values()):
        raise ConfigurationError(f"{file}: no hour has a request")
    return ExpectedTraffic(tuple(hours[hour] for hour in range(length)))


def _rows(file: Path, read: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, int, float]]:
    """Yield line, hour and requests."""
    for line, row in read:
        if not row or (line == 1 and [name.strip() for name in row] == _COLUMNS):
            continue
        where = f"{file}, line {line}"
        if len(row) != len(_COLUMNS):
            raise ConfigurationError(f"{where}: it has {len(row)} columns; write {','.join(_COLUMNS)}")
        hour, requests = (_number(cell) for cell in row)
        if hour is None or hour not in range(_HOURS[-1]):
            raise ConfigurationError(f"{where}: {row[0]!r} is no hour; write 0 to 23 of a day, or 0 to 167 of a week")
        if requests is None or requests < 0:
            raise ConfigurationError(f"{where}: {row[1]!r} is no number of requests; write 0 or more")
        yield line, int(hour), requests


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if isfinite(number) else None


# --- cost plan ------------------------------------------------------------------------------------------------------

# Metrics, prices, budgets and traffic → what a score costs, what a day comes to, and which rates the budgets buy.

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
        money = "no price" if cost.usd is None else f"{format_usd(1_000 * cost.usd)} USD per 1,000"
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
    units = f"1,000 units with all their scores cost {format_usd(1_000 * _together(costs))} USD"
    if requests is None:
        return units
    day = _together(days)
    per_request = f"{format_usd(1_000 * day / requests)} USD per 1,000 requests"
    return f"a day of {requests:,.0f} requests costs {format_usd(day)} USD, {per_request}; {units}"


def _together(costs: Iterable[CostPlan | DayPlan]) -> float:
    """Return the sum of costs that are all known."""
    return sum(cost.usd or 0.0 for cost in costs)


def asked_model(judge: ChatModelSettings) -> str:
    """Return the model that a judge asks, without its provider."""
    return judge.model.partition(":")[2] or judge.model


def price_in(settings: Configuration, judge: ChatModelSettings) -> Price | None:
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
    settings: Configuration, rows: Iterable[tuple[str, str, Mapping[str, Any], ChatModelSettings]], sizes: Sizes
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
