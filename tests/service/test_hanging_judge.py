"""A judge that does not answer, behind ``serve``: spans are taken, other scores leave, and every unit has its outcome."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.servers.faulty_openai import FaultyOpenAI
from tests.servers.openai_faults import Fault, hang
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import poll
from tests.service.process import a_run, send, serving
from tests.service.test_serve import ANSWERED, ended_as

from spanscore import semconv

pytestmark = pytest.mark.timeout(300)
UNITS = 6


def test_a_judge_that_hangs_holds_up_neither_requests_nor_other_scores_nor_the_end(tmp_path: Path) -> None:
    critic = {"aspect_critic": {"name": "polite", "definition": "Is the answer polite?"}}
    with OtlpReceiver() as backend, FaultyOpenAI(faults=[Fault(hang)]) as model:
        judge = {"model": "openai:gpt-4o-mini", "base_url": model.url, "timeout": "60s"}
        with serving(
            tmp_path, backend.endpoint, metrics=[ANSWERED, critic], judge=judge, serve={"drain": "1s"}
        ) as running:
            taken = [send(running, a_run(), over=wire) for wire in ("http", "grpc") * (UNITS // 2)]
            poll(lambda: model.inflight > 0, deadline_s=60, what="that the judge is asked")
            poll(lambda: len(evaluations(backend)) == UNITS, deadline_s=60, what="the other scores")
            running.process.send_signal(signal.SIGTERM)
            code = running.ended()

    assert (taken, code) == ([True] * UNITS, 0)
    assert ended_as(running, "answered") == (UNITS, {"scored": UNITS})
    assert ended_as(running, "polite") == (UNITS, {"shutdown": UNITS})


def evaluations(backend: OtlpReceiver) -> list[str]:
    return [span.name for span in backend.spans if span.scope == semconv.SCOPE and span.name.endswith("answered")]
