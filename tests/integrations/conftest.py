from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
from tests.integrations.stage import Stage, staged
from tests.servers.jaeger import Jaeger
from tests.servers.phoenix import Phoenix
from tests.servers.zipkin import Zipkin


@pytest.fixture(scope="session")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
    prometheus: ModuleType,
    collector: ModuleType,
    phoenix: Phoenix,
    jaeger: Jaeger,
    zipkin: Zipkin,
) -> Iterator[Stage]:
    """Real traffic, scored, in real stores."""
    folder = tmp_path_factory.mktemp("stage")
    stores = {"phoenix": phoenix, "jaeger": jaeger, "zipkin": zipkin}
    with staged(folder, prometheus=prometheus, collector=collector, **stores) as stage:
        yield stage
