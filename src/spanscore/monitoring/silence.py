"""Silence: units come and none is scored, scores that came come no more, or nothing was ever here.

How long a service has been silent is a record that carries itself: each evaluation without a score adds its interval to the
last value, a score sets it to 0. So it outlives the counters, which a store forgets after minutes, and a gap in which nobody
looked adds nothing. A replica is remembered only while its counters arrive: one that has gone is silent with its service.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.core.score import Outcome
from spanscore.monitoring import promql
from spanscore.monitoring.alert import OF_METRIC, Alert, Figure, by_label, labels_of, listed
from spanscore.monitoring.names import label, series
from spanscore.monitoring.recorded import MIN_SCORES, steady_window
from spanscore.outputs.aggregates import is_conditional
from spanscore.protocols import Metric

__all__ = [
    "ABSENT",
    "EXPECTED",
    "REPLICA",
    "SILENT",
    "SILENT_SECONDS",
    "UNSCORED",
    "looked_back",
    "shortest",
    "silence",
    "silences",
]

UNSCORED, SILENT, REPLICA, ABSENT = "unscored", "silent", "replica", "absent"
"""Why there are no scores: units come and none is scored, they came and come no more, of one replica, or nothing is here."""
EVALUATED = 10
"""Units that were to be evaluated without one score, from which on that is no chance any more."""
EXPECTED = 15
"""Scores that would have come meanwhile: at 30 an hour, half an hour without one comes 0.007 times in 30 days by chance."""
SHORTEST_S, LONGEST_S = 1_800.0, 86_400.0
"""Ends of the silence that is told, where it is computed from the scores per hour."""
SEEN_S = 300.0
"""For how long a score is seen: exporters send once a minute or more often."""
DAY = "1d"
MEMORY, MEMORY_OF_REPLICAS = "7d", "1h"
"""Longest time without an evaluation over which a record carries itself."""
SILENT_SECONDS, SCORES_PER_HOUR = "spanscore:silent_seconds", "spanscore:scores_per_hour"
REPLICA_SILENT_SECONDS, REPLICA_SCORES_PER_HOUR = (
    "spanscore:replica_silent_seconds",
    "spanscore:replica_scores_per_hour",
)
REPLICAS = (*promql.GROUP, promql.INSTANCE)


def looked_back(shared: Monitoring) -> float:
    """Return the seconds over which a score counts as just now."""
    return min(*shared.windows, max(4 * shared.interval, SEEN_S))


def shortest(shared: Monitoring) -> float:
    """Return the seconds of silence before which nothing is said."""
    return shared.no_scores_after or SHORTEST_S


def silences(shared: Monitoring) -> Iterator[tuple[str, str]]:
    """Yield record and expression: how many scores an hour each service and replica had, and for how long it has had none."""
    there = f"\nand {promql.now(semconv.ELIGIBLE, by=REPLICAS)}"
    of_services = (promql.GROUP, SCORES_PER_HOUR, SILENT_SECONDS, MEMORY, "")
    of_replicas = (REPLICAS, REPLICA_SCORES_PER_HOUR, REPLICA_SILENT_SECONDS, MEMORY_OF_REPLICAS, there)
    for by, per_hour, silent, memory, remembered in (of_services, of_replicas):
        now = f"({promql.increase(semconv.SCORED, promql.duration(looked_back(shared)), by=by)} > 0)"
        a_day = promql.increase(semconv.SCORED, DAY, by=by)
        # as it was when scores last came: one that falls with the silence would put the alert off, and end it
        yield per_hour, f"({a_day} / 24\nand {now})\nor (last_over_time({per_hour}[{memory}]){remembered})"
        yield silent, f"0 * {now}\nor (last_over_time({silent}[{memory}]) + {shared.interval:g}{remembered})"


def silence(metrics: Sequence[Metric], shared: Monitoring) -> Iterator[Alert]:
    """Yield the alerts on metrics without scores."""
    yield _unscored(metrics, shared)
    yield _silent(listed(metric.name for metric in metrics), shared)


def _unscored(metrics: Sequence[Metric], shared: Monitoring) -> Alert:
    window = steady_window(shared)
    by_condition: dict[bool, list[str]] = {}
    for metric in metrics:
        by_condition.setdefault(is_conditional(metric), []).append(metric.name)
    ended = " or ".join(_ended(window, listed(names), conditional=one) for one, names in by_condition.items())
    to_be_scored = f"sum by ({', '.join(promql.GROUP)}) (({ended})\nunless {_hands_over(window)}) >= {EVALUATED}"
    return Alert(
        name="SpanscoreNoScores",
        expression=f"{to_be_scored}\nand {promql.increase(semconv.SCORED, window)} == 0",
        labels={**labels_of("critical", OF_METRIC, window), "reason": UNSCORED},
        summary=f"{OF_METRIC} has no scores",
        text=f"{{count}} units were to be evaluated by {OF_METRIC} over {window}, and none got a score "
        "({service}). See spanscore.evaluation.outcome of spanscore_evaluations_total.",
    )


def _ended(window: str, where: str, *, conditional: bool) -> str:
    """Return how many units that were to be scored ended, per replica."""
    # units that a condition leaves out have an alert of their own
    nothing = f"{promql.TURNED_AWAY}|{Outcome.NOT_APPLICABLE}" if conditional else promql.TURNED_AWAY
    asked = f'{where},{label(semconv.OUTCOME)}!~"{nothing}",{promql.POPULATION}'
    return promql.increase(semconv.EVALUATIONS, window, asked, REPLICAS)


def _silent(where: str, shared: Monitoring) -> Alert:
    why = {SILENT: _is_silent(where, shared), REPLICA: _is_silent_replica(where, shared), ABSENT: _is_absent(shared)}
    no_score = f"No score of {OF_METRIC} for {{lasting}}"
    texts = {
        SILENT: f"{no_score}{{rate}} ({{service}}): no traffic, no scorer or no way here. Gone for good? Name the others in "
        "monitoring.services.",
        REPLICA: f"{no_score} from {{{{ $labels.{promql.INSTANCE} }}}}, to which units come, while others of its service "
        "score ({service}).",
        ABSENT: f"There is no counter of {OF_METRIC}, and no score has ever come ({{service}}): no scorer, or no way here.",
    }
    return Alert(
        name="SpanscoreNoScores",
        expression=promql.labelled("reason", why),
        labels=labels_of("critical", OF_METRIC, promql.duration(shortest(shared))),  # the reason is in the expression
        summary=f"{OF_METRIC} has no scores",
        text=f"{by_label('reason', texts)} No other alert on it can fire meanwhile.",
        figures={"rate": Figure(f"{SCORES_PER_HOUR}{{{promql.OWN_SERVICE}}}", ", after %.3g an hour")},
    )


def _is_silent_replica(where: str, shared: Monitoring) -> str:
    least = shortest(shared)
    due = f"clamp({EXPECTED * 3_600} / {REPLICA_SCORES_PER_HOUR}, {least:g}, {max(least, LONGEST_S):g})"
    service = f"on ({', '.join(promql.GROUP)})"
    window = promql.duration(least)  # no longer: to a worker whose partitions are others' now nothing comes
    units = f"{promql.increase(semconv.ELIGIBLE, window, by=REPLICAS)} > 0 unless {_hands_over(window)}"
    late = f"{REPLICA_SILENT_SECONDS}{{{where}}} >= {due}"
    return f"{late}\nand ({units})\nunless {service} ({_is_silent(where, shared)})"


def _hands_over(window: str) -> str:
    """Return the replicas that leave units to other processes: what ends with them is no sign of whether these score."""
    left = f"{promql.matching({label(semconv.OUTCOME): Outcome.DELEGATED})},{promql.POPULATION}"
    return f"{promql.increase(semconv.EVALUATIONS, window, left, REPLICAS)} > 0"


def _is_silent(where: str, shared: Monitoring) -> str:
    due = f"clamp({EXPECTED * 3_600} / {SCORES_PER_HOUR}, {SHORTEST_S:g}, {LONGEST_S:g})"
    limit = f"{shared.no_scores_after:g}" if shared.no_scores_after else due
    return f"{_of(SILENT_SECONDS, where, shared.services)} >= {limit}"


def _of(counter: str, where: str, services: Sequence[str]) -> str:
    """Return a series of all services, or of those that are named."""
    if not services:
        return f"{counter}{{{where}}}" if where else counter
    named = promql.any_of(services)
    # the label of a scrape, and that of remote write, which puts the service's namespace before it
    matchers = (f'service_name=~"{named}"', f'job=~"(.+/)?({named})"')
    return f"({' or '.join(f'{counter}{{{where}{where and chr(44)}{one}}}' for one in matchers)})"


def _is_absent(shared: Monitoring) -> str:
    return "\nor ".join(map(_has_nothing, shared.services or [""]))


def _has_nothing(service: str) -> str:
    named = [service] if service else []
    here = (_of(SILENT_SECONDS, "", named), _of(series(semconv.SCORED), promql.POPULATION, named))
    nothing = "".join(f" unless on ({promql.METRIC}) {one}" for one in here)
    job = f'label_replace({MIN_SCORES}, "job", "{promql.replacement(service)}", "", "")' if service else MIN_SCORES
    return f"{job}{nothing}"
