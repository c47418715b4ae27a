"""A proxy as an operator starts and ends it: ``spanscore serve --mode proxy``."""

from __future__ import annotations

import signal
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.service.agents import agent_run, requests_of, seen_at
from tests.service.backend import RawBackend, Reply
from tests.service.listening import PROTOBUF
from tests.service.process import Serving, serving

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too

ANSWERED, HANGS = "tests.service.metrics:Answered", "tests.service.metrics:Hangs"


def proxy_config(backend: RawBackend, **more: Any) -> dict[str, Any]:
    """Return the settings of a proxy that sends its scores to the backend by default."""
    serve = {"mode": "proxy", "forward": {"endpoint": backend.endpoint, "timeout": "5s"}, "drain": "10s", **more}
    return {"serve": serve, "environment": {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}}


def posted(running: Serving, body: bytes) -> int:
    connection = HTTPConnection(running.http, timeout=30)
    connection.request("POST", "/v1/traces", body, PROTOBUF)
    status = connection.getresponse().status
    connection.close()
    return status


def stopped(running: Serving) -> int:
    running.process.send_signal(signal.SIGTERM)
    return running.ended()


def test_scores_stand_on_the_roots_and_leave_where_the_spans_go(tmp_path: Path) -> None:
    sent = [span for seed in range(20) for span in agent_run(Random(seed))]

    with RawBackend() as backend:
        with serving(tmp_path, "", metrics=[ANSWERED], **proxy_config(backend)) as running:
            statuses = [posted(running, body) for body in requests_of(sent, 32)]
            assert backend.wait_for(lambda: len(seen_at(backend.taken, sent).scores) == 20, 60)
            assert backend.wait_for(lambda: len(seen_at(backend.taken, sent).times) == 80, 60)
            code = stopped(running)
        seen = seen_at(backend.taken, sent)

    roots = {span.span_id for span in sent if not span.parent_span_id}
    assert (set(statuses), code) == ({200}, 0)
    assert seen.times == {span.span_id: 1 for span in sent}
    assert seen.changed == []
    assert {key for key, marks in seen.marked.items() if "spanscore.score.answered" in marks} == roots
    assert len(seen.scores) == 20


def test_at_a_sigterm_all_that_is_held_leaves_as_pending(tmp_path: Path) -> None:
    sent = [span for seed in range(50) for span in agent_run(Random(seed))]

    with RawBackend() as backend:
        with serving(tmp_path, "", metrics=[HANGS], **proxy_config(backend, drain="3s")) as running:
            statuses = [posted(running, body) for body in requests_of(sent, 100)]
            code = stopped(running)
        seen = seen_at(backend.taken, sent)

    assert (set(statuses), code) == ({200}, 0)
    assert seen.times == {span.span_id: 1 for span in sent}
    assert seen.changed == []
    assert {marks["spanscore.status"] for marks in seen.marked.values()} == {"pending"}
    assert len(seen.marked) == 50
    assert running.until("^hangs: eligible 50: shutdown 50$")


def test_what_the_backend_would_not_have_before_the_end_is_reported(tmp_path: Path) -> None:
    sent = agent_run(Random(1))

    with (
        RawBackend() as backend,
        serving(tmp_path, "", metrics=[ANSWERED], **proxy_config(backend, drain="2s")) as running,
    ):
        status = posted(running, requests_of(sent[:3], 3)[0])
        backend.reply(Reply(503))
        code = stopped(running)

    assert (status, code) == (200, 0)
    assert running.until("^forward: .* 3 held spans lost, latest: the drain ended first$")
