"""What hears of a fork: parts in their order, each whatever the others do, none kept alive for it."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable

import pytest

from spanscore.core.threads import before_fork, call_in_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


class Part:
    def __init__(self, name: str, heard: list[str]) -> None:
        self.name = name
        self.heard = heard

    def hear(self) -> None:
        self.heard.append(self.name)

    def fail(self) -> None:
        raise RuntimeError(self.name)


def in_child(tell: Callable[[], str]) -> str:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, tell().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as told:
        return told.read()


def test_parts_are_made_new_in_their_order_and_one_that_fails_stops_no_other() -> None:
    heard: list[str] = []
    first, broken, last = (Part(name, heard) for name in ("first", "broken", "last"))
    call_in_child(first, Part.hear)
    call_in_child(broken, Part.fail)
    call_in_child(last, Part.hear)

    assert in_child(lambda: " ".join(heard)) == "first last"
    assert heard == []


def test_a_fork_waits_for_what_must_be_over_before_it() -> None:
    heard: list[str] = []
    part = Part("waited", heard)
    before_fork(part, Part.hear)

    assert in_child(lambda: " ".join(heard)) == "waited"
    assert heard == ["waited"]


def test_a_part_is_not_kept_alive() -> None:
    heard: list[str] = []
    part = Part("gone", heard)
    call_in_child(part, Part.hear)
    seen = weakref.ref(part)

    del part
    gc.collect()

    assert seen() is None
    assert in_child(lambda: " ".join(heard)) == ""
