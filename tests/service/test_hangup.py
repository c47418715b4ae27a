"""SIGHUP reloads the configuration of ``serve`` and ``worker``, and ends neither of them."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import poll
from tests.service.process import Serving, a_run, send, serving
from tests.service.test_serve import ANSWERED, ended_as, stopped
from tests.service.test_worker import captured, configured, evaluations, working

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too


def change(file: Path, **settings: Any) -> None:
    """Change keys of a configuration file."""
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **settings}))


def hang_up(running: Serving) -> None:
    running.process.send_signal(signal.SIGHUP)


def test_serve_goes_on_with_a_wrong_file_and_reads_a_corrected_one(tmp_path: Path, backend: OtlpReceiver) -> None:
    file = tmp_path / "spanscore.yaml"
    with serving(tmp_path, backend.endpoint, metrics=[ANSWERED]) as running:
        assert send(running, a_run())
        change(file, metrics=["exact_mach"], sampling={"rate": 2})
        hang_up(running)
        running.until("was not reloaded, and nothing changed: .*sampling.rate")
        assert send(running, a_run())
        poll(lambda: len(evaluations(backend)) == 2, deadline_s=60, what="both units to be scored")
        change(file, metrics=[ANSWERED], sampling={"rate": 0.0}, serve={"drain": "7s"})
        hang_up(running)
        running.until("read again")
        line = running.lines[-1]
        assert send(running, a_run())
        code = stopped(running)

    assert code == 0
    assert (
        line
        == "the configuration was read again: applied sampling.rate; after a restart: serve.grpc, serve.http, serve.drain"
    )
    assert ended_as(running, "answered") == (3, {"scored": 2, "not_sampled": 1})


def test_a_signal_during_the_start_waits(tmp_path: Path, backend: OtlpReceiver) -> None:
    """The process cannot be reached before it blocks the signal, so its first line is that of an import."""
    with serving(tmp_path, backend.endpoint, metrics=["tests.service.metrics:Announced"]) as running:
        running.until("metrics are imported")
        hang_up(running)
        running.until("read again: no key changed")
        code = stopped(running)

    assert code == 0


def test_worker_reads_its_file_again(tmp_path: Path, backend: OtlpReceiver) -> None:
    config = configured(tmp_path)
    with working(config, backend.endpoint) as running:
        running.until("scores: ")
        change(config, metrics=[ANSWERED, "tests.service.metrics:Recovered"])
        hang_up(running)
        running.until("read again: applied metrics")
        left = captured(config)
        poll(lambda: len(evaluations(backend)) == 2, deadline_s=60, what="both metrics to score the unit")
        code = stopped(running)

    assert (left, code) == ({"delegated": 1}, 0)
    assert {span.attributes["gen_ai.evaluation.name"] for span in evaluations(backend)} == {"answered", "hangs"}
