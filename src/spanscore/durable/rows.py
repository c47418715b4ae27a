"""Plain values of the durable parts: the rows of a spool, the copies of units, and the protocol of their carriers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, Self

from spanscore.core.span import UnitKey

JOB, COPY = "job", "copy"
"""Kinds of rows with units. Rows of other kinds are messages of sinks."""


class RowKey(NamedTuple):
    """The key of a row; a spool has one row per key. Rows are leased by kind.

    Attributes:
        trace_id: trace of the unit; for a message its id.
        span_id: root of the unit; 0 for a message.
        revision: revision of the unit; 0 for a message.
        kind: kind of the body: ``JOB``, ``COPY``, or the name of a sink's outbox for one of its messages.
    """

    trace_id: int
    span_id: int
    revision: int
    kind: str = JOB

    def to_bytes(self) -> bytes:
        """Return the key as it is stored in the file."""
        ids = self.trace_id.to_bytes(16, "big") + self.span_id.to_bytes(8, "big")
        return ids + self.revision.to_bytes(4, "big") + self.kind.encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """Return the key of the bytes of ``to_bytes``."""
        trace_id, span_id, revision = (int.from_bytes(stored[a:b], "big") for a, b in ((0, 16), (16, 24), (24, 28)))
        return cls(trace_id, span_id, revision, stored[28:].decode())


class RowEnd(StrEnum):
    """Reasons for which a row is only counted, and not scored."""

    DEAD_LETTER = "dead_letter"
    """Three processes crashed while scoring the row, which stays in the file as a dead letter."""
    EXPIRED = "expired"
    """The row is older than ``max_age``."""


class SpoolRow(NamedTuple):
    """A row that this process has leased.

    Attributes:
        key: key of the row.
        body: stored bytes.
        scores: scores stored by ``keep_scores`` in an earlier process, to be emitted without a judge. None = no scores.
        attempts: crashes while it was being scored, [0, 3].
        end: reason why it is only counted and then ``done``; None if it must be scored.
        metrics: names of the metrics without a score so far, in the form of ``text_of_metrics``; empty = not recorded.
        counted: whether an earlier process has exported sums with the scores.
        sent: whether an earlier process has exported the scores themselves.
    """

    key: RowKey
    body: bytes
    scores: bytes | None
    attempts: int
    end: RowEnd | None = None
    metrics: str = ""
    counted: bool = False
    sent: bool = False


def text_of_metrics(names: Iterable[str]) -> str:
    """Return names of metrics as one text; equal sets of names give equal texts."""
    return json.dumps(sorted(names))


def metrics_of(text: str) -> list[str]:
    """Return the names from a text of ``text_of_metrics``; no names for an empty text."""
    return [*json.loads(text)] if text else []


class PutResult(StrEnum):
    """Results of storing a row."""

    KEPT = "kept"
    """The row is on the disk."""
    KNOWN = "known"
    """The file has a row with this key already."""
    DONE = "done"
    """A row with this key was done within ``max_age``, so the content has arrived again."""
    FULL = "full"
    """The limit ``max_bytes`` is reached, or the disk is full."""
    FAILED = "failed"
    """The file cannot be written, because it is locked, read-only, damaged or closed."""


class SpoolState(NamedTuple):
    """The content of the file, by all processes, at most some seconds old.

    Attributes:
        depth: number of units that wait or are being scored, without dead letters.
        bytes: used bytes of the file.
        oldest_s: age of the oldest unit, by the wall clock, in s; 0 without units.
        owners: number of processes that hold leases.
        dead_letters: number of rows that were put aside, after three crashes or as unreadable.
        expired: number of rows without a lease that are older than ``max_age``.
        fault: one line for an operator; None = no fault.
        messages: outbox of a sink → number of its messages that wait.
    """

    depth: int = 0
    bytes: int = 0
    oldest_s: float = 0.0
    owners: int = 0
    dead_letters: int = 0
    expired: int = 0
    fault: str | None = None
    messages: Mapping[str, int] = MappingProxyType({})


REMOTE_SCORING: Final = "remote_scoring"
"""Reason of ``queue_full``, or its beginning, for a unit that was not accepted for remote scoring."""

OnDelivery = Callable[[str | None], None]
"""Callback of a copy, called once, on any thread: None = accepted; otherwise the reason for its loss, without content."""


class UnitCopy(NamedTuple):
    """The spans of one unit, with redacted content; or a message of a sink.

    Attributes:
        key: key of the unit; for a message, its id and 0.
        revision: revision of the unit; 0 for a message.
        request: the message, or one ``ExportTraceServiceRequest`` of OTLP for one trace, in protobuf; the joined bytes of
            several copies are one request. Its resource has ``spanscore.forwarded_unit``, and the root of the unit has the
            decisions.
    """

    key: UnitKey
    revision: int
    request: bytes


class Carrier(Protocol):
    """Sends copies to another process, with retries while they may help. The caller bounds the waiting copies."""

    def begin(self) -> None:
        """Send the copies that processes have left behind, if any. Called once, at the start, and in no forked child.

        Raises:
            ConfigurationError: no copy can be sent.
        """

    def send(self, copy: UnitCopy, on_delivery: OnDelivery) -> None:
        """Accept a copy. Thread-safe; does not block, and never raises."""

    def has_arrived(self) -> bool:
        """Return whether all accepted copies have reached the scoring process. Thread-safe."""

    def state(self) -> str:
        """Return the latest failure in a few words; empty after a success. Thread-safe."""

    def close(self, timeout_s: float) -> None:
        """Send the waiting copies within the time, then end; the rest gets no answer. Blocks."""
