"""Callbacks after a fork: parts in their order, independent of each other, without keeping them alive."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from threading import Event

import pytest

from spanscore.core.threads import DaemonPool, SerialThread, before_fork, call_in_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


class Part:
    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls

    def hear(self) -> None:
        self.calls.append(self.name)

    def fail(self) -> None:
        raise RuntimeError(self.name)


def in_child(tell: Callable[[], str]) -> str:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, tell().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as file:
        return file.read()


def test_parts_are_made_new_in_their_order_and_one_that_fails_stops_no_other() -> None:
    calls: list[str] = []
    first, broken, last = (Part(name, calls) for name in ("first", "broken", "last"))
    call_in_child(first, Part.hear)
    call_in_child(broken, Part.fail)
    call_in_child(last, Part.hear)

    assert in_child(lambda: " ".join(calls)) == "first last"
    assert calls == []


def test_a_fork_waits_for_what_must_be_over_before_it() -> None:
    calls: list[str] = []
    part = Part("waited", calls)
    before_fork(part, Part.hear)

    assert in_child(lambda: " ".join(calls)) == "waited"
    assert calls == ["waited"]


def test_a_part_that_an_earlier_call_replaces_has_its_call() -> None:
    calls: list[str] = []
    first, replaced = Part("first", calls), [Part("replaced", calls)]
    call_in_child(first, lambda _: replaced.clear())
    call_in_child(replaced[0], Part.hear)

    assert in_child(lambda: " ".join(calls)) == "replaced"


def test_threads_that_are_busy_in_the_parent_are_free_in_a_child() -> None:
    go_on, begun = Event(), Event()
    pool, serial = DaemonPool(1, "pool"), SerialThread("serial")
    waiting = [pool.submit(lambda: begun.set() or go_on.wait()), serial.do(go_on.wait)]
    begun.wait()

    def busy() -> str:
        return f"{pool.is_busy} {pool.submit(lambda: 1).result(10)} {serial.do(lambda: True).result(10)}"

    assert in_child(busy) == "False 1 True"
    go_on.set()
    assert [future.result(10) for future in waiting] == [True, True]


def test_a_part_is_not_kept_alive() -> None:
    calls: list[str] = []
    part = Part("gone", calls)
    call_in_child(part, Part.hear)
    seen = weakref.ref(part)

    del part
    gc.collect()

    assert seen() is None
    assert in_child(lambda: " ".join(calls)) == ""
