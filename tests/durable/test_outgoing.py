"""The effect of a response on the copies of a request."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore.durable.outbox import COPIES, Outbox, Payload
from spanscore.outputs.otlp_client import BackendAnswer

OK = BackendAnswer(200, content_type="application/x-protobuf")
DOWN = BackendAnswer(503, error="connection refused")


class Way:
    """Copies with one-byte requests, by number, and a clock that is wound by hand."""

    def __init__(self, copies: int) -> None:
        self.now_s = 0.0
        self.delivered: dict[int, str | None] = {}
        self.outgoing = Outbox(COPIES, jitter=lambda: 1.0)
        for number in range(copies):
            on_delivery: Any = lambda reason, number=number: self.delivered.update({number: reason})  # noqa: E731
            self.outgoing.put(Payload(bytes([number]), on_delivery), {}, self.now_s)

    def ask(self, answer: BackendAnswer) -> int:
        """Send the copies that are due, with this response; return their number."""
        batch = self.outgoing.batch(self.now_s)
        if batch is None:
            return 0
        self.outgoing.settle(batch, answer, self.now_s)
        return len(batch.payloads)

    def until_due(self) -> float:
        """Wind the clock to the next request; return by how much."""
        due_s = self.outgoing.due_s()
        assert due_s is not None
        waited, self.now_s = due_s - self.now_s, due_s
        return waited


def test_an_answer_is_for_all_copies_of_a_request() -> None:
    way = Way(3)

    assert way.ask(OK) == 3
    assert way.delivered == {0: None, 1: None, 2: None}


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 502, 503, 504])
def test_what_may_be_mended_is_sent_until_it_is(status: int) -> None:
    way = Way(1)

    for _ in range(50):
        way.ask(BackendAnswer(status, error=f"HTTP {status}"))
        way.until_due()
    assert way.delivered == {}
    way.ask(OK)

    assert way.delivered == {0: None}


def test_waits_grow_and_are_as_long_as_it_was_asked_for() -> None:
    way, waits = Way(1), list[float]()

    for answer in (DOWN, DOWN, DOWN, BackendAnswer(429, retry_after="20", error="HTTP 429"), *[DOWN] * 6):
        way.ask(answer)
        waits.append(way.until_due())

    assert waits == [0.5, 1.0, 2.0, 20.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]


@pytest.mark.parametrize("answer", [BackendAnswer(400, error="HTTP 400"), BackendAnswer(413, error="HTTP 413")])
def test_only_the_copy_that_is_at_fault_is_given_up(answer: BackendAnswer) -> None:
    way = Way(8)

    for _ in range(40):
        batch = way.outgoing.batch(way.now_s)
        if batch is not None:
            bad = any(payload.raw == bytes([5]) for payload in batch.payloads)
            way.outgoing.settle(batch, answer if bad else OK, way.now_s)

    assert way.delivered == {**dict.fromkeys(range(8)), 5: answer.error}


def test_at_the_end_nothing_waits_for_long() -> None:
    way = Way(1)
    way.ask(DOWN)

    way.outgoing.hurry(way.now_s)
    way.ask(DOWN)

    assert way.until_due() == pytest.approx(0.1)


def test_what_is_wrong_is_reported_until_something_is_taken() -> None:
    way = Way(1)

    way.ask(DOWN)
    trouble = way.outgoing.trouble
    way.until_due()
    way.ask(OK)

    assert (trouble, way.outgoing.trouble) == ("connection refused", "")


def test_a_copy_that_comes_after_the_end_gets_no_answer_and_stays_where_it_is() -> None:
    way = Way(1)

    way.outgoing.end()
    way.outgoing.put(Payload(b"late", lambda reason: way.delivered.update({1: reason})), {}, way.now_s)

    assert (way.delivered, way.outgoing.counts().lost) == ({}, 2)
