"""The plan that ``spanscore check`` shows: the work, cost and alerts of a scorer with a configuration. No judge is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, inf
from typing import Any

from spanscore.cli._cost_plan import (
    CostPlan,
    DayPlan,
    ExpectedTraffic,
    Sizes,
    cache_lines,
    cost_lines,
    costs_of,
    days_of,
    judge_line,
    shadow_costs_of,
)
from spanscore.cli._topics import ConfigReport, rule_lines
from spanscore.config.credentials import without_credentials
from spanscore.config.monitoring import AlertSettings
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.core.score import Scale
from spanscore.metrics.catalog.configured import shadow_budget_of
from spanscore.metrics.catalog.registry import metric_doc_of
from spanscore.metrics.kit.base import optional_of
from spanscore.monitoring.drops import DropPlan, SmallestDrop, least_of, plans_of, smallest_drop
from spanscore.monitoring.judge_check import judge_check_plans
from spanscore.monitoring.watched_means import WatchedMean, watched_means
from spanscore.protocols import Metric
from spanscore.samples.question_answer import ANSWER_KEYS, QUESTION_KEYS
from spanscore.samples.texts import CONTEXT_KEYS

WITHIN = {"an hour": 3_600.0, "a day": 86_400.0, "14 days": 14 * 86_400.0}
"""Time since the start of a drop → seconds; for each time, ``check`` shows the smallest drop that is detected."""
_WHERE_IT_DOES_NOT = ("stays", "repeats each period")
_MEASURE_IT = (
    ": after a week of scores run `spanscore baseline`, which measures whether it varies with the hour",
    ": after a week of scores run `spanscore baseline`, which measures whether it drifts",
)

_BY_HAND = "with spanscore.references({field}=…) around the request; without it, missing_field"
FOUND: Mapping[str, str] = {
    "user_input": f"the last human message, else {', '.join(QUESTION_KEYS)}, else the one text, of the root's input",
    "response": f"the final answer, else {', '.join(ANSWER_KEYS)}, else the one text, of the root's output",
    "retrieved_contexts": f"documents of the final state, retriever runs or tools, else {', '.join(CONTEXT_KEYS)} of the root",
    "retrieved_context_ids": "the ids of the retrieved documents, if each has one",
    "duration_s": "the time from the start to the end of the root",
    "usage": "gen_ai.usage.input_tokens and gen_ai.usage.output_tokens of the models' spans, else of the root",
    "tools": "the definitions of tools on the models' spans; a unit without any is judged without them",
}
"""Field of a sample → its place in a live trace."""
_CONVERSATION = "the messages of a unit with tool calls or several human turns"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPlan:
    """The plan of one metric.

    Attributes:
        question: the question that the metric answers; empty if its docstring has none.
        rate: sampled share of units, or of sessions, [0, 1].
        highest: highest rate under any sampling rule, [0, 1].
        per: ``unit`` or ``session``.
        fields: kind of sample → required or optional field → its place in a trace.
    """

    name: str
    version: str
    question: str
    rate: float
    highest: float
    per: str
    fields: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """The number of scores that one window of an alert needs.

    Attributes:
        rate: sampling rate of the metric, [0, 1], without the rules that raise it; for inner units, the rate of their entry.
        min_scores: effective scores before the alert may fire.
        min_requests: units that yield ``min_scores``; None = never, the rate is 0.
        scores_to_see: effective scores at which half of the drops of ``min_drop`` alert; None = never, or not watched.
        requests_to_see: units that yield ``scores_to_see``; None = never, or not watched.
        units: the units: ``requests``, or ``inner units``.
    """

    rate: float
    min_scores: int
    min_requests: int | None
    scores_to_see: int | None
    requests_to_see: int | None
    units: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPlan:
    """The plan of the alert on one metric.

    Attributes:
        metric: name of the metric; for inner units with the units, such as ``context_relevance (retriever)``.
        baseline: the normal mean, as a number or in words; None = drops are not watched.
        share_of: the category whose share is watched: ``baseline`` is its normal share, ``min_drop`` the smallest rise that
            matters, ``threshold`` the highest acceptable share. None = the quality is watched.
        windows: lengths in seconds.
        smallest: smallest drop (of a share: rise) that is detected within an hour, a day and 14 days; empty without a baseline
            or stated traffic.
        notes: assumptions that do not hold, in sentences.
    """

    metric: str
    baseline: str | float | None
    min_drop: float
    threshold: float | None
    volume: Volume
    windows: tuple[float, ...]
    smallest: tuple[SmallestDrop, ...]
    notes: tuple[str, ...]
    share_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPlan:
    """The work of a scorer with a configuration.

    Attributes:
        judge_settings: key below ``judge`` → value, only for keys that are set; without credentials.
        prices: model of a judge → ``input`` and ``output``, USD per million tokens.
        rules: sampling rules, a sentence each.
        costs: cost of a score of each metric; unknown costs are left out.
        shadow_costs: cost of a score of each second judge; unknown costs are left out.
        spending: costs and budgets, in lines.
        requests_per_day: None if no traffic is stated.
        days: cost of a day of each metric; empty if no traffic is stated.
        shadow_days: cost of a day of each second judge; empty if no traffic is stated.
        sessions: conditions for the end of a conversation, in lines; empty if no metric scores conversations.
        judge_check: the work of the judge check, in lines.
        notes: the lines of all other topics.
        serve: the listeners and the mode of ``spanscore serve``, in lines; empty if the section is not given.
        worker: the sources of ``spanscore worker``, in lines; empty without sources.
    """

    judge: str
    judge_settings: Mapping[str, Any]
    embeddings: str | None
    prices: Mapping[str, Mapping[str, float]]
    rules: tuple[str, ...]
    metrics: tuple[MetricPlan, ...]
    alerts: tuple[AlertPlan, ...]
    costs: tuple[CostPlan, ...]
    shadow_costs: tuple[CostPlan, ...]
    spending: tuple[str, ...]
    requests_per_day: float | None
    days: tuple[DayPlan, ...]
    shadow_days: tuple[DayPlan, ...]
    sessions: tuple[str, ...]
    judge_check: tuple[str, ...]
    notes: tuple[str, ...]
    serve: tuple[str, ...]
    worker: tuple[str, ...]


_OWN_FIELDS = ("sessions", "judge_check", "serve", "worker")
"""Topics whose lines are a field of the plan."""


def plan_of(report: ConfigReport, traffic: ExpectedTraffic | None, sizes: Sizes) -> ConfigPlan:
    """Return the plan of a configuration without errors; secrets are masked. ``traffic``: None = unknown."""
    settings, metrics = report.settings, report.metrics
    of_sessions = report.session_metrics
    costs, shadow_costs = costs_of(report, sizes), shadow_costs_of(report, sizes)
    requests = 0.0 if traffic is None else traffic.per_day
    of_units = {metric.name: settings.sampling.rates_of(metric.name)[0] for metric in report.unit_metrics}
    days, shadow_days = _days(settings, of_units, costs, shadow_costs, requests) if requests else ((), ())
    lines = report.lines_with(costs)
    own_fields = {topic: lines.pop(topic, ()) for topic in _OWN_FIELDS}
    judge_settings = settings.judge.model_dump(
        exclude_defaults=True, exclude={"model", "prices", "budget", "replica_share"}
    )
    plan = ConfigPlan(
        judge=judge_line(settings, metrics),
        judge_settings={name: without_credentials(value) for name, value in judge_settings.items()},
        embeddings=settings.embeddings,
        prices={model: price.model_dump() for model, price in settings.judge.prices.items()},
        rules=tuple(rule_lines(settings.sampling.rules)),
        metrics=tuple(_metric(metric, settings, per_session=metric in of_sessions) for metric in metrics),
        alerts=tuple(_alerts(report, traffic, days)),
        costs=costs,
        shadow_costs=shadow_costs,
        spending=(*cost_lines(costs, shadow_costs, settings.judge.budget, sizes), *cache_lines(settings, costs)),
        requests_per_day=requests or None,
        days=days,
        shadow_days=shadow_days,
        **own_fields,
        notes=tuple(chain(*lines.values())),
    )
    return report.as_written.all(plan)


def _days(
    settings: Configuration,
    rates: Mapping[str, float],
    costs: Sequence[CostPlan],
    shadow_costs: Sequence[CostPlan],
    requests: float,
) -> tuple[tuple[DayPlan, ...], tuple[DayPlan, ...]]:
    """Return the cost of a day of metrics and of second judges, which judge the scored units again.

    Args:
        rates: metric → sampling rate; metrics of sessions are left out, because the number of sessions is unknown.
    """
    days = days_of([cost for cost in costs if cost.metric in rates], rates, settings.judge.budget, requests)
    scored = {day.metric: day.rate * day.factor for day in days}
    own = shadow_budget_of(settings, tuple(settings.judge.budget))
    shadow_rates = {cost.metric: scored[cost.metric] for cost in shadow_costs}
    return days, days_of(shadow_costs, shadow_rates, settings.judge.budget if own is None else own, requests)


def _metric(metric: Metric, settings: ScorerSettings, *, per_session: bool) -> MetricPlan:
    rate, highest = settings.sampling.rates_of(metric.name)
    places: dict[str, dict[str, str]] = {kind: {} for kind in metric.requires}
    read = {kind: (*names, *optional_of(metric).get(kind, ())) for kind, names in metric.requires.items()}
    for kind, names in read.items():
        for name in names:
            if own := getattr(settings.capture.extract, name, None):
                places[kind][name] = f"{own} (capture.extract.{name})"
            elif (kind, name) == ("multi_turn", "user_input"):
                places[kind][name] = _CONVERSATION
            else:
                places[kind][name] = FOUND.get(name) or _BY_HAND.format(field=name)
    return MetricPlan(
        name=metric.name,
        version=metric.version,
        question=metric_doc_of(metric).question.replace("``", ""),
        rate=rate,
        highest=rate if per_session else highest,
        per="session" if per_session else "unit",
        fields=places,
    )


# --- alerts ---------------------------------------------------------------------------------------------------------


def drops_in(report: ConfigReport) -> tuple[list[DropPlan], dict[str, Volume]]:
    """Return the drops that are watched, and ``WatchedMean.subject`` → volume for each mean with alert settings."""
    # without all metrics there is no judge check, which may watch a metric that cannot be made here
    judge_check = report.settings.judge_check if report.whole else None
    means, shared = _means_of(report), report.settings.monitoring
    plans = plans_of(means, shared, judge_check_plans(judge_check, means, shared))
    planned = {plan.watched.subject: plan for plan in plans}
    alerted = [mean for mean in means if mean.inner is not None or mean.metric in report.settings.alerts]
    return plans, {mean.subject: _volume(report, mean, planned.get(mean.subject)) for mean in alerted}


def _means_of(report: ConfigReport) -> list[WatchedMean]:
    return watched_means(report.settings.alerts, report.metrics, report.settings.units.also)


def _volume(report: ConfigReport, mean: WatchedMean, plan: DropPlan | None) -> Volume:
    settings, least = report.settings, least_of(mean.settings)
    rates = {entry.group: entry.rate for entry in settings.units.also}
    rate = settings.sampling.rates_of(mean.metric)[0] if mean.inner is None else rates[mean.inner]
    # With fewer scores than the minimum, no alert fires.
    seen = None if plan is None or plan.to_see == inf else max(least, ceil(plan.to_see))
    return Volume(
        rate=rate,
        min_scores=least,
        min_requests=round(least / rate) if rate else None,
        scores_to_see=seen,
        requests_to_see=round(seen / rate) if rate and seen is not None else None,
        units="requests" if mean.inner is None else "inner units",
    )


def _alerts(report: ConfigReport, traffic: ExpectedTraffic | None, days: Sequence[DayPlan]) -> Iterator[AlertPlan]:
    scores = {day.metric: day.scores for day in days}
    plans, volumes = drops_in(report)
    planned = {plan.watched.subject: plan for plan in plans}
    for mean in _means_of(report):
        if mean.subject in volumes:
            a_day = scores.get(mean.subject)  # unknown for inner units
            hourly = () if traffic is None or a_day is None else traffic.scale_to(a_day).hourly
            yield _alert(mean, planned.get(mean.subject), volumes[mean.subject], report.settings, hourly)


def _alert(
    mean: WatchedMean, plan: DropPlan | None, volume: Volume, settings: Configuration, hourly: Sequence[float]
) -> AlertPlan:
    """Return the alert on a mean; ``hourly``: its scores of each hour, empty if no traffic is stated."""
    alert, windows = mean.settings, tuple(settings.monitoring.windows)
    smallest = [
        smallest_drop(plan, scores=hourly, within_s=within_s)
        for within_s in WITHIN.values()
        if plan is not None and hourly
    ]
    return AlertPlan(
        metric=mean.subject,
        baseline=None if plan is None else plan.baseline.short if plan.baseline.is_recorded else plan.stated_baseline,
        share_of=alert.share_of,
        min_drop=alert.least_change,
        threshold=alert.max if alert.share_of else alert.threshold,
        volume=volume,
        windows=windows,
        smallest=tuple(smallest),
        notes=(*_alert_notes(plan, mean), *_describe_undetectable(alert, smallest)),
    )


def _describe_undetectable(alert: AlertSettings, smallest: Sequence[SmallestDrop]) -> Iterator[str]:
    change, key = ("rise", "min_rise") if alert.share_of else ("drop", "min_drop")
    if smallest and (smallest[-1].at_worst is None or smallest[-1].at_worst > alert.least_change):
        yield f"a {change} of {alert.least_change:g} is not detectable within {[*WITHIN][-1]}: raise the rate, or {key}"


def _why_unwatched(scale: Scale, alert: AlertSettings) -> str:
    if alert.share_of:
        return "without a baseline only max and missing scores are watched, and no rise; measure the share and set it"
    if scale.has_quality:
        return "without a baseline only threshold and missing scores are watched, and no drop; measure a baseline and set it"
    if scale.categories:
        return "its categories have no quality, so no drop can be watched; name the bad ones in bad, or write share_of"
    return "its scale is open, so no drop can be watched; give it the parameter range, if it has one"


def _alert_notes(plan: DropPlan | None, mean: WatchedMean) -> Iterator[str]:
    alert = mean.settings
    if plan is None:
        yield _why_unwatched(mean.of.scale, alert)
        return
    baseline = plan.baseline
    if not plan.is_rate_proven:
        yield "with a baseline below 0.5 the stated rate of false alarms does not hold for a continuous metric"
    if alert.share_of:
        yield "false_alarm_every holds for independent scores around a share that does not vary by itself"
    elif not baseline.is_learned:
        period = bool(baseline.offset_s)
        measure = _MEASURE_IT[period] if mean.inner is None else ""
        yield f"false_alarm_every holds for independent scores around a mean that {_WHERE_IT_DOES_NOT[period]}{measure}"
    if baseline.offset_s:
        yield "a baseline from an earlier window follows a slow decline, so a slow decline does not alert"
    if plan.to_see == inf:
        change, key = ("rise", "min_rise") if alert.share_of else ("drop", "min_drop")
        yield f"its mean varies so much by itself that a {change} of {alert.least_change:g} is not detected: raise {key}"
