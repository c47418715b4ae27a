"""Any event in the process of ``spanscore serve`` leaves every unit with one outcome."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.integrations.serving import serving
from tests.integrations.test_serve_beside_collector import SETTINGS, WITHIN_S, send
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import poll

FORKING = '''
import multiprocessing
from spanscore.metrics import BaseMetric, Finding

class Forking(BaseMetric):
    """Asks a child process, as libraries do that compute in parallel."""

    name = "forking"
    requires = {"single_turn": ("response",)}

    async def measure(self, sample):
        child = multiprocessing.get_context("fork").Process(target=len, args=(sample.response,))
        child.start()
        child.join()
        return Finding(value=float(child.exitcode == 0))
'''
STEPPING = """
import os, time
real = time.time_ns
time.time_ns = lambda: real() - (3_600_000_000_000 if os.path.exists("back") else 0)
"""
SLOW = {**SETTINGS, "units": {"idle_timeout": "2s"}}


def test_what_is_ready_is_listened_on(tmp_path: Path) -> None:
    with OtlpReceiver() as backend, serving(tmp_path, SETTINGS, scores_to=backend.endpoint) as served:
        refused = {}
        for name in ("http", "grpc"):
            with socket.socket() as client:
                refused[name] = client.connect_ex(("127.0.0.1", served.ports[name]))

    assert refused == {"http": 0, "grpc": 0}


def test_a_metric_that_forks_costs_no_score(tmp_path: Path) -> None:
    (tmp_path / "forking.py").write_text(FORKING)
    with (
        OtlpReceiver() as backend,
        serving(tmp_path, {**SETTINGS, "metrics": ["forking:Forking"]}, scores_to=backend.endpoint) as served,
    ):
        send(served.http, 5)

        poll(lambda: served.outcomes() == {"scored": 5}, deadline_s=WITHIN_S, what="every unit to be scored")

        assert served.eligible() == 5
        assert backend.wait_for(lambda: len(backend.spans) == 5, 10)
    assert {*backend.span_ids.values()} == {1}


def test_a_clock_that_is_set_back_an_hour_delays_no_unit(tmp_path: Path) -> None:
    with OtlpReceiver() as backend, serving(tmp_path, SLOW, scores_to=backend.endpoint, first=STEPPING) as served:
        send(served.http, 5)
        poll(
            lambda: served.total("spanscore_receive_spans_total")[""] == 15,
            deadline_s=WITHIN_S,
            what="spans to be taken",
        )
        (tmp_path / "back").touch()
        send(served.http, 5)

        poll(lambda: served.outcomes() == {"scored": 10}, deadline_s=WITHIN_S, what="every unit to be scored")

        assert served.eligible() == 10
