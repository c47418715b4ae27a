"""Processes that share a spool and are killed or stopped: each unit that was written is scored once, or counted."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from tests.servers.server import poll
from tests.wiring.kills import KILLED, kills

from spanscore.core.codecs.job import UnreadableJob, scores_of

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no signals on this system"),
    pytest.mark.timeout(300),  # processes that import much, on a machine that others use too
]


class Process:
    """A process that writes or scores; its output is read as it comes."""

    def __init__(self, process):
        self._process = process
        self.emitted, self.counted = [], (0, 0, {})
        self._begun = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            what, *document = json.loads(line)
            self._begun.set()
            if what == "emitted":
                self.emitted += document
            elif what == "counted":
                self.counted = document

    def begun(self):
        assert self._begun.wait(30)
        return self

    def send(self, number):
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def kill(self):
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)  # the end of a_process closes its output


@contextmanager
def a_process(path, what, units=0, *rest):
    command = [sys.executable, "-m", "tests.wiring.spooling", str(path), what, str(units), *map(str, rest)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        one = Process(process)
        try:
            yield one
        finally:
            one.kill()


def rows(path):
    """Return the ids of the scores that each row holds; none for one that is not scored."""
    with sqlite3.connect(path) as file:
        return [ids(scores) for (scores,) in file.execute("SELECT scores FROM rows WHERE aside = 0")]


def ids(scores):
    read = () if scores is None else scores_of(scores)
    assert not isinstance(read, UnreadableJob)
    return [score.id for score in read]


def scored_all(process, path):
    poll(lambda: rows(path) == [], deadline_s=60, what="the spool to be empty")
    return process.emitted


@pytest.mark.parametrize("seed", range(len(KILLED)), ids=KILLED)
def test_what_was_acknowledged_when_processes_are_killed_is_scored_once_or_counted(tmp_path, seed):
    """``benchmarks/kill9.py`` has 100 seeds."""
    (seen,) = kills(tmp_path, [seed])

    assert (seen.killed, seen.faults) == (KILLED[seed], [])
    assert 0 < seen.acknowledged <= seen.scored + seen.counted
    assert seen.points != []


def test_a_worker_that_is_stopped_past_its_lease_emits_nothing_that_another_has(path):
    with a_process(path, "write", 30) as application:
        poll(lambda: application.counted[2].get("delegated") == 30, deadline_s=60, what="units")

    with a_process(path, "score", 0, 5) as late:
        poll(lambda: len(rows(path)) == 25, deadline_s=60, what="five scores to be out")
        late.send(signal.SIGSTOP)
        with a_process(path, "score") as worker:
            emitted = scored_all(worker, path)
            late.send(signal.SIGCONT)
            path.with_name("go_on").touch()
            result = [30, 0, {"scored": 5, "delegated": 25}]
            poll(lambda: late.counted == result, deadline_s=30, what="it to learn of it")

    assert (len({*emitted}), len(late.emitted), {*emitted} & {*late.emitted}) == (25, 5, set())
