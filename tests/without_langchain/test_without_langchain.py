"""Applications that know nothing of LangChain are scored by the spans that their SDK's instrumentation makes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too

SCORE = "spanscore.score.response_relevancy"
PYDANTIC_AI = pytest.mark.skipif(find_spec("pydantic_ai") is None, reason="pydantic-ai-slim is not installed")


def application(instrumentation: str, program: str) -> Any:
    command = [sys.executable, "-W", "ignore", "-m", "tests.without_langchain.application", instrumentation, program]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=140).stdout)


@pytest.mark.parametrize(
    ("instrumentation", "program", "root", "score"),
    [
        ("openllmetry-openai", "chain", "openai.chat", 0.816),
        ("openllmetry-openai", "stream", "openai.chat", 0.816),
        ("openinference-openai", "chain", "ChatCompletion", 0.816),
        pytest.param("pydantic-ai", "agent", "invoke_agent calculator", 0.866, marks=PYDANTIC_AI),
    ],
)
def test_a_score_is_on_the_span_of_the_sdk(instrumentation: str, program: str, root: str, score: float) -> None:
    spans = application(instrumentation, program)

    [[name, attributes]] = spans["roots"]
    assert (name, attributes[SCORE]) == (root, pytest.approx(score, abs=0.001))
    assert (spans["evaluations"], spans["twice"], spans["langchain"]) == (1, 0, False)


def test_each_call_of_a_bare_client_is_a_unit() -> None:
    spans = application("openllmetry-openai", "thread")

    assert [SCORE in attributes for _, attributes in spans["roots"]] == [True, True, True]


def test_spans_that_come_over_the_wire_are_scored_without_it() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.without_langchain.receiving"]

    document = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=140).stdout)

    assert document == {"scored": 1, "langchain": False}
