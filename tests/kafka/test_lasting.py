"""Long-lasting faults, for some seconds. ``benchmarks/topic.py`` plays them at full length."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kafka.scenes import broker_away, judge_away, storm
from tests.servers.kafka import Kafka

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(300),
    pytest.mark.flaky(reruns=2),  # scenes with deadlines, on a machine that others may use too
]


def test_nothing_is_lost_while_the_brokers_are_away_and_applications_go_on(kafka: Kafka, tmp_path: Path) -> None:
    came = broker_away(kafka, tmp_path, for_s=3.0)

    assert (came.lost, came.unequal) == (set(), 0)


def test_nothing_is_lost_in_a_storm_of_rebalances(kafka: Kafka, tmp_path: Path) -> None:
    came = storm(kafka, tmp_path, members=5, every_s=1.0)

    assert (came.lost, came.unequal) == (set(), 0)


def test_what_a_judge_refuses_for_long_waits_on_the_topic(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    came, held = judge_away(kafka, tmp_path, for_s=8.0, max_wait_s=60.0, per_s=40.0, queue=16)

    assert [*came.outcomes[0]] == ["scored"], "no timeout of what was never asked"
    assert (came.lost, came.twice) == (set(), 0)
    assert max(held.read) - min(held.read) < 100 < max(held.lag) - min(held.lag), (
        "read no further, while it is written to"
    )
