"""The plan that ``spanscore check`` shows: the work, cost and alerts of a scorer with a configuration. No judge is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from spanscore.cli._config_report import ConfigReport
from spanscore.cli._cost_plan import (
    CostPlan,
    DayPlan,
    ExpectedTraffic,
    Sizes,
    asked_model,
    cache_lines,
    cost_lines,
    costs_of,
    days_of,
    dear_lines,
    judge_line,
    price_in,
    shadow_costs_of,
)
from spanscore.cli._part_plans import judge_check_topic, rule_lines, sampling_notes, session_metrics_in
from spanscore.config.credentials import without_credentials
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.core.score import Scale
from spanscore.metrics.catalog.configured import shadow_budget_of, shadow_settings
from spanscore.metrics.catalog.registry import blind_spots, metric_doc_of
from spanscore.monitoring.drops import DropPlan, SmallestDrop, least_of, plans_of, smallest_drop
from spanscore.monitoring.judge_check import judge_check_plans
from spanscore.protocols import Metric
from spanscore.samples.question_answer import ANSWER_KEYS, QUESTION_KEYS
from spanscore.samples.texts import CONTEXT_KEYS

WITHIN = {"an hour": 3_600.0, "a day": 86_400.0, "14 days": 14 * 86_400.0}
"""Time since the start of a drop → seconds; for each, ``check`` shows the smallest drop that is detected."""
_WHERE_IT_DOES_NOT = (
    "stays: after a week of scores run `spanscore baseline`, which measures whether it varies with the hour",
    "repeats each period: after a week of scores run `spanscore baseline`, which measures whether it drifts",
)

_BY_HAND = "with spanscore.references({field}=…) around the request; without it, missing_field"
FOUND: Mapping[str, str] = {
    "user_input": f"the last human message, else {', '.join(QUESTION_KEYS)}, else the one text, of the root's input",
    "response": f"the final answer, else {', '.join(ANSWER_KEYS)}, else the one text, of the root's output",
    "retrieved_contexts": f"documents of the final state, retriever runs or tools, else {', '.join(CONTEXT_KEYS)} of the root",
    "retrieved_context_ids": "the ids of the retrieved documents, if each has one",
    "duration_s": "the time from the start to the end of the root",
    "usage": "gen_ai.usage.input_tokens and gen_ai.usage.output_tokens of the models' spans, else of the root",
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
        fields: kind of sample → field → its place in a trace.
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
        rate: sampling rate of the metric, [0, 1], without the rules that raise it.
        min_scores: effective scores before the alert may fire.
        min_requests: units that yield ``min_scores``; None = never, the rate is 0.
        scores_to_see: effective scores at which half of the drops of ``min_drop`` alert; None = never, or not watched.
        requests_to_see: units that yield ``scores_to_see``; None = never, or not watched.
    """

    rate: float
    min_scores: int
    min_requests: int | None
    scores_to_see: int | None
    requests_to_see: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPlan:
    """The plan of the alert on one metric.

    Attributes:
        volume: number of scores that a window needs.
        baseline: the normal mean, as a number or in words; None = drops are not watched.
        windows: lengths in seconds.
        smallest: drop that is detected within an hour, a day and 14 days; empty without a baseline or stated traffic.
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


def plan_of(report: ConfigReport, traffic: ExpectedTraffic | None, sizes: Sizes) -> ConfigPlan:
    """Return the plan of a configuration without errors; secrets are masked.

    Args:
        report: the configuration.
        traffic: expected requests; None = unknown.
        sizes: sizes of the application's samples.
    """
    settings, metrics = report.settings, report.metrics
    of_sessions = session_metrics_in(report.of_metrics, metrics)
    rates = {metric.name: settings.sampling.rates_of(metric.name)[0] for metric in metrics}
    costs = costs_of(report.of_metrics, [*rates], sizes)
    shadow_costs = shadow_costs_of(report.of_metrics, [*rates], sizes)
    requests = 0.0 if traffic is None else traffic.per_day
    of_units = {metric.name: rates[metric.name] for metric in metrics if metric not in of_sessions}
    days, shadow_days = _days(settings, of_units, costs, shadow_costs, requests) if requests else ((), ())
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
        spending=(
            *cost_lines(costs, shadow_costs, settings.judge.budget, sizes),
            *cache_lines(settings, costs),
        ),
        requests_per_day=requests or None,
        days=days,
        shadow_days=shadow_days,
        sessions=report.lines_of("sessions"),
        judge_check=tuple(judge_check_topic(settings, metrics, costs)),
        notes=(*report.lines_of("remote_scoring", "spool", "collect", "spans_to"), *_notes(report)),
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
    for kind, names in metric.requires.items():
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


def volumes_of(plans: Sequence[DropPlan], settings: Configuration, metrics: Sequence[Metric]) -> dict[str, Volume]:
    """Return metric name → volume, for each metric with an alert; ``plans``: of the drops that are watched."""
    planned = {plan.metric: plan for plan in plans}
    volumes = {}
    for metric in metrics:
        if metric.name in settings.alerts:
            rate, least = settings.sampling.rates_of(metric.name)[0], least_of(settings.alerts[metric.name])
            plan = planned.get(metric.name)
            # With fewer scores than the minimum, no alert fires.
            seen = None if plan is None or plan.to_see == inf else max(least, ceil(plan.to_see))
            volumes[metric.name] = Volume(
                rate=rate,
                min_scores=least,
                min_requests=round(least / rate) if rate else None,
                scores_to_see=seen,
                requests_to_see=round(seen / rate) if rate and seen is not None else None,
            )
    return volumes


def _alerts(report: ConfigReport, traffic: ExpectedTraffic | None, days: Sequence[DayPlan]) -> Iterator[AlertPlan]:
    settings, scores = report.settings, {day.metric: day.scores for day in days}
    judge_checks = judge_check_plans(settings.judge_check, settings.alerts, report.metrics, settings.monitoring)
    plans = plans_of(settings.alerts, report.metrics, settings.monitoring, judge_checks)
    volumes = volumes_of(plans, settings, report.metrics)
    planned = {plan.metric: plan for plan in plans}
    for metric in report.metrics:
        if metric.name in settings.alerts:
            a_day = scores.get(metric.name)
            hourly = () if traffic is None or a_day is None else traffic.scale_to(a_day).hourly
            yield _alert(metric, planned.get(metric.name), volumes[metric.name], settings, hourly)


def _alert(
    metric: Metric, plan: DropPlan | None, volume: Volume, settings: Configuration, hourly: Sequence[float]
) -> AlertPlan:
    """Return the alert on a metric; ``hourly``: its scores of each hour, empty if no traffic is stated."""
    alert, windows = settings.alerts[metric.name], tuple(settings.monitoring.windows)
    baseline = None if plan is None else plan.baseline
    smallest = [
        smallest_drop(plan, scores=hourly, within_s=within_s)
        for within_s in WITHIN.values()
        if plan is not None and hourly
    ]
    return AlertPlan(
        metric=metric.name,
        baseline=None if baseline is None else baseline.short if baseline.is_recorded else baseline.level,
        min_drop=alert.min_drop,
        threshold=alert.threshold,
        volume=volume,
        windows=windows,
        smallest=tuple(smallest),
        notes=(*_alert_notes(plan, metric.scale), *_describe_undetectable(alert.min_drop, smallest)),
    )


def _describe_undetectable(drop: float, smallest: Sequence[SmallestDrop]) -> Iterator[str]:
    if smallest and (smallest[-1].at_worst is None or smallest[-1].at_worst > drop):
        yield f"a drop of {drop:g} is not detectable within {[*WITHIN][-1]}: raise the rate, or min_drop"


def _alert_notes(plan: DropPlan | None, scale: Scale) -> Iterator[str]:
    if scale.range is None:
        yield "its scale is open: it has values and no quality, so no drop can be watched; give it a range="
        return
    if plan is None:
        yield "without a baseline only the threshold and missing scores are watched, and no drop; measure a baseline and set it"
        return
    baseline = plan.baseline
    if not plan.holds:
        yield "with a baseline below 0.5 the stated rate of false alarms does not hold for a continuous metric"
    if not baseline.is_learned:
        yield f"false_alarm_every holds for independent scores around a mean that {_WHERE_IT_DOES_NOT[bool(baseline.offset_s)]}"
    if baseline.offset_s:
        yield "a baseline from an earlier window follows a slow decline, so a slow decline does not alert"
    if plan.to_see == inf:
        yield f"its mean varies so much by itself that a drop of {plan.settings.min_drop:g} is not detected: raise min_drop"


def _notes(report: ConfigReport) -> Iterator[str]:
    settings, metrics = report.settings, report.metrics
    yield from _judge_notes(settings, metrics)
    yield from report.lines_of("calibrations")
    for name, _, shadow in shadow_settings(settings):
        paid = "as much again as judge.budget" if shadow.budget is None else "a budget of its own"
        yield f"{name} has a second judge, {shadow.model}, called for each unit that it scores: that costs more, from {paid}"
    yield from filter(None, (getattr(metric, "advice", None) for metric in metrics))
    yield from sampling_notes(settings)
    for key, values in settings.monitoring.dimensions.items():
        yield f"sums and alerts are split by {key}: {', '.join(values)}; any other value is in the sums only, as other"
    if not settings.capture.enabled:
        yield "capture.enabled is false: only submitted units and spans from elsewhere are scored"
    if not settings.outputs.span:
        yield "outputs.span is false: scores are not on the units' spans"
    if (
        settings.judge.model == "lexical"
    ):  # all metrics of the plan have the offline judge, even if another judge is configured
        own = settings.embeddings not in (None, "lexical")
        yield from blind_spots(metric for metric in metrics if not (own and hasattr(metric, "embeddings")))


def _judge_notes(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[str]:
    if settings.judge.model != "lexical" and price_in(settings, settings.judge) is None:
        yield f"judge.prices has no price of {asked_model(settings.judge)}: the cost of its answers is not counted"
    if settings.remote_scoring is None:
        yield from dear_lines(settings, metrics)
    attempt_s, score_s = settings.judge.timeout, settings.limits.timeout
    if attempt_s is not None and attempt_s > score_s:
        yield (
            f"judge.timeout is {attempt_s:g} s and limits.timeout {score_s:g} s: a score ends before the first attempt of its "
            "judge does; raise limits.timeout to several attempts"
        )
