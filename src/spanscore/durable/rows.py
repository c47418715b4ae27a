"""Rows of a spool and copies of units: the values that outlive or leave the process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, Self

from spanscore.core.span import UnitKey

__all__ = [
    "REMOTE_SCORING",
    "Carrier",
    "PutResult",
    "RowEnd",
    "RowKey",
    "SpoolRow",
    "SpoolState",
    "Told",
    "UnitCopy",
    "metrics_of",
    "text_of_metrics",
]

# --- rows -----------------------------------------------------------------------------------------------------------

# What goes into a spool, what comes out of it, and what can be said about it.

_TRACE, _SPAN, _REVISION = 16, 24, 28
"""Where each part of a key's bytes ends."""


class RowKey(NamedTuple):
    """By what a row is known: the same key is kept once.

    Attributes:
        kind: of the body; who takes rows asks for one kind.
    """

    trace_id: int
    span_id: int
    revision: int
    kind: str = "job"

    def to_bytes(self) -> bytes:
        """Return it as it stands in the file."""
        ids = self.trace_id.to_bytes(16, "big") + self.span_id.to_bytes(8, "big")
        return ids + self.revision.to_bytes(4, "big") + self.kind.encode()

    @classmethod
    def from_bytes(cls, held: bytes) -> Self:
        """Return what ``to_bytes`` was asked for."""
        trace_id, span_id, revision = held[:_TRACE], held[_TRACE:_SPAN], held[_SPAN:_REVISION]
        kind = held[_REVISION:].decode()
        return cls(
            int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big"), int.from_bytes(revision, "big"), kind
        )


class RowEnd(StrEnum):
    """Why a row is not to be worked on, but counted."""

    DEAD_LETTER = "dead_letter"
    """Three crashes, each while it was in work. It stays in the file, put aside."""
    EXPIRED = "expired"
    """Older than ``max_age``."""


class SpoolRow(NamedTuple):
    """A row that this process holds the lease of.

    Attributes:
        body: as it was put.
        scores: what ``keep_scores`` kept in a life before: these are emitted, and nobody is asked again. None = nothing.
        attempts: crashes while it was in work, [0, 3].
        put_ns: when it was put, by the wall clock of who put it; nanoseconds since the epoch.
        end: None = it is to be worked on; else it is counted, and ``done``.
        metrics: names of the metrics that have no score yet, as ``text_of_metrics`` writes them; empty = they were not noted.
        counted: whether the process that had the row before has exported sums with its scores.
    """

    key: RowKey
    body: bytes
    scores: bytes | None
    attempts: int
    put_ns: int
    end: RowEnd | None = None
    metrics: str = ""
    counted: bool = False


def text_of_metrics(names: Iterable[str]) -> str:
    """Return names of metrics as one text; equal sets of names give equal texts."""
    return json.dumps(sorted(names))


def metrics_of(text: str) -> list[str]:
    """Return the names in ``text_of_metrics``; an empty text has none."""
    return [*json.loads(text)] if text else []


class PutResult(StrEnum):
    """What became of a row that was put."""

    KEPT = "kept"
    """It is on the disk."""
    KNOWN = "known"
    """A row of its key is there already: nothing is kept twice."""
    DONE = "done"
    """A row of its key was done not long ago: what it held has come again."""
    FULL = "full"
    """No room: ``max_bytes``, or the disk."""
    FAILED = "failed"
    """The file cannot be written: it is locked, read-only, damaged, closed."""


class SpoolState(NamedTuple):
    """What is in the file, of all processes, at most some seconds ago.

    Attributes:
        depth: rows that wait or are in work; without those put aside.
        bytes: of the file that are in use.
        oldest_s: age of the oldest of them, by the wall clock; 0 where there is none.
        owners: processes that hold leases.
        dead_letters: rows put aside, after three crashes or as nobody could read them.
        expired: rows that nobody works on, and which are past ``max_age``.
        fault: what an operator must know, in one line; None = all is well.
    """

    depth: int = 0
    bytes: int = 0
    oldest_s: float = 0.0
    owners: int = 0
    dead_letters: int = 0
    expired: int = 0
    fault: str | None = None


# --- carrier --------------------------------------------------------------------------------------------------------

# UnitCopy and Carrier: what leaves of a unit that another process scores, and who takes it there.

REMOTE_SCORING: Final = "remote_scoring"
"""Why there was no room for a unit: those before it are not answered for."""

Told = Callable[[str | None], None]
"""Called once per copy, on any thread. None: it has been answered for. A text: why it never will be, in few words that quote
nothing.
"""


class UnitCopy(NamedTuple):
    """The spans of one unit with their content, redacted.

    Attributes:
        key: of the unit.
        revision: of the unit.
        request: one ``ExportTraceServiceRequest`` of OTLP, as protobuf, of one trace. Such bytes may be put one behind another:
            they are then one request of all. Its resource says ``spanscore.forwarded_unit``, the root of the unit what was
            decided.
    """

    key: UnitKey
    revision: int
    request: bytes


class Carrier(Protocol):
    """Takes copies to another process, and tries again while there is hope: who waits for how many is not its matter."""

    def send(self, copy: UnitCopy, told: Told) -> None:
        """Take a copy on. Any thread; does not block, and never raises."""

    def arrived(self) -> bool:
        """Whether all copies that were answered for have arrived where units are scored. Any thread."""

    def state(self) -> str:
        """Return what is wrong with the way there, in few words; empty while nothing is. Any thread."""

    def close(self, timeout_s: float) -> None:
        """Send what waits for as long as there is time, then nothing more; what is left is told nothing. Blocks."""

    def reset(self) -> None:
        """Be as new: in a forked child, whose parent goes on with what it had."""
