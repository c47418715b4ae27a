"""Whatever stands in a room has a name, and every name stands for something."""

from __future__ import annotations

import pytest
from tests.contracts.found import implementations

from spanscore.dialects.registry import DIALECTS
from spanscore.runtime.plugins import Registry
from spanscore.scoring.queues import QUEUES
from spanscore.sinks.composite import CompositeSink
from spanscore.sinks.registry import SINKS


@pytest.mark.parametrize(
    ("registry", "room"), [(SINKS, "sinks"), (DIALECTS, "dialects"), (QUEUES, "scoring")], ids=lambda one: str(one)[:9]
)
def test_every_part_of_a_room_has_a_name_and_every_name_a_part(registry: Registry, room: str) -> None:
    named = [registry.found(name) for name in registry.built_in]

    assert {*named} == {*implementations(room, registry.protocol)} - {CompositeSink}
    assert len({*named}) == len(named)
