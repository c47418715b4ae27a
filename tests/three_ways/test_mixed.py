"""Several instrumentations at once: one unit for each run, with the sample that it has under one of them alone."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.three_ways.test_one_application import OURS, application

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too


@pytest.mark.parametrize(
    "ways",
    [
        ("openllmetry", "openinference-openai"),  # in one trace, each call of the model by both
        ("openinference", "openllmetry-openai"),  # no context: each call of the client is a trace of its own
        ("openinference", "openllmetry"),  # two of LangChain: the first is heard
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("place", ["scored", "served"])
def test_each_run_is_one_unit_with_the_sample_it_has_alone(ways: tuple[str, ...], place: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.three_ways.mixed", place, *ways]

    seen = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=140).stdout)

    expected = json.loads(json.dumps(application(OURS)["seen"]))
    for one in (*seen["rag"], *expected["rag"]):
        one["single"].pop("retrieved_context_ids", None)  # OpenLLMetry writes none
    for one in (one for told in (seen, expected) for program in told.values() for one in program):
        one.pop("ids")  # each instrumentation has traces of its own
    assert seen == expected
