"""The metrics of two ratings: parsing a rating, and the effect of a lost one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.judges.models import PlainModel
from tests.metrics.side_by_side import SideBySide

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome, Votes
from spanscore.judges import LexicalJudge
from spanscore.judges import judge as limited
from spanscore.judges.effects.middleware import reads_instructions
from spanscore.metrics import AnswerAccuracy, ContextRelevance, ResponseGroundedness
from spanscore.metrics.two_ratings import Rating012, Rating024
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(user_input="q", response="said", reference="true", retrieved_contexts=["one", "two"])
METRICS = {"accuracy": AnswerAccuracy, "relevance": ContextRelevance, "groundedness": ResponseGroundedness}

families = pytest.mark.parametrize("family", METRICS)


def rated(step: str, text: str) -> dict[str, Any]:
    return {"step": f"judge_{step}", "raw": text}


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("4", 4),
        (" 4\n", 4),
        ("**4**", 4),
        ("4.0", 4),
        ("The rating is 4.", None),
        ("2, yes, 2", None),
        ("not 2 but 4", None),
        ("10", None),
        ("14", None),
        ("3", None),
        ("-4", None),
        ("0.4", None),
        ("four", None),
        ("", None),
    ],
)
def test_a_text_is_a_rating_when_it_is_a_number_that_is_one(text: str, rating: int | None) -> None:
    found = Rating024.from_plain_text(text, {})

    assert (found.rating if found else None) == rating


@given(st.text(max_size=40))
def test_no_text_makes_the_reading_raise(text: str) -> None:
    found = Rating012.from_plain_text(text, {})

    assert found is None or found.rating in (0, 1, 2)


@families
def test_both_ratings_are_asked_side_by_side(family: str) -> None:
    judge = SideBySide([rated(f"{family}_1", "2"), rated(f"{family}_2", "0")], rounds=(2,))

    score = METRICS[family](judge).score_sync(SAMPLE)

    assert score.value == (0.25 if family == "accuracy" else 0.5)
    assert score.votes == Votes(requested=2, received=2)


@families
def test_an_unreadable_rating_is_asked_again_and_never_repaired(family: str) -> None:
    judge = ScriptedJudge([rated(f"{family}_1", "hm"), rated(f"{family}_1", "2"), rated(f"{family}_2", "2")])

    score = METRICS[family](judge).score_sync(SAMPLE)

    assert score.outcome is Outcome.SCORED
    assert sorted((prompt.step, prompt.vote_index) for prompt in judge.calls) == [
        (f"judge_{family}_1", 0),
        (f"judge_{family}_1", 1),
        (f"judge_{family}_2", 0),
    ]


@families
def test_five_unreadable_answers_are_enough(family: str) -> None:
    judge = ScriptedJudge([rated(f"{family}_{i}", "hm") for i in (1, 2) for _ in range(9)])

    score = METRICS[family](judge).score_sync(SAMPLE)

    assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)
    assert len(judge.calls) == 10


@families
def test_a_judge_that_is_away_is_not_asked_again(family: str) -> None:
    judge = ScriptedJudge([rated(f"{family}_2", "2")])

    score = METRICS[family](judge).score_sync(SAMPLE)

    assert score.votes == Votes(requested=2, received=1)
    assert len(judge.calls) == 2


class Reader(ScriptedJudge):
    """A judge that reads questions, as a chat model does."""

    reads_instructions = True


shared = pytest.mark.parametrize("family", ["relevance", "groundedness"])


def asked(judge: ScriptedJudge) -> list[tuple[str, int]]:
    return sorted((prompt.step, prompt.vote_index) for prompt in judge.calls)


@shared
def test_a_judge_that_reads_is_sent_the_texts_once(family: str) -> None:
    judge = Reader([rated(family, '{"first": 2, "second": 1}')])

    score = METRICS[family](judge).score_sync(SAMPLE)

    assert (score.value, score.explanation) == (0.75, "Rated 2 and 1 on a scale of 0 to 2.")
    assert score.votes == Votes(requested=2, received=2)
    assert asked(judge) == [(f"judge_{family}", 0)]


@shared
@pytest.mark.parametrize("answer", ["hm", "2", '{"rating": 2}', '{"first": 2}', '{"first": 2, "second": 7}'])
def test_two_ratings_that_cannot_be_read_are_asked_for_one_by_one(family: str, answer: str) -> None:
    judge = Reader([rated(family, answer), rated(f"{family}_1", "2"), rated(f"{family}_2", "0")])

    score = METRICS[family](judge).score_sync(SAMPLE)

    assert score.value == 0.5
    assert asked(judge) == [(f"judge_{family}", 0), (f"judge_{family}_1", 1), (f"judge_{family}_2", 1)]


@shared
def test_unreadable_answers_are_no_more_calls_when_asked_at_once(family: str) -> None:
    judge = Reader([rated(f"{family}{step}", "hm") for step in ("", "_1", "_2") for _ in range(9)])

    score = METRICS[family](judge).score_sync(SAMPLE)

    assert score.outcome is Outcome.JUDGE_ERROR
    assert len(judge.calls) == 1 + 4 + 4


@shared
def test_a_users_own_words_are_asked_at_once_too(family: str) -> None:
    judge = Reader([rated(family, '{"first": 2, "second": 2}')])
    prompts = {f"judge_{family}_2": {"instruction": "Is it any good?"}}

    METRICS[family](judge, prompts=prompts).score_sync(SAMPLE)

    assert "Second: Is it any good?" in judge.calls[0].instruction


@shared
def test_a_users_own_examples_are_asked_with_their_question(family: str) -> None:
    judge = Reader([rated(f"{family}_1", "2"), rated(f"{family}_2", "2")])
    example = {"evidence": {"question": "q", "context": "c"}, "output": {"rating": 0}}

    METRICS[family](judge, prompts={f"judge_{family}_1": {"examples": [example]}}).score_sync(SAMPLE)

    assert asked(judge) == [(f"judge_{family}_1", 0), (f"judge_{family}_2", 0)]


def test_two_answers_that_change_places_are_two_questions_to_any_judge() -> None:
    judge = Reader([rated("accuracy_1", "4"), rated("accuracy_2", "4")])

    AnswerAccuracy(judge).score_sync(SAMPLE)

    assert asked(judge) == [("judge_accuracy_1", 0), ("judge_accuracy_2", 0)]


@pytest.mark.parametrize("settings", [{}, {"timeout": 9, "max_attempts": 2, "prices": {}}])
def test_a_chat_model_reads_whatever_stands_around_it(settings: Any) -> None:
    assert reads_instructions(limited(PlainModel(), **settings))
    assert not reads_instructions(limited(ScriptedJudge(), **settings))


def test_the_offline_judge_gives_the_same_ratings_at_once() -> None:
    for family in ("relevance", "groundedness"):
        apart, at_once = METRICS[family]("lexical"), METRICS[family](Lexical())
        assert apart.score_sync(SAID).value == at_once.score_sync(SAID).value == 0.5


class Lexical(LexicalJudge):
    """The offline judge, asked as a chat model is."""

    reads_instructions = True


SAID = SingleTurnSample(
    user_input="When was the bridge opened, and how long is it?",
    response="The bridge was opened in 1931. It is green.",
    retrieved_contexts=["The bridge was opened in 1931."],
)


def test_the_second_accuracy_rating_sees_the_answers_with_their_places_changed() -> None:
    judge = ScriptedJudge([rated("accuracy_1", "4"), rated("accuracy_2", "4")])

    AnswerAccuracy(judge).score_sync(SAMPLE)

    shown = {prompt.step[-1]: prompt.evidence for prompt in judge.calls}
    assert shown == {
        "1": {"question": "q", "answer": "said", "reference": "true"},
        "2": {"question": "q", "answer": "true", "reference": "said"},
    }


@pytest.mark.parametrize(
    ("metric", "fields", "value"),
    [
        (ContextRelevance, {"user_input": "  "}, 0.0),
        (ContextRelevance, {"retrieved_contexts": []}, 0.0),
        (ContextRelevance, {"user_input": "one\ntwo?"}, 0.0),
        (ResponseGroundedness, {"response": ""}, 0.0),
        (ResponseGroundedness, {"retrieved_contexts": [" "]}, 0.0),
        (ResponseGroundedness, {"response": " one\ntwo "}, 1.0),
    ],
)
def test_what_needs_no_judge_is_not_paid_for(metric: Any, fields: dict[str, Any], value: float) -> None:
    judge = ScriptedJudge()

    score = metric(judge).score_sync(SAMPLE.model_copy(update=fields))

    assert (score.value, judge.calls) == (value, [])
    assert score.explanation
