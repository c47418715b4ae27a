"""The public doubles keep the promises of their docstrings, and the contract suites need no test runner of their own choice."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.judges.models import QUESTION

from spanscore.core.prompt import Prompt
from spanscore.errors import JudgeError
from spanscore.testing import ScriptedEmbeddings, ScriptedJudge


async def said(judge: ScriptedJudge, step: str) -> str:
    return (await judge.ask(Prompt(step=step, instruction="", evidence={}, output=QUESTION.output))).text


async def test_answers_are_matched_by_step_and_in_order_within_it() -> None:
    judge = ScriptedJudge(
        [{"step": "a", "output": {"n": 1}}, {"step": "b", "output": {"n": 2}}, {"step": "a", "output": {"n": 3}}]
    )

    assert [await said(judge, step) for step in ("b", "a", "a")] == ['{"n": 2}', '{"n": 1}', '{"n": 3}']


async def test_raw_text_is_handed_over_as_it_is() -> None:
    judge = ScriptedJudge([{"step": "a", "output": None, "raw": "hm"}, {"step": "a", "output": {"n": 1}, "raw": "{n}"}])

    assert [await said(judge, "a") for _ in range(2)] == ["hm", "{n}"]


async def test_out_of_answers_is_a_judges_error_and_the_question_is_recorded() -> None:
    judge = ScriptedJudge([])

    with pytest.raises(JudgeError, match="no answer left for critique"):
        await judge.ask(QUESTION)

    assert judge.calls == [QUESTION]


async def test_embeddings_are_looked_up() -> None:
    embeddings = ScriptedEmbeddings({"a": [1.0, 0.0], "b": [0.0, 1.0]})

    assert await embeddings.embed(["b", "a"]) == [[0.0, 1.0], [1.0, 0.0]]
    assert embeddings.calls == ["b", "a"]


async def test_a_text_without_a_vector_is_an_error() -> None:
    with pytest.raises(JudgeError, match="no vector"):
        await ScriptedEmbeddings({}).embed(["a"])


SUITES = """
import sys, unittest
sys.modules["pytest"] = None  # not to be had
from spanscore.testing import MemorySink, QueueContract, SinkContract
from spanscore.pipeline.queues import MemoryQueue

class TestSink(SinkContract, unittest.TestCase):
    quotes = True
    def make(self): return MemorySink()

class TestQueue(QueueContract, unittest.TestCase):
    def make(self): return [].append

unittest.main(argv=["suites"], verbosity=2)
"""


def test_unittest_runs_them_where_there_is_no_pytest() -> None:
    ran = subprocess.run([sys.executable, "-c", SUITES], check=False, capture_output=True, text=True)

    matches = dict(re.findall(r"^(test_\w+) .*\n.* \.\.\. (\w+)$", ran.stderr, flags=re.MULTILINE))
    assert matches["test_shutdown_twice_is_as_good_as_once"] == "ok"
    assert matches["test_it_is_a_queue"] == "FAIL"
