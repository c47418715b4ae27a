"""A proxy between real clients and a backend: the backend gets the sent spans once, with scores on the roots."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from random import Random
from typing import Any, NamedTuple

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.servers.server import free_port
from tests.service.agents import QUESTION, agent_run, requests_of, seen_at
from tests.service.backend import RawBackend, Reply
from tests.service.listening import PROTOBUF, Running, listening

from spanscore import OnlineScorer
from spanscore.config import Capture, Limits, Outputs
from spanscore.config.serving import ForwardSettings
from spanscore.config.units import Units
from spanscore.core.threads import start_daemon
from spanscore.metrics import ResponseRelevancy, SimpleCriteria
from spanscore.protocols import Metric
from spanscore.scorer import receivers_of
from spanscore.service.proxy import Proxy

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SCORE = "spanscore.score.response_relevancy"

Send = Callable[[Running, bytes], bool]
"""One request, and whether it was accepted; rejected ones are sent again."""


def over_http(running: Running, body: bytes) -> bool:
    connection = HTTPConnection(running.http, timeout=30)
    connection.request("POST", "/v1/traces", gzip.compress(body), {**PROTOBUF, "content-encoding": "gzip"})
    status = connection.getresponse().status
    connection.close()
    assert status in (200, 429, 503)
    return status == 200


def over_grpc(running: Running, body: bytes) -> bool:
    with grpc.insecure_channel(running.grpc) as channel:
        code = channel.unary_unary(EXPORT).future(body, timeout=30).code()
    assert code in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    return bool(code is grpc.StatusCode.OK)


@pytest.fixture(autouse=True)
def _scores_leave_for_the_backend_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")


class Proxied(NamedTuple):
    """A proxy between a client and a backend."""

    running: Running
    scorer: OnlineScorer
    proxy: Proxy


class HangingJudge:
    """Never answers."""

    model = "hanging"

    async def ask(self, prompt: object) -> Any:
        await asyncio.Event().wait()


@contextmanager
def proxied(
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    metric: Metric | None = None,
    timeout: float = 10.0,
    headers: Sequence[str] = (),
    **options: Any,
) -> Iterator[Proxied]:
    """Yield a proxy in front of a backend; at its end all has left."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    metric = metric or ResponseRelevancy("lexical", embeddings="lexical")
    scorer = OnlineScorer([metric], capture=Capture(enabled=False), outputs=Outputs(hold=60), **options)
    spans = receivers_of(scorer).otlp_spans(Units(idle_timeout=0.2))
    proxy = Proxy(
        ForwardSettings(endpoint=endpoint, headers=list(headers), timeout=timeout), spans, max_bytes=64_000_000
    )
    with listening(spans, proxy=proxy) as running:  # type: ignore[arg-type]  # a receiver that is real
        yield Proxied(running, scorer, proxy)
    scorer.shutdown(20)
    assert proxy.close(20)


def some_runs(number: int) -> list[Span]:
    random = Random(number)
    spans = [span for _ in range(number) for span in agent_run(random)]
    random.shuffle(spans)
    return spans


def send_until_taken(running: Running, requests: Sequence[bytes], send: Send) -> None:
    """Send like an exporter: a retryable request is sent again as a whole."""
    for body in requests:
        while not send(running, body):
            threading.Event().wait(0.05)


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.01)


@pytest.mark.parametrize("send", [over_http, over_grpc])
def test_each_span_arrives_once_as_it_came_and_scored_roots_say_so(send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = some_runs(300)

    with RawBackend() as backend:
        with proxied(backend.endpoint, monkeypatch) as (running, scorer, _):
            send_until_taken(running, requests_of(sent, 512), send)
            assert scorer.flush(30)
        seen = seen_at(backend.taken, sent)

    assert seen.times == {span.span_id: 1 for span in sent}
    assert seen.changed == []
    assert {key for key, marks in seen.marked.items() if SCORE in marks} == {
        s.span_id for s in sent if not s.parent_span_id
    }
    assert len(seen.scores) == 300
    assert scorer.status().outcomes == {"response_relevancy": {"scored": 300}}


def test_at_one_percent_only_scored_roots_differ_from_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = some_runs(1_000)

    with RawBackend() as backend:
        with proxied(backend.endpoint, monkeypatch, sample_rate=0.01) as (running, scorer, _):
            send_until_taken(running, requests_of(sent, 512), over_http)
            assert scorer.flush(30)
        seen = seen_at(backend.taken, sent)

    outcomes = scorer.status().outcomes["response_relevancy"]
    assert seen.times == {span.span_id: 1 for span in sent}
    assert seen.changed == []
    assert len(seen.marked) == outcomes["scored"] > 0
    assert outcomes["scored"] + outcomes["not_sampled"] == 1_000


def test_where_nothing_may_be_scored_requests_arrive_byte_for_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = requests_of(some_runs(20), 32)

    with RawBackend() as backend, proxied(backend.endpoint, monkeypatch, sample_rate=0.0) as (running, _, _):
        send_until_taken(running, requests, over_http)

    assert [gzip.decompress(one.body) for one in backend.taken] == requests
    assert {one.headers["content-encoding"] for one in backend.taken} == {"gzip"}


@pytest.mark.parametrize("send", [over_http, over_grpc])
@pytest.mark.parametrize(
    ("fault", "failures"), [(Reply(503), 5), (Reply(429), 5), (Reply(hangs=True), 1)], ids=["503", "429", "hangs"]
)
def test_nothing_is_lost_or_doubled_while_the_backend_takes_nothing(
    fault: Reply, failures: int, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = some_runs(40)

    with RawBackend() as backend:
        backend.reply(fault)
        with proxied(backend.endpoint, monkeypatch, timeout=3.0, limits=Limits(timeout=3)) as (running, scorer, proxy):
            sending = start_daemon(send_until_taken, "test-client", running, requests_of(sent, 64), send)
            wait_until(lambda: proxy.state()[1] >= failures)
            backend.reply(Reply())
            sending.join(60)
            assert scorer.flush(30)
        seen = seen_at(backend.taken, sent)

    assert seen.times == {span.span_id: 1 for span in sent}
    assert seen.changed == []
    assert scorer.status().outcomes == {"response_relevancy": {"scored": 40}}


def test_nothing_is_lost_or_doubled_while_the_backend_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, port = some_runs(40), free_port()

    with proxied(f"http://127.0.0.1:{port}", monkeypatch) as (running, scorer, proxy):
        sending = start_daemon(send_until_taken, "test-client", running, requests_of(sent, 64), over_http)
        wait_until(lambda: proxy.state()[1] >= 5)
        with RawBackend(port) as backend:
            sending.join(60)
            assert scorer.flush(30)
            assert proxy.close(20)
    seen = seen_at(backend.taken, sent)

    assert seen.times == {span.span_id: 1 for span in sent}
    assert scorer.status().outcomes == {"response_relevancy": {"scored": 40}}


def test_a_slow_backend_gets_each_span_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = some_runs(40)

    with RawBackend() as backend:
        backend.reply(lambda _: (threading.Event().wait(0.05), Reply())[1])
        with proxied(backend.endpoint, monkeypatch) as (running, scorer, _):
            send_until_taken(running, requests_of(sent, 16), over_http)
            assert scorer.flush(30)
        seen = seen_at(backend.taken, sent)

    assert seen.times == {span.span_id: 1 for span in sent}
    assert scorer.status().outcomes == {"response_relevancy": {"scored": 40}}


def test_evaluations_that_come_by_are_passed_on_and_never_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, sent = some_runs(1), some_runs(2)

    with RawBackend() as backend:
        with proxied(backend.endpoint, monkeypatch) as (running, scorer, _):
            both = requests_of(ours, 4, "spanscore.judge")[0] + requests_of(sent, 8)[0]  # a request of both
            send_until_taken(running, [both], over_http)
            assert scorer.flush(30)
        seen = seen_at(backend.taken, sent)

    assert [span for span in seen.scores if span in ours] == ours
    assert scorer.status().eligible == {"response_relevancy": 2}


def test_at_the_end_spans_that_wait_for_a_judge_leave_as_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = some_runs(40)
    hanging = SimpleCriteria(HangingJudge(), name="polite", definition="Score 1 to 5 by how polite it is.")

    with RawBackend() as backend:
        with proxied(backend.endpoint, monkeypatch, metric=hanging) as (running, scorer, proxy):
            send_until_taken(running, requests_of(sent, 512), over_http)
            scorer.shutdown(1)
            assert proxy.close(20)
        seen = seen_at(backend.taken, sent)

    assert seen.times == {span.span_id: 1 for span in sent}
    assert seen.changed == []
    assert {key: marks["spanscore.status"] for key, marks in seen.marked.items()} == {
        span.span_id: "pending" for span in sent if not span.parent_span_id
    }
    assert scorer.status().outcomes == {"polite": {"shutdown": 40}}


def test_where_the_redactor_fails_spans_leave_as_they_came_and_nothing_else_says_what_is_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = some_runs(10)

    def broken(text: str) -> str:
        raise RuntimeError(text)

    with RawBackend() as backend:
        with proxied(backend.endpoint, monkeypatch, redactor=broken) as (running, scorer, _):
            send_until_taken(running, requests_of(sent, 512), over_http)
            assert scorer.flush(30)
        seen = seen_at(backend.taken, sent)

    said_of_us = [str(seen.marked), *map(str, seen.scores), str(scorer.status())]
    assert seen.times == {span.span_id: 1 for span in sent}
    assert seen.changed == []
    assert not any(SCORE in marks for marks in seen.marked.values())
    assert not any(QUESTION in said for said in said_of_us)
    assert scorer.status().outcomes == {"response_relevancy": {"redaction_error": 10}}


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/metrics"])
def test_other_signals_pass_with_the_backends_answer(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawBackend() as backend, proxied(backend.endpoint, monkeypatch) as (running, _, _):
        backend.reply(Reply(404, b"no logs here", {"Content-Type": "text/plain"}))
        answer = running.post(b"not read", path=path)

    assert (answer.status, answer.read()) == (404, b"no logs here")
    assert [(one.path, one.body) for one in backend.arrived] == [(path, b"not read")]


def test_what_is_taken_while_the_scorer_ends_goes_on_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = some_runs(5)

    with RawBackend() as backend:
        with proxied(backend.endpoint, monkeypatch) as (running, scorer, proxy):
            scorer.shutdown(5)
            send_until_taken(running, requests_of(sent, 512), over_http)
            assert proxy.close(20)
        seen = seen_at(backend.taken, sent)

    assert seen.times == {span.span_id: 1 for span in sent}
    assert (seen.changed, seen.marked) == ([], {})


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
@pytest.mark.parametrize(
    ("service", "path"),
    [
        ("trace.v1.TraceService", "/v1/traces"),
        ("logs.v1.LogsService", "/v1/logs"),
        ("metrics.v1.MetricsService", "/v1/metrics"),
    ],
)
def test_what_comes_over_grpc_leaves_over_http_as_it_came(
    service: str, path: str, compression: grpc.Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = requests_of([span for span in some_runs(9) if not span.attributes], 9)[0]

    with (
        RawBackend() as backend,
        proxied(backend.endpoint, monkeypatch, headers=["X-Tenant"]) as (running, _, _),
        grpc.insecure_channel(running.grpc, compression=compression) as channel,
    ):
        call = channel.unary_unary(f"/opentelemetry.proto.collector.{service}/Export")
        answer = call(body, timeout=30, metadata=[("x-tenant", "t"), ("cookie", "c")])

    (arrived,) = backend.arrived
    is_compressed = arrived.headers.get("content-encoding") == "gzip"
    assert (answer, arrived.path) == (b"", path)
    assert (gzip.decompress(arrived.body) if is_compressed else arrived.body) == body
    assert is_compressed == (compression is grpc.Compression.Gzip)
    assert (arrived.headers["content-type"], arrived.headers["x-tenant"]) == (PROTOBUF["content-type"], "t")
    assert "cookie" not in arrived.headers
