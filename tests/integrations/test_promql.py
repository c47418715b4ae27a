"""Every expression of every dashboard and rule file, asked of a real Prometheus that holds real traffic."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integrations.stage import INTEGRATIONS, SERVICE, Stage, dashboards, expressions, panels
from tests.servers.server import poll
from tests.yaml_files import read_yaml

from spanscore import semconv
from spanscore.monitoring.promql import label

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]  # the first one waits for the stage

LABELS = {
    label(name)
    for name in (
        semconv.APPLICABLE,
        semconv.COMPARED,
        semconv.OUTCOME,
        semconv.EVALUATOR_VERSION,
        semconv.EVALUATION_SOURCE,
    )
}
VARIABLES = {
    "$__rate_interval": "1h",
    "$__range": "1h",
    "$window": "1h",
    "$service": ".*",
    "$segment": ".+",
    "$before": "1.4",
    "$after": "1.5",
}
INGESTIONS = ("written", "scraped")
METRIC = {
    "spanscore-overview": ".*",
    "spanscore-operators": ".*",
    "spanscore-metric": "priced|capitals|intent",
}  # one has a known cost, one has a condition, one has categories
WITHOUT_DATA = {
    name: reason
    for line in Path(__file__).with_name("promql_without_data.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
    for name, _, reason in [line.partition(": ")]
}


@dataclass(frozen=True)
class Asked:
    """One expression and its place: ``dashboard/panel/query``, or ``file/record``."""

    where: str
    expression: str
    alert: bool = False


def _of_dashboards() -> list[Asked]:
    return [
        Asked(f"{uid}/{panel['title']}/{target['refId']}", _filled(target["expr"], METRIC[uid]))
        for uid, dashboard in dashboards().items()
        for panel in panels(dashboard)
        for target in panel["targets"]
        if "expr" in target
    ]


def _filled(expression: str, metric: str) -> str:
    for name, value in {**VARIABLES, "$metric": metric}.items():
        expression = expression.replace(name, value)
    return expression


def _of_grafana() -> list[Asked]:
    return [
        Asked(f"grafana/{rule['title']}", query["model"]["expr"], alert=True)
        for file in sorted((INTEGRATIONS / "grafana" / "alerting").glob("*.yaml"))
        for group in read_yaml(file.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        for query in rule["data"]
        if "expr" in query["model"]
    ]


def _of_rules() -> list[Asked]:
    return [
        Asked(f"{file.name}/{rule.get('record') or rule['alert']}", rule["expr"], "alert" in rule)
        for file in sorted((INTEGRATIONS / "prometheus").glob("*.yml"))
        for group in read_yaml(file.read_text(encoding="utf-8")).get("groups", [])
        for rule in group["rules"]
    ]


ASKED = _of_dashboards() + [one for one in _of_rules() if not one.alert]
ALERTS = [one for one in _of_rules() if one.alert] + _of_grafana()


def _values(stage: Stage, ingestion: str, expression: str) -> list[float]:
    return [float(found["value"][1]) for found in stage.prometheus(ingestion).query(expression)]


@pytest.mark.parametrize("ingestion", INGESTIONS)
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.where)
def test_every_expression_returns_data(stage: Stage, asked: Asked, ingestion: str) -> None:
    def numbers() -> list[float]:
        return [value for value in _values(stage, ingestion, asked.expression) if not math.isnan(value)]

    if asked.where in WITHOUT_DATA:
        assert not numbers(), f"it has data now: take it out of promql_without_data.txt ({WITHOUT_DATA[asked.where]})"
    else:  # series are stale between a scrape that fails, on a busy machine, and the next one
        poll(numbers, deadline_s=10.0, what=asked.expression)


@pytest.mark.parametrize("ingestion", INGESTIONS)
@pytest.mark.parametrize("asked", ALERTS, ids=lambda asked: asked.where)
def test_every_alert_asks_for_what_exists(stage: Stage, asked: Asked, ingestion: str) -> None:
    named = set(re.findall(r"\bspanscore[_:][a-z0-9_:A-Z]+", asked.expression)) - LABELS

    stage.prometheus(ingestion).query(asked.expression)  # raises if Prometheus rejects it

    named -= {where.rpartition("/")[2] for where in WITHOUT_DATA}  # a rule records it on an error only
    assert [name for name in named if not _values(stage, ingestion, f"count({name})")] == []


@pytest.mark.parametrize("ingestion", INGESTIONS)
def test_the_service_is_the_job_with_either_ingestion(stage: Stage, ingestion: str) -> None:
    found = stage.prometheus(ingestion).query("count by (job) ({__name__=~'spanscore_.+'})")

    assert [one["metric"] for one in found] == [{"job": SERVICE}]


@pytest.mark.parametrize("ingestion", INGESTIONS)
@pytest.mark.parametrize("expression", expressions("prometheus"))
def test_every_expression_of_the_readme_returns_data(stage: Stage, expression: str, ingestion: str) -> None:
    assert [value for value in _values(stage, ingestion, expression) if not math.isnan(value)]


def test_every_exception_names_an_expression_and_gives_a_reason() -> None:
    assert WITHOUT_DATA.keys() <= {asked.where for asked in ASKED}
    assert all(WITHOUT_DATA.values())
