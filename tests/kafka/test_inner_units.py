"""Inner units of traces from a topic: the same as over OTLP, and no offset is committed before they are scored."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kafka.applications import committed, send, traces
from tests.kafka.worker import configured, working
from tests.live import a_line
from tests.servers.kafka import Kafka
from tests.servers.server import poll
from tests.service.metrics import Answered

from spanscore import semconv
from spanscore.config import Units
from spanscore.core.codecs.otlp_request import parse_request
from spanscore.scorer import receivers_of

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

ALSO = [{"kind": "chat", "rate": 0.7}, {"kind": "tool", "name": "map"}]


def scores(spans: list) -> set[tuple[str, str | None]]:
    return {(span.attributes[semconv.SCORE_ID], span.attributes.get(semconv.UNIT_KIND)) for span in spans}


def test_a_topic_gives_the_same_inner_units_as_otlp(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    messages = traces(30, messages=2)
    send(kafka, topic, messages)
    with a_line(Answered(), units=Units(also=ALSO, idle_timeout=0)) as (scorer, other):
        for message in sorted(messages, key=lambda message: message.has_root):
            receivers_of(scorer).otlp_spans(Units(also=ALSO, idle_timeout=0.5)).accept(parse_request(message.body))
        poll(lambda: scorer.status().outcomes["answered"].get("scored") == 30, deadline_s=30, what="30 units")
        assert scorer.flush(20)
        expected = scores(other.evaluations)

    with working(configured(tmp_path, kafka, topic, units={"also": ALSO})) as worker:
        worker.until(lambda: scores(worker.evaluations) == expected, "all scores")
        poll(lambda: committed(kafka, topic, 2, f"{topic}-workers") == len(messages), deadline_s=60, what="commits")

        inner = worker.scorer.status().inner
        assert all(state.eligible == sum(state.outcomes.values()) for state in inner)
        assert {kind for _, kind in expected} == {None, "chat"}
