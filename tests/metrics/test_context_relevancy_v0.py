"""ContextRelevancyV0: reading, agreement, and uncounted sentences."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics.side_by_side import SideBySide

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome, Votes
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics import ContextRelevancyV0
from spanscore.metrics.context_relevancy_v0 import ExtractedSentences, found_in
from spanscore.metrics.kit.sentences_pysbd import segmenter
from spanscore.testing import ScriptedJudge

CONTEXTS = ["The bridge opened in 1931. It is long.", "Dr. Thule built it."]
SAMPLE = SingleTurnSample(user_input="q", retrieved_contexts=CONTEXTS)


def answer(*sentences: str) -> dict[str, Any]:
    return {"step": "extract_sentences", "output": {"sentences": list(sentences)}}


def test_it_is_the_share_of_needed_sentences() -> None:
    score = ContextRelevancyV0(ScriptedJudge([answer("Dr. Thule built it.")])).score_sync(SAMPLE)

    assert score.value == pytest.approx(1 / 3)
    assert score.explanation == "Needed: 1 of 3 sentences; agreement 1.00."


def test_a_repeated_or_invented_sentence_does_not_count() -> None:
    judge = ScriptedJudge([answer("It is long.", "it is  long", "It is not long.")])

    score = ContextRelevancyV0(judge).score_sync(SAMPLE)

    assert score.value == pytest.approx(1 / 3)
    assert score.explanation is not None
    assert score.explanation.endswith("2 extracted sentences are repeated or not in the contexts, and do not count.")


def test_votes_are_asked_side_by_side_and_lost_ones_do_not_count() -> None:
    judge = SideBySide([answer("It is long."), answer("It is long.")], rounds=(3,))

    score = ContextRelevancyV0(judge, strictness=3).score_sync(SAMPLE)

    assert score.value == pytest.approx(1 / 3)
    assert score.votes == Votes(requested=3, received=2)


def test_a_function_of_pairs_can_compare_the_answers() -> None:
    asked: list[tuple[str, str]] = []

    def half(pairs: Sequence[tuple[str, str]]) -> list[float]:
        asked.extend(pairs)
        return [0.5] * len(pairs)

    judge = ScriptedJudge([answer("It is long."), answer("Dr. Thule built it.")])

    score = ContextRelevancyV0(judge, strictness=2, agreement=half).score_sync(SAMPLE)

    assert score.value == pytest.approx(0.5 * 1 / 3)
    assert asked == [("It is long.", "Dr. Thule built it.")]


def test_an_empty_answer_and_another_disagree() -> None:
    judge = ScriptedJudge([answer("It is long."), answer()])

    assert ContextRelevancyV0(judge, strictness=2).score_sync(SAMPLE).value == 0.0


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It is long.\n\nDr. Thule built it.", ["It is long.", "Dr. Thule built it."]),
        ("Insufficient Information.", []),
        ("It is long.", ["It is long."]),
        ("I would rather not say.", None),
        ('{"sentences": ["It is', None),
        ("", None),
    ],
)
def test_lines_are_read_as_sentences_and_a_remark_is_not(text: str, sentences: list[str] | None) -> None:
    read = ExtractedSentences.from_plain_text(text, {"context": "\n".join(CONTEXTS)})

    assert (None if read is None else read.sentences) == sentences


def test_a_remark_is_no_score() -> None:
    judge = ScriptedJudge([{"step": "extract_sentences", "raw": "I would rather not say."}])

    score = ContextRelevancyV0(judge).score_sync(SAMPLE)

    assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)


def test_an_unknown_agreement_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="agreement is 'cosine'"):
        ContextRelevancyV0(ScriptedJudge(), agreement="cosine")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("library", "params", "extra"),
    [("pysbd", {}, "text"), ("sentence_transformers", {"agreement": "bert_score"}, "hhem")],
)
def test_a_missing_library_is_named_at_construction(
    monkeypatch: pytest.MonkeyPatch, library: str, params: dict[str, Any], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(MissingExtraError, match=rf'pip install "spanscore\[{extra}\]"'):
        ContextRelevancyV0(ScriptedJudge(), **params)


@given(st.lists(st.sampled_from(["One is here.", "Two are there.", "Dr. Three sleeps."]), max_size=5))
def test_sentences_of_a_text_are_found_in_it_once_each(sentences: list[str]) -> None:
    text = "\n".join(sentences)

    assert found_in(text, sentences) == list(dict.fromkeys(sentences))
    assert segmenter()(text) == sentences


@given(st.text(max_size=60))
def test_no_text_makes_the_reading_raise(text: str) -> None:
    read = ExtractedSentences.from_plain_text(text, {"context": text})

    assert read is None or isinstance(read.sentences, list)
