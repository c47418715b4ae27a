"""Context precision, recall and entity recall: properties that the reference cases do not show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics.side_by_side import SideBySide

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError
from spanscore.metrics import (
    ContextEntityRecall,
    ContextPrecision,
    ContextRecall,
    ContextUtilization,
    IDBasedContextPrecision,
    IDBasedContextRecall,
    NonLLMContextPrecisionWithReference,
    NonLLMContextRecall,
)
from spanscore.testing import ScriptedJudge

ids = st.lists(st.integers(0, 9) | st.sampled_from("abc"), min_size=1, max_size=8)
texts = st.lists(st.text("ab ", max_size=6), min_size=1, max_size=5)


def verdict(flag: int, step: str = "judge_context") -> dict[str, Any]:
    return {"step": step, "output": {"reason": "r", "verdict": flag}}


def sample(**fields: Any) -> SingleTurnSample:
    known = {"user_input": "q", "response": "said", "reference": "true", "retrieved_contexts": ["a", "b", "c"]}
    return SingleTurnSample(**{**known, **fields})


def test_contexts_are_judged_side_by_side_and_keep_their_ranks() -> None:
    judge = SideBySide([verdict(0), verdict(1), verdict(1)], rounds=(3,))

    score = ContextPrecision(judge).score_sync(sample())

    assert score.value == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert score.explanation == "Useful ranks: 2, 3 of 3."


@pytest.mark.parametrize(("metric", "shown"), [(ContextPrecision, "true"), (ContextUtilization, "said")])
def test_precision_shows_the_reference_and_utilization_the_answer(metric: Any, shown: str) -> None:
    judge = ScriptedJudge([verdict(1)])

    metric(judge).score_sync(sample(retrieved_contexts=["a"]))

    assert judge.calls[0].evidence == {"question": "q", "answer": shown, "context": "a"}


def test_one_context_without_verdict_is_no_score() -> None:
    score = ContextPrecision(ScriptedJudge([verdict(1), verdict(1)])).score_sync(sample())

    assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)


def test_nothing_retrieved_asks_nobody() -> None:
    judge = ScriptedJudge()

    score = ContextPrecision(judge).score_sync(sample(retrieved_contexts=[]))

    assert (score.outcome, score.reason) == (Outcome.NO_VALUE, "nothing was retrieved, so there is no order")
    assert judge.calls == []


def test_recall_says_which_sentence_is_missing() -> None:
    rows = [{"statement": "One.", "attributed": 1}, {"statement": "Two.", "reason": "says three", "attributed": False}]
    judge = ScriptedJudge([{"step": "classify_reference_sentences", "output": {"classifications": rows}}])

    score = ContextRecall(judge).score_sync(sample())

    assert score.value == 0.5
    assert score.explanation == "1 of 2 sentences of the reference are in the contexts.\nNot there: Two. (says three)"


def test_entities_of_both_sides_are_listed_side_by_side() -> None:
    judge = SideBySide(
        [
            {
                "step": "extract_entities_reference",
                "output": {"entities": ["Ｏｒｌｏ  bridge", "1931", "orlo BRIDGE", " "]},
            },
            {"step": "extract_entities_contexts", "output": {"entities": ["Orlo bridge"]}},
        ],
        rounds=(2,),
    )

    score = ContextEntityRecall(judge).score_sync(sample())

    assert score.value == 0.5
    assert score.explanation == "1 of 2 entities of the reference are in the contexts. Missing: 1931."


@pytest.mark.parametrize("metric", [NonLLMContextPrecisionWithReference, NonLLMContextRecall])
@pytest.mark.parametrize("wrong", [{"threshold": 1.2}, {"threshold": -0.1}, {"distance_measure": "cosine"}])
def test_a_threshold_is_a_similarity_and_a_distance_has_a_known_name(metric: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        metric(**wrong)


@given(ids, ids)
def test_precision_by_ids_is_recall_with_the_lists_changed(one: list[int | str], other: list[int | str]) -> None:
    there = SingleTurnSample(retrieved_context_ids=one, reference_context_ids=other)
    back = SingleTurnSample(retrieved_context_ids=other, reference_context_ids=one)

    assert IDBasedContextPrecision().score_sync(there).value == IDBasedContextRecall().score_sync(back).value


@given(texts)
def test_what_should_be_found_and_was_is_perfect(contexts: list[str]) -> None:
    found = SingleTurnSample(retrieved_contexts=contexts, reference_contexts=contexts)

    for metric in (NonLLMContextPrecisionWithReference(threshold=1.0), NonLLMContextRecall(threshold=1.0)):
        assert metric.score_sync(found).value == 1.0


@given(texts, texts, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_threshold_never_finds_more(
    retrieved: list[str], reference: list[str], one: float, other: float
) -> None:
    both = SingleTurnSample(retrieved_contexts=retrieved, reference_contexts=reference)

    low, high = (NonLLMContextRecall(threshold=at).score_sync(both).value or 0.0 for at in sorted((one, other)))

    assert low >= high
