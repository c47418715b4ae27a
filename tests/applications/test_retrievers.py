"""Retrieval with an unusual retriever: the contexts are the documents in the prompt, each once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MultiQueryRetriever,
    ParentDocumentRetriever,
)
from langchain_classic.retrievers.document_compressors import LLMChainExtractor
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.stores import InMemoryStore
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter
from pydantic import BaseModel, Field
from tests.applications.application import calls, replies, sample, says
from tests.applications.shelf import Shelf, Words, format_docs, looked_up, rag_over

# --- langchain-classic, an ensemble: the documents of two retrievers are fused by rank, each once -------------------

ENSEMBLE_QUESTION = "What do pandas eat?"
BAMBOO = "Pandas eat bamboo."
FISH = "Pandas sometimes eat fish."
CHINA = "Pandas live in China."
ENSEMBLE_ANSWER = "Bamboo, sometimes fish."


def test_each_document_that_both_found_is_one_context() -> None:
    keywords, vectors = Shelf(holds={"pandas": (CHINA, BAMBOO)}), Shelf(holds={"pandas": (BAMBOO, FISH)})
    app = rag_over(EnsembleRetriever(retrievers=[keywords, vectors], weights=[0.4, 0.6]), ENSEMBLE_ANSWER)

    seen, unused = looked_up(lambda config: app.invoke(ENSEMBLE_QUESTION, config))

    assert seen == sample(ENSEMBLE_QUESTION, ENSEMBLE_ANSWER, [BAMBOO, FISH, CHINA])
    assert unused == 0


# --- langchain-classic, `MultiQueryRetriever`: a model writes three queries, and the found documents are merged

QUERIES_QUESTION = "How do I keep bread fresh?"
BOX = "A bread box keeps bread fresh for days."
FREEZE = "Sliced bread keeps for months in a freezer."
QUERIES_ANSWER = "In a box, or frozen."


def multi_query_rag() -> Any:
    shelf = Shelf(holds={"store": (BOX,), "freeze": (FREEZE, BOX), "crust": ()})
    llm = says("How to store bread?\nCan I freeze bread?\nWhat keeps the crust?")
    return rag_over(MultiQueryRetriever.from_llm(retriever=shelf, llm=llm), QUERIES_ANSWER)


def test_the_question_is_the_users_and_each_document_is_one_context() -> None:
    seen, unused = looked_up(lambda config: multi_query_rag().invoke(QUERIES_QUESTION, config))

    assert seen == sample(QUERIES_QUESTION, QUERIES_ANSWER, [BOX, FREEZE])
    assert unused == 0


# --- langchain-classic, contextual compression: a model keeps the part of each document that concerns the question

COMPRESSED_QUESTION = "When does the museum open?"
LONG = "The museum has 380,000 objects. It opens at nine. Its cafe serves soup."
OTHER = "The zoo has lions."
OPENS = "It opens at nine."
COMPRESSED_ANSWER = "At nine."


def compressed_rag() -> Any:
    extractor = LLMChainExtractor.from_llm(replies({LONG: OPENS, OTHER: "NO_OUTPUT"}))
    shelf = Shelf(holds={"museum": (LONG, OTHER)})
    return rag_over(ContextualCompressionRetriever(base_compressor=extractor, base_retriever=shelf), COMPRESSED_ANSWER)


def test_the_contexts_are_what_was_kept_of_the_documents() -> None:
    seen, _ = looked_up(lambda config: compressed_rag().invoke(COMPRESSED_QUESTION, config))

    assert seen == sample(COMPRESSED_QUESTION, COMPRESSED_ANSWER, [OPENS])


# --- langchain-classic, `ParentDocumentRetriever`: small chunks are searched, and the documents they are of are read

PARENT_QUESTION = "Where do storks spend the winter?"
STORKS = "White storks are large birds. They breed in Europe. In winter storks fly to Africa, south of the Sahara."
TROUT = "Trout are fish. They live in cold rivers and lakes."
PARENT_ANSWER = "In Africa, south of the Sahara."


def parent_rag() -> Any:
    retriever: Any = ParentDocumentRetriever(
        vectorstore=InMemoryVectorStore(Words("storks", "winter", "trout", "rivers")),
        docstore=InMemoryStore(),
        child_splitter=RecursiveCharacterTextSplitter(chunk_size=40, chunk_overlap=0),
        search_kwargs={"k": 2},
    )
    retriever.add_documents([Document(TROUT), Document(STORKS)], ids=["trout", "storks"])
    return rag_over(retriever, PARENT_ANSWER)


def test_the_contexts_are_whole_documents_and_not_their_chunks() -> None:
    seen, unused = looked_up(lambda config: parent_rag().invoke(PARENT_QUESTION, config))

    assert seen == sample(PARENT_QUESTION, PARENT_ANSWER, [STORKS])
    assert unused == 0


# --- A self-query: a model makes a search text and a filter of the question, and the shelf is asked with both -------

FILTERED_QUESTION = "Is there a film about toys from after 1990?"
TOYS = "Toys come alive and have a blast doing so."
OLD = "A toymaker carves a puppet of wood that wants to be a boy among toys."
FILTERED_ANSWER = "Yes: toys come alive and have a blast."


class Search(BaseModel):
    """A search."""

    query: str = Field(description="Text to compare with the documents")
    after: int = Field(description="Only films of later years")


def self_query_rag() -> Any:
    store = InMemoryVectorStore(Words("toys", "puppet"))
    films = [Document(TOYS, metadata={"year": 1995}), Document(OLD, metadata={"year": 1940})]
    store.add_documents(films, ids=["toy-story", "pinocchio"])
    constructor = says(calls("Search", query="toys", after=1990)).with_structured_output(Search)

    def look_up(search: Search) -> list[Document]:
        retriever = store.as_retriever(search_kwargs={"filter": lambda film: film.metadata["year"] > search.after})
        return retriever.invoke(search.query)

    found = constructor | RunnableLambda(look_up) | format_docs
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    return {"context": found, "question": RunnablePassthrough()} | prompt | says(FILTERED_ANSWER) | StrOutputParser()


def test_the_question_is_the_users_and_not_the_query_that_was_made_of_it() -> None:
    seen, unused = looked_up(lambda config: self_query_rag().invoke(FILTERED_QUESTION, config))

    assert seen == sample(FILTERED_QUESTION, FILTERED_ANSWER, [TOYS], retrieved_context_ids=["toy-story"])
    assert unused == 0


# --- HyDE: a model invents a passage as an answer, and retrieval looks for similar passages -------------------------

HYDE_QUESTION = "Why is the sky blue?"
INVENTED = "The sky is blue because air scatters short waves of light more than long ones."
SCATTERED = "Rayleigh: air scatters light of short waves more."
BREAD = "Bread is baked at 230 degrees."
HYDE_ANSWER = "Air scatters blue light more."


def hyde() -> Any:
    near = Words("air", "scatters", "light", "baked")
    store = InMemoryVectorStore.from_texts([BREAD, SCATTERED], near, ids=["bread", "sky"])
    invented = (
        ChatPromptTemplate.from_template("Write a passage that answers: {question}")
        | says(INVENTED)
        | StrOutputParser()
    )
    found = {"question": RunnablePassthrough()} | invented | store.as_retriever(search_kwargs={"k": 1}) | format_docs
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    return {"context": found, "question": RunnablePassthrough()} | prompt | says(HYDE_ANSWER) | StrOutputParser()


def test_what_was_found_is_the_context_and_not_what_was_invented() -> None:
    seen, unused = looked_up(lambda config: hyde().invoke(HYDE_QUESTION, config))

    assert seen == sample(HYDE_QUESTION, HYDE_ANSWER, [SCATTERED], retrieved_context_ids=["sky"])
    assert unused == 0


# --- A chain with a reranker of its own -----------------------------------------------------------------------------
# A lambda that keeps the best two of four documents, and puts the better one first.

RERANKED_QUESTION = "How much does a ticket to the tower cost?"
HOURS = "Doors open at nine."
CHILDREN = "A ticket for children costs 7 euros."
ADULTS = "A ticket to the top of the tower costs 29 euros."
SHOP = "The shop sells postcards."
RERANKED_ANSWER = "29 euros to the top, 7 for children."


def shared_words(document: Document, question: str) -> int:
    return len(set(document.page_content.lower().split()) & set(question.lower().split()))


def rerank(found: dict[str, Any]) -> list[Document]:
    best = sorted(found["documents"], key=lambda document: -shared_words(document, found["question"]))
    return best[:2]


def reranking_chain() -> Any:
    shelf = Shelf(holds={"ticket": (HOURS, CHILDREN, ADULTS, SHOP)})
    best = {"documents": shelf, "question": RunnablePassthrough()} | RunnableLambda(rerank) | format_docs
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    return {"context": best, "question": RunnablePassthrough()} | prompt | says(RERANKED_ANSWER) | StrOutputParser()


def test_what_the_reranker_dropped_is_no_context() -> None:
    seen, unused = looked_up(lambda config: reranking_chain().invoke(RERANKED_QUESTION, config))

    assert seen is not None
    assert seen.retrieved_contexts is not None
    assert (seen.user_input, seen.response) == (RERANKED_QUESTION, RERANKED_ANSWER)
    assert set(seen.retrieved_contexts) == {ADULTS, CHILDREN}
    assert unused == 2


# --- RAG fusion: a model writes several queries, each is looked up, and the ranks are fused by their reciprocals

FUSED_QUESTION = "What do whales eat?"
KRILL = "Blue whales eat krill."
SQUID = "Sperm whales hunt squid."
SALT = "Sea water is salty."
FUSED_ANSWER = "Krill, or squid."


def reciprocal_rank_fusion(rounds: list[list[Document]], k: int = 60, best: int = 2) -> list[Document]:
    scores: dict[str, float] = defaultdict(float)
    for documents in rounds:
        for rank, document in enumerate(documents):
            scores[document.page_content] += 1 / (rank + k)
    return [Document(text) for text in sorted(scores, key=lambda text: -scores[text])[:best]]


def rag_fusion() -> Any:
    shelf = Shelf(holds={"food": (KRILL, SALT), "prey": (SQUID, KRILL), "diet": (SQUID, KRILL)})
    queries = (
        ChatPromptTemplate.from_template("Write three search queries for: {question}")
        | says("whale food\nwhale prey\nwhale diet")
        | StrOutputParser()
        | str.splitlines
    )
    found = queries | shelf.map() | reciprocal_rank_fusion | format_docs
    prompt = ChatPromptTemplate.from_template("Answer from:\n{context}\n\nQuestion: {question}")
    asked = {"context": {"question": RunnablePassthrough()} | found, "question": RunnablePassthrough()}
    return asked | prompt | says(FUSED_ANSWER) | StrOutputParser()


def test_each_fused_document_is_one_context_and_the_rest_is_counted() -> None:
    seen, unused = looked_up(lambda config: rag_fusion().invoke(FUSED_QUESTION, config))

    assert seen is not None
    assert seen.retrieved_contexts is not None
    assert (seen.user_input, seen.response) == (FUSED_QUESTION, FUSED_ANSWER)
    assert sorted(seen.retrieved_contexts) == [KRILL, SQUID]
    assert unused == 1
