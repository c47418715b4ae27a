"""A configuration → plan: what a scorer of it would do. No judge is asked for it."""

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
    cost_lines,
    costs_of,
    days_of,
    dear_lines,
    judge_line,
    price_in,
    shadow_costs_of,
    shadow_days_of,
)
from spanscore.cli._part_plans import (
    calibration_notes,
    collect_lines,
    judge_check_lines,
    remote_scoring_lines,
    rule_lines,
    sampling_notes,
    session_lines,
    session_metrics_in,
    spans_file_lines,
    spool_lines,
)
from spanscore.config.capture import Extract
from spanscore.config.credentials import without_credentials
from spanscore.config.judging import JudgeSettings
from spanscore.config.monitoring import AlertSettings
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.core.score import Scale
from spanscore.metrics.catalog.configured import shadow_budget_of, shadow_settings
from spanscore.metrics.catalog.registry import blind_spots, metric_doc_of
from spanscore.monitoring.drops import DropPlan, SmallestDrop, least_of, plans_of, smallest_drop
from spanscore.monitoring.judge_check import JudgeCheckPlan, judge_check_plans
from spanscore.protocols import Metric
from spanscore.samples.question_answer import ANSWER_KEYS, QUESTION_KEYS
from spanscore.samples.texts import CONTEXT_KEYS

__all__ = ["FOUND", "WITHIN", "AlertPlan", "ConfigPlan", "MetricPlan", "Volume", "plan_of", "volumes_of"]

WITHIN = {"an hour": 3_600.0, "a day": 86_400.0, "14 days": 14 * 86_400.0}
"""Time since a drop began for which it is told how small a drop is seen → its seconds."""
_WHERE_IT_DOES_NOT = (
    "stays: after a week of scores run `spanscore baseline`, which finds whether it swings with the day",
    "repeats itself: after a week of scores run `spanscore baseline`, which finds whether it wanders",
)

_BY_HAND = "with spanscore.references({field}=…) around the request; without it, missing_field"
FOUND: Mapping[str, str] = {
    "user_input": f"the last human message, else {', '.join(QUESTION_KEYS)}, else the one text, of the root's input",
    "response": f"the final answer, else {', '.join(ANSWER_KEYS)}, else the one text, of the root's output",
    "retrieved_contexts": f"documents of the final state, retriever runs or tools, else {', '.join(CONTEXT_KEYS)} of the root",
    "retrieved_context_ids": "the ids of the retrieved documents, where all have one",
}
"""Field that a live trace holds → where in it."""
_CONVERSATION = "the messages of a unit with tool calls or several human turns"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPlan:
    """One metric.

    Attributes:
        question: that it answers; empty where its docstring does not say.
        rate: share of units, or of sessions, [0, 1].
        highest: rate under the rule that raises it most.
        per: ``unit`` or ``session``: what it scores.
        fields: kind of sample → field → where it comes from.
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
    """What one window must hold.

    Attributes:
        rate: of the metric, [0, 1], without the rules that raise it.
        min_scores: effective scores before anything is said.
        min_requests: units the application must see for that; None = never, the rate is 0.
        scores_to_see: effective scores so that a drop of ``min_drop`` alarms half of the time; None = never, or not watched.
        requests_to_see: units for that; None likewise.
    """

    rate: float
    min_scores: int
    min_requests: int | None
    scores_to_see: int | None
    requests_to_see: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPlan:
    """What is watched of one metric.

    Attributes:
        volume: what a window must hold.
        baseline: what is normal: a number, or in words; None = no drop is watched.
        windows: in seconds.
        smallest: drop that is seen within an hour, a day and 14 days; empty where no drop is watched or no traffic is told.
        notes: what does not hold, in sentences.
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
    """What a scorer of a configuration would do.

    Attributes:
        judge_settings: key below ``judge`` → value, for those that are set; no key to a model is among them.
        prices: judge's model → ``input`` and ``output``, USD per million tokens.
        rules: of the sampling, a sentence each.
        costs: of a score of each metric of which they are known.
        shadow_costs: of one of their second judges.
        spending: what they and the budgets come to, in lines.
        requests_per_day: None where no traffic is told.
        days: what a day of it comes to; empty likewise.
        shadow_days: for second judges.
        sessions: when conversations end, in lines; empty where no metric scores them.
        judge_check: what is done with labelled samples, in lines.
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
    """Return the plan of a configuration that has no error, with what may be shown of it.

    Args:
        report: the configuration.
        traffic: None = nobody knows it.
        sizes: of the application's samples.
    """
    settings, metrics = report.settings, report.metrics
    of_sessions = session_metrics_in(report.of_metrics, metrics)
    rates = {metric.name: settings.sampling.rates_of(metric.name)[0] for metric in metrics}
    costs = costs_of(report.of_metrics, [*rates], sizes)
    shadow_costs = shadow_costs_of(report.of_metrics, [*rates], sizes)
    requests = 0.0 if traffic is None else traffic.per_day
    days, shadow_days = _days(report, costs, shadow_costs, requests) if requests else ((), ())
    plan = ConfigPlan(
        judge=judge_line(settings, metrics),
        judge_settings=_set(settings.judge),
        embeddings=settings.embeddings,
        prices={model: price.model_dump() for model, price in settings.judge.prices.items()},
        rules=tuple(rule_lines(settings.sampling.rules)),
        metrics=tuple(_metric(metric, settings, per_session=metric in of_sessions) for metric in metrics),
        alerts=tuple(_alerts(report, traffic, days)),
        costs=costs,
        shadow_costs=shadow_costs,
        spending=tuple(cost_lines(costs, shadow_costs, settings.judge.budget, sizes)),
        requests_per_day=requests or None,
        days=days,
        shadow_days=shadow_days,
        sessions=tuple(session_lines(of_sessions, settings)),
        judge_check=tuple(judge_check_lines(settings.judge_check, _judge_checks(report), metrics, costs)),
        notes=(
            *remote_scoring_lines(settings.remote_scoring),
            *spool_lines(settings),
            *collect_lines(settings),
            *spans_file_lines(settings),
            *_notes(settings, metrics),
        ),
    )
    return report.as_written.all(plan)


def _days(
    report: ConfigReport, costs: Sequence[CostPlan], shadow_costs: Sequence[CostPlan], requests: float
) -> tuple[tuple[DayPlan, ...], tuple[DayPlan, ...]]:
    """Return what a day of so many requests costs, and what second judges cost beside it; of sessions nobody knows how many."""
    settings, metrics = report.settings, report.metrics
    of_sessions = {metric.name for metric in session_metrics_in(report.of_metrics, metrics)}
    rates = {
        metric.name: settings.sampling.rates_of(metric.name)[0] for metric in metrics if metric.name not in of_sessions
    }
    days = days_of([cost for cost in costs if cost.metric in rates], rates, settings.judge.budget, requests)
    own = shadow_budget_of(report.settings, tuple(settings.judge.budget))
    return days, shadow_days_of(shadow_costs, days, settings.judge.budget if own is None else own, requests)


def _set(judge: JudgeSettings) -> dict[str, Any]:
    """Return what is set otherwise of how a judge is asked; what it may cost is told beside it."""
    fields: dict[str, Any] = judge.model_dump(
        exclude_defaults=True, exclude={"model", "prices", "budget", "replica_share"}
    )
    return {name: without_credentials(value) for name, value in fields.items()}


def volumes_of(plans: Sequence[DropPlan], settings: Configuration, metrics: Sequence[Metric]) -> dict[str, Volume]:
    """Return metric name → volume, for each metric that ``alerts`` names; ``plans``: of those whose drops are watched."""
    planned = {plan.metric: plan for plan in plans}
    return {
        metric.name: _volume(metric, planned.get(metric.name), settings.alerts[metric.name], settings)
        for metric in metrics
        if metric.name in settings.alerts
    }


def _volume(metric: Metric, plan: DropPlan | None, alert: AlertSettings, settings: ScorerSettings) -> Volume:
    rate, _ = settings.sampling.rates_of(metric.name)
    least = least_of(alert)
    seen = (
        None if plan is None or plan.to_see == inf else max(least, ceil(plan.to_see))
    )  # with fewer than the least nothing is said at all
    return Volume(
        rate=rate,
        min_scores=least,
        min_requests=_requests(least, rate),
        scores_to_see=seen,
        requests_to_see=None if seen is None else _requests(seen, rate),
    )


def _requests(scores: int, rate: float) -> int | None:
    return round(scores / rate) if rate else None


def _metric(metric: Metric, settings: ScorerSettings, *, per_session: bool) -> MetricPlan:
    rate, highest = settings.sampling.rates_of(metric.name)
    return MetricPlan(
        name=metric.name,
        version=metric.version,
        question=metric_doc_of(metric).question.replace("``", ""),
        rate=rate,
        highest=rate if per_session else highest,
        per="session" if per_session else "unit",
        fields={
            kind: {name: _where(name, kind, settings.capture.extract) for name in names}
            for kind, names in metric.requires.items()
        },
    )


def _where(name: str, kind: str, extract: Extract | None) -> str:
    own = getattr(extract, name, None)
    if own:
        return f"{own} (capture.extract.{name})"
    if kind == "multi_turn" and name == "user_input":
        return _CONVERSATION
    return FOUND.get(name) or _BY_HAND.format(field=name)


def _alerts(report: ConfigReport, traffic: ExpectedTraffic | None, days: Sequence[DayPlan]) -> Iterator[AlertPlan]:
    settings, scores = report.settings, {day.metric: day.scores for day in days}
    plans = plans_of(settings.alerts, report.metrics, settings.monitoring, _judge_checks(report))
    volumes = volumes_of(plans, settings, report.metrics)
    planned = {plan.metric: plan for plan in plans}
    for metric in report.metrics:
        if metric.name in settings.alerts:
            rate = None if traffic is None else scores.get(metric.name)
            hourly = () if traffic is None or rate is None else traffic.scale_to(rate).hourly
            yield _alert(metric, planned.get(metric.name), volumes[metric.name], settings, hourly)


def _judge_checks(report: ConfigReport) -> list[JudgeCheckPlan]:
    return judge_check_plans(
        report.settings.judge_check, report.settings.alerts, report.metrics, report.settings.monitoring
    )


def _alert(
    metric: Metric, plan: DropPlan | None, volume: Volume, settings: Configuration, hourly: Sequence[float]
) -> AlertPlan:
    """Return what is watched of a metric; ``hourly``: its scores of each hour, none where no traffic is told."""
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
        yield "its scale is open: it has values and no quality, so nothing can be watched; give it a range="
        return
    if plan is None:
        yield "without a baseline no drop is watched, only the threshold and missing scores; measure one and set it"
        return
    baseline = plan.baseline
    if not plan.holds:
        yield "with a baseline below 0.5 the stated rate of false alarms does not hold for a metric of degrees"
    if not baseline.is_learned:
        yield f"false_alarm_every holds for independent scores around a mean that {_WHERE_IT_DOES_NOT[bool(baseline.offset_s)]}"
    if baseline.offset_s:
        yield "what was before follows a slow decline, which then alarms nobody"
    if plan.to_see == inf:
        yield f"its mean strays so much by itself that a drop of {plan.settings.min_drop:g} is not seen: raise min_drop"


def _notes(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[str]:
    offline = settings.judge.model == "lexical"
    if not offline and price_in(settings, settings.judge) is None:
        yield f"judge.prices has no price of {asked_model(settings.judge)}: what its answers cost is not counted"
    if settings.remote_scoring is None:
        yield from dear_lines(settings, metrics)
    yield from _hasty(settings.judge.timeout, settings.limits.timeout)
    yield from calibration_notes(settings)
    for name, _, shadow in shadow_settings(settings):
        paid = "as much again as judge.budget" if shadow.budget is None else "a budget of its own"
        yield f"{name} has a second judge, {shadow.model}, asked about each unit that it scores: that costs more, from {paid}"
    yield from _advice(metrics)
    yield from sampling_notes(settings)
    yield from _dimensions(settings.monitoring.dimensions)
    if not settings.capture.enabled:
        yield "capture.enabled is false: nothing is recorded, only what is submitted or comes from other spans is scored"
    if not settings.outputs.span:
        yield "outputs.span is false: scores are not on the units' spans"
    if offline:  # here all metrics are made with the offline judge, also where another one will be asked
        own = settings.embeddings not in (None, "lexical")
        yield from blind_spots(metric for metric in metrics if not (own and hasattr(metric, "embeddings")))


def _advice(metrics: Sequence[Metric]) -> Iterator[str]:
    yield from filter(None, (getattr(metric, "advice", None) for metric in metrics))


def _dimensions(dimensions: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for key, values in dimensions.items():
        yield f"sums and alerts are told apart by {key}: {', '.join(values)}; of any other value only the sums, as other"


def _hasty(attempt_s: float | None, score_s: float) -> Iterator[str]:
    if attempt_s is not None and attempt_s > score_s:
        yield (
            f"judge.timeout is {attempt_s:g} s and limits.timeout {score_s:g} s: a score ends before the first attempt of its "
            "judge does; raise limits.timeout to some attempts"
        )
