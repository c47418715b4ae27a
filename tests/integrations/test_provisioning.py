"""The files for Grafana fit each other and the data: the exemplar's label, the data sources, the panels' kinds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integrations.stage import INTEGRATIONS, Stage, dashboards
from tests.yaml_files import read_yaml

PROVISIONING = INTEGRATIONS / "grafana" / "provisioning"


def _sources() -> dict[str, dict[str, Any]]:
    text = (
        (PROVISIONING / "datasources" / "spanscore.yaml").read_text(encoding="utf-8").replace("${TRACES_TYPE}", "tempo")
    )
    return {source["uid"]: source for source in read_yaml(text)["datasources"]}


def test_every_kind_of_source_that_a_dashboard_asks_is_provided() -> None:
    asked = {
        variable["query"]
        for dashboard in dashboards().values()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "datasource"
    }

    assert asked == {source["type"] for source in _sources().values()}


@pytest.mark.server
@pytest.mark.timeout(180)
def test_an_exemplar_has_the_label_by_which_grafana_opens_the_trace(stage: Stage) -> None:
    (way,) = _sources()["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]

    found = [one for series in stage.written.exemplars("spanscore_quality_bucket") for one in series["exemplars"]]

    assert way["datasourceUid"] in _sources()
    assert found
    assert all(way["name"] in one["labels"] for one in found)
