"""Whatever happens to a spool, the application continues: each unit ends with a reason, and all other units are scored."""

import os
import sqlite3

import pytest
from tests.durable.disks import run_on_small_disk
from tests.live import Grounded, a_line, identity_holds
from tests.wiring.test_spool import ask, until

from spanscore.config import Spool
from spanscore.durable.spool import SpoolFile
from spanscore.errors import ConfigurationError

ON_A_FULL_DISK = """
import logging, sys
from pathlib import Path
from tests.wiring.test_spool import ask, until
from tests.live import a_line
from spanscore.config import Spool
logging.basicConfig(level="WARNING", format="LOG %(message)s")
disk = Path(sys.argv[1])

def outcomes():
    assert scorer.flush(20)
    return scorer.status().outcomes["grounded"]

with a_line(spool=Spool(path=disk / "spool.db")) as (scorer, _):
    junk = disk / "junk"
    ask(scorer)
    print(outcomes())
    with junk.open("wb") as file:
        try:
            while True:
                file.write(bytes(1_000_000))
                file.flush()
        except OSError:
            pass
    until("it to be noticed", lambda: (ask(scorer, 1), "queue_full" in outcomes())[1])
    unit = scorer.explain(scorer.status().traces["grounded queue_full"])[-1]["metrics"]["grounded"]
    print(unit["outcome"], unit["reason"])
    junk.unlink()
    before = outcomes()["scored"]
    until("it to go on", lambda: (ask(scorer, 1), outcomes()["scored"] > before)[1])
    status = scorer.status()
    print(status.eligible["grounded"] == sum(status.outcomes["grounded"].values()))
"""


def test_a_full_disk_is_queue_full_and_it_goes_on_without_a_restart(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()

    lines = run_on_small_disk(ON_A_FULL_DISK, disk, size="40m").splitlines()

    assert lines[:3] == ["{'scored': 1}", "queue_full spool: disk full", "True"]
    assert [line.count("its disk is full") for line in lines[3:] if "spool" in line] == [1], "said once"


def test_a_spool_that_another_program_locks_is_queue_full_and_it_goes_on(path, monkeypatch):
    monkeypatch.setattr(
        "spanscore.wiring.durable.open_spool_file", lambda settings: SpoolFile(settings.path, lock_wait_s=0.0)
    )
    with a_line(spool=Spool(path=path)) as (scorer, _):
        ask(scorer)
        assert scorer.flush(10)
        with sqlite3.connect(path) as holding:
            holding.execute("BEGIN IMMEDIATE")
            ask(scorer)
            assert scorer.flush(10)
            locked = scorer.explain(scorer.status().traces["grounded queue_full"])[0]["metrics"]["grounded"]
            fault = scorer.status().spool.fault
        until("it to go on", lambda: scorer.status().spool.fault is None)
        ask(scorer)
        assert scorer.flush(10)

    assert (locked["outcome"], locked["reason"]) == ("queue_full", "spool: locked")
    assert "another program holds its lock" in fault
    assert scorer.status().outcomes == {"grounded": {"scored": 2, "queue_full": 1}}
    assert identity_holds(scorer)


def test_a_damaged_spool_is_moved_aside_and_a_new_one_begun(path):
    path.write_bytes(b"SQLite format 3\0" + b"damaged " * 1_000)

    with a_line(spool=Spool(path=path)) as (scorer, _):
        ask(scorer)
        assert scorer.flush(10)

    assert scorer.status().outcomes == {"grounded": {"scored": 1}}
    assert [one.name for one in path.parent.glob("spool.db*damaged*")] != []


def test_a_spool_of_a_newer_version_is_refused_when_the_scorer_is_made(path):
    with a_line(spool=Spool(path=path)):
        pass
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 99")

    with pytest.raises(ConfigurationError, match="newer version"):
        a_line(spool=Spool(path=path)).__enter__()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_forked_child_writes_and_scores_its_own_units_and_leaves_its_parents_alone(path):
    metric = Grounded()
    with a_line(metric, spool=Spool(path=path)) as (scorer, _):
        ask(scorer, 2)
        assert scorer.flush(10)
        pid = os.fork()
        if not pid:
            ask(scorer)
            done = scorer.flush(10) and scorer.status().outcomes == {"grounded": {"scored": 1}}
            os._exit(0 if done and scorer.shutdown(5) else 1)
        _, ended = os.waitpid(pid, 0)
        ask(scorer)
        assert scorer.flush(10)

    assert os.waitstatus_to_exitcode(ended) == 0
    assert scorer.status().outcomes == {"grounded": {"scored": 3}}
    assert len(metric.seen) == 3


def test_nothing_of_a_spool_is_raised_into_the_application_when_its_folder_goes(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with a_line(spool=Spool(path=folder / "spool.db")) as (scorer, _):
        ask(scorer)
        assert scorer.flush(10)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        ask(scorer, 3)
        assert scorer.flush(10)

    assert identity_holds(scorer)
