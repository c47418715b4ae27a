"""Two replicas behind the shipped Collector: a drop reaches a webhook and ends, deploys and restarts do not.

An hour takes a minute; ``python -m benchmarks.alerting`` plays longer scenes.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from tests.end_to_end.hurried import BASELINE, Stage, rules, staged
from tests.end_to_end.replicas import MoodyJudge, Service
from tests.servers.server import poll

DROP = "SpanscoreQualityDrop"
LONG_MIN = 120.0
"""How long anything is waited for, by the stage's clock: two minutes."""

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stage(
    prometheus: Any, alertmanager: Any, collector: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """The stage, with a service in addition to those of the tests, so that some counter always exists."""
    folder = tmp_path_factory.mktemp("replicas")
    with (
        staged(folder, prometheus=prometheus, alertmanager=alertmanager, collector=collector) as made,
        made.service("control", MoodyJudge(BASELINE), per_s=5),
    ):
        made.watch_with(rules())
        yield made
    assert made.alerts("control") == []


def until(service: Service, scores: int) -> None:
    """Wait until the present replicas have made so many scores."""
    poll(lambda: service.scores() >= scores, deadline_s=60, what=f"{scores} scores of {service.name}")


def test_a_drop_of_a_third_is_reported_and_ends_when_it_is_mended(stage: Stage) -> None:
    judge = MoodyJudge(BASELINE)
    with stage.service("shop", judge, per_s=60) as service:
        until(service, 400)

        judge.good = 0.6
        first = stage.first("shop", DROP, since=0.0, within_min=LONG_MIN)
        judge.good = BASELINE
        stage.end("shop", within_min=LONG_MIN)
        names = stage.names("shop")

    print(first["annotations"]["description"])
    assert "harmless" in first["annotations"]["description"]
    assert names == {DROP}


def test_a_rolling_deploy_is_no_news_and_a_restart_amid_a_drop_hides_nothing(stage: Stage) -> None:
    judge = MoodyJudge(BASELINE)
    with stage.service("desk", judge, per_s=60) as service:
        until(service, 400)
        for position in (0, 1):
            service.deploy(position)
        until(service, 400)
        deployed = stage.names("desk")

        judge.good = 0.6
        service.restart(0)
        stage.first("desk", DROP, since=0.0, within_min=LONG_MIN)
        names = stage.names("desk")

    assert [deployed, names] == [set(), {DROP}]
