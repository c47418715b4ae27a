"""Messages that a forwarder reads from a topic wait by trace, are keyed by conversation, and settled on acknowledgement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.capture.otlp.builders import a_wire_span
from tests.capture.otlp.test_units import Served

from spanscore import semconv
from spanscore.config.reading import read_settings
from spanscore.core.codecs.otlp_request import WireSpan, request_of
from spanscore.service.rekeyed_topic import RekeyedTopic

NOW_MS = 1_700_000_000_000


class Brokers:
    """A carrier with messages that the test acknowledges."""

    def __init__(self) -> None:
        self.written: list[tuple[str, bytes]] = []
        self.waiting: list[Callable[[str | None], None]] = []

    def produce(self, key: str, value: bytes, on_delivery: Callable[[str | None], None], written_ms: int = 0) -> None:
        self.written.append((key, value))
        self.waiting.append(on_delivery)

    def answer(self, reason: str | None = None) -> None:
        for on_delivery in self.waiting:
            on_delivery(reason)
        self.waiting.clear()

    def state(self) -> str:
        return ""


class Forwarder:
    """Messages of two partitions, and the brokers that get them."""

    def __init__(self, tmp_path: Any, **units: Any) -> None:
        file = tmp_path / "spanscore.yaml"
        values = {"idle_timeout": 0, **units}
        file.write_text(f"metrics: [exact_match]\nkafka: {{brokers: ['localhost:1']}}\nunits: {values}\n")
        self.brokers = Brokers()
        settings = read_settings(file).settings
        self.topic = RekeyedTopic(self.brokers, Served().receiver, settings)  # type: ignore[arg-type]  # as much as is used
        self.topic.begin(0)
        self.topic.begin(1)

    def take(self, offset: int, *spans: WireSpan, partition: int = 0) -> bytes:
        body = request_of((span.origin, span.raw) for span in spans)
        self.topic.take(partition, offset, None, body)
        return body

    def settled(self) -> Mapping[int, int]:
        self.topic.hand_over()
        return self.topic.settled_offsets().result()

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.brokers.written]


def a_root(trace: int, conversation: str = "") -> WireSpan:
    return a_wire_span(trace=trace, **({semconv.CONVERSATION_ID: conversation} if conversation else {}))


def a_call(root: WireSpan, conversation: str = "") -> WireSpan:
    named = {semconv.CONVERSATION_ID: conversation} if conversation else {}
    return a_wire_span(semconv.CHAT, trace=int.from_bytes(root.trace_id), parent=root, **named)


def test_an_offset_is_settled_when_the_brokers_have_acknowledged_its_spans(tmp_path: Any) -> None:
    forwarder = Forwarder(tmp_path)
    body = forwarder.take(7, a_root(1, "talk"))

    assert forwarder.settled() == {0: 7}
    assert forwarder.brokers.written == [("talk", body)]
    assert forwarder.settled() == {0: 7}
    forwarder.brokers.answer()

    assert forwarder.settled() == {0: 8}


def test_a_message_that_the_brokers_refuse_is_written_again(tmp_path: Any) -> None:
    forwarder = Forwarder(tmp_path)
    forwarder.take(7, a_root(1, "talk"))
    forwarder.settled()

    forwarder.brokers.answer("too large for the topic")

    assert forwarder.settled() == {0: 7}
    assert forwarder.keys == ["talk", "talk"]
    forwarder.brokers.answer()
    assert forwarder.settled() == {0: 8}


def test_any_span_may_name_the_conversation_and_the_topmost_is_asked_first(tmp_path: Any) -> None:
    forwarder = Forwarder(tmp_path)
    for trace, names in enumerate([("a", "b"), ("", "b"), ("", "")], start=1):
        root = a_root(trace, names[0])
        forwarder.take(trace, a_call(root, names[1]))
        forwarder.take(trace + 10, root)

    forwarder.settled()

    assert forwarder.keys == ["a", "a", "b", "b", *[f"{3:032x}"] * 2]


def test_spans_without_their_root_wait_for_it(tmp_path: Any) -> None:
    forwarder, root = Forwarder(tmp_path, orphan_wait="1h"), a_root(1, "talk")
    forwarder.take(1, a_call(root))

    assert (forwarder.settled(), forwarder.keys) == ({0: 1}, [])
    forwarder.take(2, root)
    forwarder.settled()

    assert forwarder.keys == ["talk", "talk"]


def test_late_spans_have_the_key_of_their_trace(tmp_path: Any) -> None:
    forwarder, root = Forwarder(tmp_path, orphan_wait=0), a_root(1, "talk")
    forwarder.take(1, root)
    forwarder.settled()

    forwarder.take(2, a_call(root))
    forwarder.settled()

    assert forwarder.keys == ["talk", "talk"]


def test_a_partition_that_goes_leaves_its_spans_to_the_next_reader_and_those_of_others_here(tmp_path: Any) -> None:
    forwarder, root = Forwarder(tmp_path, idle_timeout="1h"), a_root(1, "talk")
    forwarder.take(3, a_call(root), partition=0)
    body = forwarder.take(5, root, partition=1)

    left = forwarder.topic.leave([0])

    assert {partition: place.offset for partition, place in left.items()} == {0: 3}
    assert forwarder.settled() == {1: 5}
    assert forwarder.topic.leave([1])[1].offset == 5
    assert (forwarder.topic.dropped, forwarder.brokers.written, body != b"") == (1, [], True)


def test_reading_stops_while_more_waits_than_units_bytes(tmp_path: Any) -> None:
    forwarder = Forwarder(tmp_path, bytes=2_000)

    def pressures() -> Iterable[str]:
        for trace in range(1, 8):
            forwarder.take(trace, a_root(trace))
            yield forwarder.topic.pressure()

    assert [*pressures()][-1] == "bytes"
    forwarder.settled()
    assert forwarder.topic.pressure() == "bytes"  # the brokers have not acknowledged it
    forwarder.brokers.answer()
    forwarder.settled()
    assert forwarder.topic.pressure() == ""


def test_what_cannot_be_read_is_settled_and_counted(tmp_path: Any) -> None:
    forwarder = Forwarder(tmp_path)

    forwarder.topic.take(0, 1, None, b"no request")
    forwarder.topic.take(0, 2, None, None)

    assert (forwarder.settled(), forwarder.keys) == ({0: 3}, [])
