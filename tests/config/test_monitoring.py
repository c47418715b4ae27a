"""Which settings of the rules are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanscore import ConfigurationError
from spanscore.config.reading import read_settings


def interval_of(folder: Path, text: str) -> float:
    file = folder / "spanscore.yaml"
    file.write_text(f"metrics: [exact_match]\nmonitoring: {{interval: {text}, windows: [1h]}}", encoding="utf-8")
    return read_settings(file).settings.monitoring.interval


def test_an_interval_is_no_longer_than_prometheus_looks_back(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"monitoring.interval.*600 s.*looks back 300 s"):
        interval_of(tmp_path, "10m")

    assert interval_of(tmp_path, "5m") == 300
