"""Gauges of a scorer's parts: the queue, the buffer of held spans, capture, and the spool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spanscore import semconv
from spanscore.line.spool import spool_of
from spanscore.pipeline.span_buffer import RELEASE_REASONS

if TYPE_CHECKING:
    from spanscore.line.build import Line

__all__ = ["gauges_of"]

Gauges = Mapping[str, Callable[[], float | Mapping[str, float]]]


def gauges_of(line: Line, *, has_spool: bool) -> dict[str, Callable[[], float | Mapping[str, float]]]:
    """Return instrument → the function that reads its value; the line makes the parts after its instruments."""
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


def _of_spool(line: Line) -> Gauges:
    def read(field: str) -> Callable[[], float]:
        return lambda: 0.0 if (file := spool_of(line.queue)) is None else getattr(file.state(), field)

    return {
        semconv.SPOOL_DEPTH: read("depth"),
        semconv.SPOOL_BYTES: read("bytes"),
        semconv.SPOOL_OLDEST: read("oldest_s"),
        semconv.SPOOL_DEAD_LETTERS: read("dead_letters"),
    }
