"""Several instrumentations at once: one unit for each run, with the sample that it has under one of them alone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.entry_points.test_one_application import OURS, application

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too


@pytest.mark.parametrize(
    "ways",
    [
        ("openllmetry", "openinference-openai"),  # in one trace, each call of the model by both
        ("openinference", "openllmetry"),  # two of LangChain: the first is heard
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("place", ["scored", "served"])
def test_each_run_is_one_unit_with_the_sample_it_has_alone(ways: tuple[str, ...], place: str) -> None:
    assert _seen(place, *ways) == _expected()


CALLS = {"chain": 1, "rag": 1, "agent": 2, "thread": 3, "stream": 1}
"""How often each program calls the model."""


@pytest.mark.parametrize("place", ["scored", "served"])
def test_a_call_that_is_a_trace_of_its_own_is_a_unit_beside_the_run_that_made_it(place: str) -> None:
    """OpenInference leaves no span current, so that the span of the client has no parent."""
    seen = _seen(place, "openinference", "openllmetry-openai")
    runs = _expected()

    assert {name: len(units) for name, units in seen.items()} == {
        name: len(units) + CALLS[name] for name, units in runs.items()
    }
    assert all(unit in seen[name] for name, units in runs.items() for unit in units)


def _seen(place: str, *ways: str) -> dict[str, list[Any]]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.entry_points.mixed", place, *ways]
    return _comparable(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=140).stdout)
    )


def _expected() -> dict[str, list[Any]]:
    return _comparable(json.loads(json.dumps(application(OURS)["seen"])))


def _comparable(programs: dict[str, list[Any]]) -> dict[str, list[Any]]:
    for unit in programs["rag"]:
        unit["single"].pop("retrieved_context_ids", None)  # OpenLLMetry writes none
    for unit in (unit for units in programs.values() for unit in units):
        unit.pop("ids")  # each instrumentation has traces of its own
    return programs
