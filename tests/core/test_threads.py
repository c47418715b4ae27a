"""Threads of ours are daemons with a name. One that works for long lets others in between, seldom enough to cost nothing."""

from __future__ import annotations

import threading
from threading import Event

from spanscore.core import event_queue as gil
from spanscore.core.threads import SerialThread, start_daemon


def test_a_thread_is_a_daemon_with_its_name_and_gets_its_arguments() -> None:
    got: list[object] = []

    thread = start_daemon(lambda *these: got.extend(these), "spanscore-test", 1, "two")
    thread.join(5)

    assert (thread.daemon, thread.name, got) == (True, "spanscore-test", [1, "two"])


def test_work_that_is_cancelled_before_its_turn_is_not_done_and_keeps_no_other_work_from_its_turn() -> None:
    go_on, done, serial = Event(), list[str](), SerialThread("spanscore-test")
    first = serial.do(go_on.wait)

    cancelled = serial.do(lambda: done.append("cancelled") is None)
    cancelled.cancel()
    go_on.set()

    assert (first.result(10), serial.do(lambda: True).result(10), done) == (True, True, [])
    serial.stop()


def test_work_that_comes_after_the_end_is_not_done_and_starts_no_thread() -> None:
    serial, done = SerialThread("spanscore-ended"), list[str]()
    serial.do(lambda: True).result(10)
    serial.stop()

    assert (serial.do(lambda: done.append("late") is None).result(10), done) == (False, [])


def naps(monkeypatch, work):
    """Run ``work`` on a new thread; return how often it yielded. The clock advances only for ``work``."""
    clock, slept = [10**9], []
    monkeypatch.setattr(gil, "monotonic_ns", lambda: clock[0])
    monkeypatch.setattr(gil, "sleep", slept.append)
    thread = threading.Thread(target=work, args=(clock,))
    thread.start()
    thread.join()
    return slept


def test_it_gives_way_after_two_milliseconds_of_work(monkeypatch):
    def work(clock):
        for _ in range(100):
            gil.yield_gil()
            clock[0] += 100_000

    assert naps(monkeypatch, work) == [0] * 5


def test_a_thread_that_has_just_slept_begins_a_new_turn(monkeypatch):
    def work(clock):
        gil.begin_turn()
        gil.yield_gil()
        clock[0] += 2_000_000
        gil.yield_gil()

    assert naps(monkeypatch, work) == [0]


def test_each_thread_has_its_own_turn(monkeypatch):
    def work(clock):
        gil.yield_gil()
        other = threading.Thread(target=gil.yield_gil)
        other.start()
        other.join()
        gil.yield_gil()

    assert naps(monkeypatch, work) == [0, 0]


def test_a_thread_rests_after_its_turns_for_as_long_as_configured(monkeypatch):
    def work(clock):
        gil.rest_after_turns(iter([0.018, 0.0]).__next__)
        gil.yield_gil()
        clock[0] += 2_000_000
        gil.yield_gil()

    assert naps(monkeypatch, work) == [0.018, 0.0]
