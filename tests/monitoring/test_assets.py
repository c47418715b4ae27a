from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from spanscore.monitoring import rules as assets

ROOT = Path(__file__).parents[2]


def test_a_checkout_has_its_folders() -> None:
    assert assets.folder("grafana") == ROOT / "integrations" / "grafana"


def test_a_wheel_has_them_where_they_are_looked_for() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert build["force-include"] == {"integrations": "spanscore/integrations"}
    assert assets.PLACES[0] == Path(assets.__file__).parents[1] / "integrations"


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(FileNotFoundError, match=r"no integration 'kibana'; there are: .*grafana"):
        assets.folder("kibana")
