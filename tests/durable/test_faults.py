"""Whatever happens to the file, every caller gets an answer, one line is logged, and work continues when possible."""

from __future__ import annotations

import os
import re
import resource
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.durable.asked import Asked, key
from tests.durable.crashes import crashed
from tests.durable.disks import run_on_small_disk

from spanscore.core.files import check_disk, disk_kind
from spanscore.durable import spool as spool_file
from spanscore.durable.rows import PutResult
from spanscore.durable.spool import SpoolFile
from spanscore.errors import ConfigurationError

ON_A_SMALL_DISK = """
import logging, os, subprocess, sys, time
from pathlib import Path
from tests.durable.asked import Asked, key
logging.basicConfig(level="INFO", format="LOG %(message)s")
disk = Path(sys.argv[1])
spool = Asked(disk / "spool.db")
"""
FILLED = """
number = 0
while (result := spool.put_result(number, b"x" * 1_000_000, own=True))[0] == "kept":
    number += 1
print(*result, "room:", spool.file.room(6_000))
print(spool.file.state().fault)
print("kept", spool.keep(1, b"0.5"))
spool.done(*range(number))
while spool.file.room(6_000):
    time.sleep(0.01)
print(spool.put(1_000, b"x" * 6_000), spool.file.state().fault)
"""
READ_ONLY = """
spool.put(1, own=True)
spool.file.close(10)
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
spool = Asked(disk / "spool.db")
print(*spool.put_result(2), "room:", spool.file.room(1))
print(spool.file.state().fault)
subprocess.run(["mount", "-o", "remount,rw", sys.argv[1]], check=True)
while spool.file.room(1):
    time.sleep(0.01)
print(spool.put(3), spool.taken(), spool.file.state().fault)
"""


def test_a_full_disk_is_reported_and_what_is_done_makes_room(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()

    lines = run_on_small_disk(ON_A_SMALL_DISK + FILLED, disk).splitlines()

    line = f"the spool {disk / 'spool.db'}: its disk is full: make room; tried again every second"
    assert lines[:4] == ["full spool: disk full room: spool: disk full", line, "kept True", "kept None"]
    assert lines[4:] == [f"LOG spanscore: {line}"]


def test_a_disk_that_is_read_only_is_reported_and_used_when_it_can_be_written(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()

    lines = run_on_small_disk(ON_A_SMALL_DISK + READ_ONLY, disk).splitlines()

    assert lines[0] == "failed spool: not there room: spool: not there"
    assert lines[2:3] == ["kept [1, 3] None"]
    assert lines[3:] == [f"LOG spanscore: {lines[1]}"]


def test_a_spent_quota_is_reported_and_nothing_is_lost(path):
    one = Asked(path)
    one.put(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        put_result = [one.put_result(number, b"x" * 6_000) for number in range(1, 100)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    refused = [said for said in put_result if said[0] is not PutResult.KEPT]
    one.file.close(10)

    assert set(refused) == {(PutResult.FAILED, "spool: disk error")}
    assert len(Asked(path).taken()) == 100 - len(refused)


def test_what_is_put_waits_for_a_lock(spool, path):
    one = spool()
    with sqlite3.connect(path) as holding:
        holding.execute("BEGIN IMMEDIATE")
        answers: list[PutResult] = []
        one.file.put(key(1), b"body", lambda put, _: answers.append(put), own=False)
        room = one.file.room(1)
        holding.execute("COMMIT")

    assert room is None
    assert one.taken() == [1]
    assert answers == [PutResult.KEPT]


def test_a_lock_that_lasts_is_reported_and_forgotten_when_it_ends(spool, path):
    one = spool(lock_wait_s=0.0)
    one.put(1, own=True)
    holding = sqlite3.connect(path)
    holding.execute("BEGIN IMMEDIATE")

    put_result, line = one.put_result(2), one.file.state().fault
    kept = one.keep(1)
    holding.close()
    wait_until(lambda: one.file.room(1) is None)

    assert put_result == (PutResult.FAILED, "spool: locked")
    assert line == f"the spool {path}: another program holds its lock: end it, or wait; the spool retries"
    assert kept is True
    assert (one.put(2), one.file.state().fault) == (PutResult.KEPT, None)


def test_what_is_done_while_it_is_locked_is_deleted_later(spool, path):
    one = spool(lock_wait_s=0.0)
    one.put(1, own=True)
    holding = sqlite3.connect(path)
    holding.execute("BEGIN IMMEDIATE")

    one.done(1)
    holding.close()
    wait_until(lambda: one.file.state().depth == 0)

    one.file.close(10)
    assert spool().taken() == []


def test_all_that_failed_is_tried_again_when_it_is_closed(spool, path):
    one, numbers = spool(lock_wait_s=0.0), range(100)
    for number in numbers:
        one.put(number, own=True)
    holding = sqlite3.connect(path)
    holding.execute("BEGIN IMMEDIATE")

    for number in numbers:
        one.file.done([key(number)])
    one.begin()
    holding.close()
    one.file.close(10)

    assert spool().taken() == []


@pytest.mark.parametrize("where", [0, 4096 + 100, 8192])
def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(spool, path, caplog, where):
    with_rows(path)
    with path.open("r+b") as file:
        file.seek(where)
        file.write(os.urandom(4096))
    damaged = path.read_bytes()

    one = spool()

    (aside,) = path.parent.glob("spool.db.damaged-*")
    line = f"the spool {path} was damaged: it is now {aside.name}, and a new file was created"
    assert aside.read_bytes() == damaged
    assert one.put(1) is PutResult.KEPT
    assert one.file.state().fault == line
    assert [record.getMessage() for record in caplog.records] == [f"spanscore: {line}"]


def test_damage_that_is_met_later_is_treated_likewise_and_costs_no_score(spool, path):
    with_rows(path)
    one = spool()
    one.taken(1)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))

    wait_until(lambda: one.take() == [] and one.file.room(1) is None)

    assert one.keep(0) is True
    assert one.put(1_000) is PutResult.KEPT
    assert "was damaged" in one.file.state().fault


def test_a_file_that_is_removed_while_it_is_open_is_made_again(spool, path):
    one = spool()
    one.put(1, own=True)
    for file in path.parent.iterdir():
        file.unlink()

    assert one.put_result(2) == (PutResult.FAILED, "spool: replaced")
    assert one.put(3) is PutResult.KEPT
    assert one.keep(1) is True
    assert spool().taken() == [3]


def test_a_file_of_a_newer_version_is_refused(path):
    Asked(path).file.close(10)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")

    with pytest.raises(ConfigurationError, match="of a newer version of spanscore: upgrade this one"):
        SpoolFile(path)


def test_a_database_of_another_program_is_refused_and_left_as_it_is(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (id)")
    held = path.read_bytes()

    with pytest.raises(ConfigurationError, match="a database of another program"):
        SpoolFile(path)
    assert path.read_bytes() == held


@pytest.mark.parametrize("place", ["no/such/folder/spool.db", "."])
def test_a_file_that_cannot_be_made_is_refused(tmp_path, place):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        SpoolFile(tmp_path / place)


MOUNTS = """\
22 27 0:21 / / rw shared:1 - ext4 /dev/vda rw
23 22 0:40 / /data\\040of/us rw shared:7 - nfs4 server:/us rw
24 23 0:41 / /data\\040of/us/local rw - xfs /dev/vdb rw
25 22 0:42 / /bucket rw - fuse.s3fs s3fs rw
"""


def test_the_disk_of_a_path_is_that_of_the_nearest_mount():
    places = ["/spool.db", "/data of/us/spool.db", "/data of/us/local/spool.db", "/data of/used/spool.db"]

    assert [disk_kind(Path(place), MOUNTS) for place in places] == ["ext4", "nfs4", "xfs", "ext4"]


@pytest.mark.parametrize("place", ["/data of/us/spool.db", "/bucket/spool.db"])
def test_a_network_disk_is_refused(place):
    with pytest.raises(ConfigurationError, match="allow_network_disk: true"):
        check_disk(Path(place), MOUNTS)


def test_its_files_are_its_owners_alone(spool, path):
    one = spool()
    one.put(1)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

    assert modes == dict.fromkeys(["spool.db", "spool.db-wal", "spool.db-shm"], 0o600)


def test_what_was_done_can_be_read_in_no_file(spool, path):
    one = spool(tidy_s=0.0)
    one.put(1, b"a secret question " * 1_000, own=True)
    written = any(b"secret" in file.read_bytes() for file in path.parent.iterdir())

    one.done(1)

    wait_until(lambda: not any(b"secret" in file.read_bytes() for file in path.parent.iterdir()))
    assert written


def test_what_was_done_makes_room_on_the_disk(spool, path):
    one = spool(tidy_s=0.0, sync="normal")
    for number in range(40):
        one.put(number, b"x" * 1_000_000, own=True)

    one.done(*range(40))

    wait_until(lambda: path.stat().st_size < 10_000_000)
    assert one.file.state().fault is None


def test_a_sink_that_fails_keeps_nobody_else_from_being_called(spool):
    one = spool()
    one.file.put(key(1), b"body", lambda *_: 1 // 0, own=False)

    assert one.put(2) is PutResult.KEPT


def test_no_more_is_kept_than_is_allowed(spool):
    one = spool(max_bytes=200_000)
    put_result = {one.put_result(number, b"x" * 6_000, own=True) for number in range(50)}

    assert put_result == {(PutResult.KEPT, None), (PutResult.FULL, "spool: max_bytes")}
    assert one.file.room(200_000) == "spool: max_bytes"
    one.done(*range(50))
    assert one.put(100, b"x" * 6_000) is PutResult.KEPT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_holds_nothing_of_its_parents(spool, path):
    one = spool()
    one.put(1, own=True)

    child = os.fork()
    if not child:
        kept = one.keep(1) is False and one.put(2, own=True) is PutResult.KEPT
        os._exit(0 if kept else 1)
    _, status = os.waitpid(child, 0)

    assert status == 0
    assert one.keep(1) is True
    assert one.taken() == [2]


def test_every_reason_stands_on_the_page_that_says_what_to_do() -> None:
    sources = Path(spool_file.__file__).parent.glob("*.py")
    reasons = {reason for source in sources for reason in re.findall(r'"(spool: [\w -]+)"', source.read_text())}
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "survive-a-crash.md").read_text()

    assert len(reasons) > 10
    assert {*re.findall(r"`(spool: [\w -]+)`", page)} == reasons


def with_rows(path: Path) -> None:
    one = Asked(path)
    for number in range(20):
        one.put(number, b"x" * 6_000)
    one.file.close(10)


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_was_acknowledged_is_emitted_with_one_value_or_counted(tmp_path: Path, processes: int) -> None:
    seen = crashed(tmp_path, seed=processes, processes=processes, kills=3)

    assert seen.acknowledged > 0
    assert (seen.lost, seen.differing) == (0, 0)
