from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore.codec.wire import Origin, WireSpan
from spanscore.receivers.otlp.held import HeldWireSpan
from spanscore.service.answers import PROTOBUF
from spanscore.service.forward import BackendAnswer
from spanscore.service.outbox import BATCH, BATCH_BYTES, Outbox, OutboxCounts

ORIGIN = Origin(b"", b"", "app")
OK = BackendAnswer(200, content_type=PROTOBUF)
DOWN = BackendAnswer(503, error="connection refused")


class Backend:
    """Keeps what it takes; answers in turn, the last one for ever."""

    def __init__(self, *answers: BackendAnswer) -> None:
        self.answers = list(answers) or [OK]
        self.requests: list[tuple[list[str], Mapping[str, str]]] = []
        self.tried = 0
        self.now_s = 100.0

    def send(self, body: bytes, headers: Mapping[str, str]) -> BackendAnswer:
        self.tried += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.is_success:
            self.requests.append(([span.name for span in spans_in(body)], headers))
        return answer

    def clock(self) -> float:
        return self.now_s


def spans_in(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


def a_span(name: str = "root", size: int = 0) -> WireSpan:
    raw = Span(trace_id=b"t" * 16, span_id=b"s" * 8, name=name, trace_state="a" * size).SerializeToString()
    return WireSpan(b"t" * 16, b"s" * 8, b"", False, raw, ORIGIN)


def outbox_to(backend: Backend, *, max_bytes: int = 64_000_000) -> Outbox:
    def nobody(_work: object, _name: str) -> None:
        """Start no thread: the tests send."""

    return Outbox(backend.send, max_bytes=max_bytes, clock=backend.clock, dice=lambda: 1.0, start=nobody)


def send_for(outbox: Outbox, backend: Backend, seconds: float) -> None:
    """Let time pass, and send what falls due in it."""
    until_s = backend.now_s + seconds
    while (due_s := outbox.send_due()) is not None and due_s <= until_s:
        backend.now_s = max(backend.now_s, due_s)
    backend.now_s = until_s


def test_a_held_span_goes_on_with_its_attributes_behind_its_own_bytes() -> None:
    backend = Backend()
    outbox = outbox_to(backend)
    sent: list[bytes] = []
    outbox._send = lambda body, _: sent.append(body) or OK  # type: ignore[func-returns-value]
    span = a_span()

    class Exit:
        def pass_on(self, span: WireSpan, attributes: Mapping[str, Any] | None) -> None:
            outbox.put(span, attributes, {})

    held = HeldWireSpan(span, Exit())
    held.end({"spanscore.score.faithfulness": 0.5})
    send_for(outbox, backend, 1)

    (arrived,) = spans_in(sent[0])
    ours = Span.FromString(arrived.SerializeToString()[len(span.raw) :])
    assert held.size == len(span.raw)
    assert arrived.SerializeToString().startswith(span.raw)
    assert [(one.key, one.value.double_value) for one in ours.attributes] == [("spanscore.score.faithfulness", 0.5)]


def test_what_comes_within_a_moment_goes_together() -> None:
    backend = Backend()
    outbox = outbox_to(backend)

    outbox.put(a_span("first"), None, {})
    backend.now_s += 0.1
    outbox.put(a_span("second"), None, {})
    send_for(outbox, backend, 1)

    assert backend.requests == [(["first", "second"], {})]


def test_a_full_batch_does_not_wait_and_a_large_one_is_cut() -> None:
    backend = Backend()
    outbox = outbox_to(backend)

    for _ in range(BATCH + 1):
        outbox.put(a_span(), None, {})
    outbox.send_due()
    at_once = [len(names) for names, _ in backend.requests]
    send_for(outbox, backend, 1)
    for _ in range(3):
        outbox.put(a_span(size=BATCH_BYTES // 2), None, {})
    send_for(outbox, backend, 2)

    assert at_once == [BATCH]
    assert [len(names) for names, _ in backend.requests] == [BATCH, 1, 1, 1, 1]


def test_each_set_of_headers_has_requests_of_its_own_and_one_refused_holds_up_no_other() -> None:
    backend = Backend()
    outbox = outbox_to(backend)
    take = backend.send
    outbox._send = lambda body, headers: DOWN if headers["x-scope-orgid"] == "a" else take(body, headers)

    outbox.put(a_span("one"), None, {"x-scope-orgid": "a"})
    outbox.put(a_span("two"), None, {"x-scope-orgid": "b"})
    send_for(outbox, backend, 60)

    assert backend.requests == [(["two"], {"x-scope-orgid": "b"})]
    assert outbox.counts() == OutboxCounts(sent=1, waiting=1)


@pytest.mark.parametrize("answer", [DOWN, BackendAnswer(429), BackendAnswer(502), BackendAnswer(504)])
def test_what_may_pass_is_sent_until_it_does(answer: BackendAnswer) -> None:
    backend = Backend(*[answer] * 40, OK)
    outbox = outbox_to(backend)

    outbox.put(a_span("root"), None, {})
    send_for(outbox, backend, 3600)

    assert backend.requests == [(["root"], {})]
    assert outbox.counts() == OutboxCounts(sent=1)


def test_a_backend_that_fails_on_a_batch_gets_it_five_times() -> None:
    backend = Backend(BackendAnswer(500, error="HTTP 500"))
    outbox = outbox_to(backend)

    outbox.put(a_span(), None, {})
    send_for(outbox, backend, 3600)

    assert backend.tried == 5
    assert outbox.counts() == OutboxCounts(lost=1, last_loss="HTTP 500")


def test_the_waits_grow_and_heed_what_the_backend_asks_for() -> None:
    backend = Backend(DOWN, DOWN, DOWN, BackendAnswer(429, retry_after="20"), OK)
    outbox = outbox_to(backend)
    outbox.put(a_span(), None, {})
    backend.now_s += 1
    due: list[float | None] = []

    for _ in range(4):
        due.append(outbox.send_due())
        backend.now_s = due[-1] or 0.0
    outbox.send_due()

    assert due == [102.0, 104.0, 108.0, 128.0]
    assert outbox.counts() == OutboxCounts(sent=1)


def test_what_is_refused_for_good_is_lost_and_told() -> None:
    backend = Backend(BackendAnswer(401, error="HTTP 401"))
    outbox = outbox_to(backend)

    outbox.put(a_span(), None, {})
    send_for(outbox, backend, 1)

    assert backend.tried == 1
    assert outbox.counts() == OutboxCounts(lost=1, last_loss="HTTP 401")


def test_a_batch_that_is_too_large_is_sent_in_halves() -> None:
    backend = Backend(BackendAnswer(413, error="HTTP 413"), BackendAnswer(413, error="HTTP 413"), OK)
    outbox = outbox_to(backend)

    for number in range(4):
        outbox.put(a_span(str(number)), None, {})
    send_for(outbox, backend, 10)

    assert [names for names, _ in backend.requests] == [["0"], ["1"], ["2"], ["3"]]


def test_a_span_that_the_backend_cannot_read_costs_no_other() -> None:
    backend = Backend()
    outbox = outbox_to(backend)
    take = backend.send
    bad = BackendAnswer(400, error="HTTP 400")
    outbox._send = lambda body, headers: bad if b"bad" in body else take(body, headers)

    for name in ("a", "bad", "b", "c"):
        outbox.put(a_span(name), None, {})
    send_for(outbox, backend, 10)

    assert sorted(name for names, _ in backend.requests for name in names) == ["a", "b", "c"]
    assert outbox.counts() == OutboxCounts(sent=3, lost=1, last_loss="HTTP 400")


def test_spans_that_the_backend_rejects_of_a_request_are_lost_and_told() -> None:
    rejected = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=1))
    backend = Backend(OK._replace(body=rejected.SerializeToString()))
    outbox = outbox_to(backend)

    outbox.put(a_span(), None, {})
    outbox.put(a_span(), None, {})
    send_for(outbox, backend, 1)

    assert outbox.counts() == OutboxCounts(sent=1, lost=1, last_loss="the backend rejected them")


def test_the_door_is_told_to_refuse_long_before_the_room_is_used_up() -> None:
    backend = Backend(DOWN)
    outbox = outbox_to(backend, max_bytes=8_000)

    before = outbox.is_full
    outbox.put(a_span(size=1_000), None, {})
    after = outbox.is_full
    for _ in range(8):
        outbox.put(a_span(size=1_000), None, {})

    assert (before, after) == (False, True)
    assert outbox.counts() == OutboxCounts(waiting=7, lost=2, last_loss="no room")


def test_the_room_is_free_again_when_spans_have_left() -> None:
    backend = Backend()
    outbox = outbox_to(backend, max_bytes=1_000)
    outbox.put(a_span(size=500), {"a": True}, {})

    send_for(outbox, backend, 1)

    assert not outbox.is_full
    assert outbox._bytes == 0


def test_at_the_end_what_waits_is_sent_at_once() -> None:
    backend = Backend()
    outbox = Outbox(backend.send, max_bytes=1_000)  # with its thread
    outbox.put(a_span("root"), None, {})

    whole = outbox.close(20)

    assert whole
    assert backend.requests == [(["root"], {})]


def test_what_cannot_be_sent_before_the_end_is_lost_and_told() -> None:
    backend = Backend(DOWN)
    outbox = Outbox(backend.send, max_bytes=1_000)
    outbox.put(a_span(), None, {})

    whole = outbox.close(0)
    outbox.put(a_span(), None, {})

    assert not whole
    assert outbox.counts() == OutboxCounts(lost=2, last_loss="shut down")
