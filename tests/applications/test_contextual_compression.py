"""langchain-classic, contextual compression: a model keeps the part of each document that concerns the question."""

from __future__ import annotations

from typing import Any

from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import LLMChainExtractor
from tests.applications.application import replies, sample
from tests.applications.shelf import Shelf, looked_up, rag_over

QUESTION = "When does the museum open?"
LONG = "The museum has 380,000 objects. It opens at nine. Its cafe serves soup."
OTHER = "The zoo has lions."
OPENS = "It opens at nine."
ANSWER = "At nine."


def compressed_rag() -> Any:
    extractor = LLMChainExtractor.from_llm(replies({LONG: OPENS, OTHER: "NO_OUTPUT"}))
    shelf = Shelf(holds={"museum": (LONG, OTHER)})
    return rag_over(ContextualCompressionRetriever(base_compressor=extractor, base_retriever=shelf), ANSWER)


def test_the_contexts_are_what_was_kept_of_the_documents() -> None:
    seen, _ = looked_up(lambda config: compressed_rag().invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [OPENS])
