"""Sizes, traffic, prices and budgets → what a score costs, what a day costs, and the rates that budgets allow."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, nan
from pathlib import Path
from typing import Any

from spanscore import semconv
from spanscore.config.judging import Budget, ChatModelSettings, Spent
from spanscore.config.tree import Configuration
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.codecs.text import as_text, plain_number
from spanscore.core.printable import format_usd
from spanscore.errors import ConfigurationError
from spanscore.judges.batches.run import PROVIDERS
from spanscore.judges.effects.cost import Price, cost_usd, price_of, prices_of
from spanscore.metrics.catalog.configured import entries, listed, prices_in, shadow_settings
from spanscore.metrics.catalog.cost import Cost, cost_of, samples_with
from spanscore.pipeline.sampling import KEPT_BACK, largest_factor
from spanscore.protocols import Metric
from spanscore.report.rows import name_within

FORMS = "1e6, 1_000_000, 500k, 1.5M (a day), 12/s, 700/min, 40k/h, 1e6/d"
"""How a rate of requests may be written."""
_DAY_S = 86_400.0
_A_DAY = {"s": 86_400.0, "min": 1_440.0, "h": 24.0, "d": 1.0}
_TIMES = {"": 1.0, "k": 1e3, "M": 1e6}
_RATE = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+|\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)(?P<times>[kM]?)(?:\s*/\s*(?P<unit>s|min|h|d))?"
)
_COLUMNS = ["hour", "requests"]
_HOURS = (24, 168)
"""Rows of a profile: of a day, of a week."""
_FREE = Cost(calls=0, input_tokens=0, output_tokens=0, counted_by="no judge")
_USAGE = (
    semconv.JUDGE_CALLS_ATTRIBUTE,
    semconv.JUDGE_CACHED_CALLS,
    semconv.JUDGE_INPUT_TOKENS,
    semconv.JUDGE_OUTPUT_TOKENS,
)
"""Attributes of a score's span for its judge's usage."""


# --- sizes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the application's samples, stated or measured.

    Attributes:
        context_tokens: of the contexts of a request together; None = the short ones of the metric's card.
        measured: metric → the mean cost of its stored scores, which replaces every estimate.
    """

    context_tokens: int | None = None
    measured: Mapping[str, Cost] = field(default_factory=dict)

    def cost_of(self, name: str, metric: str, parameters: Mapping[str, Any]) -> Cost:
        """Return the cost of a score.

        Args:
            name: of the metric.
            metric: its entry in the registry; ``parameters``: its parameters.

        Raises:
            ConfigurationError: it is not measured, and the offline judge cannot answer its questions.
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
    """Return metric → mean cost of its scores in a file of spans.

    Args:
        file: OTLP-JSON lines; ``-`` = standard input.
        metrics: names of the metrics to look for.

    Raises:
        ConfigurationError: the file cannot be read, or holds no score of these metrics with its judge's tokens.
        SampleError: a line is not OTLP-JSON.
    """
    usages: dict[str, list[tuple[float, float, float]]] = {name: [] for name in metrics}
    with stored_spans(file) as spans:
        for span in spans:
            name = as_text(span.attributes.get(semconv.EVALUATION_NAME) or "")
            is_ours = span.scope == semconv.SCOPE and semconv.EVALUATION_SOURCE not in span.attributes
            usage = _read_usage(span.attributes)
            if name in usages and is_ours and any(usage[1:]):  # the offline judge has calls and no tokens
                usages[name].append(usage)
    costs = {name: _mean_cost(read) for name, read in usages.items() if read}
    if not costs:
        raise ConfigurationError(
            f"--costs-from {file}: it holds no score of {', '.join(usages)} with its judge's tokens"
        )
    return costs


def _read_usage(attributes: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return calls, tokens read and tokens written."""
    calls, cached, read, written = (plain_number(attributes.get(key)) or 0.0 for key in _USAGE)
    return calls - cached, read, written


def _mean_cost(usage: Sequence[tuple[float, float, float]]) -> Cost:
    calls, read, written = (sum(column) / len(usage) for column in zip(*usage, strict=True))
    source = f"measured on {len(usage):,} scores"
    return Cost(calls=calls, input_tokens=round(read), output_tokens=round(written), counted_by=source)


# --- traffic --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpectedTraffic:
    """Requests to all replicas together.

    Attributes:
        hourly: requests of each hour of a day or a week, which then begins again; one number if all hours are alike.
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
    """Return the stated traffic: a number, a profile, or a profile scaled to the number; None if both are None.

    Raises:
        ConfigurationError: the profile is invalid; the message names its line.
    """
    if profile is None:
        return None if per_day is None else ExpectedTraffic((per_day / 24,))
    traffic = _read_profile(profile)
    return traffic if per_day is None else traffic.scale_to(per_day)


def requests_per_day_in(text: str) -> float:
    """Return requests a day.

    Raises:
        ValueError: it is no rate above 0; the message lists the forms of one.
    """
    match = _RATE.fullmatch(text.strip())
    number = float(re.sub("[_,]", "", match["number"])) if match else 0.0
    per_day = number * _TIMES[match["times"]] * _A_DAY[match["unit"] or "d"] if match else 0.0
    if not 0 < per_day < float("inf"):
        raise ValueError(f"{text!r} is no rate of requests; write for example {FORMS}")
    return per_day


def _read_profile(file: Path) -> ExpectedTraffic:
    """Read rows of hour and requests, each hour of a day or a week once; a first row may name the columns."""
    hours = dict[int, float]()
    try:
        with file.open(newline="", encoding="utf-8-sig") as opened:
            for line, row in enumerate(csv.reader(opened), 1):
                if row and (line > 1 or list(map(str.strip, row)) != _COLUMNS):
                    hour, requests = _read_row(f"{file}, line {line}", row)
                    if hour in hours:
                        raise ConfigurationError(f"{file}, line {line}: hour {hour} is there twice")
                    hours[hour] = requests
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    length = _HOURS[max(hours, default=0) >= _HOURS[0]]
    if missing := sorted({*range(length)} - hours.keys()):
        raise ConfigurationError(
            f"{file}: hour {missing[0]} is missing; a profile has {_HOURS[0]} rows, of a day, or {_HOURS[1]}, of a week"
        )
    if not any(hours.values()):
        raise ConfigurationError(f"{file}: no hour has a request")
    return ExpectedTraffic(tuple(hours[hour] for hour in range(length)))


def _read_row(where: str, row: Sequence[str]) -> tuple[int, float]:
    """Return hour and requests."""
    if len(row) != len(_COLUMNS):
        raise ConfigurationError(f"{where}: it has {len(row)} columns; write {','.join(_COLUMNS)}")
    numbers = []
    for cell in row:
        try:
            numbers.append(float(cell))
        except ValueError:
            numbers.append(nan)
    hour, requests = numbers
    if hour not in range(_HOURS[-1]):
        raise ConfigurationError(f"{where}: {row[0]!r} is no hour; write 0 to 23 of a day, or 0 to 167 of a week")
    if not 0 <= requests < inf:
        raise ConfigurationError(f"{where}: {row[1]!r} is no number of requests; write 0 or more")
    return int(hour), requests


# --- cost -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPlan:
    """The cost of one score of a metric.

    Attributes:
        calls: questions to its judge.
        input_tokens: tokens that its judge reads; ``output_tokens``: that it writes.
        usd: None if the judge's model has no price.
        batch_usd: of a score by batches; None if the model has no price, or its provider no batches.
        counted_by: the tokenizer, or the scores on which the tokens were measured.
    """

    metric: str
    calls: float
    input_tokens: int
    output_tokens: int
    usd: float | None
    batch_usd: float | None
    counted_by: str

    @property
    def spent(self) -> Spent:
        """The cost of one score in the units of budgets."""
        return Spent(self.usd or 0.0, self.input_tokens + self.output_tokens, self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlan:
    """The cost of a day of the stated traffic, for one metric, without the units that sampling rules add.

    Attributes:
        rate: configured rate, [0, 1].
        factor: share of the configured rate that the budgets leave, [0, 1].
        bought: highest rate that the budgets pay for, [0, 1]; None = no budget is for this metric.
        scores: at the rate that the budgets leave.
        calls: questions to the judge; None if the cost of a score is unknown.
        tokens: read and written; None if the cost of a score is unknown.
        usd: None if the cost of a score is unknown, or the judge's model has no price.
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
    """Return the cost of a score of each metric; metrics of unknown cost are left out."""
    rows = [(metric, *of, settings.judge) for metric, of in zip(metrics, entries(settings), strict=True)]
    return tuple(_costs(settings, rows, sizes))


def shadow_costs_of(settings: Configuration, metrics: Sequence[str], sizes: Sizes) -> tuple[CostPlan, ...]:
    """Return the cost of a score of each second judge, under the name of its metric; unknown ones are left out."""
    own = [metric for metric, (_, _, shadow) in zip(metrics, listed(settings), strict=True) if shadow is not None]
    rows = [(metric, *of) for metric, of in zip(own, shadow_settings(settings), strict=True)]
    return tuple(_costs(settings, rows, sizes))


def days_of(
    costs: Sequence[CostPlan], rates: Mapping[str, float], budgets: Sequence[Budget], requests: float
) -> tuple[DayPlan, ...]:
    """Return the cost of a day, for each metric.

    Args:
        costs: of one score; of sessions, whose number is unknown, none.
        rates: metric → its sampling rate, without the rules that raise it.
        budgets: of all replicas together.
        requests: units a day to all replicas.
    """
    wanted = {cost.metric: requests * rates[cost.metric] for cost in costs}
    factors = _largest_factors(
        costs, {name: 1 / rates[name] for name, scores in wanted.items() if scores}, wanted, budgets
    )
    cost_of = {cost.metric: cost for cost in costs}
    return tuple(
        _day(cost_of.get(metric), metric, rate, factors.get(metric), budgets, requests)
        for metric, rate in rates.items()
    )


def _day(
    cost: CostPlan | None,
    metric: str,
    rate: float,
    largest: float | None,
    budgets: Sequence[Budget],
    requests: float,
) -> DayPlan:
    """Return the cost of a day; ``largest``: the factor that budgets leave, which may exceed 1, None = no limit."""
    factor = 1.0 if largest is None else min(1.0, largest)
    scores = requests * rate * factor
    is_paid = cost is not None and any(budget.holds_for(metric) and cost.spent.of(budget.unit) for budget in budgets)
    return DayPlan(
        metric=metric,
        rate=rate,
        factor=factor,
        bought=rate * largest if is_paid and largest is not None else None,
        scores=scores,
        calls=None if cost is None else scores * cost.calls,
        tokens=None if cost is None else scores * (cost.input_tokens + cost.output_tokens),
        usd=None if cost is None or cost.usd is None else scores * cost.usd,
    )


def cost_lines(
    costs: Sequence[CostPlan], shadows: Sequence[CostPlan], budgets: Sequence[Budget], sizes: Sizes
) -> Iterator[str]:
    """Yield the cost of a score for each metric with a judge and each second judge, and the units that budgets buy."""
    beside = (replace(cost, metric=name_within(cost.metric, semconv.SOURCE_SHADOW)) for cost in shadows)
    paid = [cost for cost in (*costs, *beside) if cost.calls]
    if paid:
        yield f"what a score costs, {sizes}:"
    for cost in paid:
        money = "no price" if cost.usd is None else f"{format_usd(1_000 * cost.usd)} USD per 1,000"
        tokens = f"{cost.input_tokens:,} tokens read and {cost.output_tokens:,} written"
        measured = f" ({cost.counted_by})" if cost.metric in sizes.measured else ""
        batch = "" if cost.batch_usd is None else f"; by --batch {format_usd(1_000 * cost.batch_usd)} USD per 1,000"
        yield f"  {cost.metric}: {money}; {cost.calls:.3g} question{'s' * (cost.calls != 1)}, {tokens}{measured}{batch}"
    for budget in budgets:
        per_unit = sum(cost.spent.of(budget.unit) for cost in costs if budget.holds_for(cost.metric))
        if not per_unit:
            yield f"budget of {budget}: nothing that is paid for is paid from it"
            continue
        units = budget.amount * (1 - KEPT_BACK) / per_unit
        a_day = units * _DAY_S / budget.window_s
        yield f"budget of {budget}: {units:,.0f} units with all its scores per window, {a_day:,.0f} a day"


def money_line(
    metrics: Sequence[str], costs: Sequence[CostPlan], days: Sequence[DayPlan], requests: float | None
) -> str:
    """Return a sentence with the cost of a day, if traffic is stated, and of 1,000 units with all their scores.

    Args:
        metrics: their names.
        costs: of one score, those of second judges too.
        days: of the metrics and the second judges; empty if no traffic is stated.
        requests: units a day; None if no traffic is stated.
    """
    cost_of = {cost.metric: cost for cost in costs}
    uncounted = [metric for metric in metrics if metric not in cost_of]
    if not uncounted and not any(cost.calls for cost in costs):
        return "judging costs nothing: no metric asks a model"
    if unknown := dict.fromkeys([cost.metric for cost in costs if cost.usd is None] + uncounted):
        return f"what judging costs is not known: no price in judge.prices, or not counted: {', '.join(unknown)}"
    units = f"1,000 units with all their scores cost {format_usd(1_000 * _sum_usd(costs))} USD"
    if requests is None:
        return units
    day = _sum_usd(days)
    per_request = f"{format_usd(1_000 * day / requests)} USD per 1,000 requests"
    return f"a day of {requests:,.0f} requests costs {format_usd(day)} USD, {per_request}; {units}"


def _sum_usd(costs: Iterable[CostPlan | DayPlan]) -> float:
    return sum(cost.usd or 0.0 for cost in costs)


def asked_model(judge: ChatModelSettings) -> str:
    """Return the model that a judge asks, without its provider."""
    return judge.model.partition(":")[2] or judge.model


def price_in(settings: Configuration, judge: ChatModelSettings) -> Price | None:
    """Return the price of a judge's model in a configuration; None if the model has none."""
    return price_of(asked_model(judge), prices_of(prices_in(settings)))


def judge_line(settings: Configuration, metrics: Sequence[Metric]) -> str:
    """Return the judge's model; if a metric needs a judge and none is named, also how to name one."""
    model = settings.judge.model
    if model != "lexical":
        return model
    unnamed = "model" not in settings.judge.model_fields_set and any(map(_asks_a_judge, metrics))
    how = "; no judge is named: write judge: openai:gpt-4o-mini, or judge: lexical to keep this one" if unnamed else ""
    return f"{model} (the offline heuristic: a first look, no verdict{how})"


def dear_lines(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield a warning if a paid judge is asked about every unit and no budget bounds its cost."""
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
    """Yield the cost of a score for each row of metric, registry entry, parameters and judge."""
    for metric, name, parameters, judge in rows:
        try:
            cost = _FREE if judge.model == "lexical" else sizes.cost_of(metric, name, parameters)
        except ConfigurationError:
            continue  # the offline judge, which counts the tokens, cannot answer its questions
        usd, batch_usd = (None, None) if cost.calls else (0.0, 0.0)
        if cost.calls and (price := price_in(settings, judge)) is not None:
            usd = cost_usd(price, cost.input_tokens, cost.output_tokens)
            if judge.model.partition(":")[0] in PROVIDERS:
                batch_usd = usd * price.batch
        yield CostPlan(
            metric=metric,
            calls=cost.calls,
            input_tokens=cost.input_tokens,
            output_tokens=cost.output_tokens,
            usd=usd,
            batch_usd=batch_usd,
            counted_by=cost.counted_by,
        )


def _largest_factors(
    costs: Sequence[CostPlan], limits: Mapping[str, float], wanted: Mapping[str, float], budgets: Sequence[Budget]
) -> Mapping[str, float]:
    """Return metric → the factor that budgets leave, up to its limit.

    Budgets of one metric come first: the other metrics share the rest.
    """
    factors = dict(limits)
    for budget in sorted(budgets, key=lambda budget: budget.metric is None):
        held = [cost for cost in costs if budget.holds_for(cost.metric) and cost.metric in factors]
        shares = [(factors[cost.metric], cost.spent.of(budget.unit) * wanted[cost.metric]) for cost in held]
        left = budget.amount * (1 - KEPT_BACK) * _DAY_S / budget.window_s
        factor = largest_factor(left, shares)
        factors |= {cost.metric: min(factors[cost.metric], factor) for cost in held if cost.spent.of(budget.unit)}
    return factors
