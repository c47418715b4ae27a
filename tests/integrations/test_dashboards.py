"""The committed dashboards are what ``build.py`` makes, are read by Grafana's own models, and say what to do."""

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

UIDS = {"spanscore-overview", "spanscore-metric"}
GRAFANAS_OWN = {"__range", "__rate_interval"}
WIDTH = 24


def test_there_are_two() -> None:
    assert dashboards().keys() == UIDS


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
