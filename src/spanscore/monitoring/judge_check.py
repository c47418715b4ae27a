"""Judge check: the alert on a changed judge, and the sentence about the judge in the alert on a drop.

A scorer exports the exact p-value of the changes since the first run (``judge_check_runs.py``); the alert compares it with a
rate. Each of the n runs in ``false_alarm_every`` is one look, so a run may alarm falsely with 1 ⁄ n of the judge check's share
of that rate. A watched metric has one share, and so has each window and segment of a drop. Replicas have separate runs; their
smallest p, multiplied by the number of replicas, is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanscore import semconv
from spanscore.config.monitoring import JudgeCheck, Monitoring
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql, recorded
from spanscore.monitoring.alert import OF_METRIC, Alert, AlertNumber, labels_of, literal, of_metric, streams_of
from spanscore.monitoring.promql import label, series
from spanscore.monitoring.watched_means import WatchedMean, means_of_roots
from spanscore.protocols import Metric

KEPT_S = 900.0
"""Seconds for which the alert stays on without a value, because a restarted process has none until its first run ends."""
HIGHEST = 0.05
"""Upper limit of the compared p-value, because runs may be rarer than the allowed false alarms."""


@dataclass(frozen=True, slots=True)
class JudgeCheckPlan:
    """The monitoring of one metric's judge.

    Attributes:
        every_s: seconds between two runs.
        below: p-value below which a change alerts, (0, 1).
        false_alarm_every_s: at most one false alarm in this time, in s, together with those on drops.
    """

    metric: str
    every_s: float
    below: float
    false_alarm_every_s: float
    severity: str


def watched_by(judge_check: JudgeCheck, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics that a judge check watches, by name.

    Raises:
        ConfigurationError: ``metrics`` has an unknown metric or one with an open scale, or the scorer has no metric to watch.
    """
    for name in judge_check.metrics:
        if name not in metrics:
            raise ConfigurationError(
                f"judge_check.metrics names {name!r}, which is no metric of this scorer; it has {', '.join(metrics)}"
            )
        if not metrics[name].scale.has_quality:
            how = (
                "categories without a quality: name the bad ones in bad"
                if metrics[name].scale.categories
                else "an open scale: give it the parameter range, if it has one"
            )
            raise ConfigurationError(f"judge_check.metrics names {name!r}, which has {how}")
    asking = (
        name
        for name, metric in metrics.items()
        if getattr(metric, "_judge", None) is not None and metric.scale.has_quality
    )
    names = list(judge_check.metrics or asking)
    if not names:
        raise ConfigurationError(
            "judge check: no metric with a quality uses a judge; name the metrics to watch in judge_check.metrics"
        )
    return {name: metrics[name] for name in names}


def judge_check_plans(
    judge_check: JudgeCheck | None,
    means: Sequence[WatchedMean],
    shared: Monitoring,
) -> list[JudgeCheckPlan]:
    """Return the monitoring of each watched judge; empty without a judge check.

    Raises:
        ConfigurationError: the judge check names no metric that can be watched.
    """
    if judge_check is None:
        return []
    of_roots = {mean.metric: mean for mean in means_of_roots(means)}
    watched = watched_by(judge_check, {name: mean.of for name, mean in of_roots.items()})
    shares = shares_of_false_alarms(means, shared, judge_checks=len(watched))
    plans = []
    for name in watched:
        alert = of_roots[name].settings
        below = min(HIGHEST, judge_check.every / (alert.false_alarm_every * shares))
        plans.append(JudgeCheckPlan(name, judge_check.every, below, alert.false_alarm_every, alert.severity))
    return plans


def shares_of_false_alarms(means: Iterable[WatchedMean], shared: Monitoring, *, judge_checks: int) -> int:
    """Return the number of windows × streams × listed services, and judge checks, that share the budget of false alarms."""
    dropping = sum(mean.watches_drops for mean in means)
    looks = dropping * len(streams_of(shared)) * len(shared.windows) + judge_checks
    return looks * max(1, len(shared.services))


def judge_check_records(plans: Sequence[JudgeCheckPlan]) -> Iterator[dict[str, Any]]:
    """Yield the rule that records, for each metric, the p-value below which its judge has changed."""
    return (recorded.constant(recorded.JUDGE_P, plan.below, plan.metric) for plan in plans)


def judge_changed(plans: Sequence[JudgeCheckPlan]) -> Alert:
    """Return the alert on a judge whose answers to its labelled samples differ from its first answers."""
    window = promql.duration(plans[0].every_s)  # one judge check, so one interval for all metrics
    agreement, first = (
        AlertNumber(f"min({series(name)}{{{_JUDGE_CHECK},{promql.OWN_EVALUATOR}}})", "%.2f")
        for name in (semconv.JUDGE_CHECK_AGREEMENT, semconv.JUDGE_CHECK_FIRST_AGREEMENT)
    )
    below = of_metric({plan.metric: f"{plan.below:.2g}" for plan in plans})
    promises = {
        plan.metric: f"At most one false alarm in {promql.duration(plan.false_alarm_every_s)}, with those on drops."
        for plan in plans
    }
    return Alert(
        name="SpanscoreJudgeChanged",
        expression=f"{_p(_JUDGE_CHECK)} < {_LIMIT}",
        labels=labels_of(of_metric({plan.metric: literal(plan.severity) for plan in plans}), OF_METRIC, window),
        summary=f"the judge of {OF_METRIC} has changed",
        text=f"The judge of {OF_METRIC} answers its labelled samples differently than at first ({{service}}): it "
        f"agrees with {{agreement}} of the labels, at first with {{first}} (p = {{value}}, below {below}), evaluator version "
        f"{{{{ $labels.{promql.EVALUATOR_VERSION} }}}}. Its provider may have changed the model behind its name: a "
        f"drop may be the judge's. {of_metric(promises)}",
        figures={"agreement": agreement, "first": first},
        keep_s=KEPT_S,
    )


def judge_check_figures() -> dict[str, AlertNumber]:
    """Return the figures on the judge in the text of a drop: one has a value; before the end of the first run none has."""
    p = _p(f"{_JUDGE_CHECK},{promql.OWN_EVALUATOR}")
    changed = (
        " Its judge answers labelled samples differently than at first (judge check, p = %.2g): the judge may cause it."
    )
    steady = " Its judge answers labelled samples as at first (judge check, p = %.2g)."
    return {
        "judge_changed": AlertNumber(f"{p} < {_LIMIT}", changed),
        "judge_steady": AlertNumber(f"{p} >= {_LIMIT}", steady),
    }


_JUDGE_CHECK = promql.matching({label(semconv.EVALUATION_SOURCE): semconv.SOURCE_JUDGE_CHECK})
_LIMIT = f"on ({promql.METRIC}) group_left () {recorded.JUDGE_P}"


def _p(where: str) -> str:
    p_values, by = f"{series(semconv.JUDGE_CHECK_P)}{{{where}}}", ", ".join(promql.BY_EVALUATOR)
    return f"(min by ({by}) ({p_values}) * count by ({by}) ({p_values}))"
