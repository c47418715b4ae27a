"""A worker's messages before a scorer gets them: handed over in order, together if none is to be scored."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.capture.otlp.builders import taken
from tests.capture.otlp.test_units import S, Served, agent, tool

from spanscore.core.codecs.otlp_request import request_of
from spanscore.service.kafka_topic import Topic


def a_message(trace: int) -> bytes:
    root = agent(trace=trace)
    return request_of((span.origin, span.raw) for span in taken([tool(root), root]).spans)


def a_topic(served: Served) -> Topic:
    line = SimpleNamespace(queue=None)
    topic = Topic(line, served.receiver, most_bytes=100_000, max_open_age_s=600.0)  # type: ignore[arg-type]  # as little of it
    topic.begin(0)
    topic.begin(1)
    served.read()
    return topic


@pytest.mark.parametrize(("rate", "events"), [(0.0, 1), (1.0, 3)])
def test_messages_of_which_nothing_may_be_scored_are_handed_over_together(rate: float, events: int) -> None:
    served = Served(rate)
    topic = a_topic(served)

    for offset in range(3):
        topic.take(0, offset, S + offset, a_message(offset + 1))
    topic.hand_over()

    assert len(served.event_queue) == events
    served.read()
    assert (topic.offsets[0].oldest_ns, served.receiver.streams.open, served.receiver.unread_count()) == (S, 3, 0)


def test_what_cannot_be_read_and_other_partitions_do_not_overtake() -> None:
    served = Served(0.0)
    topic = a_topic(served)

    topic.take(0, 0, S, a_message(1))
    topic.take(0, 1, 2 * S, b"no request")
    topic.take(0, 2, 3 * S, a_message(2))
    topic.take(1, 7, 4 * S, a_message(3))
    topic.set_clock(1, "reach_end")

    assert len(served.event_queue) == 5
    served.read()
    assert (topic.offsets[0].oldest_ns, served.receiver.streams.open) == (S, 3)


def test_no_more_messages_wait_for_each_other_than_take_a_moment_to_read() -> None:
    served = Served(0.0)
    topic = a_topic(served)

    for offset in range(130):
        topic.take(0, offset, S, a_message(offset + 1))

    assert len(served.event_queue) == 2
