"""Units that this process samples, that go to a topic of Kafka, and that a worker scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.durable.application import METRICS, SETTINGS, application, run
from tests.live import identity_holds
from tests.servers.kafka import Kafka
from tests.servers.server import free_port, poll

pytest.importorskip("confluent_kafka")
from tests.kafka.worker import configured, working

from spanscore import semconv
from spanscore.config import Limits, RemoteScoring, Sampling


def on(brokers: str, topic: str) -> RemoteScoring:
    return RemoteScoring(kafka={"brokers": [brokers], "topic": topic})


def scores(spans: Any) -> dict[Any, tuple[Any, ...]]:
    """Return score id → its attributes."""
    names = (
        semconv.EVALUATION_NAME,
        semconv.EVALUATION_SCORE_VALUE,
        semconv.SAMPLING_THRESHOLD,
        semconv.SAMPLING_RULE,
    )
    made = [span for span in spans if span.instrumentation_scope.name == semconv.SCOPE]
    return {span.attributes[semconv.SCORE_ID]: tuple(map(span.attributes.get, names)) for span in made}


@pytest.mark.server
def test_scores_of_a_worker_are_those_that_this_process_would_have_made(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("copies", 4)
    with application(None) as (scorer, here):
        run(scorer, 60)
        assert scorer.flush(30)
    with application(on(kafka.brokers, "copies")) as (scorer, there):
        run(scorer, 60)
        assert scorer.flush(30)
        away = scorer.status()

    more = {name: SETTINGS[name] for name in ("judge", "sampling")}
    file = configured(tmp_path, kafka, "copies", **more)
    file.write_text(
        file.read_text().replace("- tests.service.metrics:Answered", "\n".join(f"- {one}" for one in METRICS))
    )
    with working(file) as worker:
        made = scores(here.spans)
        poll(lambda: len(scores(worker.emitted.get_finished_spans())) == len(made), deadline_s=30, what="the scores")
        delegated = sum(away.outcomes[metric]["delegated"] for metric in METRICS)

        assert scores(worker.emitted.get_finished_spans()) == made
        assert scores(there.spans) == {}
        assert sum(worker.scorer.status().eligible.values()) == delegated == len(made)
        assert identity_holds(scorer)
        assert identity_holds(worker.scorer)


@pytest.mark.server
def test_units_wait_for_a_broker_that_is_away_and_past_the_queue_they_are_counted(kafka: Kafka) -> None:
    kafka.create("waits", 1)
    target = on(kafka.brokers, "waits")
    with application(target, sampling=Sampling(), limits=Limits(queue_size=4)) as (scorer, _):
        kafka.stop()
        run(scorer, 10)
        kept = scorer.flush(0.5)
        kafka.start()

        assert not kept
        assert scorer.flush(60)
        assert scorer.status().outcomes["faithfulness"] == {"delegated": 4, "queue_full": 6}
        assert scorer.status().reasons["faithfulness queue_full"].startswith("remote_scoring")
        assert identity_holds(scorer)


def test_a_shutdown_while_no_broker_answers_keeps_its_time_and_counts() -> None:
    with application(on(f"127.0.0.1:{free_port()}", "none"), sampling=Sampling()) as (scorer, _):
        run(scorer, 3)
        assert not scorer.flush(0.3)
        scorer.shutdown(0.5)

        assert scorer.status().outcomes["faithfulness"] == {"shutdown": 3}
        assert identity_holds(scorer)
