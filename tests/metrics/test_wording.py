"""Likeness of texts: by embeddings, by a cross-encoder, by counted words; and a local classifier."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics import Bleu, Chrf, FaithfulnessWithHHEM, Rouge, SemanticSimilarity, StringPresence
from spanscore.testing import ScriptedEmbeddings, ScriptedJudge

SAMPLE = SingleTurnSample(user_input="q", response="r", reference="f", retrieved_contexts=["c1", "c2"])
OPPOSITE = ScriptedEmbeddings({"r": [1.0, 0.0], "f": [-1.0, 0.0]})
TEXTS = st.text(alphabet="ab c.,É", max_size=40)


def test_a_negative_cosine_keeps_its_value_and_has_no_quality() -> None:
    score = SemanticSimilarity(OPPOSITE).score_sync(SAMPLE)

    assert (score.value, score.quality) == (-1.0, 0.0)


def test_a_threshold_makes_it_pass_or_fail() -> None:
    score = SemanticSimilarity(OPPOSITE, threshold=0.5).score_sync(SAMPLE)

    assert (score.value, score.scale.kind, score.label) == (0.0, "binary", "fail")


@pytest.mark.parametrize("wrong", [-1.5, 2.0])
def test_a_threshold_is_a_cosine(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match="between -1 and 1"):
        SemanticSimilarity(OPPOSITE, threshold=wrong)


def test_a_cross_encoder_needs_no_embeddings_and_runs_on_a_thread_of_its_own() -> None:
    seen: list[Any] = []

    def encode(pairs: Sequence[tuple[str, str]]) -> list[float]:
        seen.extend([list(pairs), threading.current_thread().name.startswith("spanscore-judge")])
        return [0.75]

    assert SemanticSimilarity(cross_encoder=encode).score_sync(SAMPLE).value == 0.75
    assert seen == [[("f", "r")], True]


def test_a_cross_encoder_that_loses_its_pair_is_an_error() -> None:
    assert SemanticSimilarity(cross_encoder=lambda _: []).score_sync(SAMPLE).error_type == "unparseable"


def test_without_either_it_says_what_it_needs() -> None:
    with pytest.raises(ConfigurationError, match="semantic_similarity needs embeddings"):
        SemanticSimilarity()


@pytest.mark.parametrize(
    ("library", "make"),
    [
        ("sacrebleu", Bleu),
        ("sacrebleu", Chrf),
        ("rouge_score.rouge_scorer", Rouge),
        ("sentence_transformers", lambda: SemanticSimilarity(cross_encoder="a-model")),
        ("transformers", lambda: FaithfulnessWithHHEM(ScriptedJudge())),
    ],
)
def test_a_missing_library_is_answered_with_the_line_that_adds_it(
    monkeypatch: pytest.MonkeyPatch, library: str, make: Any
) -> None:
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(MissingExtraError, match=r'pip install "spanscore\[(text|hhem)\]"'):
        make()


@pytest.mark.parametrize("metric", [Bleu(), Chrf(), Rouge(), Rouge(rouge_type="rouge1", mode="recall")])
@given(response=TEXTS, reference=TEXTS)
def test_wording_lies_between_nothing_and_all(metric: Any, response: str, reference: str) -> None:
    score = metric.score_sync(SingleTurnSample(response=response, reference=reference))

    assert score.outcome is (Outcome.NO_VALUE if score.value is None else Outcome.SCORED)
    assert score.value is None or 0.0 <= score.value <= 1.0


@pytest.mark.parametrize("metric", [Bleu(), Chrf(), Rouge(), Rouge(rouge_type="rouge1")])
@pytest.mark.parametrize(("response", "reference"), [("", ""), (" ", "\n"), ("\t", "")])
def test_two_blank_texts_have_no_value(metric: Any, response: str, reference: str) -> None:
    score = metric.score_sync(SingleTurnSample(response=response, reference=reference))

    assert (score.outcome, score.value) == (Outcome.NO_VALUE, None)
    assert score.reason
    assert metric.score_sync(SingleTurnSample(response=response, reference="The bridge.")).value == 0.0


@pytest.mark.parametrize("text", ["桥开通了。", "Мост открыт.", "สะพานเปิด", "🙂🙂", "?!", "桥于1931年开通", "１９３１"])
def test_texts_that_the_tokeniser_of_rouge_does_not_know_have_no_value(text: str) -> None:
    metric = Rouge()

    assert metric.score_sync(SingleTurnSample(response=text, reference=text)).outcome is Outcome.NO_VALUE
    assert metric.score_sync(SingleTurnSample(response=text, reference="In 1931.")).value == 0.0
    assert metric.score_sync(SingleTurnSample(response="In 1931.", reference=text)).value == 0.0
    assert Bleu().score_sync(SingleTurnSample(response=text, reference=text)).value == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["1931", "1931 / 412", "Zoë", "AI 技术"])
def test_a_known_word_is_enough(text: str) -> None:
    assert Rouge().score_sync(SingleTurnSample(response=text, reference=text)).value == pytest.approx(1.0)


@pytest.mark.parametrize("metric", [Bleu(), Chrf(), Rouge(), StringPresence()])
@pytest.mark.parametrize("text", ["Yes.", "The ferry leaves at nine.", "One sentence. And another one."])
def test_the_same_words_score_one(metric: Any, text: str) -> None:
    assert metric.score_sync(SingleTurnSample(response=text, reference=text)).value == pytest.approx(1.0)


def test_every_sentence_of_an_answer_counts_in_bleu() -> None:
    reference = "The bridge opened in 1931. It spans 412 metres."
    sample = SingleTurnSample(response="The bridge opened in 1931. Bananas are yellow fruit.", reference=reference)

    value = Bleu().score_sync(sample).value

    assert value is not None
    assert 0.2 < value < 0.8


@pytest.mark.parametrize(
    "make", [lambda: Bleu(kwargs={"smoothing": "x"}), lambda: Rouge(mode="f2"), lambda: Rouge(rouge_type="rouge9")]
)  # type: ignore[arg-type]
def test_unknown_settings_of_counted_words_are_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


async def _async_classifier(pairs: Sequence[tuple[str, str]]) -> list[float]:
    return [0.9 if statement == "A" else 0.5 for _, statement in pairs]


def test_a_classifier_may_be_async_and_one_half_is_no_support() -> None:
    score = _hhem(_async_classifier).score_sync(SAMPLE)

    assert (score.value, score.explanation) == (0.5, "0.90 A\n0.50 B")


def test_the_classifier_reads_the_joined_contexts_in_batches() -> None:
    batches: list[Any] = []

    def classify(pairs: Sequence[tuple[str, str]]) -> list[float]:
        batches.append(list(pairs))
        return [1.0] * len(pairs)

    _hhem(classify, batch_size=1).score_sync(SAMPLE)

    assert batches == [[("c1\nc2", "A")], [("c1\nc2", "B")]]


@pytest.mark.parametrize("scores", [[1.0], [1.0, 1.0, 1.0], [0.5, 1.5], [float("nan"), 0.0]])
def test_a_classifier_that_miscounts_or_leaves_its_range_is_an_error(scores: list[float]) -> None:
    score = _hhem(lambda _: scores).score_sync(SAMPLE)

    assert (score.value, score.error_type) == (None, "unparseable")


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True])
def test_a_batch_is_one_pair_or_more(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="batch_size"):
        _hhem(_async_classifier, batch_size=wrong)


def _hhem(classifier: Any, **params: Any) -> FaithfulnessWithHHEM:
    judge = ScriptedJudge([{"step": "extract_statements", "output": {"statements": ["A", "B"]}}])
    return FaithfulnessWithHHEM(judge, classifier=classifier, **params)
