"""langchain-classic, an ensemble: the documents of two retrievers are fused by rank, each once."""

from __future__ import annotations

from langchain_classic.retrievers import EnsembleRetriever
from tests.applications.application import sample
from tests.applications.shelf import Shelf, looked_up, rag_over

QUESTION = "What do pandas eat?"
BAMBOO = "Pandas eat bamboo."
FISH = "Pandas sometimes eat fish."
CHINA = "Pandas live in China."
ANSWER = "Bamboo, sometimes fish."


def test_each_document_that_both_found_is_one_context() -> None:
    keywords, vectors = Shelf(holds={"pandas": (CHINA, BAMBOO)}), Shelf(holds={"pandas": (BAMBOO, FISH)})
    app = rag_over(EnsembleRetriever(retrievers=[keywords, vectors], weights=[0.4, 0.6]), ANSWER)

    seen, unused = looked_up(lambda config: app.invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [BAMBOO, FISH, CHINA])
    assert unused == 0
