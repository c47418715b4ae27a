from __future__ import annotations

from contextlib import ExitStack
from types import ModuleType

import pytest
from tests.integrations.stage import Stage, staged
from tests.servers.jaeger import Jaeger
from tests.servers.phoenix import Phoenix
from tests.servers.zipkin import Zipkin

_running = ExitStack()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the stage with the last test of this folder: its rules, every second, would slow down all that comes after."""
    if nextitem is None or nextitem.path.parent.name != "integrations":
        _running.close()


@pytest.fixture(scope="session")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
    prometheus: ModuleType,
    collector: ModuleType,
    phoenix: Phoenix,
    jaeger: Jaeger,
    zipkin: Zipkin,
) -> Stage:
    """Real traffic, scored, in real stores."""
    folder = tmp_path_factory.mktemp("stage")
    stores = {"phoenix": phoenix, "jaeger": jaeger, "zipkin": zipkin}
    return _running.enter_context(staged(folder, prometheus=prometheus, collector=collector, **stores))
