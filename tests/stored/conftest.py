from __future__ import annotations

from pathlib import Path

import pytest
from tests.stored.live_runs import FEW, UNITS, LiveRuns, configuration, live_runs


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return configuration(tmp_path_factory.mktemp("replayed"))


@pytest.fixture(scope="session")
def live(config: Path) -> LiveRuns:
    """So many runs, once for all tests of this folder."""
    return live_runs(config, UNITS)


@pytest.fixture(scope="session")
def few(config: Path) -> LiveRuns:
    """A few live runs, for tests that need no number."""
    return live_runs(config, FEW)
