"""A judge without a verdict has failed. Equal statements are judged once; empty ones and undescribed grades do not count."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample
from spanscore.core.score import Outcome, Score
from spanscore.judges.rendering import form
from spanscore.metrics import (
    AnswerCorrectness,
    FactualCorrectness,
    Faithfulness,
    FaithfulnessWithHHEM,
    InstanceRubrics,
    LLMContextRecall,
    NoiseSensitivity,
    Rubrics,
    TopicAdherence,
)
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(user_input="q", response="r", retrieved_contexts=["c"], reference="t")
TALK = MultiTurnSample(user_input=[HumanMessage(content="q"), AIMessage(content="r")], reference_topics=["x"])
NO_REPAIR = {"step": "fix_output_format", "output": {"text": "no"}}


def said(step: str, *statements: str, key: str = "statements") -> dict[str, Any]:
    return {"step": step, "output": {key: list(statements)}}


def rows(step: str, **verdicts: int) -> dict[str, Any]:
    given = [{"statement": name, "reason": "", "verdict": verdict} for name, verdict in verdicts.items()]
    return {"step": step, "output": {"statements": given}}


def faithfulness(statements: list[str], **verdicts: int) -> Score:
    judge = ScriptedJudge([said("extract_statements", *statements), rows("verify_statements", **verdicts)])
    return Faithfulness(judge).score_sync(SAMPLE)


SILENT: dict[str, tuple[Any, Any, list[dict[str, Any]]]] = {
    "faithfulness": (Faithfulness, SAMPLE, [said("extract_statements", "a", "b"), rows("verify_statements")]),
    "factual_correctness": (
        FactualCorrectness,
        SAMPLE,
        [
            said("decompose_response", "a", key="claims"),
            said("decompose_reference", "b", key="claims"),
            rows("verify_response_claims"),
            rows("verify_reference_claims", b=1),
        ],
    ),
    "noise_sensitivity": (
        NoiseSensitivity,
        SAMPLE,
        [
            said("extract_statements_reference", "a"),
            said("extract_statements_response", "b"),
            rows("verify_reference_statements"),
            rows("verify_response_statements", b=1),
            rows("verify_response_against_reference", b=1),
        ],
    ),
    "answer_correctness": (
        lambda judge: AnswerCorrectness(judge, weights=(1, 0)),
        SAMPLE,
        [
            said("extract_statements_response", "a"),
            said("extract_statements_reference", "b"),
            {"step": "classify_statements", "output": {"TP": [], "FP": [], "FN": []}},
            NO_REPAIR,
        ],
    ),
    "llm_context_recall": (
        LLMContextRecall,
        SAMPLE,
        [{"step": "classify_reference_sentences", "output": {"classifications": []}}],
    ),
    "topic_adherence": (
        TopicAdherence,
        TALK,
        [
            said("extract_topics", "a", "b", key="topics"),
            *[{"step": "check_refusal", "output": {"refused_to_answer": False}}] * 2,
            *[said("classify_topics", key="classifications")] * 2,
        ],
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_no_verdict_at_all_is_the_judges_error(name: str) -> None:
    metric, sample, answers = SILENT[name]

    score = metric(ScriptedJudge(answers)).score_sync(sample)

    assert (score.outcome, score.value, score.error_type) == (Outcome.JUDGE_ERROR, None, "unparseable")


def test_a_blank_reference_has_no_sentence_to_recall() -> None:
    judge = ScriptedJudge([{"step": "classify_reference_sentences", "output": {"classifications": []}}])

    score = LLMContextRecall(judge).score_sync(SAMPLE.model_copy(update={"reference": " "}))

    assert score.outcome is Outcome.NO_VALUE


@pytest.mark.parametrize(
    ("statements", "verdicts", "value"),
    [
        (["a", "a"], {"a": 1}, 1.0),
        (["a", "A.", "b"], {"a": 1, "b": 0}, 2 / 3),
        (["a", "a", "b"], {"b": 1}, 1 / 3),
        (["", " ", ".", "a"], {"a": 1}, 1.0),
        (["", "a"], {"a": 0}, 0.0),
    ],
)
def test_equal_statements_are_judged_once_and_empty_ones_do_not_count(
    statements: list[str], verdicts: dict[str, int], value: float
) -> None:
    assert faithfulness(statements, **verdicts).value == pytest.approx(value)


def test_an_answer_of_empty_statements_states_nothing() -> None:
    score = FaithfulnessWithHHEM(
        ScriptedJudge([said("extract_statements", "", " ")]), classifier=lambda pairs: [0.0] * len(pairs)
    ).score_sync(SAMPLE)

    assert score.outcome is Outcome.NO_VALUE


@pytest.mark.parametrize(
    ("sorting", "value"),
    [
        ({"TP": ["a"], "FP": [], "FN": []}, 1.0),
        ({"TP": [], "FP": ["a"], "FN": ["b"]}, 0.0),
        ({"TP": ["a"], "FP": ["a"], "FN": []}, 2 / 3),
        ({"TP": ["a"], "FP": [], "FN": ["b"]}, 2 / 3),
    ],
)
def test_equal_statements_are_sorted_alike(sorting: dict[str, list[str]], value: float) -> None:
    listed = {name: [{"statement": one, "reason": ""} for one in found] for name, found in sorting.items()}
    judge = ScriptedJudge(
        [
            said("extract_statements_response", "a", "A", ""),
            said("extract_statements_reference", "b", "b."),
            {"step": "classify_statements", "output": listed},
        ]
    )

    assert AnswerCorrectness(judge, weights=(1, 0)).score_sync(SAMPLE).value == pytest.approx(value)


def graded(keys: list[str], grade: Any, **params: Any) -> float | None:
    described = dict.fromkeys(keys, "described")
    answers = [{"step": "score_rubric", "output": {"score": grade}}, NO_REPAIR]
    own = Rubrics(ScriptedJudge(answers), rubrics=described, **params).score_sync(SAMPLE)
    of_sample = InstanceRubrics(ScriptedJudge(answers), **params).score_sync(
        SAMPLE.model_copy(update={"rubrics": described})
    )
    assert own.value == of_sample.value
    assert own.outcome is of_sample.outcome is (Outcome.JUDGE_ERROR if own.value is None else Outcome.SCORED)
    return own.value


@pytest.mark.parametrize(
    ("keys", "grades", "refused"),
    [
        (["0", "50", "100"], [0, 50, 100], [37, 1, 99, 101, -1]),
        (["score1_description", "score5_description"], [1, 5], [2, 3, 4, 0, 6]),
        (["score-1_description", "score0_description", "score1_description"], [-1, 0, 1], [2, -2]),
        (["0.5", "1.0"], [0.5, 1], [0, 0.7]),
        (["0-2", "3-5"], [0, 1, 2, 3, 4, 5], [6, -1]),
        (["1", "2", "3"], [1, 2, 3], [4, 2.5]),
    ],
)
def test_a_grade_that_is_not_described_is_refused(keys: list[str], grades: list[Any], refused: list[Any]) -> None:
    assert [graded(keys, grade) for grade in grades] == grades
    assert [graded(keys, grade) for grade in refused] == [None] * len(refused)


def test_a_range_beside_numbers_lets_grades_between_them_count() -> None:
    assert graded(["1", "5"], 3, range=[1, 5]) == 3.0
    assert graded(["poor", "good"], 1, range=[0, 1]) == 1.0


def test_the_judge_is_shown_which_grades_there_are() -> None:
    def shown_form(*keys: str) -> str:
        return form(Rubrics("lexical", rubrics=dict.fromkeys(keys, "x")).questions[0].output)

    assert "integer (one of 0, 50, 100)" in shown_form("0", "50", "100")
    assert shown_form("1", "2", "3").endswith('"score": integer}')


@pytest.mark.parametrize("keys", [["1", "2"], ["0", "50", "100"], ["0.5", "1.0"], ["0-2", "3-5"], ["-1", "0", "1"]])
@pytest.mark.parametrize("response", ["", "t", "no"])
def test_the_offline_judge_gives_a_described_grade(keys: list[str], response: str) -> None:
    metric = Rubrics("lexical", rubrics=dict.fromkeys(keys, "x"))

    assert metric.score_sync(SAMPLE.model_copy(update={"response": response})).outcome is Outcome.SCORED
