"""Alerts → unit tests for promtool: each alert fires on the traffic that it is for, and none on good traffic.

The traffic is made up: 1,000 units per evaluation and stream, all of one mean. What fires is read from ``ALERTS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from math import ceil, sqrt
from typing import Any, Final, NamedTuple

from spanscore import semconv
from spanscore.config.kinds import seconds_of
from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.core.job import STATED, UNKNOWN
from spanscore.core.score import Outcome
from spanscore.monitoring import promql
from spanscore.monitoring.alert import ALL, PATIENCE, AlertScope, streams_of
from spanscore.monitoring.drops import KEPT, DropPlan
from spanscore.monitoring.health import (
    ABSENT,
    AT_REST,
    BINDING,
    BINDING_S,
    BRIEF_S,
    ENOUGH,
    EXPECTED,
    GROWING,
    OLD,
    OPEN_S,
    REMEDIES,
    REPLICA,
    SILENT,
    UNSCORED,
    WAITED_S,
    WINDOW_S,
    looked_back,
    shortest,
)
from spanscore.monitoring.hour_of_week import DAY_S, hour_of_week
from spanscore.monitoring.judge_check import JudgeCheckPlan
from spanscore.monitoring.promql import label, series
from spanscore.monitoring.recorded import DROPPED, SEGMENT, steady_window
from spanscore.outputs.aggregates import is_conditional
from spanscore.protocols import Metric

__all__ = ["RuleTest", "series_of", "unit_test", "unit_tests"]

STEPS: Final = 2 * AT_REST + PATIENCE
"""Evaluations after which every alert has held long enough."""
MOST_STEPS: Final = 2_000
"""Evaluations past which a test of hours takes promtool minutes."""
_JOB: Final = "bot"
UNITS = 1_000
"""Per evaluation of the rules."""
SPREAD = 0.04
"""Variance of a metric that is not pass/fail."""
WORST_VARIANCE = 0.25
"""That of scores between 0 and 1 at most."""
SOME_STEPS = 400
"""Evaluations of a test that stands in the file once for each metric with such a baseline."""
SWING = (0.9, 0.85, 0.8, 0.85)
"""Means, an hour each, of a metric whose baseline is what was a day or days before."""
_WEIGHT, _WEIGHT2 = semconv.APPLICABLE_WEIGHT, semconv.APPLICABLE_WEIGHT2
_CONDITIONAL = {promql.METRIC: "refunds", promql.EVALUATOR_VERSION: "1"}


class RuleTest(NamedTuple):
    """One unit test: series that the rules read, and the alerts that must be the only ones to fire.

    Attributes:
        traffic: series and their values, in promtool's notation.
        fires: the labels of each alert that fires, its name among them.
        steps: number of evaluations before promtool compares.
        of: regular expression of the alert names that promtool compares.
        more: further expressions → labels and values that each must return at the end.
    """

    name: str
    traffic: Iterable[Mapping[str, str]]
    fires: Sequence[Mapping[str, str]]
    steps: int = STEPS
    of: str = ".+"
    more: Mapping[str, Sequence[tuple[Mapping[str, str], float]]] = {}


def unit_tests(
    rules: str,
    plans: Sequence[DropPlan],
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: Monitoring,
    judge_checks: Sequence[JudgeCheckPlan] = (),
) -> dict[str, Any]:
    """Return the tree of a test file.

    Args:
        rules: name of the rule file beside it.
    """
    cases = [*_Traffic(plans, alerts, metrics, shared).cases(), *map(_judge_changed, judge_checks)]
    tests = [unit_test(case, shared) for case in cases]
    return {"rule_files": [rules], "evaluation_interval": promql.duration(shared.interval), "tests": tests}


def unit_test(case: RuleTest, shared: Monitoring) -> dict[str, Any]:
    """Return the test as promtool reads it."""
    alerts = f'ALERTS{{alertstate="firing",alertname=~"{case.of}"}}'
    fires = f"count by (alertname, metric, window, {SEGMENT}, reason) ({alerts})"
    expected = {fires: [(labels, 1.0) for labels in case.fires], **case.more}
    return {
        "name": case.name,
        "interval": promql.duration(shared.interval),
        "input_series": list(case.traffic),
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": promql.duration(case.steps * shared.interval),
                "exp_samples": [
                    {"labels": f"{{{promql.matching(labels)}}}", "value": value} for labels, value in samples
                ],
            }
            for expression, samples in expected.items()
        ],
    }


def series_of(instrument: str, labels: Mapping[str, str]) -> str:
    """Return the name of a series of an instrument, of one service unless the labels name another."""
    return f"{series(instrument)}{{{promql.matching({'job': _JOB, **labels})}}}"


class _Traffic:
    """What the counters of one service do."""

    def __init__(
        self,
        plans: Sequence[DropPlan],
        alerts: Mapping[str, AlertSettings],
        metrics: Sequence[Metric],
        shared: Monitoring,
    ) -> None:
        self._alerts = alerts
        self._metrics = metrics
        self._shared = shared
        self._plans = plans
        self._first = steady_window(shared)
        self._streams = streams_of(shared)[1:] or streams_of(shared)
        self._each_kind = list({f"{one.scale} {alerts.get(one.name)}": one for one in metrics}.values())
        """A metric of each scale and settings, for tests of hours: promtool evaluates every rule at every step."""

    def cases(self) -> Iterator[RuleTest]:
        yield RuleTest("good traffic is quiet", self._all(streams=self._streams), [])
        yield from self._drops()
        low = {name: one.threshold / 2 for name, one in self._alerts.items() if one.threshold and not one.baseline}
        if low:
            yield RuleTest(
                "a mean below its threshold is seen", self._all(low, streams=self._streams), self._below(low)
            )
        failing = self._each("SpanscoreJudgeFailing", window=self._first)
        yield RuleTest("a failing judge is seen", self._all(failed=0.5), failing)
        declining = failing + self._each("SpanscoreJudgeDeclining", window=self._first)
        yield RuleTest("a judge that declines is seen", self._all(failed=0.5, declined=0.5), declining)
        lost = {"alertname": "SpanscoreUnitsLost", "metric": "all", "window": self._first}
        yield RuleTest("lost units are seen", self._all(lost=1), [{**lost, "reason": reason} for reason in REMEDIES])
        mixed = {"alertname": "SpanscoreHeadSamplingUnknown", "metric": ALL, "window": self._first}
        yield RuleTest("units of unknown weight are seen", self._all(unknown=UNITS), [mixed])
        mute = self._each("SpanscoreNoScores", window=self._first, reason=UNSCORED)
        yield RuleTest("evaluations without a score are seen", self._all(scored=False), mute)
        yield self._silence()
        yield from self._changed()
        long = promql.duration(shortest(self._shared))
        absent = self._each("SpanscoreNoScores", window=long, reason=ABSENT)
        yield RuleTest("nothing at all is seen", iter(()), absent)
        yield self._away(absent)
        if BINDING_S / self._shared.interval <= MOST_STEPS:
            yield self._binding(absent)
        yield from _durable_cases(self._shared, absent)
        if any(map(is_conditional, self._metrics)):
            yield _never_applied()
        at_rest = promql.duration(AT_REST * self._shared.interval)
        missing = self._each("SpanscoreOutcomesDoNotAddUp", window=at_rest)
        yield RuleTest("outcomes that do not add up are seen", self._all(missing=1), missing)

    def _drops(self) -> Iterator[RuleTest]:
        known = [plan for plan in self._plans if not plan.baseline.is_recorded]
        if known:
            drops = {plan.metric: max(0.0, plan.baseline.level - _fall(plan)) for plan in known}
            dropped = self._dropped([*drops]) + self._below(drops)
            windows = [promql.duration(window) for window in self._shared.windows]
            seen = {f"count by ({promql.METRIC}, {SEGMENT}) ({DROPPED})": self._seen([*drops], len(windows))}
            low = self._all(drops, streams=self._streams)
            yield RuleTest("a drop is seen in every window and segment", low, dropped, more=seen)
            yield self._anotherseries_of(drops)
            yield self._over(drops)
        for plan in self._plans:
            if plan.baseline.is_recorded:
                yield from self._recorded(plan)

    def _away(self, absent: Sequence[Mapping[str, str]]) -> RuleTest:
        """A breaker that was open or half-open at every collection, and one that closed now and then."""
        steps = ceil(OPEN_S / self._shared.interval) + STEPS
        states = {"judge": "1 2 2 2 2", "other": "0 2 2 2 2"}
        account = label(semconv.REQUEST_MODEL)
        breakers = [
            {
                "series": series_of(semconv.JUDGE_CIRCUIT_BREAKER_STATE, {account: model}),
                "values": " ".join([values] * steps),
            }
            for model, values in states.items()
        ]
        fires = {"alertname": "SpanscoreJudgeBreakerOpen", "metric": ALL, "window": promql.duration(OPEN_S)}
        return RuleTest("a judge that is away is seen", breakers, [fires, *absent], steps)

    def _binding(self, absent: Sequence[Mapping[str, str]]) -> RuleTest:
        """A budget that has bound for long enough, one that did not at times, and one that has only begun to."""
        steps, bound = ceil(BINDING_S / self._shared.interval) + STEPS, f"{BINDING / 2:g}"
        factors = {
            "1h": f"{bound}x{steps}",
            "2h": f"{bound}x{steps // 2} 1 {bound}x{steps}",
            "3h": f"_x{STEPS} {bound}x{steps}",
        }
        budgets = [
            {"series": series_of(semconv.BUDGET_FACTOR, {label(semconv.BUDGET_WINDOW): window}), "values": values}
            for window, values in factors.items()
        ]
        fires = {"alertname": "SpanscoreBudgetBinding", "metric": ALL, "window": promql.duration(BINDING_S)}
        return RuleTest("a budget that binds is seen", budgets, [fires, *absent], steps)

    def _silence(self) -> RuleTest:
        """Of two services one scores no more, and its counters go; of the other, one replica no more, while units come."""
        interval = self._shared.interval
        due = max(
            shortest(self._shared), EXPECTED * DAY_S / (UNITS * STEPS)
        )  # a replica's, by its few scores of the last day
        steps = STEPS + ceil((due + looked_back(self._shared)) / interval) + PATIENCE
        grows, ends = f"0+{UNITS}x{steps}", f"0+{UNITS}x{STEPS}"
        replicas = {  # units, and scores
            ("lives", "a"): (grows, grows),
            ("lives", "b"): (grows, f"{ends} {STEPS * UNITS}x{steps}"),
            ("dies", "c"): (f"{ends} stale", f"{ends} stale"),
        }
        traffic = [
            {
                "series": series_of(counter, {promql.METRIC: metric.name, "job": job, promql.INSTANCE: instance}),
                "values": values,
            }
            for metric, ((job, instance), told) in product(self._metrics, replicas.items())
            for counter, values in zip((semconv.ELIGIBLE, semconv.SCORED), told, strict=True)
        ]
        window = promql.duration(shortest(self._shared))
        fires = [one for why in (SILENT, REPLICA) for one in self._each("SpanscoreNoScores", window=window, reason=why)]
        return RuleTest("silence is seen, of a service and of a replica", traffic, fires, steps, of="SpanscoreNoScores")

    def _changed(self) -> Iterator[RuleTest]:
        """Another series takes the place of one that had been there for long enough; the notice ends by itself."""
        interval, window = self._shared.interval, seconds_of(self._first)
        before, told = STEPS + ceil(window / interval), PATIENCE + 2
        over = before + ceil(window / interval) + told
        grows = f"0+{UNITS}x{over}"
        values = {"1+a/m/x/1": f"0+{UNITS}x{before} {UNITS * before}x{over}", "1+a/m/y/1": f"0x{before} {grows}"}
        traffic = [
            {
                "series": series_of(semconv.SCORED, {promql.METRIC: metric.name, promql.EVALUATOR_VERSION: one}),
                "values": grown,
            }
            for metric, (one, grown) in product(self._each_kind, values.items())
        ]
        of_kinds = [metric.name for metric in self._each_kind]
        notices = [
            one for one in self._each("SpanscoreNewEvaluatorVersion", window=self._first) if one["metric"] in of_kinds
        ]
        of = "SpanscoreNewEvaluatorVersion|SpanscoreQualityDrop"
        yield RuleTest("another judge is told", traffic, notices, before + told, of)
        yield RuleTest("the notice of another judge ends by itself", traffic, [], over, of)

    def _anotherseries_of(self, low: Mapping[str, float]) -> RuleTest:
        """The judge changes, and what the new one says is as far below the baseline as a drop."""
        more = min(STEPS, ceil(max(self._shared.windows) / self._shared.interval) - 1)
        traffic = [*self._in_turn({}, low, more, {promql.EVALUATOR_VERSION: "another"})]
        return RuleTest("what another judge says is no drop", traffic, [], STEPS + more, of="SpanscoreQualityDrop")

    def _over(self, low: Mapping[str, float]) -> RuleTest:
        """The shortest window is good again; of the longest, most is still of the drop."""
        shortest, longest = min(self._shared.windows), max(self._shared.windows)
        more = ceil((shortest + longest / KEPT) / self._shared.interval) + STEPS // 4
        traffic = [*self._in_turn(low, {}, more, {"instance": "another"})]
        return RuleTest("what is over is told no more", traffic, [], STEPS + more, of="SpanscoreQualityDrop")

    def _in_turn(
        self, before: Mapping[str, float], after: Mapping[str, float], more: int, changed: Mapping[str, str]
    ) -> Iterator[Mapping[str, str]]:
        """Yield the sums of processes, then of those that take their place: metric → mean, a good one where none is given."""
        for metric in self._each_kind:
            good = self._good(metric.name)
            yield from self._scores(metric, before.get(metric.name, good), UNITS)
            for one in self._scores(metric, after.get(metric.name, good), UNITS, changed):
                yield {**one, "values": f"_x{STEPS} {one['values'].rpartition('x')[0]}x{more}"}

    def _each(self, alert: str, **labels: str) -> list[dict[str, str]]:
        return [{"alertname": alert, "metric": metric.name, **labels} for metric in self._metrics]

    def _streamed(self, metrics: Sequence[str], **labels: str) -> list[dict[str, str]]:
        return [
            {**labels, "metric": metric, **({SEGMENT: stream.name} if stream.key else {})}
            for metric, stream in product(metrics, streams_of(self._shared))
        ]

    def _dropped(self, metrics: Sequence[str]) -> list[dict[str, str]]:
        return self._streamed(metrics, alertname="SpanscoreQualityDrop")

    def _seen(self, metrics: Sequence[str], windows: int) -> list[tuple[dict[str, str], float]]:
        """Return by how many windows each stream's drop must be seen."""
        streams = self._streamed(metrics)
        return [({promql.METRIC: one.pop("metric"), **one}, windows) for one in streams]

    def _below(self, means: Mapping[str, float]) -> list[dict[str, str]]:
        below = [name for name, mean in means.items() if mean < (self._alerts[name].threshold or 0.0)]
        return self._streamed(below, alertname="SpanscoreQualityBelowThreshold", window=self._first)

    def _all(
        self,
        means: Mapping[str, float] | None = None,
        *,
        failed: float = 0.0,
        lost: int = 0,
        unknown: int = 1,
        scored: bool = True,
        missing: int = 0,
        declined: float = 0.0,
        streams: Sequence[AlertScope] = (AlertScope(),),
    ) -> Iterator[dict[str, str]]:
        """Yield what all counters do; ``streams``: segments in which there are scores."""
        for metric in self._metrics:
            failures = {promql.METRIC: metric.name, label(semconv.OUTCOME): Outcome.JUDGE_ERROR}
            yield _counter(semconv.MISSING_WEIGHT, failures, UNITS * failed)
            name = {promql.METRIC: metric.name}
            ended = {
                Outcome.SCORED: UNITS * (1 - failed) if scored else 0,
                Outcome.NO_SAMPLE: 0 if scored else UNITS,
                Outcome.JUDGE_ERROR: UNITS * failed,
                Outcome.QUEUE_FULL: lost,
            }
            for outcome, count in ended.items():
                yield _counter(semconv.EVALUATIONS, {**name, label(semconv.OUTCOME): outcome}, count)
            yield _counter(semconv.ELIGIBLE, name, sum(ended.values()) + missing)
            yield _counter(semconv.DECLINED, name, UNITS * declined)
            yield {"series": series_of(semconv.PENDING, name), "values": f"0x{STEPS}"}
            mean = (means or {}).get(metric.name, self._good(metric.name))
            units = UNITS * (1 - failed) if scored else 0
            yield from self._scores(metric, mean, units, streams=streams)
        yield _counter(semconv.CAPTURE_REFUSED, {}, lost)
        yield _counter(semconv.HOLD_LOST, {}, lost)
        yield _counter(semconv.HEAD_SAMPLING, {"reason": STATED}, UNITS)
        yield _counter(semconv.HEAD_SAMPLING, {"reason": UNKNOWN}, unknown)

    def _good(self, metric: str) -> float:
        alert = self._alerts.get(metric, AlertSettings())
        normal = [plan.baseline.highest for plan in self._plans if plan.metric == metric]
        return max(*normal, alert.threshold or 0.5, 0.0)

    def _scores(
        self,
        metric: Metric,
        mean: float,
        units: float,
        labels: Mapping[str, str] | None = None,
        streams: Sequence[AlertScope] = (AlertScope(),),
    ) -> Iterator[dict[str, str]]:
        """Yield the sums of each segment; of the series that is watched unless the labels name another."""
        alert = self._alerts.get(metric.name, AlertSettings())
        own = {promql.METRIC: metric.name, promql.EVALUATOR_VERSION: alert.evaluator_version or "1", **(labels or {})}
        for stream in streams:
            labels = {**own, **stream.labels}
            for instrument, rate in _rates(metric, mean, units):
                yield _counter(instrument, labels, rate)

    def _recorded(self, plan: DropPlan) -> Iterator[RuleTest]:
        """What is normal at each time, and then less: of a baseline that is another one at other times."""
        interval, name, drop = self._shared.interval, plan.metric, "SpanscoreQualityDrop"
        windows = _watched(plan, self._shared)
        if not windows:
            return
        less_for = ceil(max(windows) / interval) + PATIENCE
        steps = ceil(plan.baseline.offset_s / interval) + less_for + STEPS
        normal = [_normal(plan, (step - 0.5) * interval) for step in range(1, steps + 1)]
        fallen = [max(0.0, mean - _fall(plan)) for mean in normal]
        less = self._changing(name, normal[:-less_for] + fallen[-less_for:])
        fires = self._dropped([name])
        yield RuleTest(f"{name}: what is normal at this time", self._changing(name, normal), [], steps, of=drop)
        yield RuleTest(f"{name}: less than is normal at this time", less, fires, steps, of=drop)

    def _changing(self, name: str, means: Sequence[float]) -> Iterator[dict[str, str]]:
        """Yield the sums of a metric whose mean is another one at each evaluation."""
        (metric,) = (metric for metric in self._metrics if metric.name == name)
        own = {promql.METRIC: name, promql.EVALUATOR_VERSION: self._alerts[name].evaluator_version or "1"}
        for stream in self._streams:
            labels = {**own, **stream.labels}
            by_mean = {mean: dict(_rates(metric, mean, UNITS)) for mean in means}
            for instrument in by_mean[means[0]]:
                rates = [by_mean[mean][instrument] for mean in means]
                yield {"series": series_of(instrument, labels), "values": _growing(rates)}


def _durable_cases(shared: Monitoring, absent: Sequence[Mapping[str, str]]) -> Iterator[RuleTest]:
    """Yield the tests; of a backlog only where the rules are not evaluated too often for it.

    Args:
        absent: the alerts that fire as there are no scores.
    """
    lost = {"alertname": "SpanscoreWorkerSkipped", "metric": ALL, "window": steady_window(shared)}
    aside = {"alertname": "SpanscoreSpoolDeadLetters", "metric": ALL, "window": promql.duration(BRIEF_S)}
    traffic = {
        (semconv.SPOOL_DEAD_LETTERS, "poisoned"): f"0 2x{STEPS}",
        (semconv.SPOOL_DEAD_LETTERS, "clean"): f"0x{STEPS}",
        (semconv.WORKER_SKIPPED, "gap"): f"0+1x{STEPS}",
        (semconv.WORKER_SKIPPED, "whole"): f"7x{STEPS}",
    }
    yield RuleTest(
        "lost messages and jobs that were put aside are seen", _series_by_job(traffic), [lost, aside, *absent]
    )
    if WAITED_S / shared.interval <= MOST_STEPS:
        yield _backlog(shared.interval)


def _backlog(interval_s: float) -> RuleTest:
    """Services whose backlog grows, is old, or comes and goes."""
    steps = ceil((WAITED_S + 2 * BRIEF_S) / interval_s) + STEPS
    swings = " ".join(["0 9000 90"] * steps)
    traffic = {
        (semconv.SPOOL_DEPTH, "grows"): f"0+10x{steps}",
        (semconv.SPOOL_DEPTH, "swings"): swings,
        (semconv.SPOOL_OLDEST, "old"): f"{2 * WAITED_S:g}x{steps}",
        (semconv.SPOOL_OLDEST, "swings"): swings,
        (semconv.WORKER_LAG, "grows"): f"0+10x{steps}",
        (semconv.WORKER_LAG, "swings"): swings,
    }
    seen = {"metric": ALL, "window": promql.duration(WAITED_S)}
    fires = [
        *({"alertname": "SpanscoreSpoolBacklog", **seen, "reason": reason} for reason in (OLD, GROWING)),
        {"alertname": "SpanscoreWorkerLagging", **seen},
    ]
    return RuleTest(
        "a backlog is seen", _series_by_job(traffic), fires, steps, of="SpanscoreSpoolBacklog|SpanscoreWorkerLagging"
    )


def _series_by_job(values: Mapping[tuple[str, str], str]) -> Iterator[dict[str, str]]:
    for (instrument, job), numbers in values.items():
        yield {"series": series_of(instrument, {"job": job}), "values": numbers}


def _never_applied() -> RuleTest:
    """A condition that held for nobody, one that did at times, and ones of which too few units were judged to know."""
    many = ENOUGH
    grows = {  # job → Σw and Σw² of what did not apply, Σw and Σw² of what did, with each evaluation
        "never": (many, many, 0, 0),
        "sometimes": (many, many, 1, 1),
        "few": (1, 1, 0, 0),
        "heavy": (many, many * many, 0, 0),
    }
    columns = [(name, answer) for answer in ("false", "true") for name in (_WEIGHT, _WEIGHT2)]
    traffic = [
        {
            "series": series_of(name, {**_CONDITIONAL, label(semconv.APPLICABLE): answer, "job": job}),
            "values": f"0+{step}x{STEPS}",
        }
        for job, steps in grows.items()
        for (name, answer), step in zip(columns, steps, strict=True)
    ]
    fires = {"alertname": "SpanscoreNeverApplies", "metric": "refunds", "window": promql.duration(WINDOW_S)}
    return RuleTest("a condition that never holds is seen", traffic, [fires], of="SpanscoreNeverApplies")


def _judge_changed(plan: JudgeCheckPlan) -> RuleTest:
    """One judge that has changed, one that has not, and one of three replicas that seems to have."""
    seen = {("bot", "a"): plan.below / 2, ("steady", "a"): 1.0, **{("many", one): plan.below / 2 for one in "abc"}}
    name = {
        promql.METRIC: plan.metric,
        label(semconv.EVALUATION_SOURCE): semconv.SOURCE_JUDGE_CHECK,
        promql.EVALUATOR_VERSION: "1",
    }
    traffic = [
        {
            "series": series_of(semconv.JUDGE_CHECK_P, {**name, "job": job, promql.INSTANCE: instance}),
            "values": f"{p:g}x{STEPS}",
        }
        for (job, instance), p in seen.items()
    ]
    fires = {"alertname": "SpanscoreJudgeChanged", "metric": plan.metric, "window": promql.duration(plan.every_s)}
    return RuleTest(f"{plan.metric}: a judge that has changed is seen", traffic, [fires], of="SpanscoreJudgeChanged")


def _rates(metric: Metric, mean: float, units: float) -> Iterator[tuple[str, float]]:
    """Yield by how much each sum of a metric grows with every evaluation."""
    yield semconv.SCORED, units
    if metric.scale.range is None:
        return
    square = mean if metric.scale.kind == "binary" else min(mean, mean * mean + SPREAD)
    for power in (semconv.WEIGHT, semconv.WEIGHT2):  # every unit is scored, so w = 1
        yield power, units
        yield f"{power}.quality", units * mean
    yield semconv.WEIGHT2_QUALITY2, units * square


def _growing(rates: Sequence[float]) -> str:
    """Return a counter's values in promtool's words, a stretch of one rate after another."""
    total, stretches = 0.0, []
    for rate, of in groupby(rates):
        count = len([*of])
        stretches.append(f"{total:.12g}+{rate:.9g}x{count - 1}")
        total += rate * count
    return " ".join([*stretches, f"{total:.12g}"])


def _watched(plan: DropPlan, shared: Monitoring) -> Sequence[float]:
    """Return the windows that a test can wait for: one that is longer says nothing before it is full."""
    most = SOME_STEPS * shared.interval
    if plan.baseline.offset_s:  # but for such a baseline: what was before is as full as what is
        return shared.windows if plan.baseline.offset_s + max(shared.windows) <= most else []
    return [window for window in shared.windows if window <= most]


def _normal(plan: DropPlan, time_s: float) -> float:
    """Return what is normal at a time, in seconds since the epoch, at which promtool's begins."""
    if plan.baseline.hours:
        return plan.baseline.hours[hour_of_week(time_s)]
    return SWING[int(time_s // 3_600) % len(SWING)]


def _fall(plan: DropPlan) -> float:
    """Return how far below what is normal a mean is surely seen to have dropped."""
    clustered = (plan.baseline.design_effect - 1) * WORST_VARIANCE / UNITS
    return plan.tolerated + plan.settings.min_drop + plan.z * sqrt(plan.baseline.baseline_sd_of(0) ** 2 + clustered)


def _counter(instrument: str, labels: Mapping[str, str], step: float) -> dict[str, str]:
    return {"series": series_of(instrument, labels), "values": f"0+{step:.9g}x{STEPS}"}
