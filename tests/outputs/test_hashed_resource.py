from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk import resources
from opentelemetry.sdk.resources import Resource
from tests.outputs.builders import score, unit
from tests.outputs.memory import Memory

from spanscore.core.codecs.sdk import HashedResource
from spanscore.outputs.exporters import BuiltProviders
from spanscore.outputs.score_spans import EvaluationSpans

ATTRIBUTES = {"service.name": "shop", "ports": (80, 443)}


def test_it_is_found_where_the_sdks_own_is() -> None:
    kinds: list[type[Resource]] = [Resource, HashedResource]

    for kind, other in (kinds, reversed(kinds)):
        assert {kind(ATTRIBUTES, "https://schema"): 1}[other(ATTRIBUTES, "https://schema")] == 1
    assert Resource(ATTRIBUTES) not in {HashedResource({"service.name": "shop"}), HashedResource({})}


def test_its_attributes_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    def dumps(attributes: Any, **_: Any) -> str:
        written.append(attributes)
        return ""

    monkeypatch.setattr(resources, "dumps", dumps)
    hashed = HashedResource(ATTRIBUTES)

    assert len({hash(hashed) for _ in range(3)}) == len(written) == 1


def test_evaluation_spans_of_another_application_have_one() -> None:
    memory = Memory()

    EvaluationSpans(memory.providers).emit(unit(resource=ATTRIBUTES), [score()])

    assert [type(span.resource) for span in memory.spans] == [HashedResource]


def test_what_our_own_providers_send_has_one_whatever_the_sdk_says_of_the_instance() -> None:
    parts = BuiltProviders("shop")

    assert type(parts.resource) is type(parts.provider("traces").resource) is HashedResource
    assert parts.resource.attributes["service.name"] == "shop"
    assert parts.resource.attributes["service.instance.id"]
