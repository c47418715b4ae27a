"""LangChain, "Summarize text": all documents at once, one after the other, or each for itself and then together."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from tests.applications.application import Judged, asked, replies, sample, says

ARTICLE = "Agents plan, remember and use tools. They are slow."


def one_text() -> Any:
    prompt = ChatPromptTemplate.from_template("Write a concise summary of the following:\n\n{article}")
    return RunnablePassthrough.assign(summary=prompt | says("Agents are slow.") | StrOutputParser())


class State(TypedDict):
    contents: list[str]
    summaries: Annotated[list[str], operator.add]
    final_summary: str


def map_reduce() -> Any:
    llm = replies({"consolidated": "Fruits have colours.", "Apples": "Apples: red.", "Plums": "Plums: blue."})

    def generate_summary(content: str) -> dict[str, Any]:
        return {"summaries": [llm.invoke(f"Write a concise summary of the following: {content}.").content]}

    def generate_final_summary(state: State) -> dict[str, Any]:
        text = "\n".join(state["summaries"])
        return {"final_summary": llm.invoke(f"Distill these into a final, consolidated summary: {text}").content}

    graph = StateGraph(State)
    graph.add_node("generate_summary", generate_summary)
    graph.add_node("generate_final_summary", generate_final_summary)
    graph.add_conditional_edges(
        START, lambda s: [Send("generate_summary", c) for c in s["contents"]], ["generate_summary"]
    )
    graph.add_edge("generate_summary", "generate_final_summary")
    graph.add_edge("generate_final_summary", END)
    return graph.compile()


def stuffed() -> Any:
    prompt = ChatPromptTemplate.from_template("Write a concise summary of the following:\n\n{texts}")
    return (
        RunnablePassthrough.assign(texts=lambda given: "\n\n".join(d.page_content for d in given["context"]))
        | prompt
        | says("Fruits have colours.")
        | StrOutputParser()
    )


def test_the_article_is_the_question_and_the_summary_the_answer() -> None:
    assert asked(one_text(), {"article": ARTICLE}) == Judged(
        single_turn=sample(ARTICLE, "Agents are slow."), source="only_text"
    )


def test_a_list_of_texts_is_the_question_as_it_was_given() -> None:
    assert asked(map_reduce(), {"contents": ["Apples are red", "Plums are blue"]}) == Judged(
        single_turn=sample('["Apples are red","Plums are blue"]', "Fruits have colours."), source="object"
    )


def test_documents_that_were_given_are_the_contexts_of_their_summary() -> None:
    given = {"context": [Document("Apples are red."), Document("Plums are blue.")]}

    assert asked(stuffed(), given) == Judged(
        single_turn=sample(
            "Write a concise summary of the following:\n\nApples are red.\n\nPlums are blue.",
            "Fruits have colours.",
            ["Apples are red.", "Plums are blue."],
        ),
        source="model",
    )
