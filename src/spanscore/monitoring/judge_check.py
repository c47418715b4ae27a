"""The alert of a judge check on a changed judge, and the sentence about the judge in the alert on a drop.

A scorer exports the exact p-value of the changes of a judge's answers since its first run (``judge_check_runs.py``). The alert
fires if p is below a limit. One false alarm is allowed in ``false_alarm_every``. This rate is divided by the number of alert
conditions (``shares_of_false_alarms``), and by the number of runs in that time. Each replica has its own runs. The alert
compares their smallest p, multiplied by the number of replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spanscore import semconv
from spanscore.config.monitoring import JudgeCheck, Monitoring
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql, recorded
from spanscore.monitoring.alert import METRIC_NAME, Alert, AlertNumber, alert_labels, by_metric, literal, scopes_of
from spanscore.monitoring.promql import label, series
from spanscore.monitoring.watched_means import WatchedMean, check_watchable, means_of_roots
from spanscore.protocols import Metric

KEPT_S = 900.0
"""Seconds for which the alert stays on without a value, because a restarted process has none until its first run ends."""
HIGHEST = 0.05
"""Largest limit of the p-value; without it, rare runs could have a limit near 1."""


@dataclass(frozen=True, slots=True)
class JudgeCheckPlan:
    """The alert on one metric's judge.

    Attributes:
        every_s: seconds between two runs.
        below: p-value below which the alert fires, (0, 1).
        false_alarm_every_s: at most one false alarm in this time, in s, on drops and changed judges together.
    """

    metric: str
    every_s: float
    below: float
    false_alarm_every_s: float
    severity: str


def select_watched(judge_check: JudgeCheck, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics that a judge check watches, by name.

    Raises:
        ConfigurationError: ``metrics`` has an unknown metric or one with an open scale, or the scorer has no metric to watch.
    """
    for name in judge_check.metrics:
        check_watchable(name, metrics, "judge_check.metrics")
    judged = (
        name
        for name, metric in metrics.items()
        if getattr(metric, "_judge", None) is not None and metric.scale.has_quality
    )
    names = list(judge_check.metrics or judged)
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
    watched = select_watched(judge_check, {name: mean.of for name, mean in of_roots.items()})
    shares = shares_of_false_alarms(means, shared, judge_checks=len(watched))
    plans = []
    for name in watched:
        alert = of_roots[name].settings
        below = min(HIGHEST, judge_check.every / (alert.false_alarm_every * shares))
        plans.append(JudgeCheckPlan(name, judge_check.every, below, alert.false_alarm_every, alert.severity))
    return plans


def shares_of_false_alarms(means: Iterable[WatchedMean], shared: Monitoring, *, judge_checks: int) -> int:
    """Return the number of alert conditions that share the configured rate of false alarms.

    These are the windows of each watched mean, for all units and for each segment, and the judge checks, per listed service.
    """
    windows = sum(mean.watches_drops for mean in means) * len(scopes_of(shared)) * len(shared.windows)
    return (windows + judge_checks) * max(1, len(shared.services))


def judge_changed(plans: Sequence[JudgeCheckPlan]) -> Alert:
    """Return the alert on a judge whose answers to its labelled samples differ from its first answers."""
    window = promql.duration(plans[0].every_s)  # one judge check, so one interval for all metrics
    agreements = {"agreement": semconv.JUDGE_CHECK_AGREEMENT, "first": semconv.JUDGE_CHECK_FIRST_AGREEMENT}
    below = by_metric({plan.metric: f"{plan.below:.2g}" for plan in plans})
    promises = {
        plan.metric: f"At most one false alarm in {promql.duration(plan.false_alarm_every_s)}, with those on drops."
        for plan in plans
    }
    return Alert(
        name="SpanscoreJudgeChanged",
        expression=f"{_smallest_p(_JUDGE_CHECK)} < {_LIMIT}",
        labels=alert_labels(by_metric({plan.metric: literal(plan.severity) for plan in plans}), METRIC_NAME, window),
        summary=f"the judge of {METRIC_NAME} has changed",
        text=f"The judge of {METRIC_NAME} answers its labelled samples differently than at first ({{service}}): it "
        f"agrees with {{agreement}} of the labels, at first with {{first}} (p = {{value}}, below {below}), evaluator version "
        f"{{{{ $labels.{promql.EVALUATOR_VERSION} }}}}. Its provider may have changed the model behind its name: a "
        f"drop may be the judge's. {by_metric(promises)}",
        figures={
            name: AlertNumber(f"min({series(instrument)}{{{_JUDGE_CHECK},{promql.OWN_EVALUATOR}}})", "%.2f")
            for name, instrument in agreements.items()
        },
        keep_s=KEPT_S,
    )


def judge_check_figures() -> dict[str, AlertNumber]:
    """Return the two figures about the judge in the text of a drop, of which at most one has a value."""
    p = _smallest_p(f"{_JUDGE_CHECK},{promql.OWN_EVALUATOR}")
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


def _smallest_p(matchers: str) -> str:
    """Return the smallest p of all replicas, times their number; ``matchers`` select the judge check."""
    p_values, by = f"{series(semconv.JUDGE_CHECK_P)}{{{matchers}}}", ", ".join(promql.BY_EVALUATOR)
    return f"(min by ({by}) ({p_values}) * count by ({by}) ({p_values}))"
