"""Makes unit tests of the alerts for promtool: each alert must fire on the traffic that it is for, and none on good traffic.

The traffic is artificial: 1,000 units per evaluation and segment, all with one mean. A test reads the firing alerts from
Prometheus' series ``ALERTS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from math import ceil, sqrt
from typing import Any, Final, NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.core.job import STATED, UNKNOWN
from spanscore.core.printable import parse_duration
from spanscore.core.score import Outcome, Scale
from spanscore.monitoring import health, promql
from spanscore.monitoring.alert import ALL, FOR_INTERVALS, AlertScope, scopes_of
from spanscore.monitoring.baselines import DAY_S, hour_of_week
from spanscore.monitoring.drops import KEEP_DIVISOR, DropPlan
from spanscore.monitoring.judge_check import JudgeCheckPlan
from spanscore.monitoring.promql import label, series
from spanscore.monitoring.recorded import DROPPED, SEGMENT, steady_window
from spanscore.monitoring.watched_means import WatchedMean, means_of_roots
from spanscore.outputs.aggregates import is_conditional
from spanscore.outputs.instrument_table import APPLICABLE

STEPS: Final = 2 * health.DISAGREEING_RUNS + FOR_INTERVALS
"""Number of evaluations in a usual test, after which each tested alert fires."""
MOST_STEPS: Final = 2_000
"""Most evaluations of a test that needs hours of traffic; a longer one, which would take minutes, is left out."""
_JOB: Final = "bot"
_DROP: Final = "SpanscoreQualityDrop"
_RISE: Final = "SpanscoreShareRise"
_CHANGES: Final = f"{_DROP}|{_RISE}"
UNITS = 1_000
"""Units per evaluation of the rules."""
SPREAD = 0.04
"""Variance of the values of a metric that is not pass/fail."""
WORST_VARIANCE = 0.25
"""Highest possible variance of scores between 0 and 1."""
SOME_STEPS = 400
"""Most evaluations of a test that exists once for each metric with a baseline that varies with time."""
SWING = (0.9, 0.85, 0.8, 0.85)
"""Hourly means of a metric with an offset baseline."""
_CONDITIONAL = {promql.METRIC: "refunds", promql.EVALUATOR_VERSION: "1"}


class RuleTest(NamedTuple):
    """One unit test: series for the rules, and the only alerts that may fire on them.

    Attributes:
        name: the tested promise.
        traffic: series and their values, in promtool's notation.
        fires: labels of each alert that must fire, including its name.
        steps: number of evaluations before the check.
        of: regular expression of the names of the checked alerts; other alerts may fire.
        more: further PromQL expression → labels and values that it must return at the check.
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
    means: Sequence[WatchedMean],
    shared: Monitoring,
    judge_checks: Sequence[JudgeCheckPlan] = (),
) -> dict[str, Any]:
    """Return the content of a test file; ``rules``: name of the rule file in the same folder."""
    cases = [*_Traffic(plans, means, shared).cases(), *map(_judge_changed, judge_checks)]
    tests = [unit_test(case, shared) for case in cases]
    return {"rule_files": [rules], "evaluation_interval": promql.duration(shared.interval), "tests": tests}


def unit_test(case: RuleTest, shared: Monitoring) -> dict[str, Any]:
    """Return the test in promtool's format."""
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
    """Return a series of an instrument, with the service of the tests unless the labels name another."""
    return f"{series(instrument)}{{{promql.matching({'job': _JOB, **labels})}}}"


class _Traffic:
    """Makes the tests that need counters of all watched means: the traffic of one service."""

    def __init__(self, plans: Sequence[DropPlan], watched: Sequence[WatchedMean], shared: Monitoring) -> None:
        self._plans, self._watched, self._shared = plans, watched, shared
        self._first = steady_window(shared)
        self._scopes = scopes_of(shared)[1:] or scopes_of(shared)  # the segments make up all units
        self._means = {mean.subject: mean for mean in watched}
        self._of_roots = [*means_of_roots(watched)]
        # One mean per scale, kind of units and settings, for long tests, because promtool evaluates every rule at every step.
        self._examples = [*{f"{mean.of.scale} {mean.inner} {mean.settings}": mean for mean in watched}.values()]

    def cases(self) -> Iterator[RuleTest]:
        """Yield all tests of the traffic."""
        yield RuleTest("good traffic is quiet", self._all(scopes=self._scopes), [])
        yield from self._drops()
        levels = {name: self._lowest(name) for name, mean in self._means.items() if not mean.settings.baseline}
        low = {name: level / 2 for name, level in levels.items() if level}
        if low:
            yield RuleTest("a mean below its threshold is seen", self._all(low, scopes=self._scopes), self._below(low))
        failing = self._each("SpanscoreJudgeFailing", self._watched, window=self._first)
        yield RuleTest("a failing judge is seen", self._all(failed=0.5), failing)
        declining = failing + self._each("SpanscoreJudgeDeclining", self._of_roots, window=self._first)
        yield RuleTest("a judge that declines is seen", self._all(failed=0.5, declined=0.5), declining)
        lost = {"alertname": "SpanscoreUnitsLost", "metric": "all", "window": self._first}
        reasons = [{**lost, "reason": reason} for reason in health.REMEDIES]
        yield RuleTest("lost units are seen", self._all(lost=1), reasons)
        mixed = {"alertname": "SpanscoreHeadSamplingUnknown", "metric": ALL, "window": self._first}
        yield RuleTest("units of unknown weight are seen", self._all(unknown=UNITS), [mixed])
        unscored = self._each("SpanscoreNoScores", self._watched, window=self._first, reason=health.UNSCORED)
        yield RuleTest("evaluations without a score are seen", self._all(scored=False), unscored)
        yield self._silence()
        yield from self._new_version()
        silence = promql.duration(health.shortest_silence_s(self._shared))
        # these fire in each test without counters of the metrics
        absent = self._each("SpanscoreNoScores", self._of_roots, window=silence, reason=health.ABSENT)
        yield RuleTest("nothing at all is seen", iter(()), absent)
        yield self._open_breaker(absent)
        if health.BINDING_S / self._shared.interval <= MOST_STEPS:
            yield self._binding_budget(absent)
        yield _lost_messages(self._shared, absent)
        if health.WAITED_S / self._shared.interval <= MOST_STEPS:
            yield _backlog(self._shared.interval)
        if any(is_conditional(mean.of) for mean in self._of_roots):
            yield _never_applied()
        at_rest = promql.duration(health.DISAGREEING_RUNS * self._shared.interval)
        missing = self._each("SpanscoreOutcomesDoNotAddUp", self._of_roots, window=at_rest)
        yield RuleTest("outcomes that do not add up are seen", self._all(missing=1), missing)

    def _drops(self) -> Iterator[RuleTest]:
        plans = [plan for plan in self._plans if not plan.baseline.is_recorded]
        if plans:
            drops = {plan.watched.subject: max(0.0, plan.baseline.level - _fall(plan)) for plan in plans}
            dropped = self._alert_labels([*drops], _DROP, _RISE) + self._below(drops)
            windows = len(self._shared.windows)  # each window must detect the drop of each scope
            detected = [
                ({promql.METRIC: self._means[labels.pop("metric")].name, **labels}, windows)
                for labels in self._by_scope([*drops])
            ]
            more_checks = {f"count by ({promql.METRIC}, {SEGMENT}) ({DROPPED})": detected}
            low = self._all(drops, scopes=self._scopes)
            yield RuleTest("a drop is seen in every window and segment", low, dropped, more=more_checks)
            # the judge changes, and the scores of the new judge are as far below the baseline as a drop
            more = min(STEPS, ceil(max(self._shared.windows) / self._shared.interval) - 1)
            traffic = [*self._in_turn({}, drops, more, {promql.EVALUATOR_VERSION: "another"})]
            yield RuleTest("lower scores of another judge are not a drop", traffic, [], STEPS + more, of=_CHANGES)
            # the shortest window is good again; of the longest, most is still of the drop
            shortest, longest = min(self._shared.windows), max(self._shared.windows)
            more = ceil((shortest + longest / KEEP_DIVISOR) / self._shared.interval) + STEPS // 4
            traffic = [*self._in_turn(drops, {}, more, {"instance": "another"})]
            yield RuleTest("a drop that is over no longer alerts", traffic, [], STEPS + more, of=_CHANGES)
        for plan in self._plans:
            if plan.baseline.is_recorded:
                yield from self._varying_baseline(plan)

    def _open_breaker(self, absent: Sequence[Mapping[str, str]]) -> RuleTest:
        """Return a test with a breaker that is open or half-open at every collection, and one that closes now and then."""
        steps = ceil(health.OPEN_S / self._shared.interval) + STEPS
        states = {"judge": "1 2 2 2 2", "other": "0 2 2 2 2"}
        account = label(semconv.REQUEST_MODEL)
        breakers = [
            _series(semconv.JUDGE_CIRCUIT_BREAKER_STATE, {account: model}, " ".join([values] * steps))
            for model, values in states.items()
        ]
        fires = {"alertname": "SpanscoreJudgeBreakerOpen", "metric": ALL, "window": promql.duration(health.OPEN_S)}
        return RuleTest("a judge that does not answer is seen", breakers, [fires, *absent], steps)

    def _binding_budget(self, absent: Sequence[Mapping[str, str]]) -> RuleTest:
        """Return a test with a budget that binds for long enough, one that binds with pauses, and one that has just begun."""
        steps, factor = ceil(health.BINDING_S / self._shared.interval) + STEPS, f"{health.BINDING / 2:g}"
        factors = {
            "1h": f"{factor}x{steps}",
            "2h": f"{factor}x{steps // 2} 1 {factor}x{steps}",
            "3h": f"_x{STEPS} {factor}x{steps}",
        }
        budgets = [
            _series(semconv.BUDGET_FACTOR, {label(semconv.BUDGET_WINDOW): window}, values)
            for window, values in factors.items()
        ]
        fires = {"alertname": "SpanscoreBudgetBinding", "metric": ALL, "window": promql.duration(health.BINDING_S)}
        return RuleTest("a budget that binds is seen", budgets, [fires, *absent], steps)

    def _silence(self) -> RuleTest:
        interval = self._shared.interval
        by_rate = health.MISSED_SCORES * DAY_S / (UNITS * STEPS)  # a replica's, by its few scores of the last day
        due = max(health.shortest_silence_s(self._shared), by_rate)
        steps = STEPS + ceil((due + health.recent_s(self._shared)) / interval) + FOR_INTERVALS
        grows, ends = f"0+{UNITS}x{steps}", f"0+{UNITS}x{STEPS}"
        replicas = {  # units, and scores
            ("lives", "a"): (grows, grows),
            ("lives", "b"): (grows, f"{ends} {STEPS * UNITS}x{steps}"),
            ("dies", "c"): (f"{ends} stale", f"{ends} stale"),
        }
        traffic = [
            _series(counter, {**mean.labels, "job": job, promql.INSTANCE: instance}, values)
            for mean, ((job, instance), counts) in product(self._of_roots, replicas.items())
            for counter, values in zip((semconv.ELIGIBLE, semconv.SCORED), counts, strict=True)
        ]
        window, reasons = promql.duration(health.shortest_silence_s(self._shared)), (health.SILENT, health.REPLICA)
        fires = [
            alert
            for reason in reasons
            for alert in self._each("SpanscoreNoScores", self._of_roots, window=window, reason=reason)
        ]
        return RuleTest("silence is seen, of a service and of a replica", traffic, fires, steps, of="SpanscoreNoScores")

    def _new_version(self) -> Iterator[RuleTest]:
        interval, window = self._shared.interval, parse_duration(self._first)
        before, notice_steps = STEPS + ceil(window / interval), FOR_INTERVALS + 2
        over = before + ceil(window / interval) + notice_steps
        grows = f"0+{UNITS}x{over}"
        values = {"1+a/m/x/1": f"0+{UNITS}x{before} {UNITS * before}x{over}", "1+a/m/y/1": f"0x{before} {grows}"}
        traffic = [
            _series(semconv.SCORED, {**mean.labels, promql.EVALUATOR_VERSION: version}, counts)
            for mean, (version, counts) in product(self._examples, values.items())
        ]
        notices = self._each("SpanscoreNewEvaluatorVersion", [*means_of_roots(self._examples)], window=self._first)
        of = f"SpanscoreNewEvaluatorVersion|{_CHANGES}"
        yield RuleTest("another judge is announced", traffic, notices, before + notice_steps, of)
        yield RuleTest("the notice of another judge ends by itself", traffic, [], over, of)

    def _in_turn(
        self, before: Mapping[str, float], after: Mapping[str, float], more: int, changed: Mapping[str, str]
    ) -> Iterator[Mapping[str, str]]:
        """Yield the sums of a process, then for ``more`` evaluations those of a process with the labels ``changed``.

        ``before`` and ``after`` map a metric to its mean in each process; a missing metric has a good mean.
        """
        for watched in self._examples:
            good = self._good(watched.subject)
            yield from self._scores(watched, before.get(watched.subject, good), UNITS)
            for score in self._scores(watched, after.get(watched.subject, good), UNITS, changed):
                yield {**score, "values": f"_x{STEPS} {score['values'].rpartition('x')[0]}x{more}"}

    def _each(self, alert: str, means: Sequence[WatchedMean], **labels: str) -> list[dict[str, str]]:
        return [{"alertname": alert, "metric": mean.subject, **labels} for mean in means]

    def _by_scope(self, metrics: Sequence[str], **labels: str) -> list[dict[str, str]]:
        return [
            {**labels, "metric": metric, **({SEGMENT: scope.name} if scope.key else {})}
            for metric, scope in product(metrics, scopes_of(self._shared))
        ]

    def _below(self, means: Mapping[str, float]) -> list[dict[str, str]]:
        below = [name for name, mean in means.items() if mean < self._lowest(name)]
        return self._alert_labels(below, "SpanscoreQualityBelowThreshold", "SpanscoreShareAboveMax", window=self._first)

    def _alert_labels(
        self, metrics: Sequence[str], of_quality: str, of_share: str, **labels: str
    ) -> list[dict[str, str]]:
        return [
            {"alertname": of_share if self._means[name].category else of_quality, **of_scope}
            for name in metrics
            for of_scope in self._by_scope([name], **labels)
        ]

    def _lowest(self, metric: str) -> float:
        """Return the lowest acceptable mean of a metric; 0 without one."""
        own = self._means[metric].settings
        return own.threshold or (0.0 if own.max is None else 1 - own.max)

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
        scopes: Sequence[AlertScope] = (AlertScope(),),
    ) -> Iterator[dict[str, str]]:
        """Yield the values of all counters of good traffic, unless an argument changes them.

        Args:
            means: metric → its mean; other metrics have a good mean.
            failed: share of failed evaluations.
            lost: units per evaluation that are lost for each reason.
            unknown: units per evaluation with an unknown share of a head sampler.
            scored: whether units get scores.
            missing: eligible units per evaluation without an outcome.
            declined: share of units that the judge declines.
            scopes: segments with scores.
        """
        for watched in self._watched:
            name = watched.labels
            failures = {**name, label(semconv.OUTCOME): Outcome.JUDGE_ERROR}
            yield _counter(semconv.MISSING_WEIGHT, failures, UNITS * failed)
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
            yield _series(semconv.PENDING, name, f"0x{STEPS}")
            mean = (means or {}).get(watched.subject, self._good(watched.subject))
            units = UNITS * (1 - failed) if scored else 0
            yield from self._scores(watched, mean, units, scopes=scopes)
        yield _counter(semconv.CAPTURE_REFUSED, {}, lost)
        yield _counter(semconv.HOLD_LOST, {}, lost)
        yield _counter(semconv.HEAD_SAMPLING, {"reason": STATED}, UNITS)
        yield _counter(semconv.HEAD_SAMPLING, {"reason": UNKNOWN}, unknown)

    def _good(self, metric: str) -> float:
        """Return a mean on which no alert of a metric fires."""
        normal = [plan.baseline.highest for plan in self._plans if plan.watched.subject == metric]
        return max(*normal, self._lowest(metric) or 0.5, 0.0)

    def _scores(
        self,
        watched: WatchedMean,
        mean: float,
        units: float,
        labels: Mapping[str, str] | None = None,
        scopes: Sequence[AlertScope] = (AlertScope(),),
    ) -> Iterator[dict[str, str]]:
        """Yield the sums of each segment, for the watched evaluator version unless the labels name another."""
        own = {**watched.labels, **_version(watched), **(labels or {})}
        for scope in scopes:
            for instrument, score, rate in _rates(watched, mean, units):
                yield _counter(instrument, {**own, **score, **scope.labels}, rate)

    def _varying_baseline(self, plan: DropPlan) -> Iterator[RuleTest]:
        """Yield a test with normal means, and one with a drop at the end, for a baseline that varies with time."""
        interval, name = self._shared.interval, plan.watched.subject
        offset_s, most = plan.baseline.offset_s, SOME_STEPS * interval
        windows = [window for window in self._shared.windows if window <= most]  # a window must be full for a result
        if offset_s and offset_s + max(self._shared.windows) > most:  # an offset baseline needs a second full window
            windows = []
        if not windows:
            return
        drop_steps = ceil(max(windows) / interval) + FOR_INTERVALS
        steps = ceil(offset_s / interval) + drop_steps + STEPS
        normal = [_normal(plan, (step - 0.5) * interval) for step in range(1, steps + 1)]
        low = [max(0.0, mean - _fall(plan)) for mean in normal]
        dropped = self._changing(plan.watched, normal[:-drop_steps] + low[-drop_steps:])
        steady = self._changing(plan.watched, normal)
        yield RuleTest(f"{name}: a normal mean at this time", steady, [], steps, of=_CHANGES)
        fires = self._alert_labels([name], _DROP, _RISE)
        yield RuleTest(f"{name}: a mean below normal at this time", dropped, fires, steps, of=_CHANGES)

    def _changing(self, watched: WatchedMean, means: Sequence[float]) -> Iterator[dict[str, str]]:
        own = {**watched.labels, **_version(watched)}
        for scope in self._scopes:
            by_mean = {mean: [*_rates(watched, mean, UNITS)] for mean in means}
            for place, (instrument, score, _) in enumerate(by_mean[means[0]]):
                rates = [by_mean[mean][place][2] for mean in means]
                yield _series(instrument, {**own, **score, **scope.labels}, _growing(rates))


def _lost_messages(shared: Monitoring, absent: Sequence[Mapping[str, str]]) -> RuleTest:
    lost = {"alertname": "SpanscoreWorkerSkipped", "metric": ALL, "window": steady_window(shared)}
    dead_letters = {"alertname": "SpanscoreSpoolDeadLetters", "metric": ALL, "window": promql.duration(health.BRIEF_S)}
    traffic = {
        (semconv.SPOOL_DEAD_LETTERS, "poisoned"): f"0 2x{STEPS}",
        (semconv.SPOOL_DEAD_LETTERS, "clean"): f"0x{STEPS}",
        (semconv.WORKER_SKIPPED, "gap"): f"0+1x{STEPS}",
        (semconv.WORKER_SKIPPED, "whole"): f"7x{STEPS}",
    }
    name = "lost messages and dead letters are seen"
    return RuleTest(name, _series_by_job(traffic), [lost, dead_letters, *absent])


def _backlog(interval_s: float) -> RuleTest:
    steps = ceil((health.WAITED_S + 2 * health.BRIEF_S) / interval_s) + STEPS
    swings = " ".join(["0 9000 90"] * steps)
    traffic = {
        (semconv.SPOOL_DEPTH, "grows"): f"0+10x{steps}",
        (semconv.SPOOL_DEPTH, "swings"): swings,
        (semconv.SPOOL_OLDEST, "old"): f"{2 * health.WAITED_S:g}x{steps}",
        (semconv.SPOOL_OLDEST, "swings"): swings,
        (semconv.WORKER_LAG, "grows"): f"0+10x{steps}",
        (semconv.WORKER_LAG, "swings"): swings,
    }
    labels = {"metric": ALL, "window": promql.duration(health.WAITED_S)}
    reasons = (health.OLD, health.GROWING)
    spool = ({"alertname": "SpanscoreSpoolBacklog", **labels, "reason": reason} for reason in reasons)
    fires = [*spool, {"alertname": "SpanscoreWorkerLagging", **labels}]
    of = "SpanscoreSpoolBacklog|SpanscoreWorkerLagging"
    return RuleTest("a backlog is seen", _series_by_job(traffic), fires, steps, of)


def _series_by_job(values: Mapping[tuple[str, str], str]) -> Iterator[dict[str, str]]:
    return (_series(instrument, {"job": job}, numbers) for (instrument, job), numbers in values.items())


def _never_applied() -> RuleTest:
    """Return a test with a condition that never held, one that sometimes held, and two with too few judged units."""
    many = health.ENOUGH
    increases = {  # job → Σw and Σw² of units without the condition, Σw and Σw² of units with it, per evaluation
        "never": (many, many, 0, 0),
        "sometimes": (many, many, 1, 1),
        "few": (1, 1, 0, 0),
        "heavy": (many, many * many, 0, 0),
    }
    columns = [(name, answer) for answer in ("false", "true") for name in APPLICABLE]
    traffic = [
        _series(name, {**_CONDITIONAL, label(semconv.APPLICABLE): answer, "job": job}, f"0+{step}x{STEPS}")
        for job, steps in increases.items()
        for (name, answer), step in zip(columns, steps, strict=True)
    ]
    fires = {"alertname": "SpanscoreNeverApplies", "metric": "refunds", "window": promql.duration(health.WINDOW_S)}
    return RuleTest("a condition that never holds is seen", traffic, [fires], of="SpanscoreNeverApplies")


def _judge_changed(plan: JudgeCheckPlan) -> RuleTest:
    """Return a test with a changed judge, an unchanged one, and one whose p is small only in each of three replicas."""
    low = plan.below / 2
    p_values = {("bot", "a"): low, ("steady", "a"): 1.0, **{("many", replica): low for replica in "abc"}}
    labels = {
        promql.METRIC: plan.metric,
        label(semconv.EVALUATION_SOURCE): semconv.SOURCE_JUDGE_CHECK,
        promql.EVALUATOR_VERSION: "1",
    }
    traffic = [
        _series(semconv.JUDGE_CHECK_P, {**labels, "job": job, promql.INSTANCE: instance}, f"{p:g}x{STEPS}")
        for (job, instance), p in p_values.items()
    ]
    fires = {"alertname": "SpanscoreJudgeChanged", "metric": plan.metric, "window": promql.duration(plan.every_s)}
    return RuleTest(f"{plan.metric}: a judge that has changed is seen", traffic, [fires], of="SpanscoreJudgeChanged")


_Rate: TypeAlias = tuple[str, Mapping[str, str], float]
"""An instrument, the score's label on its series, and the growth of the series per evaluation."""


def _version(watched: WatchedMean) -> Mapping[str, str]:
    return {promql.EVALUATOR_VERSION: watched.settings.evaluator_version or "1"}


def _rates(watched: WatchedMean, mean: float, units: float) -> Iterator[_Rate]:
    scale = watched.of.scale
    if scale.categories:
        yield from _rates_of_categories(scale, watched, mean, units)
        return
    yield semconv.SCORED, {}, units
    if scale.range is not None:
        square = mean if scale.kind == "binary" else min(mean, mean * mean + SPREAD)
        yield from _rates_of_weights({}, units, mean, square)


def _rates_of_categories(scale: Scale, watched: WatchedMean, mean: float, units: float) -> Iterator[_Rate]:
    """Yield the growth of each sum of two categories: the watched or a bad one, and another one."""
    low = watched.category or next(iter(scale.bad), scale.categories[0])
    other = next(word for word in scale.categories if word != low and (watched.category or word not in scale.bad))
    for category, share in ((low, 1 - mean), (other, mean)):
        labels = {promql.CATEGORY: category}
        yield semconv.SCORED, labels, units * share
        quality = scale.quality(category)
        if quality is not None:
            yield from _rates_of_weights(labels, units * share, quality, quality)
        else:
            yield from ((instrument, labels, units * share) for instrument in (semconv.WEIGHT, semconv.WEIGHT2))


def _rates_of_weights(score: Mapping[str, str], units: float, mean: float, square: float) -> Iterator[_Rate]:
    for instrument in (semconv.WEIGHT, semconv.WEIGHT2):  # every unit is scored, so w = 1
        yield instrument, score, units
        yield f"{instrument}.quality", score, units * mean
    yield semconv.WEIGHT2_QUALITY2, score, units * square


def _growing(rates: Sequence[float]) -> str:
    """Return the values of a counter in promtool's notation; each rate holds for one stretch."""
    total, stretches = 0.0, []
    for rate, of in groupby(rates):
        count = len([*of])
        stretches.append(f"{total:.12g}+{rate:.9g}x{count - 1}")
        total += rate * count
    return " ".join([*stretches, f"{total:.12g}"])


def _normal(plan: DropPlan, time_s: float) -> float:
    """Return the normal quality at a time, in seconds since the epoch; promtool's clock starts at 0."""
    if plan.baseline.hours:
        return plan.baseline.hours[hour_of_week(time_s)]
    return SWING[int(time_s // 3_600) % len(SWING)]


def _fall(plan: DropPlan) -> float:
    """Return a distance below the normal quality that is certainly detected as a drop."""
    of_bursts = (plan.baseline.design_effect - 1) * WORST_VARIANCE / UNITS
    variation = plan.z * sqrt(plan.baseline.baseline_sd_of(0) ** 2 + of_bursts)
    return plan.tolerated + plan.watched.settings.least_change + variation


def _series(instrument: str, labels: Mapping[str, str], values: str) -> dict[str, str]:
    return {"series": series_of(instrument, labels), "values": values}


def _counter(instrument: str, labels: Mapping[str, str], step: float) -> dict[str, str]:
    return _series(instrument, labels, f"0+{step:.9g}x{STEPS}")
