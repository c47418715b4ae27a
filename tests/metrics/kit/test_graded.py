"""Criteria and rubrics: the scale, the vote, and the judge's prompt."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore.core.sample import HumanMessage, MultiTurnSample, SingleTurnSample
from spanscore.core.score import Outcome, Votes
from spanscore.errors import ConfigurationError
from spanscore.judges import render
from spanscore.metrics import (
    AgentGoalAccuracy,
    AgentGoalAccuracyWithoutReference,
    InstanceRubrics,
    Rubrics,
    SimpleCriteria,
)
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(
    user_input="How?",
    response="So.",
    rubrics={"score1_description": "No.", "score2_description": "Half.", "score3_description": "Yes."},
)


def test_a_declared_range_gives_a_quality_and_a_label() -> None:
    score = _criteria(4, range=[1, 5]).score_sync(SAMPLE)

    assert (score.value, score.quality, score.label) == (4.0, 0.75, "pass")


def test_a_low_grade_can_be_the_good_one() -> None:
    assert _criteria(1, range=[1, 5], direction="lower").score_sync(SAMPLE).quality == 1.0


def test_a_grade_outside_of_the_declared_range_is_repaired_once_then_an_error() -> None:
    metric = _criteria(7, range=[1, 5])

    score = metric.score_sync(SAMPLE)

    assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)
    assert [call.step for call in score.usage.calls] == ["score_criteria", "fix_output_format"]


def test_the_vote_is_the_most_frequent_grade_else_the_lower_median() -> None:
    assert _criteria(1, 1, 3, 4, 5, strictness=5).score_sync(SAMPLE).value == 1.0
    assert _criteria(5, 4, 1, strictness=3).score_sync(SAMPLE).value == 4.0


def test_a_lost_vote_is_reported_and_the_lower_of_two_wins() -> None:
    score = _criteria(5, 2, strictness=3).score_sync(SAMPLE)

    assert (score.value, score.votes) == (2.0, Votes(requested=3, received=2))


@pytest.mark.parametrize("wrong", [[1], [5, 1], [1.5, 3], [1, 2, 3], [True, 3]])
def test_a_range_is_two_whole_numbers_the_lower_first(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="range is"):
        SimpleCriteria("lexical", definition="Grade it.", range=wrong)


def test_the_judge_is_shown_the_range_and_the_grades() -> None:
    criteria = SimpleCriteria("lexical", definition="Grade it.", range=[0, 3])
    rubrics = Rubrics("lexical", rubrics={"score1_description": "Dull.", "score2_description": "Sharp."})

    assert "integer (0 to 3)" in render(criteria.steps["score_criteria"].prompt({})).user
    assert "1: Dull.\n2: Sharp." in rubrics.steps["score_rubric"].instruction


def test_the_words_come_before_the_grade() -> None:
    for metric in (SimpleCriteria("lexical", definition="Grade it."), Rubrics("lexical"), InstanceRubrics("lexical")):
        (step,) = metric.steps.values()
        assert list(step.output.model_fields)[-1] == "score"


@pytest.mark.parametrize("wrong", [{}, {"score1_description": 1}, "good"])
def test_rubrics_are_a_map_of_texts(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="rubrics are a map"):
        Rubrics("lexical", rubrics=wrong)


def test_rubrics_without_numbers_need_a_range_for_a_quality() -> None:
    words = {"bad": "No.", "good": "Yes."}

    assert Rubrics("lexical", rubrics=words).scale.range is None
    assert Rubrics("lexical", rubrics=words, range=[0, 1]).scale.range == (0.0, 1.0)


def test_each_sample_is_judged_on_the_scale_of_its_own_rubric() -> None:
    judge = ScriptedJudge([{"step": "score_rubric", "output": {"feedback": "", "score": 2}}])

    score = InstanceRubrics(judge).score_sync(SAMPLE)

    assert (score.value, score.quality, score.scale.range) == (2.0, 0.5, (1.0, 3.0))


def test_a_samples_rubric_is_evidence_and_never_an_instruction() -> None:
    judge = ScriptedJudge([{"step": "score_rubric", "output": {"feedback": "", "score": 1}}])

    InstanceRubrics(judge).score_sync(SAMPLE)

    assert judge.calls[0].evidence["rubrics"] == SAMPLE.rubrics
    assert "score1_description" not in judge.calls[0].instruction


@pytest.mark.parametrize(
    ("said", "value"), [("true", 1.0), ("False", 0.0), (1, 1.0), (False, 0.0), (" 1", None), (0.5, None)]
)
def test_a_goal_verdict_may_be_a_number_a_truth_or_their_words(said: Any, value: float | None) -> None:
    judge = ScriptedJudge(
        [
            {"step": "infer_goal_outcome", "output": {"user_goal": "g", "end_state": "e"}},
            {"step": "compare_outcome", "output": {"reason": "r", "verdict": said}},
        ]
    )
    talk = MultiTurnSample(user_input=[HumanMessage(content="Go.")])

    assert AgentGoalAccuracyWithoutReference(judge).score_sync(talk).value == value


def _criteria(*grades: int, **params: Any) -> SimpleCriteria:
    answers = [{"step": "score_criteria", "output": {"reason": "r", "score": grade}} for grade in grades]
    return SimpleCriteria(ScriptedJudge(answers), definition="Grade it.", **params)


@pytest.mark.parametrize(("reference", "desired"), [("A table is booked.", "A table is booked."), (None, "a table")])
def test_the_goal_is_the_reference_or_else_what_the_user_wanted(reference: str | None, desired: str) -> None:
    judge = ScriptedJudge(
        [
            {"step": "infer_goal_outcome", "output": {"user_goal": "a table", "end_state": "a table"}},
            {"step": "compare_outcome", "output": {"verdict": 1}},
        ]
    )
    talk = MultiTurnSample(user_input=[HumanMessage(content="A table, please.")], reference=reference)

    assert AgentGoalAccuracy(judge).score_sync(talk).value == 1.0
    assert judge.calls[-1].evidence["desired_outcome"] == desired


def test_a_rubric_without_grades_is_undefined_and_nobody_is_asked() -> None:
    judge = ScriptedJudge()

    score = InstanceRubrics(judge).score_sync(SingleTurnSample(response="Madrid.", rubrics={}))

    assert (score.value, score.outcome, judge.calls) == (None, Outcome.NO_VALUE, [])
