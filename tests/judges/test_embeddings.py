"""Texts → vectors: LangChain's, and the offline ones."""

from __future__ import annotations

from math import hypot

import pytest
from langchain_core.embeddings import Embeddings
from tests.judges.models import ProviderError

from spanscore.context import is_judging
from spanscore.errors import ConfigurationError, JudgeUnavailable
from spanscore.judges import LangChainEmbedder, LexicalEmbedder, embedder
from spanscore.judges.embeddings import embedder_name
from spanscore.testing import ScriptedEmbeddings


class Fake(Embeddings):
    """Embeds a text as its length. Says whether it was called inside the suppression."""

    model = "fake-embeddings-1"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.suppressed: list[bool] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.suppressed.append(is_judging())
        if self.error:
            raise self.error
        return [[len(text), 1] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        raise AssertionError


async def test_langchain_embeddings_are_asked_once_for_all_texts_and_unseen() -> None:
    fake = Fake()

    vectors = await embedder(fake).embed(["one", "three"])

    assert vectors == [[3.0, 1.0], [5.0, 1.0]]
    assert fake.suppressed == [True]


async def test_a_failing_provider_is_a_judge_s_error_that_quotes_nothing() -> None:
    with pytest.raises(JudgeUnavailable) as raised:
        await embedder(Fake(ProviderError(503))).embed(["SECRET"])

    assert "SECRET" not in str(raised.value)


def test_an_embedder_is_returned_as_it_is() -> None:
    own = ScriptedEmbeddings({})

    assert embedder(own) is own
    assert isinstance(embedder("lexical"), LexicalEmbedder)


def test_embeddings_are_told_apart_by_their_model() -> None:
    assert embedder_name(LangChainEmbedder(Fake())) == "fake-embeddings-1"
    assert embedder_name(ScriptedEmbeddings({})) == "ScriptedEmbeddings"


@pytest.mark.parametrize("given", [None, 7, object()])
def test_what_makes_no_embeddings_is_refused(given: object) -> None:
    with pytest.raises(ConfigurationError, match="Give LangChain embeddings"):
        embedder(given)


async def test_offline_vectors_are_alike_for_texts_that_share_words() -> None:
    asked, close, far = await LexicalEmbedder().embed(
        ["When did the Orlo bridge open?", "The Orlo bridge opened in 1931.", "Bees keep warm in winter."]
    )

    assert _cosine(asked, close) > 0.7
    assert _cosine(asked, far) < 0.1


async def test_offline_vectors_are_the_same_in_every_process() -> None:
    (vector,) = await LexicalEmbedder(size=8).embed(["Orlo bridge 1931"])

    assert vector == (await LexicalEmbedder(size=8).embed(["Orlo bridge 1931"]))[0]
    assert sum(vector) == 3.0


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True)) / hypot(*one) / hypot(*other)


def test_a_name_without_provider_is_answered_with_the_form() -> None:
    with pytest.raises(ConfigurationError, match="provider:model"):
        embedder("text-embedding-3-small")
