"""Spans of another instrumentation are found by their scores in real stores, with the searches of the READMEs, each once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tests.entry_points.ways import OTHERS
from tests.integrations.stage import expressions
from tests.servers.jaeger import Jaeger
from tests.servers.phoenix import Phoenix
from tests.servers.zipkin import Zipkin

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

UNITS = 7
TAGS = ("spanscore.verdict=fail", "spanscore.label.harmless=fail")
FAILING = "attributes['spanscore']['verdict'] == 'fail'"


@pytest.fixture(scope="module")
def exported(jaeger: Jaeger, phoenix: Phoenix, zipkin: Zipkin) -> Callable[[str], Any]:
    """Exported spans by entry point: the application ran with the stores behind its processor."""

    @cache
    def run(way: str) -> Any:
        stores = (jaeger.traces_endpoint, phoenix.traces_endpoint, zipkin.spans_endpoint)
        command = [sys.executable, "-W", "ignore", "-m", "tests.entry_points.exported", way, *stores]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout)

    return run


@pytest.mark.parametrize("way", OTHERS)
def test_jaeger_has_each_span_once_and_warns_of_nothing(exported: Any, jaeger: Jaeger, way: str) -> None:
    spans = exported(way)["spans"]

    found = jaeger.search(way, {}, lambda traces: sum(len(t["spans"]) for t in traces) >= sum(map(len, spans.values())))

    assert {t["traceID"]: sorted(s["spanID"] for s in t["spans"]) for t in found} == {
        trace: sorted(ids) for trace, ids in spans.items()
    }
    assert not any(span.get("warnings") for trace in found for span in trace["spans"])


@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("way", OTHERS)
def test_a_failing_trace_and_no_other_is_found_in_jaeger_and_zipkin(
    exported: Any, jaeger: Jaeger, zipkin: Zipkin, way: str, tags: str
) -> None:
    failed = exported(way)["failed"]
    name, _, value = tags.partition("=")

    in_jaeger = [trace["traceID"] for trace in jaeger.search(way, {name: value})]
    in_zipkin = zipkin.search(tags, lambda found: set(failed) <= _ids(found))

    assert tags in expressions("jaeger")
    assert in_jaeger == failed
    assert _ids(in_zipkin) & exported(way)["spans"].keys() == set(failed)


def _ids(found: list[list[dict[str, Any]]]) -> set[str]:
    return {trace[0]["traceId"] for trace in found}


@pytest.mark.parametrize("way", OTHERS)
def test_phoenix_finds_the_failing_span_and_has_each_once(exported: Any, phoenix: Phoenix, way: str) -> None:
    result = exported(way)
    [failed] = result["failed"]
    ids = result["spans"][failed]

    stored = [span["context"]["span_id"] for span in phoenix.spans(failed, lambda spans: len(spans) >= len(ids))]
    found = {span["spanId"] for span in phoenix.filtered(FAILING)}

    assert FAILING in expressions("phoenix")
    assert sorted(stored) == sorted(ids)
    assert found & set(ids)


@pytest.mark.parametrize("way", OTHERS)
def test_every_unit_is_scored(exported: Any, jaeger: Jaeger, way: str) -> None:
    exported(way)

    found = jaeger.search(way, {"spanscore.status": "scored"}, lambda traces: len(traces) >= UNITS)

    assert len(found) == UNITS
