"""Rows of a spool and copies of units: the values that outlive or leave the process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, Self

from spanscore.core.span import UnitKey


class RowKey(NamedTuple):
    """The key of a row, which is kept once. Rows are taken by their kind.

    Attributes:
        trace_id: trace of the unit.
        span_id: root of the unit.
        revision: revision of the unit.
        kind: kind of the body, ``job`` or ``copy``.
    """

    trace_id: int
    span_id: int
    revision: int
    kind: str = "job"

    def to_bytes(self) -> bytes:
        """Return the key as it is in the file."""
        ids = self.trace_id.to_bytes(16, "big") + self.span_id.to_bytes(8, "big")
        return ids + self.revision.to_bytes(4, "big") + self.kind.encode()

    @classmethod
    def from_bytes(cls, held: bytes) -> Self:
        """Return the key of such bytes."""
        trace_id, span_id, revision = (int.from_bytes(held[a:b], "big") for a, b in ((0, 16), (16, 24), (24, 28)))
        return cls(trace_id, span_id, revision, held[28:].decode())


class RowEnd(StrEnum):
    """Why a row is only to be counted, and not scored."""

    DEAD_LETTER = "dead_letter"
    """Three processes crashed while the row was in work. It stays in the file, put aside."""
    EXPIRED = "expired"
    """The row is older than ``max_age``."""


class SpoolRow(NamedTuple):
    """A row whose lease this process holds.

    Attributes:
        key: key of the row.
        body: bytes that were put.
        scores: scores of ``keep_scores`` in an earlier process: these are emitted, and no judge is asked again. None = none.
        attempts: crashes while it was in work, [0, 3].
        put_ns: time at which it was put, by the writer's wall clock; nanoseconds since the epoch.
        end: why it is only to be counted, and then ``done``; None = it is to be scored.
        metrics: names of the metrics that have no score yet, as ``text_of_metrics`` writes them; empty = they were not noted.
        counted: whether the process that had the row before has exported sums with its scores.
        sent: whether that process has exported the scores themselves.
    """

    key: RowKey
    body: bytes
    scores: bytes | None
    attempts: int
    put_ns: int
    end: RowEnd | None = None
    metrics: str = ""
    counted: bool = False
    sent: bool = False


def text_of_metrics(names: Iterable[str]) -> str:
    """Return names of metrics as one text; equal sets of names give equal texts."""
    return json.dumps(sorted(names))


def metrics_of(text: str) -> list[str]:
    """Return the names in ``text_of_metrics``; an empty text has none."""
    return [*json.loads(text)] if text else []


class PutResult(StrEnum):
    """The result of a put."""

    KEPT = "kept"
    """The row is on the disk."""
    KNOWN = "known"
    """A row of its key is in the file already."""
    DONE = "done"
    """A row of its key was done within ``max_age``: its content has come again."""
    FULL = "full"
    """There is no room: ``max_bytes``, or the disk."""
    FAILED = "failed"
    """The file cannot be written: it is locked, read-only, damaged or closed."""


class SpoolState(NamedTuple):
    """The content of the file, by all processes, at most some seconds ago.

    Attributes:
        depth: rows that wait or are in work; without those put aside.
        bytes: bytes of the file that are in use.
        oldest_s: age of the oldest row, by the wall clock, seconds; 0 without rows.
        owners: processes that hold leases.
        dead_letters: rows put aside, after three crashes or because they cannot be read.
        expired: rows without a lease that are older than ``max_age``.
        fault: one line for an operator; None = all is well.
    """

    depth: int = 0
    bytes: int = 0
    oldest_s: float = 0.0
    owners: int = 0
    dead_letters: int = 0
    expired: int = 0
    fault: str | None = None


REMOTE_SCORING: Final = "remote_scoring"
"""Reason of ``queue_full`` if the process that scores has not answered for earlier units."""

Told = Callable[[str | None], None]
"""Callback of a copy, called once, on any thread: None = it was answered for; else why it never will be, without content."""


class UnitCopy(NamedTuple):
    """The spans of one unit with their content, redacted.

    Attributes:
        key: key of the unit.
        revision: revision of the unit.
        request: one ``ExportTraceServiceRequest`` of OTLP, as protobuf, of one trace; the bytes of several copies in a row are
            one request. Its resource has ``spanscore.forwarded_unit``, the root of the unit its decisions.
    """

    key: UnitKey
    revision: int
    request: bytes


class Carrier(Protocol):
    """Sends copies to another process, and tries again while that may help. The caller bounds how many wait."""

    def begin(self) -> None:
        """Send the copies that processes have left behind, if any. Called once, at the start, and in no forked child.

        Raises:
            ConfigurationError: no copy can be sent.
        """

    def send(self, copy: UnitCopy, told: Told) -> None:
        """Take a copy. Any thread; does not block, and never raises."""

    def arrived(self) -> bool:
        """Whether all copies that were answered for have reached the process that scores. Any thread."""

    def state(self) -> str:
        """Return the latest failure in few words; empty since the latest success. Any thread."""

    def close(self, timeout_s: float) -> None:
        """Send what waits as long as there is time, then nothing more; the rest gets no answer. Blocks."""
