"""Settings → alerts as plain values, before any tool's own format: what is asked, how long it must hold, what a person is told.

All expressions work on quality (1 is good), so a drop is a drop, whatever the metric's own scale and direction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spanscore import semconv
from spanscore.model.score import Outcome
from spanscore.monitoring import budget, promql
from spanscore.monitoring.names import label, series
from spanscore.protocols import Metric
from spanscore.settings.tree import AlertSettings, MonitoringSettings

__all__ = [
    "ALL",
    "PATIENCE",
    "SILENT",
    "UNSCORED",
    "Alert",
    "DropPlan",
    "Stream",
    "alerts_of",
    "links_of",
    "plans_of",
    "streams_of",
]

PATIENCE = 2
"""Evaluations for which a condition must hold: ``increase()`` errs near a series' start, for one evaluation."""
SERIES = label(semconv.SERIES)
SEGMENT = "segment"
ALL = "all"
"""The metric label of an alert that is about none in particular."""
UNSCORED, SILENT = "unscored", "silent"
"""Why there are no scores: the units come and none is scored, or nothing comes."""
EVALUATED = 10
"""Units that were to be evaluated without one score, from which on that is no chance any more."""
FAILURES = 5
"""Failed evaluations below which a share of failures says nothing."""
AT_REST = 10
"""Evaluations over which the outcomes must not add up: within a collection one is read a moment after the other."""
MAX_DECLINED = 0.1
"""Highest acceptable share of units that the judge declines: they are no random ones."""
OPEN_S = 300.0
"""For how long a breaker may keep open: providers come and go."""
BINDING_S, BINDING = 21_600.0, 0.5
"""For how long a budget may take more than half of the scores, and the factor on the rates at which it does."""


@dataclass(frozen=True, slots=True)
class Stream:
    """All units, or those of one segment."""

    key: str = ""
    value: str = ""

    @property
    def name(self) -> str:
        """``user_tier=gold``; empty for all units."""
        return f"{self.key}={self.value}" if self.key else ""

    @property
    def where(self) -> str:
        """The matcher on the counters; empty for all units."""
        return promql.matching({label(self.key): self.value}) if self.key else ""


@dataclass(frozen=True, slots=True)
class DropPlan:
    """How one metric's drops are watched.

    Attributes:
        null: baseline − tolerance.
        z: standard errors below it.
        least: effective scores a window needs.
        to_see: effective scores a window needs to see a drop of ``min_drop`` half of the time (pass/fail; others need fewer).
    """

    metric: str
    settings: AlertSettings
    binary: bool
    null: float
    z: float
    least: int
    to_see: float

    @property
    def holds(self) -> bool:
        """Whether the stated rate of false alarms holds: it is not shown for continuous metrics below 0.5."""
        return self.binary or self.settings.baseline is None or self.settings.baseline >= 0.5  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert: what must be wrong for ``PATIENCE`` evaluations.

    Attributes:
        expression: returns the value where something is wrong, and nothing elsewhere.
        labels: severity, metric, window; segment where it is for one, reason where there are several.
        text: for people; ``{value}``, ``{scores}``, ``{drop}`` and ``{service}`` stand for what each tool puts in.
        scores: expression of the effective number of scores behind it; empty = none.
        drop: expression of how far it is below the baseline; empty = it has none.
    """

    name: str
    expression: str
    labels: Mapping[str, str]
    summary: str
    text: str
    scores: str = ""
    drop: str = ""

    def message(self, **parts: str) -> str:
        """Return the text with what a tool fills in at run time."""
        text = self.text
        for name, part in parts.items():
            text = text.replace(f"{{{name}}}", part)
        return text


def streams_of(shared: MonitoringSettings) -> list[Stream]:
    """Return all units, then each listed segment."""
    return [Stream(), *(Stream(key, value) for key, values in shared.segments.items() for value in values)]


def plans_of(
    alerts: Mapping[str, AlertSettings], metrics: Sequence[Metric], shared: MonitoringSettings
) -> list[DropPlan]:
    """Return how the drops of each metric with a baseline are watched; those metrics and all segments share the budget."""
    known = [(metric, alerts[metric.name]) for metric in metrics if metric.name in alerts]
    dropping = [(metric, one) for metric, one in known if one.baseline is not None and metric.scale.range is not None]
    streams = len(dropping) * len(streams_of(shared))
    return [_plan(metric, one, shared, streams) for metric, one in dropping]


def _plan(metric: Metric, alert: AlertSettings, shared: MonitoringSettings, streams: int) -> DropPlan:
    assert alert.baseline is not None  # those without one have no plan
    binary = metric.scale.kind == "binary"
    tolerated = budget.TOLERATED * alert.min_drop
    null = alert.baseline - tolerated
    z = alert.z or budget.critical_z(
        interval_s=shared.interval, windows=len(shared.windows), every_s=alert.false_alarm_every, streams=streams
    )
    return DropPlan(
        metric=metric.name,
        settings=alert,
        binary=binary,
        null=null,
        z=z,
        least=alert.min_scores or budget.least_scores(alert.baseline, binary=binary),
        to_see=budget.scores_to_see(alert.min_drop, null=null, tolerated=tolerated, z=z),
    )


def alerts_of(
    alerts: Mapping[str, AlertSettings], metrics: Sequence[Metric], shared: MonitoringSettings
) -> list[Alert]:
    """Return every alert: drops, thresholds, failing judges, silence per metric; accounts, budgets and lost units for all."""
    found: list[Alert] = []
    for plan in plans_of(alerts, metrics, shared):
        found += _drops(plan, shared)
    for metric in metrics:
        own = alerts.get(metric.name, AlertSettings())
        if own.threshold is not None and metric.scale.range is not None:
            found += _thresholds(metric, own, shared)
        found += [_judge(metric, shared), _declining(metric, shared), *_silence(metric, own, shared)]
    return [*found, _breaker(), _binding(), *_lost(shared), _unaccounted(shared)]


def links_of(alert: Alert, shared: MonitoringSettings) -> dict[str, str]:
    """Return annotation → address, for those that are set. An alert over all metrics has no ``{metric}`` parameter."""
    links = {"dashboard_url": shared.dashboard_url, "trace_url": shared.trace_url}
    return {name: _about(url, alert.labels["metric"]) for name, url in links.items() if url}


def _about(url: str, metric: str) -> str:
    if metric != ALL:
        return url.replace(_PLACE, metric)
    general = _PARAMETER.sub("", url)  # an empty variable shows an empty dashboard; without it there is the default
    return _NOTHING_ASKED.sub("", general).replace(_PLACE, "")


_PLACE = "{metric}"
_PARAMETER = re.compile(r"(?<=[?&])[^&#]*\{metric\}[^&#]*&?")
_NOTHING_ASKED = re.compile(r"[?&]+(?=#|$)")


def _drops(plan: DropPlan, shared: MonitoringSettings) -> Iterator[Alert]:
    alert = plan.settings
    for stream in streams_of(shared):
        for window in map(promql.duration, shared.windows):
            of = promql.Estimate.recorded(window, _recorded_where(plan.metric, alert, stream))
            yield Alert(
                name="SpanscoreQualityDrop",
                expression=promql.dropped(of, null=plan.null, z=plan.z, min_scores=plan.least, binary=plan.binary),
                labels=_labels("critical", plan.metric, window, stream),
                summary=f"{plan.metric} has dropped{_of(stream)}",
                text=f"{plan.metric}{_of(stream)} is {{value}} over the last {window}, {{drop}} below its baseline of "
                f"{alert.baseline:g}, from {{scores}} effective scores ({{service}}). {_promise(plan)}",
                scores=of.n_eff,
                drop=f"{alert.baseline:g} - {of.mean}",
            )


def _promise(plan: DropPlan) -> str:
    every = promql.duration(plan.settings.false_alarm_every)
    if not plan.holds:
        return (
            "The baseline is below 0.5: for a continuous metric false alarms may then be more frequent than configured."
        )
    return f"z = {plan.z:.2f}: at most one false alarm in {every}, over all windows, metrics and segments."


def _thresholds(metric: Metric, alert: AlertSettings, shared: MonitoringSettings) -> Iterator[Alert]:
    least = alert.min_scores or budget.least_scores(alert.baseline, binary=metric.scale.kind == "binary")
    window = promql.duration(shared.windows[0])
    for stream in streams_of(shared):
        of = promql.Estimate.recorded(window, _recorded_where(metric.name, alert, stream))
        yield Alert(
            name="SpanscoreQualityBelowThreshold",
            expression=promql.below(of, threshold=alert.threshold or 0.0, min_scores=least),
            labels=_labels("critical", metric.name, window, stream),
            summary=f"{metric.name} is below {alert.threshold:g}{_of(stream)}",
            text=f"{metric.name}{_of(stream)} is {{value}} over the last {window}, below its threshold of "
            f"{alert.threshold:g}, from {{scores}} effective scores ({{service}}).",
            scores=of.n_eff,
        )


def _judge(metric: Metric, shared: MonitoringSettings) -> Alert:
    window = promql.duration(shared.windows[0])
    where = promql.matching({promql.METRIC: metric.name})
    share = promql.failed_share(window, where, weighted=metric.scale.range is not None)
    return Alert(
        name="SpanscoreJudgeFailing",
        expression=f"{share} > {shared.max_failed:g}\nand {promql.failures(window, where)} >= {FAILURES}",
        labels=_labels("warning", metric.name, window),
        summary=f"evaluations of {metric.name} fail",
        text=f"A share of {{value}} of the evaluations of {metric.name} failed over the last {window} ({{service}}), more than "
        f"{shared.max_failed:g}. Failures are missing, not low scores: the mean is of what could be judged. "
        "spanscore.outcome of spanscore_evaluations_total tells which kind, error.type on the evaluation spans tells why.",
    )


def _declining(metric: Metric, shared: MonitoringSettings) -> Alert:
    window = promql.duration(shared.windows[0])
    where = promql.matching({promql.METRIC: metric.name})
    declined = promql.increase(semconv.DECLINED, window, where)
    return Alert(
        name="SpanscoreJudgeDeclining",
        expression=f"{promql.declined_share(window, where)} >= {MAX_DECLINED:g}\nand {declined} >= {FAILURES}",
        labels=_labels("warning", metric.name, window),
        summary=f"the judge of {metric.name} declines",
        text=f"The judge, or its provider's filter, declined a share of {{value}} of what it was asked for {metric.name} over "
        f"the last {window} ({{service}}), {MAX_DECLINED:g} or more. These are no random units: the mean is of the others. Use "
        "another judge for it, or have the filter set for this use.",
    )


def _breaker() -> Alert:
    window = promql.duration(OPEN_S)
    by = ", ".join((label(semconv.PROVIDER_NAME), label(semconv.REQUEST_MODEL), *promql.GROUP[1:]))
    return Alert(
        name="SpanscoreJudgeBreakerOpen",
        # never closed: between two probes it is open, during one half-open
        expression=f"max by ({by}) (min_over_time({series(semconv.JUDGE_BREAKER)}[{window}])) >= 1",
        labels=_labels("warning", ALL, window),
        summary="a judge is away",
        text=f"{_ACCOUNT} has not answered for {window} ({{service}}): its breaker is open, nothing is sent. Units wait for "
        "it, up to judge.max_wait, and then end as rate_limited. Where it refuses the key, the model or the account, a person "
        "must act: scorer.status() says why.",
    )


def _binding() -> Alert:
    window = promql.duration(BINDING_S)
    return Alert(
        name="SpanscoreBudgetBinding",
        expression=f"max_over_time({promql.LOWEST_FACTOR}[{window}]) < {BINDING:g}\nand {promql.LOWEST_FACTOR} offset {window}",
        labels=_labels("warning", ALL, window),
        summary="a budget takes most of the scores",
        text=f"The budget in {_BUDGET} has multiplied the sampling rates by less than {BINDING:g} for {window}, now by "
        "{value} ({service}). The scores are still a fair sample, but fewer than configured: alerts may lack the scores that "
        "they need. Raise judge.budget, lower the rates, or ask a cheaper model.",
    )


_ACCOUNT = f"{{{{ $labels.{label(semconv.PROVIDER_NAME)} }}}} {{{{ $labels.{label(semconv.REQUEST_MODEL)} }}}}"
_BUDGET = f"{{{{ $labels.{label(semconv.BUDGET_UNIT)} }}}} per {{{{ $labels.{label(semconv.BUDGET_WINDOW)} }}}}"


def _silence(metric: Metric, alert: AlertSettings, shared: MonitoringSettings) -> Iterator[Alert]:
    where = promql.matching({promql.METRIC: metric.name})
    scored = promql.matching({promql.METRIC: metric.name, **({SERIES: alert.series} if alert.series else {})})
    first, long = promql.duration(shared.windows[0]), promql.duration(shared.no_scores_after)
    outcome = label(semconv.OUTCOME)
    chosen = promql.increase(
        semconv.EVALUATIONS, first, f'{where},{outcome}!~"{promql.TURNED_AWAY}",{promql.POPULATION}'
    )
    yield Alert(
        name="SpanscoreNoScores",
        expression=f"{chosen} >= {EVALUATED}\nand {promql.increase(semconv.SCORED, first, scored)} == 0",
        labels={**_labels("warning", metric.name, first), "reason": UNSCORED},
        summary=f"{metric.name} has no scores",
        text=f"{{value}} units were to be evaluated by {metric.name} over the last {first}, and none got a score "
        "({service}). spanscore.outcome of spanscore_evaluations_total tells how they ended.",
    )
    # Known: from before the window, by up to twice its length. One that is new is not silent yet; of a service that is gone
    # there is no increase at all.
    memory = promql.duration(2 * shared.no_scores_after)
    counter = f"{series(semconv.SCORED)}{{{scored},{promql.POPULATION}}}"
    known = f"last_over_time({counter}[{memory}] offset {long})"
    silent = f"sum by ({', '.join(promql.GROUP)}) ({known})\nunless {promql.increase(semconv.SCORED, long, scored)} > 0"
    yield Alert(
        name="SpanscoreNoScores",
        expression=f"{silent}\nor absent({counter})",
        labels={**_labels("warning", metric.name, long), "reason": SILENT},
        summary=f"{metric.name} has no scores",
        text=f"No score of {metric.name} arrived over the last {long}, or its counters are not here at all ({{service}}): no "
        "traffic, no scorer, or no way from it to here. No other alert on this metric can fire meanwhile.",
    )


REMEDIES: Mapping[str, str] = {
    "queue_full": "The job queue was full: raise limits.queue, limits.queue_bytes or limits.workers",
    "refused": "The inbox was full: raise limits.inbox or limits.inbox_bytes, or lower the sampling rate",
    "hold_lost": "Spans were held when the application shut its provider down: shut the scorer down first",
}
"""Why units are lost → what to do."""


def _lost(shared: MonitoringSettings) -> Iterator[Alert]:
    window = promql.duration(shared.windows[0])
    queue = promql.matching({label(semconv.OUTCOME): Outcome.QUEUE_FULL})
    counters = ((semconv.EVALUATIONS, queue), (semconv.CAPTURE_REFUSED, ""), (semconv.HOLD_LOST, ""))
    for (reason, remedy), (instrument, where) in zip(REMEDIES.items(), counters, strict=True):
        yield Alert(
            name="SpanscoreUnitsLost",
            expression=f"{promql.increase(instrument, window, where, promql.GROUP[1:])} > 0",
            labels={**_labels("warning", ALL, window), "reason": reason},
            summary=f"units are lost: {reason}",
            text=f"{{value}} over the last {window} ({{service}}). {remedy}.",
        )


def _unaccounted(shared: MonitoringSettings) -> Alert:
    window = promql.duration(AT_REST * shared.interval)
    name = promql.UNACCOUNTED
    return Alert(
        name="SpanscoreOutcomesDoNotAddUp",
        expression=f"min_over_time({name}[{window}]) > 0\nor max_over_time({name}[{window}]) < 0",
        labels=_labels("warning", f"{{{{ $labels.{promql.METRIC} }}}}", window),
        summary="units are unaccounted for",
        text=f"eligible − outcomes − pending is {{value}} and not 0, over the last {window} ({{service}}): units were lost "
        "without an outcome. That is a fault of spanscore: please report it, with scorer.status().",
    )


def _recorded_where(metric: str, alert: AlertSettings, stream: Stream) -> str:
    pinned = {SERIES: alert.series} if alert.series else {}
    return promql.matching({promql.METRIC: metric, **pinned, SEGMENT: stream.name})


def _labels(severity: str, metric: str, window: str, stream: Stream | None = None) -> dict[str, str]:
    segment = {SEGMENT: stream.name} if stream is not None and stream.key else {}
    return {"severity": severity, "metric": metric, "window": window, **segment}


def _of(stream: Stream) -> str:
    return f" for {stream.name}" if stream.key else ""
