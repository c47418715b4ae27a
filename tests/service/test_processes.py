"""Several workers as one command: they share the work, end together, and take each other's place."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import free_port, poll
from tests.service.ending import dies_once, waits_but_first
from tests.service.test_hangup import change, hang_up
from tests.service.test_serve import asked, stopped
from tests.service.test_worker import captured, configured, evaluations, working

from spanscore.cli import worker as processes
from spanscore.cli.worker import WorkerProcesses
from spanscore.config.tree import MetricsEndpointSettings
from spanscore.service.worker import checked, environment_of

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too

UNITS = 40


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The output; the handlers of forwarded signals are ours again afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield []
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("code", [0, 2, 3])
def test_one_that_ends_for_good_ends_the_others(code: int, said: list[str], tmp_path: Path) -> None:
    assert WorkerProcesses(partial(waits_but_first, code, tmp_path), said.append).run(2) == code
    assert re.fullmatch(rf"process 1 ended with {code}, \S+ s after its start: all end", said[0])


def test_one_that_crashes_at_its_start_ends_the_others(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "BRIEF_S", 600.0)  # a busy machine takes longer than 10 s for a start

    assert WorkerProcesses(partial(waits_but_first, 1, tmp_path), said.append).run(2) == 1
    assert len(said) == 1


def test_one_that_was_killed_is_started_again(said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "BRIEF_S", 0.0)

    assert WorkerProcesses(partial(dies_once, tmp_path), said.append).run(1) == 0
    assert [line.partition(": ")[2] for line in said] == ["it is started again", "all end"]


def test_two_processes_share_a_spool_each_with_a_page_and_reload_and_drain_together(
    tmp_path: Path, backend: OtlpReceiver
) -> None:
    config = configured(tmp_path)
    captured(config, UNITS)
    port = free_port()
    with working(config, backend.endpoint, "--processes", "2", SPANSCORE_SERVE_METRICS=str(port)) as running:
        pages = [running.until(rf"process {one}: metrics on http://(\S+)/metrics")[1] for one in (1, 2)]
        poll(lambda: len(evaluations(backend)) == UNITS, deadline_s=60, what="that all is scored")
        response = [asked(page, "status")[0] for page in pages]
        change(config, sampling={"rate": 0.5})
        hang_up(running)
        for one in (1, 2):
            running.until(f"process {one}: the configuration was read again: applied sampling.rate")
        code = stopped(running)

    scored = [re.search(r": eligible ([\d,]+)", line) for line in running.lines]
    assert pages == [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    assert (response, code) == ([200, 200], 0)
    assert sum(int(found[1]) for found in scored if found) == UNITS


def test_they_end_when_what_started_them_is_killed(tmp_path: Path, backend: OtlpReceiver) -> None:
    with working(configured(tmp_path), backend.endpoint, "--processes", "2") as running:
        for one in (1, 2):
            running.until(f"process {one}: scores: ")
        running.process.kill()
        running.ended()  # the holder of its output has ended, too

    assert len([line for line in running.lines if "draining" in line]) == 2


@pytest.mark.parametrize(
    ("reads", "replica_share"),
    [({}, 0.2), ({"kafka": {"brokers": ["127.0.0.1:9092"], "topic": "t", "group": "g"}}, 0.4)],
    ids=["a spool alone", "a topic, whose partitions say it"],
)
def test_each_has_a_page_and_a_part_of_the_budgets_of_its_own(
    reads: dict[str, object], replica_share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(
        tmp_path, serve_metrics={"port": 9464, "host": "0.0.0.0"}, judge={"replica_share": 0.4}, **reads
    )
    for name, value in environment_of(1, 2, checked(config)):
        monkeypatch.setenv(name, value)

    second = checked(config)

    assert second.serve_metrics == MetricsEndpointSettings(port=9465, host="0.0.0.0")
    assert second.judge.model_dump()["replica_share"] == replica_share


def test_what_is_wrong_with_the_file_is_said_once(tmp_path: Path) -> None:
    file = configured(tmp_path, spool=None)
    with working(file, "http://127.0.0.1:9", "--processes", "2") as running:
        assert running.ended() == 2

    assert len([line for line in running.lines if "nothing for a worker" in line]) == 1
