"""Classifiers and cross-encoders that run here: loaded from a folder, deterministic, never on the loop."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.extras import tiny_models

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError
from spanscore.metrics import ContextRelevancyV0, FaithfulnessWithHHEM, SemanticSimilarity
from spanscore.metrics.kit.sentence_transformers_pairs import load_cross_encoder, load_entailment_classifier
from spanscore.testing import ScriptedJudge

NLI = ("entailment", "neutral", "contradiction")
PAIRS = [("the bridge opened in 1931 .", "it opened in 1932"), ("it is red .", "the bridge is red")]
SAMPLE = SingleTurnSample(
    user_input="When did the bridge open?",
    response="It opened in 1931. It is red.",
    retrieved_contexts=["the bridge opened in 1931 .", "it is red ."],
    reference="the bridge opened in 1931",
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_models.classifier(tmp_path_factory.mktemp("models") / "encoder")


@pytest.fixture(scope="module")
def nli(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_models.classifier(tmp_path_factory.mktemp("models") / "nli", NLI)


def test_a_cross_encoder_tells_pairs_apart_and_says_the_same_twice(encoder: str) -> None:
    scores = [load_cross_encoder(encoder)(PAIRS) for _ in range(2)]

    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert all(0.0 <= score <= 1.0 for score in scores[0])
    assert scores[0][0] != pytest.approx(scores[0][1], abs=1e-4)


def test_semantic_similarity_is_what_the_cross_encoder_says(encoder: str) -> None:
    (alone,) = load_cross_encoder(encoder)([(SAMPLE.reference or "", SAMPLE.response or "")])

    metric = SemanticSimilarity(cross_encoder=encoder)

    assert metric.score_sync(SAMPLE).value == pytest.approx(alone, abs=1e-6)
    assert metric.version == SemanticSimilarity(cross_encoder=encoder).version


def test_agreement_by_cross_encoder_lies_between_none_and_all(encoder: str) -> None:
    judge = ScriptedJudge(
        {"step": "extract_sentences", "output": {"sentences": [sentence]}}
        for sentence in SAMPLE.retrieved_contexts or ()
    )

    score = ContextRelevancyV0(judge, strictness=2, agreement="bert_score", cross_encoder=encoder).score_sync(SAMPLE)

    assert score.value is not None, score.reason
    assert 0.0 < score.value < 0.5  # each answer is one sentence of two, and they are not the same


def test_an_entailment_model_gives_the_probability_of_its_label(nli: str) -> None:
    scores = [load_entailment_classifier(nli, device="cpu")(PAIRS) for _ in range(2)]

    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert all(0.0 < score < 1.0 for score in scores[0])
    assert scores[0][0] != pytest.approx(scores[0][1], abs=1e-4)


def test_a_long_context_is_cut_and_its_statement_is_not(nli: str) -> None:
    classify = load_entailment_classifier(nli, device="cpu")

    long, other = classify([("it is red . " * 100, "it is red"), ("it is red . " * 100, "it never opened")])

    assert long != pytest.approx(other, abs=1e-4)


def test_faithfulness_counts_what_the_model_finds_probable(nli: str) -> None:
    statements = ["it opened in 1931", "it is red", "it never opened", "the bridge is red"]
    context = "\n".join(SAMPLE.retrieved_contexts or ())
    probable = [
        score > 0.5 for score in load_entailment_classifier(nli)([(context, statement) for statement in statements])
    ]

    score = FaithfulnessWithHHEM(_cutting(statements), model=nli, device="cpu", batch_size=3).score_sync(SAMPLE)

    assert score.value == pytest.approx(sum(probable) / 4)


def test_a_model_that_brings_its_own_code_is_asked_by_its_predict(tmp_path: Path) -> None:
    model = tiny_models.with_own_code(tmp_path / "own")

    score = FaithfulnessWithHHEM(_cutting(["even", "odd", "four"]), model=model).score_sync(SAMPLE)

    assert score.value == pytest.approx(2 / 3), score.reason
    assert score.explanation == "0.90 even\n0.10 odd\n0.90 four"


@pytest.mark.parametrize("kind", ["hhem", "similarity", "agreement"])
def test_a_model_runs_on_a_thread_of_a_pool(kind: str, encoder: str, nli: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import BertModel

    threads: set[str] = set()
    forward = BertModel.forward

    def watched(*args: Any, **kwargs: Any) -> Any:
        threads.add(threading.current_thread().name)
        return forward(*args, **kwargs)

    monkeypatch.setattr(BertModel, "forward", watched)
    sentences = [
        {"step": "extract_sentences", "output": {"sentences": [text]}} for text in SAMPLE.retrieved_contexts or ()
    ]
    metrics: dict[str, Any] = {
        "hhem": lambda: FaithfulnessWithHHEM(_cutting(["it is red"]), model=nli),
        "similarity": lambda: SemanticSimilarity(cross_encoder=encoder),
        "agreement": lambda: ContextRelevancyV0(
            ScriptedJudge(sentences), strictness=2, agreement="bert_score", cross_encoder=encoder
        ),
    }

    score = metrics[kind]().score_sync(SAMPLE)

    assert score.value is not None, score.reason
    assert threads
    assert all(name.startswith("spanscore-judge") for name in threads)


@pytest.mark.parametrize("name", ["no-such/model-anywhere", "/dev/null/nowhere"])
def test_a_model_that_is_not_there_is_a_wrong_setting(name: str) -> None:
    for made in (
        lambda: FaithfulnessWithHHEM(ScriptedJudge(), model=name),
        lambda: SemanticSimilarity(cross_encoder=name),
        lambda: ContextRelevancyV0(ScriptedJudge(), agreement="bert_score", cross_encoder=name),
    ):
        with pytest.raises(ConfigurationError, match=f"{name}.*could not be loaded"):
            made()


def test_a_model_for_something_else_is_a_wrong_setting(tmp_path: Path, nli: str) -> None:
    moods = tiny_models.classifier(tmp_path / "moods", ("joy", "anger"))

    with pytest.raises(ConfigurationError, match="joy, anger; none of them is entailment"):
        FaithfulnessWithHHEM(ScriptedJudge(), model=moods)
    with pytest.raises(ConfigurationError, match="gives 3 numbers for a pair"):
        SemanticSimilarity(cross_encoder=nli)


def test_loading_and_running_a_model_prints_nothing(encoder: str, nli: str, capfd: pytest.CaptureFixture[str]) -> None:
    SemanticSimilarity(cross_encoder=encoder).score_sync(SAMPLE)
    FaithfulnessWithHHEM(_cutting(["it is red"]), model=nli).score_sync(SAMPLE)

    assert capfd.readouterr() == ("", "")


def _cutting(statements: list[str]) -> ScriptedJudge:
    return ScriptedJudge([{"step": "extract_statements", "output": {"statements": statements}}])
