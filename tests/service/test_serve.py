"""``spanscore serve`` as an operator starts and ends it: a process, real exporters, a backend for the scores."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from tests.servers.otlp import OtlpReceiver, dead_endpoint
from tests.servers.server import free_port, poll
from tests.service.process import Serving, a_run, send, serving
from typer.testing import CliRunner

from spanscore import semconv
from spanscore.cli.main import app
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.service.run import serve

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too

ANSWERED, HANGS = "tests.service.metrics:Answered", "tests.service.metrics:Hangs"
TOKEN, KEY = "t0ken-planted", "sk-planted0123456789"


def stopped(running: Serving) -> int:
    running.process.send_signal(signal.SIGTERM)
    return running.ended()


def ended_as(running: Serving, metric: str) -> tuple[int, dict[str, int]]:
    """Return eligible, and outcome → units, from its last output."""
    line = running.until(rf"^{metric}: eligible ([\d,]+)(.*)$")
    outcomes = {name: int(units.replace(",", "")) for name, units in re.findall(r"(\w+) ([\d,]+\d|\d)", line[2])}
    return int(line[1].replace(",", "")), outcomes


def asked(address: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Return status and answer of one request; status 0 without a listener."""
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request(
            "GET" if body is None else "POST", path, body, {"content-type": "application/x-protobuf"} | headers
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except OSError:
        return 0, ""
    finally:
        connection.close()


def posted(running: Serving) -> int:
    body = encode_spans([a_run()]).SerializeToString()
    return asked(running.http, "/v1/traces", body)[0]


class Ended(NamedTuple):
    """A service that was stopped, with its answers before.

    Attributes:
        taken: whether it took the span over HTTP, and that over gRPC.
        explained: the document of ``/explain`` of the unit over HTTP.
        status: status and text of ``/status``.
    """

    running: Serving
    endpoint: str
    taken: list[bool]
    evaluations: list[Any]
    explained: Any
    status: tuple[int, str]
    code: int


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Have a service score a unit over each wire, and stop it. One of its metrics could ask a judge."""
    folder, run = tmp_path_factory.mktemp("serve"), a_run()
    settings = {"metrics": [ANSWERED, "faithfulness"], "serve_metrics": free_port()}
    with OtlpReceiver() as backend, serving(folder, backend.endpoint, **settings) as running:
        taken = [send(running, run, over="http"), send(running, a_run(), over="grpc")]
        path = f"/explain/{run.context.trace_id:032x}"
        poll(lambda: "scored" in asked(running.page, path)[1], deadline_s=60, what="that its unit is scored")
        explained, status = json.loads(asked(running.page, path)[1]), asked(running.page, "/status")
        code = stopped(running)
    evaluations = [span for span in backend.spans if span.scope == semconv.SCOPE]
    return Ended(running, backend.endpoint, taken, evaluations, explained, status, code)


def test_scores_of_spans_over_both_wires_leave_and_a_drain_ends_it_with_0(ended: Ended) -> None:
    scores = [
        span.attributes[semconv.EVALUATION_SCORE_VALUE] for span in ended.evaluations if span.name.endswith("answered")
    ]
    assert (ended.taken, ended.code) == ([True, True], 0)
    assert ended_as(ended.running, "answered") == (2, {"scored": 2})
    assert scores == [1.0, 1.0]


def test_it_says_where_it_listens_what_it_does_and_where_scores_go(ended: Ended) -> None:
    running = ended.running
    assert running.lines[:5] == [
        f"OTLP/gRPC on {running.grpc} (plain text)",
        f"OTLP/HTTP on {running.http} (plain text)",
        "mode tee: a copy of the spans arrives, and only scores leave",
        "scores: " + "; ".join(f"{it} to {ended.endpoint}/v1/{it}" for it in ("traces", "metrics", "logs")),
        f"metrics on http://{running.page}/metrics, with /status, /explain/TRACE_ID, /healthz and /readyz",
    ]


def test_what_became_of_a_trace_can_be_asked_while_it_runs(ended: Ended) -> None:
    (unit,) = ended.explained
    code, text = ended.status

    assert unit["metrics"]["answered"]["outcome"] == "scored"
    assert code == 200
    assert re.search(r"answered .* scored [12]", text)
    assert "received: 2 requests, 2 spans" in text


def test_langchain_is_not_loaded_where_no_judge_needs_it(ended: Ended) -> None:
    assert ended.running.lines[-1] == "langchain_core loaded: False"


def test_scores_that_could_not_be_sent_are_reported_at_the_end(tmp_path: Path) -> None:
    with serving(tmp_path, dead_endpoint(), metrics=[ANSWERED], serve={"drain": "5s"}) as running:
        assert send(running, a_run())
        assert stopped(running) == 0

    assert ended_as(running, "answered") == (1, {"scored": 1})
    assert [line for line in running.lines if re.match(r"traces to \S+: failed .*; 1 span not delivered", line)]


def test_a_signal_under_load_leaves_no_unit_without_an_outcome(tmp_path: Path, backend: OtlpReceiver) -> None:
    metrics = [HANGS, ANSWERED]
    with serving(tmp_path, backend.endpoint, "--grpc", "none", metrics=metrics, serve={"drain": "2s"}) as running:
        statuses = [posted(running) for _ in range(50)]
        running.process.send_signal(signal.SIGTERM)
        statuses += iter(lambda: posted(running), 0)  # until it stops listening
        code = running.ended()

    taken = statuses.count(200)
    eligible, outcomes = ended_as(running, "hangs")
    assert ({*statuses} <= {200, 503}, code, eligible) == (True, 0, taken)
    assert (sum(outcomes.values()), "shutdown" in outcomes) == (taken, True)
    assert ended_as(running, "answered") == (taken, {"scored": taken})
    assert [line for line in running.lines if line.startswith("OTLP/")] == [f"OTLP/HTTP on {running.http} (plain text)"]


def test_while_it_drains_it_is_alive_and_not_ready_and_a_second_signal_ends_it(
    tmp_path: Path, backend: OtlpReceiver
) -> None:
    page = free_port()
    with serving(tmp_path, backend.endpoint, metrics=[HANGS], serve={"drain": "100s"}, serve_metrics=page) as running:
        assert (posted(running), asked(running.page, "/readyz")) == (200, (200, "ready\n"))
        running.process.send_signal(signal.SIGTERM)
        running.until("draining")

        assert asked(running.page, "/readyz") == (503, "draining\n")
        assert asked(running.page, "/healthz")[0] == 200
        poll(lambda: posted(running) == 0, deadline_s=30, what="that nobody listens")
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == -signal.SIGTERM


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_a_port_that_is_taken_is_reported_and_the_exit_code_is_2(
    name: str, tmp_path: Path, backend: OtlpReceiver, refused: Callable[..., tuple[int, str]]
) -> None:
    file, taken = tmp_path / "spanscore.yaml", backend.endpoint.removeprefix("http://")
    file.write_text("metrics: [exact_match]\nserve: {http: '127.0.0.1:0', grpc: '127.0.0.1:0'}")

    code, text = refused("serve", str(file), f"--{name}", taken)

    assert code == 2
    assert f"serve.{name}: nothing can listen on {taken}" in text


@pytest.mark.parametrize(
    ("settings", "overrides", "words"),
    [
        ("", {}, "Set OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("", {"mode": "proxy"}, "nothing to forward to"),
        ("", {"http": "nowhere"}, "--http: 'nowhere' is no address"),
        ("", {"mode": "copy"}, "--mode: Input should be 'tee' or 'proxy'"),
        ("serve: {http: '0.0.0.0:4318'}", {}, "insecure: true"),
    ],
)
def test_what_is_wrong_is_said_before_anything_listens(
    settings: str, overrides: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    (tmp_path / "spanscore.yaml").write_text(f"metrics: [exact_match]\n{settings}")

    with pytest.raises(ConfigurationError, match=re.escape(words)):
        serve(tmp_path / "spanscore.yaml", overrides, print)


def test_a_library_that_is_not_there_is_named_with_its_extra_and_is_no_wrong_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "uvloop", None)
    (tmp_path / "spanscore.yaml").write_text("metrics: [exact_match]")

    with pytest.raises(NotReadyError) as lacking:
        serve(tmp_path / "spanscore.yaml", {}, print)

    assert str(lacking.value) == 'uvicorn is not installed. Install it with: pip install "spanscore[serve]"'


def test_a_wrong_setting_is_reported_with_what_the_environment_lacks_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    (tmp_path / "spanscore.yaml").write_text("metrics: [exact_match]\nserve: {mode: proxy}")

    with pytest.raises(ConfigurationError) as wrong:
        serve(tmp_path / "spanscore.yaml", {}, print)

    assert not isinstance(wrong.value, NotReadyError)
    headline, setting, lacking = str(wrong.value).splitlines()
    assert (headline.endswith("1 wrong setting"), "serve.forward" in setting, "spanscore[serve]" in lacking) == (
        True,
    ) * 3


def test_neither_token_nor_key_is_shown_anywhere(tmp_path: Path, backend: OtlpReceiver) -> None:
    (tmp_path / "token").write_text(TOKEN)
    judged = {"judge": {"model": "openai:m", "api_key_env": "PLANTED", "base_url": "http://127.0.0.1:1/v1"}}
    secret = {"serve": {"token_file": str(tmp_path / "token"), "drain": "2s"}, "environment": {"PLANTED": KEY}}
    metrics = {"metrics": ["faithfulness", ANSWERED], "serve_metrics": free_port(), "limits": {"timeout": "1s"}}
    body = encode_spans([a_run()]).SerializeToString()
    with serving(tmp_path, backend.endpoint, **judged, **secret, **metrics) as running:
        response = [
            asked(running.http, "/v1/traces", body, authorization=f"Bearer {one}") for one in (TOKEN, f"{TOKEN}x")
        ]
        response += [asked(running.page, path) for path in ("/metrics", "/status", "/readyz", "/nothing")]
        assert stopped(running) == 0

    checked = CliRunner().invoke(app("check"), ["check", str(tmp_path / "spanscore.yaml")], env={"PLANTED": KEY}).output
    shown = " ".join([*running.lines, checked, str(response), str(backend.spans), str(backend.events)])
    assert [status for status, _ in response] == [200, 401, 200, 200, 200, 404]
    assert [secret for secret in (TOKEN, KEY) if secret in shown] == []
