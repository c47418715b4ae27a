"""One application, several ways, in process and over the wire: samples, scores, ids and decisions are the same.

Except for parts that an instrumentation does not write.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from typing import Any

import pytest
from tests.entry_points.ways import OTHERS, OURS
from tests.traces.langchain_app import PROGRAMS

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too

DIFFERENCES = {
    ("openllmetry", "rag"): {"retrieved_context_ids"},  # OpenLLMetry writes the texts of documents alone
    ("opentelemetry", "agent"): {"metadata"},  # only LangChain's messages carry the name of the agent
    ("opentelemetry", "thread"): {"multi", "multi_turn"},  # the root holds the words of this turn alone
}
"""Way and program → fields in which the way differs from our own capture."""


@cache
def application(way: str, *place: str) -> Any:
    """The application's result for one entry point; in a separate process, because an instrumentation stays for ever."""
    command = [sys.executable, "-m", "tests.entry_points.application", way, *place]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=140).stdout)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("way", OTHERS)
def test_samples_and_scores_are_those_of_our_own_capture(way: str, program: str) -> None:
    apart = DIFFERENCES.get((way, program), set())
    expected, found = (_without(apart, application(each)["seen"][program]) for each in (OURS, way))

    assert found == expected


def _without(fields: Collection[str], value: Any) -> Any:
    """Return JSON without these fields, at any depth."""
    if isinstance(value, dict):
        return {name: _without(fields, inner) for name, inner in value.items() if name not in fields}
    return [_without(fields, inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("way", OTHERS)
def test_the_same_half_of_the_requests_is_taken(way: str) -> None:
    taken = application(OURS)["taken"]

    assert application(way)["taken"] == taken
    assert 15 < len(taken) < 25


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("way", [OURS, *OTHERS])
def test_over_the_wire_it_gives_what_it_gives_in_process(way: str, program: str) -> None:
    """In pieces and out of order; with its scores under the same ids."""
    expected = application(way)["seen"][program]

    assert application(way, "served")["seen"][program] == expected
    assert all(len(one["ids"]) > 1 for one in expected)


@pytest.mark.parametrize("way", [OURS, *OTHERS])
def test_over_the_wire_the_same_half_is_taken(way: str) -> None:
    assert application(way, "served")["taken"] == application(OURS)["taken"]


def test_each_program_gives_a_sample_and_some_are_judged() -> None:
    seen = [one for program in application(OURS)["seen"].values() for one in program]

    assert all(one["single"] for one in seen)
    assert [one["faithfulness"] for one in seen if one["faithfulness"] is not None] == [1.0]
