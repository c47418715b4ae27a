"""What the parts of a scorer tell of themselves, as its instruments read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from spanscore import semconv
from spanscore.line.spool import spool_of
from spanscore.protocols import Queue
from spanscore.units.ledger import Ledger
from spanscore.units.span_buffer import RELEASE_REASONS, SpanBuffer
from spanscore.units.tracker import Units

__all__ = ["gauges_of"]

Gauges = Mapping[str, Callable[[], float | Mapping[str, float]]]


class GaugedParts(Protocol):
    """The parts of a line that are read; they are made after the instruments."""

    queue: Queue
    hold: SpanBuffer
    ledger: Ledger
    units: Units

    def sum_of(self, count: str) -> int:
        """Return the sum of a count of the receivers, by its name."""


def gauges_of(line: GaugedParts, *, has_spool: bool) -> dict[str, Callable[[], float | Mapping[str, float]]]:
    """Return instrument → what reads it."""
    own: Gauges = {
        semconv.QUEUE_SIZE: lambda: len(line.queue),
        semconv.QUEUE_CAPACITY: lambda: line.queue.capacity,
        semconv.HOLD_UNITS: lambda: len(line.hold),
        semconv.HOLD_RELEASED: lambda: {**dict.fromkeys(RELEASE_REASONS, 0), **line.hold.released},
        semconv.HOLD_LOST: lambda: line.hold.lost,
        semconv.CAPTURE_REFUSED: lambda: line.ledger.refused,
        semconv.HEAD_SAMPLING: lambda: line.units.notes.heads,
        semconv.REDELIVERED: lambda: line.sum_of("redelivered") + getattr(line.queue, "redelivered", 0),
    }
    return {**own, **(_of_spool(line) if has_spool else {})}


def _of_spool(line: GaugedParts) -> Gauges:
    def read(field: str) -> Callable[[], float]:
        return lambda: 0.0 if (file := spool_of(line.queue)) is None else getattr(file.state(), field)

    return {
        semconv.SPOOL_DEPTH: read("depth"),
        semconv.SPOOL_BYTES: read("bytes"),
        semconv.SPOOL_OLDEST: read("oldest_s"),
        semconv.SPOOL_DEAD_LETTERS: read("dead_letters"),
    }
