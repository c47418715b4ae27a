"""The committed dashboards equal the output of ``build.py``, Grafana's own models read them, and each panel has advice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from tests.integrations.stage import INTEGRATIONS, dashboards, panels

from spanscore import semconv
from spanscore.monitoring.promql import series

UIDS = {"spanscore-overview", "spanscore-operators", "spanscore-metric"}
GRAFANAS_OWN = {"__range", "__rate_interval"}
WIDTH = 24


def test_there_are_three() -> None:
    assert dashboards().keys() == UIDS


def test_the_overview_has_six_panels_without_rows() -> None:
    assert [panel["title"] for panel in dashboards()["spanscore-overview"]["panels"]] == [
        "Mean quality of $metric",
        "How evaluations end, per minute",
        "Evaluations not accounted for",
        "Failed evaluations, by reason",
        "Cost of the judge per day",
        "Queue: units that wait for a score",
    ]


def test_the_mean_is_drawn_for_each_chosen_metric_with_its_interval() -> None:
    mean = dashboards()["spanscore-overview"]["panels"][0]

    assert mean["repeat"] == "metric"
    assert [target["legendFormat"].split()[0] for target in mean["targets"]] == 2 * ["mean", "low", "high"]


def test_the_operators_have_a_row_for_each_part() -> None:
    placed = dashboards()["spanscore-operators"]["panels"]

    assert [panel["title"] for panel in placed if panel["type"] == "row"] == [
        "Receivers",
        "Spool and workers",
        "Scores and annotations from outside",
        "Judges",
        "Accounts of the judges",
    ]


@pytest.mark.parametrize("counter", [semconv.WORKER_DROPPED, semconv.WORKER_SKIPPED, semconv.REDELIVERED])
def test_the_operators_see_what_workers_leave_skip_and_get_again(counter: str) -> None:
    drawn = [target["expr"] for panel in panels(dashboards()["spanscore-operators"]) for target in panel["targets"]]

    assert [expression for expression in drawn if series(counter) in expression]


@pytest.mark.parametrize("uid", sorted(UIDS))
def test_dashboards_lead_to_each_other(uid: str) -> None:
    linked = {link["url"] for link in dashboards()[uid]["links"] if link["url"].startswith("/d/")}

    assert linked == {f"/d/{other}" for other in UIDS - {uid}}


@pytest.mark.parametrize("uid", ["spanscore-overview", "spanscore-operators"])
def test_every_number_has_a_unit_and_no_title_is_used_twice(uid: str) -> None:
    shown = panels(dashboards()[uid])

    assert [panel["title"] for panel in shown if not panel["fieldConfig"]["defaults"].get("unit")] == []
    assert len({panel["title"] for panel in shown}) == len(shown)


def test_the_committed_json_is_what_the_code_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(INTEGRATIONS / "grafana" / "build.py"), str(tmp_path)], check=True, timeout=60)

    made = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in tmp_path.glob("*.json")}
    assert made == dashboards()


@pytest.mark.parametrize("uid", sorted(UIDS))
def test_grafanas_models_read_it_and_write_the_same(uid: str) -> None:
    register_default_plugins()
    committed = dashboards()[uid]

    written = json.loads(JSONEncoder().encode(Dashboard.from_json(committed)))

    assert written == committed


@pytest.mark.parametrize("uid", sorted(UIDS))
def test_panels_have_an_id_and_a_place_of_their_own(uid: str) -> None:
    placed = dashboards()[uid]["panels"]

    assert len({panel["id"] for panel in placed}) == len(placed)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= WIDTH for panel in placed)
    assert [(a["title"], b["title"]) for a, b in combinations(placed, 2) if _overlap(a["gridPos"], b["gridPos"])] == []


@pytest.mark.parametrize("uid", sorted(UIDS))
def test_every_panel_says_what_it_means_when_it_looks_bad(uid: str) -> None:
    assert [panel["title"] for panel in panels(dashboards()[uid]) if len(panel.get("description", "")) < 60] == []


@pytest.mark.parametrize("uid", sorted(UIDS))
def test_every_variable_that_is_used_is_there(uid: str) -> None:
    dashboard = dashboards()[uid]
    defined = {variable["name"] for variable in dashboard["templating"]["list"]}

    used = set(re.findall(r"\$\{?(\w+)", json.dumps([dashboard["panels"], dashboard["links"]])))

    assert used - GRAFANAS_OWN <= defined
    assert defined <= used | {"traces"}


def _overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    apart = (
        a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    )
    return not apart
