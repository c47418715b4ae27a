"""The public doubles keep the promises of their docstrings."""

from __future__ import annotations

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
