"""Cost estimates for ``spanscore check``: the cost of a score and of a day, and the rates that the budgets allow."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanscore import semconv
from spanscore.config.judging import Budget, ChatModelSettings, JurySettings, Spent
from spanscore.config.tree import Configuration
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.codecs.text import as_text, plain_number
from spanscore.core.printable import format_usd
from spanscore.core.sample import Sample
from spanscore.errors import ConfigurationError
from spanscore.judges.batches.api import PROVIDERS
from spanscore.judges.effects.cost import Price, cost_usd, price_of, prices_of
from spanscore.metrics.catalog.configured import metric_entries, metrics_with_juries, prices_in, shadow_settings
from spanscore.metrics.catalog.cost import Cost, bundle_cost_of, cost_of, samples_with
from spanscore.pipeline.sampling import RESERVE, largest_factor
from spanscore.protocols import Metric
from spanscore.report.rows import name_within

if TYPE_CHECKING:
    from spanscore.cli._plan import ConfigPlan
    from spanscore.cli._topics import ConfigReport

FORMS = "1e6, 1_000_000, 500k, 1.5M (a day), 12/s, 700/min, 40k/h, 1e6/d"
"""Accepted spellings of a request rate."""
_DAY_S = 86_400.0
_A_DAY = {"s": 86_400.0, "min": 1_440.0, "h": 24.0, "d": 1.0}
_TIMES = {"": 1.0, "k": 1e3, "M": 1e6}
_RATE = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+|\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)(?P<times>[kM]?)(?:\s*/\s*(?P<unit>s|min|h|d))?"
)
_COLUMNS = ["hour", "requests"]
_HOURS = (24, 168)
"""Rows of a traffic profile: of a day, of a week."""
_CACHING = ("openai:", "azure_openai:", "anthropic:")
"""Prefixes of the names of models whose provider's prompt cache is used."""
_FREE = Cost(calls=0, input_tokens=0, output_tokens=0, counted_by="no judge")
_USAGE = (
    semconv.JUDGE_CALLS_ATTRIBUTE,
    semconv.JUDGE_CACHED_CALLS,
    semconv.JUDGE_INPUT_TOKENS,
    semconv.JUDGE_OUTPUT_TOKENS,
)
"""Attributes of a score's span with the usage of its judge."""


# --- sizes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the application's samples, as stated by the user or measured.

    Attributes:
        context_tokens: tokens of all contexts of a request; None = those of the short sample in ``cost_of``.
        measured: metric → mean cost of its stored scores, used in place of an estimate.
    """

    context_tokens: int | None = None
    measured: Mapping[str, Cost] = field(default_factory=dict)

    @property
    def samples(self) -> tuple[Mapping[str, Sample], ...]:
        """The samples on which costs are estimated; empty = the short ones in ``cost_of``."""
        return () if self.context_tokens is None else (samples_with(self.context_tokens),)

    def cost_of(self, name: str, metric: str, parameters: Mapping[str, Any]) -> Cost:
        """Return the cost of a score of a metric; ``metric`` is its registry entry.

        Raises:
            ConfigurationError: the cost is not measured, and the offline judge cannot answer the metric's questions.
        """
        return self.measured.get(name) or cost_of(metric, *self.samples, **parameters)

    def __str__(self) -> str:
        if self.context_tokens is None:
            return "on a short sample: three contexts of a sentence or two; longer ones cost more"
        return f"on a short question and answer with contexts of {self.context_tokens:,} tokens together"


def read_measured_costs(file: str, metrics: Iterable[str]) -> Mapping[str, Cost]:
    """Return metric → mean cost of its scores in a file of spans. A metric without such scores is left out.

    Args:
        file: OTLP-JSON lines; ``-`` = standard input.

    Raises:
        ConfigurationError: the file cannot be read, or no score of these metrics has its judge's tokens.
        SampleError: a line is not OTLP-JSON.
    """
    usages: dict[str, list[tuple[float, float, float]]] = {name: [] for name in metrics}
    with stored_spans(file) as spans:
        for span in spans:
            name = as_text(span.attributes.get(semconv.EVALUATION_NAME) or "")
            is_ours = span.scope == semconv.SCOPE and semconv.EVALUATION_SOURCE not in span.attributes
            used = _read_usage(span.attributes)
            if name in usages and is_ours and any(used[1:]):  # the offline judge has calls and no tokens
                usages[name].append(used)
    costs = {}
    for name, usage in usages.items():
        if usage:
            calls, read, written = (sum(column) / len(usage) for column in zip(*usage, strict=True))
            source = f"measured on {len(usage):,} scores"
            costs[name] = Cost(calls=calls, input_tokens=round(read), output_tokens=round(written), counted_by=source)
    if not costs:
        raise ConfigurationError(
            f"--costs-from {file}: it holds no score of {', '.join(usages)} with its judge's tokens"
        )
    return costs


def _read_usage(attributes: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return judge calls, tokens read and tokens written."""
    calls, cached, read, written = (plain_number(attributes.get(key)) or 0.0 for key in _USAGE)
    return calls - cached, read, written


# --- traffic --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpectedTraffic:
    """Requests to all replicas together.

    Attributes:
        hourly: requests in each hour of a day (24) or a week (168), repeated; one number if all hours are equal.
    """

    hourly: tuple[float, ...]

    @property
    def per_day(self) -> float:
        """Requests of a mean day."""
        return 24 * sum(self.hourly) / len(self.hourly)

    def scale_to(self, per_day: float) -> ExpectedTraffic:
        """Return the same profile, scaled to this many requests a day."""
        return replace(self, hourly=tuple(share * per_day / self.per_day for share in self.hourly))


def traffic_in(per_day: float | None, profile: Path | None) -> ExpectedTraffic | None:
    """Return the stated traffic: a daily number, a profile, or a profile scaled to the number; None if no traffic is stated.

    Raises:
        ConfigurationError: the profile is invalid; the message names its line.
    """
    if profile is None:
        return None if per_day is None else ExpectedTraffic((per_day / 24,))
    traffic = _read_profile(profile)
    return traffic if per_day is None else traffic.scale_to(per_day)


def requests_per_day_in(text: str) -> float:
    """Return a request rate in requests a day.

    Raises:
        ValueError: the text is not a rate above 0; the message lists the accepted forms.
    """
    match = _RATE.fullmatch(text.strip())
    number = float(re.sub("[_,]", "", match["number"])) if match else 0.0
    per_day = number * _TIMES[match["times"]] * _A_DAY[match["unit"] or "d"] if match else 0.0
    if not 0 < per_day < float("inf"):
        raise ValueError(f"{text!r} is not a rate of requests; write for example {FORMS}")
    return per_day


def _read_profile(file: Path) -> ExpectedTraffic:
    """Read rows of (hour, requests), in which each hour of a day or a week occurs once. The first row may name the columns."""
    hours = dict[int, float]()
    try:
        with file.open(newline="", encoding="utf-8-sig") as opened:
            for line, row in enumerate(csv.reader(opened), 1):
                if row and (line > 1 or list(map(str.strip, row)) != _COLUMNS):
                    hour, requests = _read_row(f"{file}, line {line}", row)
                    if hour in hours:
                        raise ConfigurationError(
                            f"{file}, line {line}: hour {hour} is there twice; write each hour once"
                        )
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


def _read_row(place: str, row: Sequence[str]) -> tuple[int, float]:
    """Return the hour and its requests. ``place`` is file and line, for messages."""
    if len(row) != len(_COLUMNS):
        raise ConfigurationError(f"{place}: it has {len(row)} columns; write {','.join(_COLUMNS)}")
    numbers = []
    for cell in row:
        try:
            numbers.append(float(cell))
        except ValueError:
            numbers.append(nan)
    hour, requests = numbers
    if hour not in range(_HOURS[-1]):
        raise ConfigurationError(f"{place}: {row[0]!r} is not an hour; write 0 to 23 of a day, or 0 to 167 of a week")
    if not 0 <= requests < inf:
        raise ConfigurationError(f"{place}: {row[1]!r} is not a number of requests; write 0 or more")
    return int(hour), requests


# --- cost -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPlan:
    """The cost of one score of a metric.

    Attributes:
        usd: US dollars; None if the judge's model has no price.
        batch_usd: US dollars of a score by batches; None if the model has no price, or its provider has no batches.
        counted_by: the tokenizer, or the scores on which the tokens were measured.
        alone: cost without ``bundle``; None = the metric has no bundle, or its cost was measured.
        usd_alone: USD without ``bundle``; None = the metric has no bundle, or the judge's model has no price.
        most_usd: US dollars if the jurors always disagree, so that ``then`` is asked every time; None without ``then`` or a
            price.
        beginnings: first field of the evidence → tokens of each question up to the end of that field, as in ``Cost``.
    """

    metric: str
    calls: float
    input_tokens: int
    output_tokens: int
    usd: float | None
    batch_usd: float | None
    counted_by: str
    most_usd: float | None = None
    alone: Cost | None = None
    usd_alone: float | None = None
    beginnings: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def spent(self) -> Spent:
        """The cost of one score in the units of budgets."""
        return Spent(self.usd or 0.0, self.input_tokens + self.output_tokens, self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlan:
    """The cost of one metric for a day of the stated traffic, without the units that sampling rules add.

    Attributes:
        rate: configured sampling rate, [0, 1].
        factor: share of the configured rate that the budgets allow, [0, 1].
        bought: highest rate that the budgets pay for, [0, 1]; None = no budget applies to this metric.
        scores: scores a day at the rate that the budgets allow.
        calls: judge calls; None if the cost of a score is unknown.
        tokens: tokens read and written; None if the cost of a score is unknown.
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


def costs_of(report: ConfigReport, sizes: Sizes) -> tuple[CostPlan, ...]:
    """Return the cost of a score of each metric; metrics with an unknown cost are left out."""
    settings = report.of_metrics
    entries = zip(report.metrics, metrics_with_juries(settings), strict=True)
    rows = [(metric.name, name, own, jury or settings.judge) for metric, (name, own, jury) in entries]
    return tuple(_costs(settings, rows, sizes))


def shadow_costs_of(report: ConfigReport, sizes: Sizes) -> tuple[CostPlan, ...]:
    """Return the cost of a score of each second judge, by the name of its metric; unknown costs are left out."""
    settings = report.of_metrics
    entries = zip(report.metrics, metric_entries(settings), strict=True)
    own = [metric.name for metric, entry in entries if entry.shadow is not None]
    rows = [(name, *of) for name, of in zip(own, shadow_settings(settings), strict=True)]
    return tuple(_costs(settings, rows, sizes))


def days_of(
    costs: Sequence[CostPlan], rates: Mapping[str, float], budgets: Sequence[Budget], requests: float
) -> tuple[DayPlan, ...]:
    """Return the cost of a day for each metric.

    Args:
        costs: cost of one score; metrics of sessions are left out, because the number of sessions is unknown.
        rates: metric → sampling rate, without the rules that raise it.
        budgets: budgets of all replicas together.
        requests: units a day on all replicas together.
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
    cost: CostPlan | None, metric: str, rate: float, largest: float | None, budgets: Sequence[Budget], requests: float
) -> DayPlan:
    """Return the cost of a day; ``largest``: the factor that the budgets allow, possibly above 1; None = unlimited."""
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
    """Yield the cost of a score for each metric and second judge that calls a judge, then the units each budget pays for."""
    beside = (replace(cost, metric=name_within(cost.metric, semconv.SOURCE_SHADOW)) for cost in shadows)
    paid = [cost for cost in (*costs, *beside) if cost.calls]
    if paid:
        yield f"cost of a score, {sizes}:"
    for cost in paid:
        measured = f" ({cost.counted_by})" if cost.metric in sizes.measured else ""
        batch = "" if cost.batch_usd is None else f"; by --batch {format_usd(1_000 * cost.batch_usd)} USD per 1,000"
        yield f"  {cost.metric}: {_format_cost(cost)}{measured}{batch}"
    yield from _bundle_lines(costs)
    for budget in budgets:
        per_unit = sum(cost.spent.of(budget.unit) for cost in costs if budget.holds_for(cost.metric))
        if not per_unit:
            yield f"budget of {budget}: it applies to no metric that has a cost"
            continue
        units = budget.amount * (1 - RESERVE) / per_unit
        a_day = units * _DAY_S / budget.window_s
        yield f"budget of {budget}: {units:,.0f} units with all its scores per window, {a_day:,.0f} a day"


def _bundle_lines(costs: Sequence[CostPlan]) -> Iterator[str]:
    bundled = [(cost, cost.alone) for cost in costs if cost.alone is not None]
    if not bundled:
        return
    own, alone = [cost for cost, _ in bundled], [alone for _, alone in bundled]
    calls, before = sum(cost.calls for cost in own), sum(cost.calls for cost in alone)
    read, read_before = sum(cost.input_tokens for cost in own), sum(cost.input_tokens for cost in alone)
    questions = f"{calls:.3g} question{'s' * (calls != 1)} instead of {before:.3g}"
    saving = f"{questions}, {read:,} tokens read instead of {read_before:,}{_format_saving(own)}"
    yield f"  bundle of {', '.join(cost.metric for cost in own)}: {saving}"


def _format_saving(bundled: Sequence[CostPlan]) -> str:
    usd, before = _sum_known([cost.usd for cost in bundled]), _sum_known([cost.usd_alone for cost in bundled])
    if usd is None or not before:
        return ""
    money = f"{format_usd(1_000 * usd)} instead of {format_usd(1_000 * before)} USD per 1,000 units"
    return f", {money} ({100 * (1 - usd / before):.0f} % less)"


def _sum_known(amounts: Sequence[float | None]) -> float | None:
    """Return the sum; None if one amount is unknown."""
    amounts_known = [amount for amount in amounts if amount is not None]
    return sum(amounts_known) if len(amounts_known) == len(amounts) else None


def _format_cost(cost: CostPlan) -> str:
    money = "no price" if cost.usd is None else f"{format_usd(1_000 * cost.usd)} USD per 1,000"
    if cost.most_usd is not None:
        money += f" ({format_usd(1_000 * cost.most_usd)} if the jurors always disagree)"
    tokens = f"{cost.input_tokens:,} tokens read and {cost.output_tokens:,} written"
    return f"{money}; {cost.calls:.3g} question{'s' * (cost.calls != 1)}, {tokens}"


def cache_lines(settings: Configuration, costs: Sequence[CostPlan]) -> Iterator[str]:
    """Yield the tokens of a unit with all scores that are read from the provider's cache, if cached tokens have a price."""
    judge, price = settings.judge, price_in(settings, settings.judge)
    caches = judge.prompt_cache and judge.prompt_order == "evidence_first" and judge.model.startswith(_CACHING)
    if price is None or price.cached_input is None or not caches:
        return
    by_field: dict[str, list[int]] = {}
    for cost in costs:
        for name, tokens in cost.beginnings.items():
            by_field.setdefault(name, []).extend(tokens)
    shared = [tokens for tokens in by_field.values() if len(tokens) > 1]
    written = sum(map(max, shared))
    read = sum(map(sum, shared)) - written
    if read:
        plain = cost_usd(price, read + written, 0)
        saved = plain - cost_usd(price, read + written, 0, cached=read, cache_write=written)
        total = sum(cost.input_tokens for cost in costs)
        yield (
            f"a unit with all its scores: {read:,} of {total:,} tokens come from the provider's cache, which is "
            f"{format_usd(1_000 * saved)} USD less per 1,000 units; the other figures are without the cache"
        )


def money_line(plan: ConfigPlan) -> str:
    """Return a sentence with the cost of a day, if traffic is stated, and of 1,000 units with all their scores."""
    costs = (*plan.costs, *plan.shadow_costs)
    uncounted = [metric.name for metric in plan.metrics if all(metric.name != cost.metric for cost in costs)]
    if not uncounted and not any(cost.calls for cost in costs):
        return "judging costs nothing: no metric asks a model"
    if unknown := dict.fromkeys([cost.metric for cost in costs if cost.usd is None] + uncounted):
        return f"the cost of judging is unknown: no price in judge.prices, or not counted: {', '.join(unknown)}"
    units = f"1,000 units with all their scores cost {format_usd(1_000 * _sum_usd(costs))} USD"
    if plan.requests_per_day is None:
        return units
    day = _sum_usd((*plan.days, *plan.shadow_days))
    per_request = f"{format_usd(1_000 * day / plan.requests_per_day)} USD per 1,000 requests"
    return f"a day of {plan.requests_per_day:,.0f} requests costs {format_usd(day)} USD, {per_request}; {units}"


def _sum_usd(costs: Iterable[CostPlan | DayPlan]) -> float:
    return sum(cost.usd or 0.0 for cost in costs)


def asked_model(judge: ChatModelSettings) -> str:
    """Return the model name of a judge, without its provider."""
    return judge.model.partition(":")[2] or judge.model


def price_in(settings: Configuration, judge: ChatModelSettings) -> Price | None:
    """Return the price of a judge's model; None if the model has no price."""
    return price_of(asked_model(judge), prices_of(prices_in(settings)))


def judge_line(settings: Configuration, metrics: Sequence[Metric]) -> str:
    """Return the judge's model; if a metric needs a judge and the configuration names no judge, add how to name it."""
    model = settings.judge.model
    if model != "lexical":
        return model
    by_jury = {str(own.get("name", name)) for name, own, jury in metrics_with_juries(settings) if jury is not None}
    asking = any(has_judge(metric) and metric.name not in by_jury for metric in metrics)
    unnamed = "model" not in settings.judge.model_fields_set and asking
    how = "; no judge is named: write judge: openai:gpt-4o-mini, or judge: lexical to keep this one" if unnamed else ""
    return f"{model} (the offline heuristic: a first look, no verdict{how})"


def has_judge(metric: Metric) -> bool:
    """Return whether a metric asks a judge."""
    return getattr(metric, "_judge", None) is not None


_Row = tuple[str, str, Mapping[str, Any], ChatModelSettings | JurySettings]
"""Name of the metric, its registry entry, its parameters, and its judge or jury."""


def _costs(settings: Configuration, rows: Sequence[_Row], sizes: Sizes) -> Iterator[CostPlan]:
    bundled = [(name, parameters) for _, name, parameters, _ in rows if parameters.get("bundle")]
    for row in rows:
        with suppress(ConfigurationError):  # the offline judge counts the tokens, and cannot answer this metric
            yield _plan_row(settings, row, sizes, bundled)


def _plan_row(
    settings: Configuration, row: _Row, sizes: Sizes, bundled: Sequence[tuple[str, Mapping[str, Any]]]
) -> CostPlan:
    metric, name, parameters, judges = row
    jury = judges if isinstance(judges, JurySettings) else JurySettings.model_construct(judges=(judges,))
    paid = [judge for judge in jury.judges if judge.model != "lexical"]
    times = 1 if metric in sizes.measured else len(paid)  # a measured cost is of all jurors together
    joins = bool(paid and parameters.get("bundle") and metric not in sizes.measured)
    alone = sizes.cost_of(metric, name, {**parameters, "bundle": False} if joins else parameters) if paid else _FREE
    cost = bundle_cost_of(bundled, *sizes.samples) if joins else alone
    usd = _mean_usd(settings, paid, cost, times)
    plan = CostPlan(
        metric=metric,
        calls=times * cost.calls,
        input_tokens=times * cost.input_tokens,
        output_tokens=times * cost.output_tokens,
        usd=usd,
        batch_usd=_mean_usd(settings, paid, cost, times, at_batch_price=True),
        counted_by=cost.counted_by,
        most_usd=None if jury.then is None else _sum_known([usd, _mean_usd(settings, [jury.then], cost, 1)]),
        beginnings=cost.beginnings,
    )
    return replace(plan, alone=alone, usd_alone=_mean_usd(settings, paid, alone, times)) if joins else plan


def _mean_usd(
    settings: Configuration,
    judges: Sequence[ChatModelSettings],
    cost: Cost,
    times: int,
    *,
    at_batch_price: bool = False,
) -> float | None:
    """Return the USD of a cost, ``times`` its mean at the prices of the judges.

    None: a model has no price, or with ``at_batch_price`` its provider has no batches.
    """
    if not cost.calls:
        return 0.0
    prices = [
        price_in(settings, judge) if not at_batch_price or judge.model.partition(":")[0] in PROVIDERS else None
        for judge in judges
    ]
    tokens = cost.input_tokens, cost.output_tokens
    usd = _sum_known(
        [None if price is None else cost_usd(price, *tokens, at_batch_price=at_batch_price) for price in prices]
    )
    return None if usd is None else usd * (times / max(1, len(prices)))


def _largest_factors(
    costs: Sequence[CostPlan], limits: Mapping[str, float], wanted: Mapping[str, float], budgets: Sequence[Budget]
) -> Mapping[str, float]:
    """Return metric → the factor that the budgets allow, at most its limit.

    Budgets of a single metric are applied first; the other metrics share the rest.
    """
    factors = dict(limits)
    for budget in sorted(budgets, key=lambda budget: budget.metric is None):
        held = [cost for cost in costs if budget.holds_for(cost.metric) and cost.metric in factors]
        shares = [(factors[cost.metric], cost.spent.of(budget.unit) * wanted[cost.metric]) for cost in held]
        left = budget.amount * (1 - RESERVE) * _DAY_S / budget.window_s
        factor = largest_factor(left, shares)
        factors |= {cost.metric: min(factors[cost.metric], factor) for cost in held if cost.spent.of(budget.unit)}
    return factors
