"""Threads of ours are daemons with a name."""

from __future__ import annotations

from spanscore.core.threads import start_daemon


def test_a_thread_is_a_daemon_with_its_name_and_gets_its_arguments() -> None:
    got: list[object] = []

    thread = start_daemon(lambda *these: got.extend(these), "spanscore-test", 1, "two")
    thread.join(5)

    assert (thread.daemon, thread.name, got) == (True, "spanscore-test", [1, "two"])
