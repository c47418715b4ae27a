"""The end: held spans leave first, then what is being scored gets what is left of the deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from spanscore.line.span_thread import SpanThread
from spanscore.model.score import Outcome
from spanscore.protocols import Receiver
from spanscore.runtime.inbox import Inbox
from spanscore.scoring.workers import Engine
from spanscore.sinks.composite import CompositeSink
from spanscore.units.ledger import Ledger
from spanscore.units.span_buffer import SpanBuffer
from spanscore.units.tracker import Units

__all__ = ["Drainable", "drain"]

_STOP_S = 0.5
"""For workers to take notice of their cancellation: milliseconds, unless some judge blocks the loop."""


class Drainable(Protocol):
    """The parts that an end goes through."""

    units: Units
    hold: SpanBuffer
    ledger: Ledger
    engine: Engine
    span_thread: SpanThread
    inbox: Inbox[Receiver]
    sinks: CompositeSink

    @property
    def receivers(self) -> Sequence[Receiver]:
        """Where units come in."""

    def close_receivers(self) -> None:
        """Let no further unit in. Any thread."""


def drain(parts: Drainable, timeout_s: float, *, clock: Callable[[], float] = monotonic) -> bool:
    """Release what is held, wait for what is being scored, settle the rest as ``shutdown``.

    Returns:
        Whether every unit that had ended was scored and out in time.
    """
    until = clock() + timeout_s

    def left() -> float:
        return max(0.0, until - clock())

    parts.close_receivers()
    thread = parts.span_thread
    released = thread.call(lambda: _release(parts), left())
    whole = released and thread.flush(left())
    parts.engine.stop(max(min(left(), _STOP_S), 0.1))
    if released:  # else the thread is stuck in somebody's exporter, and what it owns must be left alone
        thread.call(lambda: _give_up(parts), max(left(), 0.2))
        thread.call(parts.sinks.shutdown, max(left(), 0.2))
    thread.stop(max(left(), 0.2))
    for key in parts.ledger.open_units():
        parts.ledger.settle_all(key, Outcome.SHUTDOWN)
    _count_unread(parts)
    return whole


def _release(parts: Drainable) -> None:
    now_ns = parts.span_thread.now_ns()
    for receiver in parts.receivers:
        parts.units.give_up(receiver.detach(now_ns), now_ns)
    parts.units.tick(now_ns)
    parts.hold.release_all()
    parts.units.flush_ready(now_ns)


def _count_unread(parts: Drainable) -> None:
    """Count the units of which a stuck span thread has not even read that they began."""
    parts.inbox.abandon()
    for _ in range(sum(receiver.unread() for receiver in parts.receivers)):
        parts.ledger.record_rejected(Outcome.SHUTDOWN)


def _give_up(parts: Drainable) -> None:
    now_ns = parts.span_thread.now_ns()
    for receiver in parts.receivers:
        receiver.detach(now_ns)  # what was let in while the door closed
    parts.units.give_up(list(parts.units.in_flight), now_ns)
    parts.units.flush_ready(now_ns, unpaced=True)
