"""What waits in a spool and on a topic: the alerts on a backlog, and on what was lost in it."""

from __future__ import annotations

from collections.abc import Iterator

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.alert import ALL, Alert, labels_of, steady_window
from spanscore.monitoring.names import label, series
from spanscore.settings.alerting import MonitoringSettings

__all__ = ["BRIEF_S", "GROWING", "OLD", "WAITED_S", "durable", "durable_records"]

SPOOL_DEPTH, SPOOL_OLDEST, WORKER_LAG = "spanscore:spool_depth", "spanscore:spool_oldest", "spanscore:worker_lag"
"""What is recorded of a service: the jobs in its fullest spool, how long the oldest waits, messages of all partitions."""
WAITED_S = 3_600.0
"""For how long a job may wait in a spool; and over which a backlog is seen to grow."""
BRIEF_S = 900.0
"""A backlog has grown if it was, for so long, never as small as it was at most an hour ago: bursts are no growth."""
OLD, GROWING = "old", "growing"

_OF_SERVICE = ", ".join(promql.GROUP[1:])


def durable_records() -> Iterator[tuple[str, str]]:
    """Yield record and expression. Processes tell of one file, and a partition may be told of by two until its move is seen."""
    for name, instrument in ((SPOOL_DEPTH, semconv.SPOOL_DEPTH), (SPOOL_OLDEST, semconv.SPOOL_OLDEST)):
        yield name, f"max by ({_OF_SERVICE}) ({series(instrument)})"
    each = f"max by ({label(semconv.PARTITION)}, {_OF_SERVICE}) ({series(semconv.WORKER_LAG)})"
    yield WORKER_LAG, f"sum by ({_OF_SERVICE}) ({each})"


def durable(shared: MonitoringSettings) -> Iterator[Alert]:
    """Yield the alerts; where there is no spool and no worker, none can fire."""
    yield _old()
    yield _growing()
    yield _poison()
    yield _lagging()
    yield _skipped(shared)


def _old() -> Alert:
    return Alert(
        name="SpanscoreSpoolBacklog",
        expression=f"min_over_time({SPOOL_OLDEST}[{promql.duration(BRIEF_S)}]) > {WAITED_S:g}",
        labels={**_backlog(), "reason": OLD},
        summary="jobs wait in the spool",
        text="The oldest job of the spool has waited for {lasting} ({service}): no process takes them, or the judge keeps it "
        f"waiting. {_PAST}",
    )


def _growing() -> Alert:
    return Alert(
        name="SpanscoreSpoolBacklog",
        expression=_has_grown(SPOOL_DEPTH),
        labels={**_backlog(), "reason": GROWING},
        summary="the spool grows",
        text="{count} jobs at least are in the spool, more than at any time of a quarter of an hour that was "
        f"{promql.duration(WAITED_S)} ago ({{service}}): units come faster than they are scored. {_PAST}",
    )


_PAST = (
    "Past spool.max_age they end as too_late, past spool.max_bytes as queue_full. Start another worker on the disk, lower the "
    "rates, or ask the provider for more; `spanscore spool FILE` says who owns what."
)


def _poison() -> Alert:
    return Alert(
        name="SpanscoreSpoolPoison",
        expression=f"max by ({_OF_SERVICE}) ({series(semconv.SPOOL_POISON)}) > 0",
        labels=labels_of("warning", ALL, promql.duration(BRIEF_S)),
        summary="jobs were put aside",
        text="{count} jobs of the spool are put aside ({service}): while each was in work, three processes ended, or it cannot "
        "be read. They are counted as metric_error; the worker's log of that time says more. When that is mended, `spanscore "
        "spool FILE --retry-poison`, or --drop-older-than.",
    )


def _lagging() -> Alert:
    return Alert(
        name="SpanscoreWorkerLagging",
        expression=_has_grown(WORKER_LAG),
        labels=_backlog(),
        summary="workers fall behind",
        text="{count} messages at least are not committed, more than at any time of a quarter of an hour that was "
        f"{promql.duration(WAITED_S)} ago ({{service}}): they come faster than they are scored. Past the topic's retention "
        "they are lost. Add workers, up to its partitions; where the judge's limits are reached, lower the rates.",
    )


def _skipped(shared: MonitoringSettings) -> Alert:
    window = steady_window(shared)
    return Alert(
        name="SpanscoreWorkerSkipped",
        expression=f"{promql.increase(semconv.WORKER_SKIPPED, window, by=promql.GROUP[1:])} > 0",
        labels=labels_of("warning", ALL, window),
        summary="messages are lost",
        text="{count} messages of the topic were gone before a worker read them, over the last "
        f"{window} ({{service}}): its retention is shorter than the lag. Their units have no outcome, as nobody has seen "
        "them. Raise the topic's retention.ms, then add workers.",
    )


def _backlog() -> dict[str, str]:
    return labels_of("warning", ALL, promql.duration(WAITED_S))


def _has_grown(recorded: str) -> str:
    brief = promql.duration(BRIEF_S)
    before = f"max_over_time({recorded}[{brief}] offset {promql.duration(WAITED_S)})"
    return f"min_over_time({recorded}[{brief}]) > {before}"
