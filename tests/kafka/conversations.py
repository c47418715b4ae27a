"""Conversations on a topic: each turn is a trace of its own, keyed by trace as the Collector does, or by conversation."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from confluent_kafka import Producer
from tests.servers.kafka import Kafka
from tests.service.agents import agent_run, requests_of

from spanscore import semconv

TALKED = {"tests.service.metrics:Talked": {"per": "session"}}
SESSIONS = {"idle_timeout": "2s"}


class SaidTurn(NamedTuple):
    """One turn: its conversation, its trace, and its messages, the last of which has the root."""

    conversation: str
    trace: str
    bodies: tuple[bytes, ...]


def turn(conversation: str, number: int, *, history: bool = False, messages: int = 1) -> SaidTurn:
    """Return the turn of that number, from 1 on, which ends now; with ``history`` it brings along all before it."""
    spans = agent_run(Random(f"{conversation} {number}"))
    root = spans[0]
    del root.attributes[:]
    texts = [(f"q{at}", f"a{at}") for at in range(1 if history else number, number + 1)]
    said = [
        message
        for asked, attributes in texts
        for message in (_message("user", asked), _message("assistant", attributes))
    ]
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        semconv.CONVERSATION_ID: conversation,
        "gen_ai.input.messages": json.dumps(said[:-1]),
        "gen_ai.output.messages": json.dumps(said[-1:]),
    }
    for name, value in attributes.items():
        root.attributes.add(key=name).value.string_value = value
    parts = [spans[::-1]] if messages == 1 else [spans[:0:-1], spans[:1]]
    return SaidTurn(conversation, root.trace_id.hex(), tuple(requests_of(part, 4)[0] for part in parts))


def say(kafka: Kafka, topic: str, turns: Iterable[SaidTurn], *, by: str = "trace") -> None:
    """Write turns to a topic, keyed ``by`` trace or conversation, and wait until they are there."""
    producer = Producer({"bootstrap.servers": kafka.brokers, "partitioner": "fnv1a", "log_level": 0})
    for one in turns:
        for body in one.bodies:
            producer.produce(topic, body, getattr(one, by))
    assert producer.flush(60) == 0


def rounds(names: Iterable[str], turns: int, *, pause_s: float) -> Iterator[list[SaidTurn]]:
    """Yield the turns of all conversations, one of each at a time, with a pause between."""
    names = [*names]
    for number in range(1, turns + 1):
        yield [turn(name, number) for name in names]
        time.sleep(pause_s)


def counted(spans: Iterable[object]) -> Counter[str]:
    """Return conversation → scores that are in the sums: those of no revision and of none that goes on."""
    scores = [span.attributes for span in spans if semconv.SESSION_TURNS in (span.attributes or {})]  # type: ignore[attr-defined]
    return Counter(
        str(score[semconv.CONVERSATION_ID])
        for score in scores
        if not score.get(semconv.SCORE_REVISION) and score[semconv.SESSION_END] != "open"
    )


def _message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}
