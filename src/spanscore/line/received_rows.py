"""Received → the rows that ``status()`` has of what comes over the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spanscore.core.job import ExternalCount, ExternalCounts, LogRecords, Received, TopicState
from spanscore.core.printable import format_count

__all__ = ["received_rows"]

_KB, _MB = 1_000, 1_000_000


def received_rows(received: Received) -> Iterator[str]:
    """Yield a row each of the door, units, dialects, log records, scores of others, of a topic, and of a proxy's way on."""
    yield "; ".join(_door(received))
    yield "; ".join(_units(received))
    yield "; ".join(_dialects(received))
    if received.logs is not None:
        yield "; ".join(_logs(received.logs, received.topic))
    if received.external is not None:
        yield "; ".join(_external(received.external))
    if received.topic is not None:
        yield "; ".join(_topic(received.topic))
    if received.forward is not None:
        sent, failed, wrong = received.forward
        requests = f"forward: {format_count(sent, 'request')} sent on, {failed:,} failed"
        yield f"{requests}; {wrong}" if wrong else requests


def _door(received: Received) -> Iterator[str]:
    size = f"{received.bytes / _MB:,.1f} MB" if received.bytes >= _MB else f"{received.bytes / _KB:,.1f} kB"
    yield f"door: {format_count(received.requests, 'request')}, {format_count(received.spans, 'span')}, {size}"
    if refused := _by_reason(received.refused):
        yield f"refused {refused}"
    if rejected := _by_reason(received.rejected):
        yield f"spans that are not valid: {rejected}"
    if received.ours:
        yield f"{format_count(received.ours, 'evaluation')} refused: no evaluation is evaluated"


def _units(received: Received) -> Iterator[str]:
    yield f"units: {format_count(received.open, 'trace')} open, {received.waiting_for_root:,} of them waiting for a root"
    if received.orphans:
        yield f"{format_count(received.orphans, 'span')} given up, as their root never came (units.orphan_wait)"
    if received.late:
        yield f"{format_count(received.late, 'span')} came when their unit had closed (units.idle_timeout)"
    if received.duplicates:
        yield f"{format_count(received.duplicates, 'span')} came again"
    if received.revisions:
        yield f"{format_count(received.revisions, 'unit')} opened once more"


def _dialects(received: Received) -> Iterator[str]:
    read = [
        f"{name} {spans:,}" + (f" ({without:,} without content)" if without else "")
        for name, (spans, without) in received.dialects.items()
    ]
    yield f"dialects: {', '.join(read) or 'none read yet'}"
    if received.unclaimed:
        yield f"{format_count(received.unclaimed, 'span')} of other things"
    for scope, traces in received.unread.items():
        yield f"{format_count(traces, 'trace')} of {scope} not read, as another scope traces the same library"


def _logs(counts: LogRecords, topic: TopicState | None) -> Iterator[str]:
    remote_scoring = ", or is read by another worker" if topic is not None and len(topic.partitions) < topic.all else ""
    yield f"content in log records: {counts.joined:,} joined to their span, {counts.waiting:,} waiting for it"
    if counts.unjoined:
        in_time = f"did not come in time, or was read before (units.idle_timeout){remote_scoring}"
        yield f"{format_count(counts.unjoined, 'record')} whose span {in_time}"
    if counts.dropped:
        yield f"no room for {format_count(counts.dropped, 'record')} (units.bytes)"


def _external(counts: ExternalCounts) -> Iterator[str]:
    names = [f"{name} {_of_others(of)}" for name, of in counts.names.items()]
    yield f"scores of others: {', '.join(names) or 'none with a value or label'}"
    if counts.undefined:
        yield f"{format_count(counts.undefined, 'result')} without a value or label"
    if counts.again:
        yield f"{counts.again:,} came again"


def _of_others(of: ExternalCount) -> str:
    parts = [f"{scores:,} {label}" for label, scores in sorted(of.labels.items())]
    parts += ["values not from 0 to 1: no mean"] if of.off_scale else []
    parts += [f"mean {of.mean:.2f}"] if of.mean is not None else []
    return f"{of.scores:,} ({', '.join(parts)})" if parts else f"{of.scores:,}"


def _topic(topic: TopicState) -> Iterator[str]:
    yield f"kafka: topic {topic.name}, {len(topic.partitions)} of {format_count(topic.all, 'partition')}"
    yield f"{format_count(topic.lag, 'message')} not settled"
    if topic.oldest_s is not None:
        yield f"the oldest that was read is {topic.oldest_s:,.0f} s old"
    if topic.rebalanced_s is not None:
        yield f"rebalanced {topic.rebalanced_s:,.0f} s ago"
    if topic.dropped:
        yield f"{format_count(topic.dropped, 'open trace')} left to other workers"
    if topic.skipped:
        yield f"{format_count(topic.skipped, 'message')} gone before they were read"
    if topic.held:
        yield f"{format_count(topic.held, 'partition')} wait for log records to be read (kafka.logs_topic)"
    if topic.wrong:
        yield topic.wrong


def _by_reason(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {reason}" for reason, number in counted.items() if number)
