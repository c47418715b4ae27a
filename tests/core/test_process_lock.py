"""One process of a machine at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.core.test_fork import in_child

from spanscore.core.files import ProcessLock

pytest.importorskip("fcntl")


def test_one_has_it_until_it_lets_it_go(tmp_path: Path) -> None:
    one, other = ProcessLock(tmp_path / "lock"), ProcessLock(tmp_path / "lock")

    assert (one.take(), other.take(), one.take()) == (True, False, True)
    one.release()
    assert (other.take(), one.take()) == (True, False)
    other.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_in_a_forked_child_it_is_still_the_parents(tmp_path: Path) -> None:
    lock = ProcessLock(tmp_path / "lock")
    assert lock.take()

    def taken() -> str:
        lock.release()
        return str(lock.take())

    assert in_child(taken) == "False"
    assert not ProcessLock(tmp_path / "lock").take()
    lock.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_process_that_ends_lets_it_go(tmp_path: Path) -> None:
    lock = ProcessLock(tmp_path / "lock")

    assert in_child(lambda: str(lock.take())) == "True"
    assert lock.take()
    lock.release()


def test_where_there_can_be_no_lock_every_process_has_it(tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "lock"

    assert ProcessLock(nowhere).take()
    assert ProcessLock(nowhere).take()
