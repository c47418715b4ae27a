"""ResponseRelevancy: guesses compared with the question."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome, Votes
from spanscore.errors import ConfigurationError
from spanscore.metrics import ResponseRelevancy
from spanscore.testing import ScriptedEmbeddings, ScriptedJudge

SAMPLE = SingleTurnSample(user_input="q", response="a")
VECTORS = {"q": [1.0, 0.0], "same": [2.0, 0.0], "other": [0.0, 1.0], "contrary": [-1.0, 0.0], "none": [0.0, 0.0]}


def guesses(*questions: str, flags: str = "") -> ScriptedJudge:
    return ScriptedJudge(
        {"step": "generate_question", "output": {"question": q, "noncommittal": int(flag)}}
        for q, flag in zip(questions, flags or "0" * len(questions), strict=True)
    )


def scored(judge: ScriptedJudge, **params: Any) -> Any:
    return ResponseRelevancy(judge, ScriptedEmbeddings(VECTORS), **params).score_sync(SAMPLE)


def test_the_value_is_the_mean_cosine() -> None:
    score = scored(guesses("same", "other", "same"))

    assert score.value == pytest.approx(2 / 3)
    assert score.explanation == "The answer answers: “same” (cosine 1.00), “other” (cosine 0.00); the question was: “q”"


def test_a_negative_cosine_is_a_value_and_no_quality() -> None:
    score = scored(guesses("contrary", "contrary", "contrary"))

    assert (score.value, score.quality, score.label) == (-1.0, 0.0, "fail")


@pytest.mark.parametrize(
    ("noncommittal", "flags", "avoids"),
    [
        ("all", "111", True),
        ("all", "110", False),
        ("majority", "110", True),
        ("majority", "100", False),
        ("any", "100", True),
    ],
)
def test_who_must_find_the_answer_noncommittal_is_a_parameter(noncommittal: Any, flags: str, avoids: bool) -> None:
    score = scored(guesses("same", "same", "same", flags=flags), noncommittal=noncommittal)

    assert score.value == (0.0 if avoids else 1.0)


def test_a_noncommittal_answer_is_not_embedded() -> None:
    embeddings = ScriptedEmbeddings({})

    score = ResponseRelevancy(guesses("same", flags="1"), embeddings, strictness=1).score_sync(SAMPLE)

    assert (score.value, embeddings.calls) == (0.0, [])


def test_lost_guesses_are_reported() -> None:
    assert scored(guesses("same"), strictness=4).votes == Votes(requested=4, received=1)


@pytest.mark.parametrize("question", ["", "  "])
def test_without_a_question_it_is_undefined(question: str) -> None:
    score = scored(guesses(question), strictness=1)

    assert (score.outcome, score.value) == (Outcome.NO_VALUE, None)
    assert score.reason


def test_a_guess_without_an_angle_is_the_embedders_failure() -> None:
    assert scored(guesses("none"), strictness=1).outcome is Outcome.JUDGE_ERROR


def test_embeddings_that_fail_are_an_error() -> None:
    assert scored(guesses("unknown"), strictness=1).outcome is Outcome.JUDGE_ERROR


def test_another_embedding_model_is_another_version() -> None:
    class Renamed(ScriptedEmbeddings):
        model = "text-embedding-9"

    one = ResponseRelevancy(guesses(), ScriptedEmbeddings({}))

    assert one.version != ResponseRelevancy(guesses(), Renamed({})).version


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"embeddings": None}, "needs embeddings"),
        ({"embeddings": 7}, "embeddings is a int"),
        ({"embeddings": "lexical", "noncommittal": "some"}, "one of all, majority, any"),
        ({"embeddings": "lexical", "strictness": 0}, "strictness is 0"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ResponseRelevancy(guesses(), **params)


def test_offline_an_answer_to_the_question_beats_one_to_another() -> None:
    metric = ResponseRelevancy("lexical")
    asked = "How long is the Orlo bridge?"

    to_it = metric.score_sync(SingleTurnSample(user_input=asked, response="The Orlo bridge is 412 metres long."))
    to_another = metric.score_sync(SingleTurnSample(user_input=asked, response="Tickets cost 7 pounds for adults."))
    to_none = metric.score_sync(SingleTurnSample(user_input=asked, response="I don't know."))

    assert to_it.quality > 0.5 > to_another.quality
    assert to_none.value == 0.0
