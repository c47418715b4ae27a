"""The bound of messages in memory, and their number in a request."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
from tests.core.test_fork import in_child
from tests.servers.server import poll
from tests.service.backend import RawBackend, Reply

from spanscore.durable.sink_outbox import MOST_BYTES, SinkOutbox
from spanscore.outputs.http_sink import JSON_HEADERS, Destination, HttpRequest, Message, message_id


@pytest.fixture
def receiver() -> Iterator[RawBackend]:
    with RawBackend() as backend:
        yield backend


def join(messages: Sequence[Message]) -> HttpRequest:
    return HttpRequest(b"[" + b",".join(message.body for message in messages) + b"]", JSON_HEADERS)


def outbox_to(receiver: RawBackend, most: int = 1) -> SinkOutbox:
    return SinkOutbox(Destination(name="tried", url=f"{receiver.endpoint}/in", request=join, most=most), "tried", None)


def test_messages_beyond_the_memory_are_dropped_and_counted(receiver: RawBackend) -> None:
    receiver.reply(Reply(hangs=True))
    outbox, body = outbox_to(receiver), b"0" * 1_000_000
    number = MOST_BYTES // len(body) + 3

    for one in range(number):
        outbox.put(Message(message_id(one), body))
    state = outbox.state()
    outbox.close(0.0)

    assert (state.sent, state.waiting, state.dropped) == (0, number - 4, 4)
    assert state.last_loss == "no room"


def test_messages_share_a_request_up_to_their_number(receiver: RawBackend) -> None:
    outbox = outbox_to(receiver, most=3)
    for one in range(7):
        outbox.put(Message(message_id(one), str(one).encode()))

    poll(lambda: outbox.state().sent == 7, deadline_s=20, what="the messages")
    outbox.close(5.0)

    assert [json.loads(request.body) for request in receiver.taken] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_request_that_one_message_spoils_is_sent_in_halves(receiver: RawBackend) -> None:
    receiver.reply(lambda request: Reply(422 if 2 in json.loads(request.body) else 200))
    outbox = outbox_to(receiver, most=4)
    for one in range(4):
        outbox.put(Message(message_id(one), str(one).encode()))

    poll(lambda: outbox.state().dropped == 1 and not outbox.state().waiting, deadline_s=20, what="the refusal")
    outbox.close(5.0)

    assert outbox.state().sent == 3
    assert outbox.state().last_loss == "HTTP 422"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_sends_its_own_messages_and_none_of_its_parent(receiver: RawBackend) -> None:
    receiver.reply(Reply(503))
    outbox = outbox_to(receiver)
    outbox.put(Message(message_id("parent"), b'"parent"'))
    assert receiver.wait_for(lambda: receiver.arrived)

    def send() -> str:
        before = outbox.state().waiting
        outbox.put(Message(message_id("child"), b'"child"'))
        with suppress(TimeoutError):  # the child must end
            poll(lambda: outbox.state().trouble, deadline_s=20, what="a request of the child")
        return f"{before} {outbox.state().waiting}"

    counts = in_child(send)
    receiver.reply(Reply())
    poll(lambda: outbox.state().sent == 1, deadline_s=20, what="the parent's message")
    outbox.close(5.0)

    assert counts == "0 1"
    assert [request.body for request in receiver.taken] == [b'["parent"]']
