"""Received: what came over the wire so far, for ``status()``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ExternalCount", "ExternalCounts", "Received", "TopicState"]


class ExternalCount(NamedTuple):
    """What others say under one name.

    Attributes:
        scores: those with a value or a label.
        mean: of their values, weighted; None where there is none, or where one was not from 0 to 1.
        off_scale: whether one was not: then no further value is added up, as nobody knows the scale.
        labels: label → scores.
    """

    scores: int
    mean: float | None
    off_scale: bool
    labels: Mapping[str, int]


class ExternalCounts(NamedTuple):
    """The scores of others that came over the wire.

    Attributes:
        names: name → what was counted.
        undefined: results without a value or label that can be read.
        again: spans and log records that had come before, and results that had come in another way.
    """

    names: Mapping[str, ExternalCount]
    undefined: int
    again: int


class TopicState(NamedTuple):
    """What a worker reads of a topic, and how far it is.

    Attributes:
        name: of the topic.
        partitions: those that it reads, ascending.
        all: how many there are.
        lag: messages of its partitions that are not settled.
        oldest_s: seconds since the oldest of those that were read was written, by the broker's clock and ours; None = all are
            settled.
        rebalanced_s: seconds since its partitions last changed; None = it never had any.
        dropped: open traces that another worker reads again.
        skipped: messages that were gone before they were read.
        wrong: what keeps it from reading; empty = nothing.
        held: partitions of which messages wait for log records that are not read yet.
    """

    name: str
    partitions: Sequence[int]
    all: int
    lag: int
    oldest_s: float | None
    rebalanced_s: float | None
    dropped: int
    skipped: int
    wrong: str
    held: int = 0


class LogRecords(NamedTuple):
    """Log records that hold content.

    Attributes:
        joined: to their span.
        waiting: for their span.
        unjoined: whose span did not come in time, or came before them and was read.
        dropped: for which there was no room.
    """

    joined: int
    waiting: int
    unjoined: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What came to the door of ``spanscore serve``, what waits behind it, and what left by it.

    Attributes:
        requests: with spans, refused ones included.
        spans: valid ones of requests that were taken.
        bytes: of the requests, without compression.
        refused: reason → requests.
        rejected: reason → spans that are not valid.
        ours: of the spans, evaluations.
        unclaimed: of the spans, those that no translation claims.
        unread: scope → traces without any span that is read, as another scope traces the same library in their process.
        open: traces with spans that wait for their unit to be whole.
        waiting_for_root: of these, those with spans whose parent has not come.
        orphans: spans that were given up, as their root never came.
        late: spans that came when their unit had closed.
        duplicates: spans that had come before.
        revisions: units that were opened once more.
        dialects: translation → spans that it read, and on how many of these it found no content.
        forward: of a proxy, requests that it sent on, those that failed, and what is wrong; None where nothing is sent on.
        topic: of a worker; None where none is read.
        external: scores that others made; None where none came.
        logs: log records that hold content; None if none came.
    """

    requests: int
    spans: int
    bytes: int
    refused: Mapping[str, int]
    rejected: Mapping[str, int]
    ours: int
    unclaimed: int
    unread: Mapping[str, int]
    open: int
    waiting_for_root: int
    orphans: int
    late: int
    duplicates: int
    revisions: int
    dialects: Mapping[str, tuple[int, int]]
    forward: tuple[int, int, str] | None = None
    topic: TopicState | None = None
    external: ExternalCounts | None = None
    logs: LogRecords | None = None
