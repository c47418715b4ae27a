"""Output that a parser or a formatter makes of texts."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import (
    CommaSeparatedListOutputParser,
    JsonOutputParser,
    PydanticOutputParser,
    StrOutputParser,
)
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableBranch, RunnableLambda, RunnablePassthrough
from pydantic import BaseModel
from tests.applications.application import Judged, asked, judged_once, sample, says
from tests.applications.shelf import Shelf, format_docs, looked_up

# --- LangChain, "Output parsers": the model's text becomes a list ---------------------------------------------------


def test_the_list_is_the_answer_as_it_was_given() -> None:
    prompt = PromptTemplate.from_template("List five {subject}, separated by commas.")
    app = prompt | says("vanilla, chocolate, mint") | CommaSeparatedListOutputParser()

    assert asked(app, {"subject": "ice cream flavours"}) == Judged(
        single_turn=sample("ice cream flavours", '["vanilla","chocolate","mint"]'), source="object"
    )


# --- LangChain, "How to parse JSON output": the model returns a structure as text, and a parser makes a dict of it

QUERY = "Tell me a joke."
SAID = '{"setup": "Why did the chicken cross the road?", "punchline": "To get to the other side!"}'
JOKE = '{"setup":"Why did the chicken cross the road?","punchline":"To get to the other side!"}'


class Joke(BaseModel):
    setup: str
    punchline: str


def joker(parser: Any) -> Any:
    prompt = PromptTemplate(
        template="Answer the user query.\n{format_instructions}\n{query}\n",
        input_variables=["query"],
        partial_variables={"format_instructions": parser.get_format_instructions()},
    )
    return prompt | says(SAID) | parser


def test_the_parsed_structure_is_the_answer() -> None:
    assert asked(joker(JsonOutputParser(pydantic_object=Joke)), {"query": QUERY}) == Judged(
        single_turn=sample(QUERY, JOKE), source="object"
    )


def test_so_it_is_as_an_object() -> None:
    assert asked(joker(PydanticOutputParser(pydantic_object=Joke)), {"query": QUERY}) == Judged(
        single_turn=sample(QUERY, JOKE), source="object"
    )


def test_a_structure_that_is_streamed_is_its_last_state() -> None:
    app = joker(JsonOutputParser(pydantic_object=Joke))

    seen = judged_once(lambda config: list(app.stream({"query": QUERY}, config)))

    assert seen == Judged(single_turn=sample(QUERY, JOKE), source="object")


# --- LangChain, "RAG" as a chain: documents joined to one text in the prompt; found, not found, never looked for

QUESTION = "When was the tower built?"
BUILT = "The tower was built from 1887 to 1889."
PAINTED = "The tower is painted every seven years."
ANSWER = "From 1887 to 1889."
SHELF = Shelf(holds={"tower": (BUILT, PAINTED)})


def rag_chain(answer: str) -> Any:
    prompt = ChatPromptTemplate.from_template("Use this to answer.\n{context}\n\nQuestion: {question}")
    return (
        {"context": SHELF | format_docs, "question": RunnablePassthrough()} | prompt | says(answer) | StrOutputParser()
    )


def test_the_documents_in_the_prompt_are_the_contexts() -> None:
    seen, unused = looked_up(lambda config: rag_chain(ANSWER).invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [BUILT, PAINTED])
    assert unused == 0


def test_a_search_that_finds_nothing_is_an_empty_list_of_contexts() -> None:
    seen, _ = looked_up(lambda config: rag_chain("I don't know.").invoke("Who lives there?", config))

    assert seen == sample("Who lives there?", "I don't know.", [], retrieved_context_ids=[])


def test_a_greeting_that_looks_nothing_up_has_no_contexts() -> None:
    small_talk = ChatPromptTemplate.from_template("Be polite: {question}") | says("Hello!") | StrOutputParser()
    is_greeting = RunnableLambda(lambda question: question.startswith("Hi"))
    app = RunnableBranch((is_greeting, {"question": RunnablePassthrough()} | small_talk), rag_chain(ANSWER))

    seen, _ = looked_up(lambda config: app.invoke("Hi there", config))

    assert seen == sample("Hi there", "Hello!", None)
