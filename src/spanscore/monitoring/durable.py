"""What waits in a spool and on a topic: the alerts on a backlog, and on what was lost in it."""

from __future__ import annotations

from collections.abc import Iterator

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.monitoring import promql
from spanscore.monitoring.alert import ALL, Alert, by_label, labels_of
from spanscore.monitoring.names import label, series
from spanscore.monitoring.recorded import steady_window

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


def durable(shared: Monitoring) -> Iterator[Alert]:
    """Yield the alerts; where there is no spool and no worker, none can fire."""
    yield _spool()
    yield _dead_letters()
    yield _lagging()
    yield _skipped(shared)


def _spool() -> Alert:
    waited = f"min_over_time({SPOOL_OLDEST}[{promql.duration(BRIEF_S)}]) > {WAITED_S:g}"
    texts = {
        OLD: "The oldest job of the spool has waited for {lasting} ({service}): no process takes them, or the judge keeps it "
        "waiting.",
        GROWING: f"{{count}} jobs are in the spool, more than {promql.duration(WAITED_S)} ago ({{service}}): units come faster "
        "than they are scored.",
    }
    return Alert(
        name="SpanscoreSpoolBacklog",
        expression=promql.labelled("reason", {OLD: waited, GROWING: _has_grown(SPOOL_DEPTH)}),
        labels=_backlog(),  # the reason is in the expression
        summary="the spool has a backlog: {{ $labels.reason }}",
        text=f"{by_label('reason', texts)} {_PAST}",
    )


_PAST = (
    "Past spool.max_age they end as expired, past spool.max_bytes as queue_full. Start another worker on the disk, or lower "
    "the rates; `spanscore spool FILE` shows who owns what."
)


def _dead_letters() -> Alert:
    return Alert(
        name="SpanscoreSpoolDeadLetters",
        expression=f"max by ({_OF_SERVICE}) ({series(semconv.SPOOL_DEAD_LETTERS)}) > 0",
        labels=labels_of("warning", ALL, promql.duration(BRIEF_S)),
        summary="jobs were put aside",
        text="{count} jobs of the spool are put aside ({service}): while each was in work, three processes ended, or it cannot "
        "be read. They are counted as metric_error; see the worker's log. When that is mended, `spanscore spool FILE "
        "--retry-dead-letters`, or --drop-older-than.",
    )


def _lagging() -> Alert:
    return Alert(
        name="SpanscoreWorkerLagging",
        expression=_has_grown(WORKER_LAG),
        labels=_backlog(),
        summary="workers fall behind",
        text=f"{{count}} messages are not committed, more than {promql.duration(WAITED_S)} ago ({{service}}). Past the "
        "topic's retention they are lost. Add workers, up to its partitions, or lower the rates.",
    )


def _skipped(shared: Monitoring) -> Alert:
    window = steady_window(shared)
    return Alert(
        name="SpanscoreWorkerSkipped",
        expression=f"{promql.increase(semconv.WORKER_SKIPPED, window, by=promql.GROUP[1:])} > 0",
        labels=labels_of("warning", ALL, window),
        summary="messages are lost",
        text="{count} messages of the topic were gone before a worker read them, over "
        f"{window} ({{service}}): its retention is shorter than the lag. Raise the topic's "
        "retention.ms, then add workers.",
    )


def _backlog() -> dict[str, str]:
    return labels_of("warning", ALL, promql.duration(WAITED_S))


def _has_grown(recorded: str) -> str:
    brief = promql.duration(BRIEF_S)
    before = f"max_over_time({recorded}[{brief}] offset {promql.duration(WAITED_S)})"
    return f"min_over_time({recorded}[{brief}]) > {before}"
