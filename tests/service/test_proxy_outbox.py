from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore.capture.otlp.requests import HeldWireSpan
from spanscore.core.codecs.otlp_request import Origin, WireSpan, request_of
from spanscore.durable.outbox import BATCH_BYTES, HELD_SPANS, Batch, Outbox, OutboxCounts, OutboxSender, Payload
from spanscore.outputs.otlp_client import BackendAnswer
from spanscore.service.proxy import forward_held
from spanscore.service.requests import PROTOBUF

ORIGIN = Origin(b"", b"", "app")
BATCH = HELD_SPANS.most
NO_HEADERS: Mapping[str, str] = {}
OK = BackendAnswer(200, content_type=PROTOBUF)
DOWN = BackendAnswer(503, error="connection refused")


class Backend:
    """Answers in turn, the last answer for ever, and keeps accepted requests; the test moves its clock."""

    def __init__(self, *answers: BackendAnswer, max_bytes: int = 64_000_000) -> None:
        self.answers = list(answers) or [OK]
        self.requests: list[tuple[list[str], Mapping[str, str]]] = []
        self.tried = 0
        self.now_s = 100.0
        self.outbox = Outbox(HELD_SPANS, max_bytes=max_bytes, jitter=lambda: 1.0)

    def put(self, *names: str, size: int = 0, headers: Mapping[str, str] = NO_HEADERS) -> None:
        for name in names:
            self.outbox.put(payload(name, size), headers, self.now_s)

    def post(self, batch: Batch) -> BackendAnswer:
        return self.send(body_of(batch), dict(batch.headers))

    def send(self, body: bytes, headers: Mapping[str, str]) -> BackendAnswer:
        self.tried += 1
        answer = self.answer(body, headers)
        if answer.is_success:
            self.requests.append(([span.name for span in spans_in(body)], headers))
        return answer

    def answer(self, body: bytes, headers: Mapping[str, str]) -> BackendAnswer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def wait(self, seconds: float) -> None:
        """Let time pass, and send requests that become due."""
        until_s = self.now_s + seconds
        while (due_s := self.outbox.due_s()) is not None and due_s <= until_s:
            self.now_s = max(self.now_s, due_s)
            batch = self.outbox.batch(self.now_s)
            assert batch is not None
            self.outbox.settle(batch, self.post(batch), self.now_s)
        self.now_s = until_s


def body_of(batch: Batch) -> bytes:
    return request_of((payload.origin, payload.raw) for payload in batch.payloads)


def spans_in(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


def make_span(name: str = "root", size: int = 0) -> WireSpan:
    raw = Span(trace_id=b"t" * 16, span_id=b"s" * 8, name=name, trace_state="a" * size).SerializeToString()
    return WireSpan(b"t" * 16, b"s" * 8, b"", False, raw, ORIGIN)


def payload(name: str = "root", size: int = 0) -> Payload:
    return Payload(make_span(name, size).raw, lambda _: None, ORIGIN)


def test_a_held_span_goes_on_with_its_attributes_behind_its_own_bytes() -> None:
    sent: list[bytes] = []
    sender = OutboxSender(Outbox(HELD_SPANS), lambda batch: (sent.append(body_of(batch)), OK)[1], "sender")
    span = make_span()
    held = HeldWireSpan(span, partial(forward_held, sender, {}))

    held.end({"spanscore.score.faithfulness": 0.5})
    sender.close(20)

    (arrived,) = spans_in(sent[0])
    raw = arrived.SerializeToString()
    ours = Span.FromString(raw[len(span.raw) :])
    assert held.size == len(span.raw)
    assert raw.startswith(span.raw)
    assert [(one.key, one.value.double_value) for one in ours.attributes] == [("spanscore.score.faithfulness", 0.5)]


def test_what_comes_within_a_moment_goes_together() -> None:
    backend = Backend()

    backend.put("first")
    backend.wait(0.1)
    backend.put("second")
    backend.wait(1)

    assert backend.requests == [(["first", "second"], {})]


def test_a_full_batch_does_not_wait_and_a_large_one_is_cut() -> None:
    backend = Backend()

    backend.put(*["a"] * (BATCH + 1))
    backend.wait(0)
    at_once = [len(names) for names, _ in backend.requests]
    backend.wait(1)
    backend.put("a", "a", "a", size=BATCH_BYTES // 2)
    backend.wait(2)

    assert at_once == [BATCH]
    assert [len(names) for names, _ in backend.requests] == [BATCH, 1, 1, 1, 1]


def test_each_set_of_headers_has_requests_of_its_own_and_one_refused_holds_up_no_other() -> None:
    backend = Backend()
    backend.answer = lambda _, headers: DOWN if headers["x-scope-orgid"] == "a" else OK  # type: ignore[method-assign]

    backend.put("one", headers={"x-scope-orgid": "a"})
    backend.put("two", headers={"x-scope-orgid": "b"})
    backend.wait(60)

    assert backend.requests == [(["two"], {"x-scope-orgid": "b"})]
    assert backend.outbox.counts() == OutboxCounts(sent=1, waiting=1)


@pytest.mark.parametrize("answer", [DOWN, BackendAnswer(429), BackendAnswer(502), BackendAnswer(504)])
def test_what_may_pass_is_sent_until_it_does(answer: BackendAnswer) -> None:
    backend = Backend(*[answer] * 40, OK)

    backend.put("root")
    backend.wait(3600)

    assert backend.requests == [(["root"], {})]
    assert backend.outbox.counts() == OutboxCounts(sent=1)


def test_a_backend_that_fails_on_a_batch_gets_it_five_times() -> None:
    backend = Backend(BackendAnswer(500, error="HTTP 500"))

    backend.put("root")
    backend.wait(3600)

    assert backend.tried == 5
    assert backend.outbox.counts() == OutboxCounts(lost=1, last_loss="HTTP 500")


def test_the_waits_grow_and_heed_what_the_backend_asks_for() -> None:
    backend = Backend(DOWN, DOWN, DOWN, BackendAnswer(429, retry_after="20"), OK)
    tried: list[float] = []
    answer = backend.answer
    backend.answer = lambda *sent: (tried.append(backend.now_s), answer(*sent))[1]  # type: ignore[method-assign]

    backend.put("root")
    backend.wait(3600)

    assert tried == pytest.approx([100.2, 101.2, 103.2, 107.2, 127.2])


def test_what_is_refused_for_good_is_lost_and_reported() -> None:
    backend = Backend(BackendAnswer(401, error="HTTP 401"))

    backend.put("root")
    backend.wait(1)

    assert backend.tried == 1
    assert backend.outbox.counts() == OutboxCounts(lost=1, last_loss="HTTP 401")


def test_a_batch_that_is_too_large_is_sent_in_halves() -> None:
    too_large = BackendAnswer(413, error="HTTP 413")
    backend = Backend(too_large, too_large, OK)

    backend.put("0", "1", "2", "3")
    backend.wait(10)

    assert [names for names, _ in backend.requests] == [["0"], ["1"], ["2"], ["3"]]


def test_a_span_that_the_backend_cannot_read_costs_no_other() -> None:
    backend = Backend()
    bad = BackendAnswer(400, error="HTTP 400")
    backend.answer = lambda body, _: bad if b"bad" in body else OK  # type: ignore[method-assign]

    backend.put("a", "bad", "b", "c")
    backend.wait(10)

    assert sorted(name for names, _ in backend.requests for name in names) == ["a", "b", "c"]
    assert backend.outbox.counts() == OutboxCounts(sent=3, lost=1, last_loss="HTTP 400")


def test_once_the_span_is_found_that_cannot_be_read_requests_are_as_large_as_before() -> None:
    backend = Backend()
    bad = BackendAnswer(400, error="HTTP 400")
    backend.answer = lambda body, _: bad if b"bad" in body else OK  # type: ignore[method-assign]

    backend.put("bad", *["a"] * 1_000)
    backend.wait(1)

    assert [len(names) for names, _ in backend.requests] == [BATCH, 1_000 - BATCH]


def test_spans_that_the_backend_rejects_of_a_request_are_lost_and_reported() -> None:
    rejected = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=1))
    backend = Backend(OK._replace(body=rejected.SerializeToString()))

    backend.put("a", "b")
    backend.wait(1)

    assert backend.outbox.counts() == OutboxCounts(sent=1, lost=1, last_loss="the backend rejected them")


def test_the_handler_refuses_long_before_the_room_is_used_up() -> None:
    backend = Backend(DOWN, max_bytes=8_000)

    before = backend.outbox.is_full
    backend.put("a", size=1_000)
    after = backend.outbox.is_full
    backend.put(*["a"] * 8, size=1_000)

    assert (before, after) == (False, True)
    assert backend.outbox.counts() == OutboxCounts(waiting=7, lost=2, last_loss="no room")


def test_the_room_is_free_again_when_spans_have_left() -> None:
    backend = Backend(max_bytes=1_000)
    backend.put("a", size=500)

    full = backend.outbox.is_full
    backend.wait(1)

    assert (full, backend.outbox.is_full) == (True, False)


def test_at_the_end_what_waits_is_sent_at_once() -> None:
    backend = Backend()
    sender = OutboxSender(backend.outbox, backend.post, "sender")
    sender.put(payload(), {})

    whole = sender.close(20)

    assert whole
    assert backend.requests == [(["root"], {})]


def test_what_cannot_be_sent_before_the_end_is_lost_and_reported() -> None:
    backend = Backend(DOWN)
    sender = OutboxSender(backend.outbox, backend.post, "sender")
    sender.put(payload(), {})

    whole = sender.close(0)
    sender.put(payload(), {})

    assert not whole
    assert backend.outbox.counts() == OutboxCounts(lost=2, last_loss="shut down")
