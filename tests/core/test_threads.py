"""Threads of ours are daemons with a name."""

from __future__ import annotations

from threading import Event

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
