"""Alerts on the evaluator itself: silence, lost units, judges, budgets, backlogs, new versions, conditions that never hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from spanscore import semconv
from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.core.job import STATED, UNKNOWN, Weights
from spanscore.core.score import Outcome
from spanscore.monitoring import promql
from spanscore.monitoring.alert import (
    ALL,
    METRIC_NAME,
    Alert,
    AlertNumber,
    alert_labels,
    by_label,
    by_metric,
    match_metrics,
)
from spanscore.monitoring.estimates import (
    WORTH_TELLING,
    Moments,
    ReadSums,
    interval,
    mean,
    missing_bounds,
    missing_share,
    moments,
)
from spanscore.monitoring.promql import label, series
from spanscore.monitoring.recorded import MIN_SCORES, WRITTEN, steady_window
from spanscore.monitoring.watched_means import WatchedMean
from spanscore.outputs.aggregates import is_conditional
from spanscore.outputs.instrument_table import APPLICABLE
from spanscore.protocols import Metric

# --- silence ----------------------------------------------------------------------------------------------------------

UNSCORED, SILENT, REPLICA, ABSENT = "unscored", "silent", "replica", "absent"
"""Reasons for missing scores: units arrive unscored, a service is silent, one replica is silent, or no counter exists."""
MIN_UNITS_DUE = 10
"""Minimum number of units due for evaluation, all without a score, that alerts: fewer may lack a score by chance."""
MISSED_SCORES = 15
"""Scores that the usual rate gives in a silence that alerts. At 30 scores an hour the silence is half an hour, which happens
0.007 times in 30 days by chance.
"""
SHORTEST_S, LONGEST_S = 1_800.0, 86_400.0
"""Shortest and longest silence in s after which the alert fires, unless ``no_scores_after`` is configured."""
MIN_RECENT_S = 300.0
"""Minimum seconds for which a score counts as recent: exporters send once a minute or more often."""
SERVICE_MEMORY, REPLICA_MEMORY = "7d", "1h"
"""Longest gaps between rule runs over which a record keeps its last value: for services, and for replicas."""
SILENT_SECONDS, SCORES_PER_HOUR = "spanscore:silent_seconds", "spanscore:scores_per_hour"
REPLICA_SILENT_SECONDS, REPLICA_SCORES_PER_HOUR = (
    "spanscore:replica_silent_seconds",
    "spanscore:replica_scores_per_hour",
)
REPLICAS = (*promql.GROUP, promql.INSTANCE)


def recent_s(shared: Monitoring) -> float:
    """Return the seconds for which a score counts as recent."""
    return min(*shared.windows, max(4 * shared.interval, MIN_RECENT_S))


def shortest_silence_s(shared: Monitoring) -> float:
    """Return the seconds of silence before which the alert does not fire."""
    return shared.no_scores_after or SHORTEST_S


def silence_records(shared: Monitoring) -> Iterator[tuple[str, str]]:
    """Yield record and expression: the scores per hour of each service and replica, and the seconds since its last score.

    The seconds are a recording rule that reads its own last value::

        spanscore:silent_seconds =
            0 * (sum by (gen_ai_evaluation_name, service_name, job) (increase(spanscore_scored_total{…}[5m])) > 0)
            or (last_over_time(spanscore:silent_seconds[7d]) + 60)

    So the record outlives the counters, which a store forgets after minutes. Time without rule runs adds nothing. The record of
    a replica ends with the replica's counters, because a replica that has stopped is part of its service's silence.
    """
    has_counters = f"\nand {promql.current(semconv.ELIGIBLE, by=REPLICAS)}"
    of_services = (promql.GROUP, SCORES_PER_HOUR, SILENT_SECONDS, SERVICE_MEMORY, "")
    of_replicas = (REPLICAS, REPLICA_SCORES_PER_HOUR, REPLICA_SILENT_SECONDS, REPLICA_MEMORY, has_counters)
    for by, per_hour, silent, memory, condition in (of_services, of_replicas):
        now = f"({promql.increase(semconv.SCORED, promql.duration(recent_s(shared)), by=by)} > 0)"
        a_day = promql.increase(semconv.SCORED, "1d", by=by)
        # Without new scores the record keeps its value: a rate that fell with the silence would delay the alert, or end it.
        yield per_hour, f"({a_day} / 24\nand {now})\nor (last_over_time({per_hour}[{memory}]){condition})"
        yield silent, f"0 * {now}\nor (last_over_time({silent}[{memory}]) + {shared.interval:g}{condition})"


def no_scores_of_units(metrics: Sequence[Metric], shared: Monitoring, inner: Sequence[WatchedMean] = ()) -> Alert:
    """Return the alert on metrics that got units but no score; ``inner``: the watched means of inner units."""
    window = steady_window(shared)
    units_due = [
        _units_due(window, f"{match_metrics(names)},{promql.POPULATION}", conditional=conditional)
        for conditional, names in _names_by(is_conditional, metrics).items()
    ]
    units_due += _of_inner(
        inner, lambda watched: _units_due(window, watched.matchers, conditional=is_conditional(watched.of))
    )
    all_due = f"({' or '.join(units_due)})\nunless {_delegating(window)}"
    enough_due = f"sum by ({', '.join(promql.GROUP)}) ({all_due}) >= {MIN_UNITS_DUE}"
    return Alert(
        name="SpanscoreNoScores",
        expression=f"{enough_due}\nand {_with_inner(inner, partial(promql.increase, semconv.SCORED, window))} == 0",
        labels={**alert_labels("critical", METRIC_NAME, window), "reason": UNSCORED},
        summary=f"{METRIC_NAME} has no scores",
        text=f"{{count}} units were due for evaluation by {METRIC_NAME} over {window}, and none got a score "
        "({service}). See spanscore.evaluation.outcome of spanscore_evaluations_total.",
    )


def _names_by(key: Callable[[Metric], bool], metrics: Iterable[Metric]) -> dict[bool, list[str]]:
    groups: dict[bool, list[str]] = {}
    for metric in metrics:
        groups.setdefault(key(metric), []).append(metric.name)
    return groups


def _units_due(window: str, where: str, *, conditional: bool) -> str:
    # a condition that never holds has its own alert
    excused = f"{promql.TURNED_AWAY}|{Outcome.NOT_APPLICABLE}" if conditional else promql.TURNED_AWAY
    where = f'{where},{label(semconv.OUTCOME)}!~"{excused}"'
    return promql.increase(semconv.EVALUATIONS, window, where, REPLICAS)


def _of_inner(inner: Sequence[WatchedMean], query: Callable[[WatchedMean], str]) -> Iterator[str]:
    """Yield the query of each watched mean of inner units. In its series the metric has the name ``WatchedMean.subject``."""
    return (watched.under(watched.subject, query(watched)) for watched in inner)


def _with_inner(inner: Sequence[WatchedMean], query: Callable[[str], str]) -> str:
    """Return the union of a query for roots' units and conversations, and the query for each watched mean of inner units.

    Args:
        inner: the watched means of inner units.
        query: matchers → PromQL expression.
    """
    queries = [query(""), *_of_inner(inner, lambda watched: query(watched.matchers))]
    return f"({' or '.join(queries)})" if inner else queries[0]


def no_scores_for_long(metrics: Sequence[Metric], shared: Monitoring) -> Alert:
    """Return the alert on metrics whose scores stopped or never started."""
    where, least = match_metrics(metric.name for metric in metrics), shortest_silence_s(shared)
    window = promql.duration(least)  # for replicas no longer, because a worker that lost its partitions gets no units
    limit = f"clamp({MISSED_SCORES * 3_600} / {REPLICA_SCORES_PER_HOUR}, {least:g}, {max(least, LONGEST_S):g})"
    units = f"{promql.increase(semconv.ELIGIBLE, window, by=REPLICAS)} > 0 unless {_delegating(window)}"
    service_is_silent = f"on ({', '.join(promql.GROUP)}) ({_is_silent(where, shared)})"
    reasons = {
        SILENT: _is_silent(where, shared),
        REPLICA: f"{REPLICA_SILENT_SECONDS}{{{where}}} >= {limit}\nand ({units})\nunless {service_is_silent}",
        ABSENT: "\nor ".join(_is_absent(where, service) for service in shared.services or [""]),
    }
    no_score = f"No score of {METRIC_NAME} for {{lasting}}"
    texts = {
        SILENT: f"{no_score}{{rate}} ({{service}}): no traffic, no scorer, or no connection. Gone for good? Name the others in "
        "monitoring.services.",
        REPLICA: f"{no_score} from {{{{ $labels.{promql.INSTANCE} }}}}, which still gets units, while others of its service "
        "score ({service}).",
        ABSENT: f"There is no counter of {METRIC_NAME}, and no score has ever come ({{service}}): no scorer, or no connection.",
    }
    return Alert(
        name="SpanscoreNoScores",
        expression=promql.label_each("reason", reasons),
        # the reason is in the expression
        labels=alert_labels("critical", METRIC_NAME, window),
        summary=f"{METRIC_NAME} has no scores",
        text=f"{by_label('reason', texts)} No other alert on it can fire meanwhile.",
        figures={"rate": AlertNumber(f"{SCORES_PER_HOUR}{{{promql.OWN_SERVICE}}}", ", after %.3g an hour")},
    )


def _delegating(window: str) -> str:
    """Return the query of replicas that delegate units to other processes, which then export the scores."""
    delegated = f"{promql.matching({label(semconv.OUTCOME): Outcome.DELEGATED})},{promql.POPULATION}"
    return f"{promql.increase(semconv.EVALUATIONS, window, delegated, REPLICAS)} > 0"


def _is_silent(where: str, shared: Monitoring) -> str:
    by_rate = f"clamp({MISSED_SCORES * 3_600} / {SCORES_PER_HOUR}, {SHORTEST_S:g}, {LONGEST_S:g})"
    limit = f"{shared.no_scores_after:g}" if shared.no_scores_after else by_rate
    return f"{_of_services(SILENT_SECONDS, where, shared.services)} >= {limit}"


def _of_services(counter: str, where: str, services: Sequence[str]) -> str:
    """Return the selector of a series for these services; for all if none is named."""
    if not services:
        return f"{counter}{{{where}}}" if where else counter
    names = promql.any_of(services)
    # the label of a scrape, and that of remote write, which has the service's namespace as a prefix
    matchers = (f'service_name=~"{names}"', f'job=~"(.+/)?({names})"')
    selectors = (f"{counter}{{{','.join(filter(None, (where, matcher)))}}}" for matcher in matchers)
    return f"({' or '.join(selectors)})"


def _is_absent(where: str, service: str) -> str:
    """Return the query of metrics of a service without a score and without a record of silence; empty name = all services."""
    names = [service] if service else []
    present = (_of_services(SILENT_SECONDS, "", names), _of_services(series(semconv.SCORED), promql.POPULATION, names))
    unless = "".join(f" unless on ({promql.METRIC}) {counter}" for counter in present)
    every = f"{MIN_SCORES}{{{where}}}"  # the shares of categories have this record, too
    job = f'label_replace({every}, "job", "{promql.replacement(service)}", "", "")' if service else every
    return f"{job}{unless}"


# --- evaluator versions -----------------------------------------------------------------------------------------------


def refused_evaluator_versions(
    alerts: Mapping[str, AlertSettings],
    metrics: Iterable[Metric],
    shadows: Iterable[Metric] = (),
    place: str = "alerts",
) -> Iterator[str]:
    """Yield the alerts that would never fire, because their metric does not have the watched evaluator version.

    Args:
        metrics: metrics with their configured judges.
        shadows: metrics with their second judges.
        place: key of the configuration with the settings, for messages.
    """
    of_shadows = {shadow.name: shadow.evaluator_version for shadow in shadows}
    for metric in metrics:
        pinned = alerts[metric.name].evaluator_version if metric.name in alerts else None
        if pinned is not None and pinned != metric.evaluator_version:
            shadow = ", which is its shadow's; no alert reads it" if pinned == of_shadows.get(metric.name) else ""
            yield (
                f"{place}.{metric.name}.evaluator_version: {pinned!r} is of no configured metric; "
                f"{metric.name} has {metric.evaluator_version!r}{shadow}"
            )


WAS = "was"
"""Label with the earlier evaluator version that has the most scores."""
VERSION_MEMORY = "7d"
"""An evaluator version that was written within this time is not new. So a version that pauses over a weekend, and two versions
that are written by turns, cause no notice.
"""


def new_evaluator_version(settings: Mapping[str, AlertSettings], shared: Monitoring) -> Alert:
    """Return the notice of an additional, new evaluator version. The notice ends by itself after ``steady_window``."""
    window = steady_window(shared)
    before = f"last_over_time({WRITTEN}[{VERSION_MEMORY}] offset {window})"
    group = ", ".join(promql.GROUP)
    pinned = f", and .evaluator_version to {{{{ $labels.{promql.EVALUATOR_VERSION} }}}}"
    advice = {
        metric: f" After a week of it set alerts.{METRIC_NAME}.baseline to its mean on the dashboard"
        f"{pinned if alert.evaluator_version else ''}."
        for metric, alert in settings.items()
        if alert.baseline is not None
    }
    earlier = f'label_replace({before}, "{WAS}", "$1", "{promql.EVALUATOR_VERSION}", "(?s)(.*)")'
    return Alert(
        name="SpanscoreNewEvaluatorVersion",
        expression=f"({WRITTEN}{{{match_metrics(settings)}}}\nunless on ({', '.join(promql.BY_EVALUATOR)}) {before})\n"
        f"* on ({group}) group_left ({WAS}) topk by ({group}) (1, {earlier})",
        labels=alert_labels("info", METRIC_NAME, window),
        summary=f"{METRIC_NAME} is scored differently",
        text=f"{METRIC_NAME} has a new evaluator version ({{service}}):{_CHANGES} Its scores cannot be compared with earlier "
        f"ones: no drop.{by_metric({metric: advice.get(metric, '') for metric in settings})} This notice ends by itself "
        f"after {window}.",
    )


_PARTS = r"^([^/]*)/(.*)/([^/]*)\n([^/]*)/(.*)/([^/]*)$"
"""Pattern of two evaluator versions, ``version/judge/votes``, on two lines; a judge's name may contain slashes."""
_CHANGES = (
    f'{{{{ printf "%s\\n%s" $labels.{WAS} $labels.{promql.EVALUATOR_VERSION} '
    f'| reReplaceAll "{_PARTS}" " version $1 → $4, judge $2 → $5, votes $3 → $6." }}}}'
)
"""Template of the differences between the earlier and the new evaluator version."""


# --- applicability ----------------------------------------------------------------------------------------------------

ENOUGH: Final = 300
"""Effective sample size that, without a single applicable unit, puts the share below 1 % (95 %), by the rule of three.
For a condition that holds for 3 % of traffic this happens once in 9,000 times, for a condition of 1 % once in 20."""
WINDOW_S: Final = 86_400.0
"""Seconds of the window: a day, because questions differ by the hour."""


class Applicability(NamedTuple):
    """The share of traffic to which a metric applies: the mean of 1 for each scored and 0 for each ``not applicable`` unit.

    Attributes:
        share: weighted share among the units that the judge decided, [0, 1].
        low: lower end of the 95 % interval, [0, 1]; if 1 % or more of the units are undecided, any answer of theirs is
            covered.
        high: upper end, by the same rule, [0, 1].
        undecided: share of the sampled units without an answer of the configured judge, [0, 1].
    """

    share: float
    low: float
    high: float
    undecided: float

    def __str__(self) -> str:
        digits = 0 if self.share >= 0.1 else 1  # noqa: PLR2004  (whole percents are too coarse)
        share, low, high = (f"{100 * value:.{digits}f}" for value in (self.share, self.low, self.high))
        missing = f" (undecided for {100 * self.undecided:.0f} % of the sampled units)"
        return f"applies to {share} % of traffic, {low}–{high} %{missing if self.undecided >= WORTH_TELLING else ''}"


def applicability(decided: Iterable[tuple[bool, float]], lost: Iterable[float] = ()) -> Applicability | None:
    """Return the share from pairs (it applies, probability); None without pairs.

    Args:
        decided: pairs of the decided units.
        lost: probability of each undecided unit.
    """
    return _share(moments(((float(applies), probability) for applies, probability in decided), lost))


def running_applicability(metric: str, sums: ReadSums, lost: Weights) -> Applicability | None:
    """Return the share from a scorer's own sums since its start, over all evaluator versions; None without a decision."""
    totals: defaultdict[tuple[str, str], float] = defaultdict(float)
    for name in APPLICABLE:
        for labels, value in sums(name).items():
            named = dict(labels)
            if named[semconv.EVALUATION_NAME] == metric:
                totals[name, named[semconv.APPLICABLE]] += value
    (w, not_w), (w2, not_w2) = ((totals[name, "true"], totals[name, "false"]) for name in APPLICABLE)
    # the averaged value y is 1 or 0, so y² = y
    return _share(Moments(w=w + not_w, wy=w, w2=w2 + not_w2, w2y=w2, w2y2=w2, lost=lost.w, lost2=lost.w2))


def _share(of: Moments) -> Applicability | None:
    if not of.w:
        return None
    undecided = missing_share(of)
    ends = missing_bounds(of) if undecided >= WORTH_TELLING else interval(of)
    return Applicability(mean(of), *ends, undecided)


def never_applies() -> Alert:
    """Return the alert on a condition that never holds."""
    window = promql.duration(WINDOW_S)
    applies, does_not = (f'{label(semconv.APPLICABLE)}="{value}"' for value in ("true", "false"))
    w, w2 = (promql.increase(name, window, does_not) for name in APPLICABLE)
    applied = promql.increase(semconv.APPLICABLE_WEIGHT, window, applies)
    return Alert(
        name="SpanscoreNeverApplies",
        expression=f"{w} ^ 2 / {w2} >= {ENOUGH}\nunless {applied} > 0",
        labels=alert_labels("warning", METRIC_NAME, window),
        summary="a metric applies to no unit",
        text=f"The condition of {METRIC_NAME} (applies_when) held for none of the units that were judged over {window}, worth "
        f"{{count}} of equal weight ({{service}}): it applies to under {300 / ENOUGH:.0f} % of traffic. Read the "
        "judge's questions with judge.trace, and write the condition in plainer words.",
    )


# --- backlogs ---------------------------------------------------------------------------------------------------------

SPOOL_DEPTH, SPOOL_OLDEST, WORKER_LAG = "spanscore:spool_depth", "spanscore:spool_oldest", "spanscore:worker_lag"
"""Records of a service: jobs in its fullest spool, age of the oldest job in s, uncommitted messages of all partitions."""
WAITED_S = 3_600.0
"""Age in s above which the oldest job of a spool alerts, and time in s over which a backlog must grow."""
BRIEF_S = 900.0
"""Seconds. A backlog has grown if its minimum over this time exceeds its maximum over as long a time, ``WAITED_S`` ago."""
OLD, GROWING = "old", "growing"

_OF_SERVICE = ", ".join(promql.GROUP[1:])


def backlog_records() -> Iterator[tuple[str, str]]:
    """Yield record and expression of each backlog.

    They use ``max``, because several processes report one spool, and two may report one partition for a short time.
    """
    for name, instrument in ((SPOOL_DEPTH, semconv.SPOOL_DEPTH), (SPOOL_OLDEST, semconv.SPOOL_OLDEST)):
        yield name, f"max by ({_OF_SERVICE}) ({series(instrument)})"
    each = f"max by ({label(semconv.PARTITION)}, {_OF_SERVICE}) ({series(semconv.WORKER_LAG)})"
    yield WORKER_LAG, f"sum by ({_OF_SERVICE}) ({each})"


def backlog_alerts(shared: Monitoring) -> Iterator[Alert]:
    """Yield the alerts on a spool and on a worker; without a spool or a worker they cannot fire."""
    window, brief, hour = steady_window(shared), promql.duration(BRIEF_S), promql.duration(WAITED_S)
    waited = f"min_over_time({SPOOL_OLDEST}[{brief}]) > {WAITED_S:g}"
    texts = {
        OLD: "The oldest job of the spool has waited for {lasting} ({service}): no process takes jobs, or the judge keeps it "
        "waiting.",
        GROWING: f"{{count}} jobs are in the spool, more than {hour} ago ({{service}}): units come faster "
        "than they are scored.",
    }
    yield Alert(
        name="SpanscoreSpoolBacklog",
        expression=promql.label_each("reason", {OLD: waited, GROWING: _has_grown(SPOOL_DEPTH)}),
        labels=alert_labels("warning", ALL, hour),  # the reason is in the expression
        summary="the spool has a backlog: {{ $labels.reason }}",
        text=f"{by_label('reason', texts)} Past spool.max_age they end as expired, past spool.max_bytes as queue_full. Start "
        "another worker on the disk, or lower the rates; `spanscore spool FILE` shows the jobs of each process.",
    )
    yield Alert(
        name="SpanscoreSpoolDeadLetters",
        expression=f"max by ({_OF_SERVICE}) ({series(semconv.SPOOL_DEAD_LETTERS)}) > 0",
        labels=alert_labels("warning", ALL, brief),
        summary="the spool has dead letters",
        text="{count} jobs of the spool are dead letters ({service}): three processes ended while scoring each, or it cannot "
        "be read. They are counted as metric_error; see the worker's log. After the cause is fixed, `spanscore spool FILE "
        "--retry-dead-letters`, or --drop-older-than.",
    )
    yield Alert(
        name="SpanscoreWorkerLagging",
        expression=_has_grown(WORKER_LAG),
        labels=alert_labels("warning", ALL, hour),
        summary="workers fall behind",
        text=f"{{count}} messages are not committed, more than {hour} ago ({{service}}). Past the "
        "topic's retention they are lost. Add workers, up to its partitions, or lower the rates.",
    )
    yield Alert(
        name="SpanscoreWorkerSkipped",
        expression=f"{promql.increase(semconv.WORKER_SKIPPED, window, by=promql.GROUP[1:])} > 0",
        labels=alert_labels("warning", ALL, window),
        summary="messages are lost",
        text="{count} messages of the topic were deleted before a worker read them, or could not be read, over "
        f"{window} ({{service}}). If the worker's log names an unreadable message, report its error. Otherwise retention is "
        "shorter than the lag: raise the topic's retention.ms, then add workers.",
    )


def _has_grown(recorded: str) -> str:
    """Return the query of a recorded backlog that has grown over ``WAITED_S``."""
    brief = promql.duration(BRIEF_S)
    before = f"max_over_time({recorded}[{brief}] offset {promql.duration(WAITED_S)})"
    return f"min_over_time({recorded}[{brief}]) > {before}"


# --- judges, budgets and lost units -----------------------------------------------------------------------------------

FAILURES = 5
"""Fewest failed evaluations that alert, because a share of fewer may be chance."""
DISAGREEING_RUNS = 10
"""Rule runs for which the sums must disagree before the alert fires: a collection reads the counters one after another."""
MAX_DECLINED = 0.1
"""Share of declined units that alerts: the judged units are then no random sample."""
OPEN_S = 300.0
"""Seconds for which a breaker must stay open: short outages of providers are normal."""
BINDING_S, BINDING = 21_600.0, 0.5
"""Seconds for which a budget must remove more than half of the scores, and the corresponding factor on the rates."""


def judge_failing(metrics: Sequence[Metric], shared: Monitoring, inner: Sequence[WatchedMean] = ()) -> Alert:
    """Return the alert on a judge that fails; ``inner``: the watched means of inner units."""
    window = steady_window(shared)
    shares = [
        promql.failed_share(window, match_metrics(names), weighted=weighted)
        for weighted, names in _names_by(_is_weighted, metrics).items()
    ]
    shares += _of_inner(
        inner, lambda watched: promql.failed_share(window, watched.matchers, weighted=_is_weighted(watched.of))
    )
    share = f"({' or '.join(shares)})"
    return Alert(
        name="SpanscoreJudgeFailing",
        expression=f"{share} > {shared.max_failed:g}\n"
        f"and {_with_inner(inner, partial(promql.failures, window))} >= {FAILURES}",
        labels=alert_labels("warning", METRIC_NAME, window),
        summary=f"evaluations of {METRIC_NAME} fail",
        text=f"A share of {{value}} of the evaluations of {METRIC_NAME} failed over {window} ({{service}}), more than "
        f"{shared.max_failed:g}. Their units have no score: the mean covers the rest. Kinds of failure: "
        "spanscore.evaluation.outcome of spanscore_evaluations_total; why: error.type on the evaluation spans.",
    )


def _is_weighted(metric: Metric) -> bool:
    return metric.scale.has_quality or bool(metric.scale.categories)


def judge_declining(metrics: Sequence[Metric], shared: Monitoring) -> Alert:
    """Return the alert on a judge that declines to answer."""
    window = steady_window(shared)
    share = promql.declined_share(window, match_metrics(metric.name for metric in metrics))
    return Alert(
        name="SpanscoreJudgeDeclining",
        expression=f"{share} >= {MAX_DECLINED:g}\nand {promql.increase(semconv.DECLINED, window)} >= {FAILURES}",
        labels=alert_labels("warning", METRIC_NAME, window),
        summary=f"the judge of {METRIC_NAME} declines",
        text=f"The judge, or its provider's filter, declined a share of {{value}} of the questions for "
        f"{METRIC_NAME} over {window} ({{service}}), {MAX_DECLINED:g} or more. The mean covers the others, which are not "
        "random. Use another judge or filter.",
    )


def judge_breaker_open() -> Alert:
    """Return the alert on an account that does not answer."""
    window = promql.duration(OPEN_S)
    own = f"{series(semconv.JUDGE_CIRCUIT_BREAKER_STATE)}{{{promql.POPULATION}}}"
    account = f"{{{{ $labels.{label(semconv.PROVIDER_NAME)} }}}} {{{{ $labels.{label(semconv.REQUEST_MODEL)} }}}}"
    by = ", ".join((label(semconv.PROVIDER_NAME), label(semconv.REQUEST_MODEL), *promql.GROUP[1:]))
    return Alert(
        name="SpanscoreJudgeBreakerOpen",
        # a breaker that probes the account is half-open (1) for a moment, otherwise open (2)
        expression=f"max by ({by}) (min_over_time({own}[{window}])) >= 1",
        labels=alert_labels("warning", ALL, window),
        summary="a judge does not answer",
        text=f"{account} has not answered for {window} ({{service}}): its breaker is open. Units wait for it, up to "
        "judge.queue_timeout, and then end as judge_unavailable. If it refuses the key, the model or the account, a "
        "person must act: see scorer.status().",
    )


def budget_binding() -> Alert:
    """Return the alert on a budget that removes most of the scores."""
    window = promql.duration(BINDING_S)
    budget = f"{{{{ $labels.{label(semconv.BUDGET_UNIT)} }}}} per {{{{ $labels.{label(semconv.BUDGET_WINDOW)} }}}}"
    return Alert(
        name="SpanscoreBudgetBinding",
        expression=f"max_over_time({promql.LOWEST_FACTOR}[{window}]) < {BINDING:g}\nand {promql.LOWEST_FACTOR} offset {window}",
        labels=alert_labels("warning", ALL, window),
        summary="a budget removes most of the scores",
        text=f"The budget in {budget} has multiplied the sampling rates by less than {BINDING:g} for {window}, now by "
        "{value} ({service}). The sample stays fair, alerts come later. Raise judge.budget, lower rates, or use a cheaper "
        "model.",
    )


REMEDIES: Mapping[str, str] = {
    "queue_full": "Evaluations were lost as the job queue was full: raise limits.queue_size, limits.queue_bytes or "
    "limits.workers",
    "event_queue_full": "Units were lost as the event queue was full: raise limits.event_queue_size, or lower the sampling "
    "rate",
    "hold_lost": "Held spans were lost at the shutdown of the provider: shut the scorer down first",
}
"""Reason for lost units → remedy."""


def units_lost(shared: Monitoring) -> Alert:
    """Return the alert on lost units, by reason."""
    window = steady_window(shared)
    queue = f"{promql.matching({label(semconv.OUTCOME): Outcome.QUEUE_FULL})},{promql.IN_QUEUE}"
    counters = ((semconv.EVALUATIONS, queue), (semconv.CAPTURE_REFUSED, ""), (semconv.HOLD_LOST, ""))
    increases = (promql.increase(instrument, window, where, promql.GROUP[1:]) for instrument, where in counters)
    return Alert(
        name="SpanscoreUnitsLost",
        expression=f"({promql.label_each('reason', dict(zip(REMEDIES, increases, strict=True)))}) > 0",
        labels=alert_labels("warning", ALL, window),  # the reason is in the expression
        summary="units are lost: {{ $labels.reason }}",
        text=f"{{count}} over {window} ({{service}}). {by_label('reason', REMEDIES)}.",
    )


def head_sampling_unknown(shared: Monitoring) -> Alert:
    """Return the alert on a mix of units with and without ``ot=th``, unless the head sampler's share is configured."""
    window = steady_window(shared)
    unknown, stated = (
        promql.increase(semconv.HEAD_SAMPLING, window, promql.matching({"reason": source}), promql.GROUP[1:])
        for source in (UNKNOWN, STATED)
    )
    # Each kind must be at least 1 % of the other: a service with units of one kind has no mix.
    return Alert(
        name="SpanscoreHeadSamplingUnknown",
        expression=f"{unknown}\n/ {stated} > {WORTH_TELLING:g} < {1 / WORTH_TELLING:g}",
        labels=alert_labels("warning", ALL, window),
        summary="units of unknown weight are in the means",
        text=f"{{value}} sampled units without ot=th arrived for each unit with it over {window} ({{service}}). They count as "
        "if no head sampler had dropped any: if one did, means and intervals are wrong. Name their service in "
        "sampling.head_sampling_rate.by_service, with its share; 1 = no sampler.",
    )


def outcomes_do_not_add_up(shared: Monitoring) -> Alert:
    """Return the alert on units without an outcome."""
    window = promql.duration(DISAGREEING_RUNS * shared.interval)
    difference = f"{promql.UNACCOUNTED}[{window}]"
    return Alert(
        name="SpanscoreOutcomesDoNotAddUp",
        expression=f"min_over_time({difference}) > 0\nor max_over_time({difference}) < 0",
        labels=alert_labels("warning", METRIC_NAME, window),
        summary="units are unaccounted for",
        text=f"eligible − outcomes − pending is {{count}} instead of 0, over {window} ({{service}}): that is a "
        "fault of spanscore. Please report it with scorer.status().",
    )
