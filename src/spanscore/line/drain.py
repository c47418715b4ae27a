"""The end: held spans leave first, then what is being scored gets what is left of the deadline."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic, sleep

from spanscore.core.score import Outcome
from spanscore.line.build import Line
from spanscore.line.spool import leave_spool

__all__ = ["drain", "export_held_spans"]

_LOOK_S = 0.01
_STOP_S = 0.5
"""For workers to take notice of their cancellation: milliseconds, unless some judge blocks the loop."""


def drain(line: Line, timeout_s: float, *, clock: Callable[[], float] = monotonic) -> bool:
    """Release what is held, wait for what is being scored, settle the rest as ``shutdown``.

    Returns:
        Whether every unit that had ended was scored and out in time.
    """
    until = clock() + timeout_s

    def remaining_s() -> float:
        return max(0.0, until - clock())

    for receiver in line.receivers:
        receiver.close()
    if line.judge_check is not None:
        line.judge_check.stop()
    thread = line.span_thread
    line.engine.hand_back(remaining_s())
    is_over = Event()
    released = thread.call(lambda: None if is_over.is_set() else _release(line), 0.9 * remaining_s())
    whole = released and thread.flush(remaining_s())
    if not released:
        line.event_queue.abandon()
        released = thread.call(lambda: None, max(remaining_s(), _STOP_S))  # it may be late, not stuck
    (line.handover or line.engine).stop(max(min(remaining_s(), _STOP_S), 0.1))
    if released:  # else the thread is stuck in an exporter, and what it owns must be left alone
        thread.call(lambda: _give_up(line), max(remaining_s(), 0.2))
        thread.call(line.sinks.shutdown, max(remaining_s(), 0.2))
    if line.collector is not None:
        line.collector.finish(max(remaining_s(), 0.2))
    leave_spool(line.queue, line.delivery, max(remaining_s(), 0.2))
    thread.stop(max(remaining_s(), 0.2))
    if line.providers.spans_file is not None:
        line.providers.spans_file.finish(max(remaining_s(), 0.2))
    is_over.set()
    _count_the_rest(line)
    return whole


def _count_the_rest(line: Line) -> None:
    """Count what has no outcome yet as ``shutdown``: the end has come."""
    for ledger in (line.ledger, line.shadow_ledger, line.sessions.ledger):
        for key in ledger.open_units():
            ledger.settle_all(key, Outcome.SHUTDOWN)
    if line.feedback is not None:
        line.feedback.give_up()
    line.event_queue.abandon()
    for _ in range(sum(receiver.unread_count() for receiver in line.receivers)):
        line.ledger.record_rejected(Outcome.SHUTDOWN)  # the span thread has not even read that they began


def export_held_spans(
    line: Line, first: Callable[[int], None], timeout_s: float, *, clock: Callable[[], float] = monotonic
) -> None:
    """Let what is held leave now, at the pace, while the scorer goes on. Blocks for at most ``timeout_s``.

    Args:
        line: whose spans.
        first: has receivers hand on what has ended; given the time in nanoseconds.
    """
    until = clock() + timeout_s

    def release() -> None:
        now_ns = line.span_thread.now_ns()
        first(now_ns)
        line.units.tick(now_ns)  # what has just been handed on is parked
        line.units.export_held_spans()

    released = line.span_thread.call(release, timeout_s)
    queued = line.hold.queued
    while released and line.hold.ended < queued and clock() < until:
        line.span_thread.call(lambda: None, _LOOK_S)  # it ends what the pace allows after each
        sleep(_LOOK_S)


def _release(line: Line) -> None:
    now_ns = line.span_thread.now_ns()
    for receiver in line.receivers:
        line.units.give_up(receiver.drain(now_ns), now_ns)
    line.units.tick(now_ns)
    line.sessions.end_all()
    line.units.export_held_spans()
    line.units.flush_ready(now_ns)


def _give_up(line: Line) -> None:
    now_ns = line.span_thread.now_ns()
    for receiver in line.receivers:
        receiver.drain(now_ns)  # what was let in while the door closed
    line.keeping.give_up()
    line.units.give_up(list(line.units.in_flight), now_ns)
    line.sessions.give_up()
    line.revisions.give_up()
    line.units.flush_ready(now_ns, unpaced=True)
