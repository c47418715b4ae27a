from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
from tests.integrations.stage import Stage, staged
from tests.servers.phoenix import Phoenix
from tests.servers.zipkin import Zipkin


@pytest.fixture(scope="session")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
    prometheus: ModuleType,
    collector: ModuleType,
    phoenix: Phoenix,
    zipkin: Zipkin,
) -> Iterator[Stage]:
    """Real traffic, scored, in real stores."""
    folder = tmp_path_factory.mktemp("stage")
    with staged(folder, prometheus=prometheus, collector=collector, phoenix=phoenix, zipkin=zipkin) as stage:
        yield stage
