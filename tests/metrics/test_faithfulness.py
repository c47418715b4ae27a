"""Faithfulness: verdicts belong to statements."""

from __future__ import annotations

import pytest

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import JudgeUnparseable
from spanscore.metrics import Faithfulness
from spanscore.metrics.kit.statements import StatementVerdict, align
from spanscore.testing import ScriptedJudge


def row(statement: str, verdict: int = 1) -> StatementVerdict:
    return StatementVerdict(statement=statement, verdict=verdict)


def test_rows_are_matched_by_text_whatever_their_order() -> None:
    aligned = align(["a", "b"], [row("b", 0), row("a")])

    assert aligned.rows == (row("a"), row("b", 0))


def test_case_white_space_and_the_full_stop_do_not_count() -> None:
    assert align(["The  Orlo bridge opened."], [row("the Orlo bridge opened")]).supported == 1


def test_a_statement_without_a_row_is_not_supported() -> None:
    aligned = align(["a", "b"], [row("a")])

    assert (aligned.supported, aligned.missing, aligned.extra) == (1, 1, 0)


def test_a_row_that_belongs_to_no_statement_does_not_count() -> None:
    assert align(["a"], [row("a", 0), row("x"), row("a")]).supported == 0


def test_a_rewritten_statement_is_matched_by_its_place() -> None:
    assert align(["The bridge is long.", "b"], [row("It is a long bridge."), row("b", 0)]).supported == 1


def test_a_statement_said_twice_takes_two_rows() -> None:
    assert align(["a", "a"], [row("a", 0), row("a", 1)]).supported == 1


def test_verdicts_on_something_else_altogether_are_no_score() -> None:
    with pytest.raises(JudgeUnparseable):
        align(["a", "b"], [row("x"), row("y"), row("z")])


def test_an_answer_that_states_nothing_is_undefined_after_one_call() -> None:
    judge = ScriptedJudge([{"step": "extract_statements", "output": {"statements": []}}])

    score = Faithfulness(judge).score_sync(SingleTurnSample(user_input="q", response="Hi!", retrieved_contexts=["c"]))

    assert (score.outcome, score.value) == (Outcome.NO_VALUE, None)
    assert len(judge.calls) == 1


def test_contexts_are_shown_in_rank_order() -> None:
    judge = ScriptedJudge([{"step": "extract_statements", "output": {"statements": ["a"]}}])

    Faithfulness(judge).score_sync(
        SingleTurnSample(user_input="q", response="a", retrieved_contexts=["first", "second"])
    )

    assert judge.calls[1].evidence == {"context": "first\nsecond", "statements": ["a"]}
