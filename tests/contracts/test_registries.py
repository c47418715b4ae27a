"""Every class of a folder is in its registry, and every name of the registry has a class."""

from __future__ import annotations

import pytest
from tests.contracts.found import implementations

from spanscore.core.plugins import Registry
from spanscore.outputs.score_spans import JudgeSpans
from spanscore.outputs.sinks import SINKS, CompositeSink
from spanscore.pipeline.queues import QUEUES
from spanscore.pipeline.spool_queue import SpoolQueue
from spanscore.samples.genai import DIALECTS
from spanscore.samples.normalizers.registry import TRANSLATIONS

ROOMS = [(SINKS, "outputs"), (DIALECTS, "samples"), (TRANSLATIONS, "samples"), (QUEUES, "pipeline")]

NO_PLACE = {CompositeSink, JudgeSpans, SpoolQueue}
"""The composite of the others, and the classes that ``judge.trace`` and ``spool`` switch on."""


@pytest.mark.parametrize(("registry", "room"), ROOMS, ids=lambda one: getattr(one, "kind", one))
def test_every_part_of_a_room_has_a_name_and_every_name_a_part(registry: Registry, room: str) -> None:
    named = [registry.find(name) for name in registry.built_in]

    assert {*named} == {*implementations(room, registry.protocol)} - NO_PLACE
    assert len({*named}) == len(named)
