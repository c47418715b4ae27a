"""``with_fallbacks``, ``with_retry`` and a cache: whoever answered in the end, the answer is that of the root."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph
from tests.applications.application import Judged, asked, sample, says

QUESTION = "Why did the chicken cross the road?"
ANSWER = "To get to the other side."


def failing(_: Any) -> Any:
    raise ConnectionError("no such host")


def test_the_fallbacks_answer_is_the_answer() -> None:
    prompt = ChatPromptTemplate.from_template("Reply kindly to {q}")
    app = prompt | RunnableLambda(failing).with_fallbacks([says(ANSWER)]) | StrOutputParser()

    assert asked(app, {"q": QUESTION}) == Judged(single_turn=sample(QUESTION, ANSWER), source="only_text")


def test_the_chain_that_stands_in_for_another_is_asked_the_same() -> None:
    bad = ChatPromptTemplate.from_template("First: {q}") | says("thrown away") | RunnableLambda(failing)
    good = ChatPromptTemplate.from_template("Second: {q}") | says(ANSWER) | StrOutputParser()

    assert asked(bad.with_fallbacks([good]), {"q": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="only_text"
    )


class State(TypedDict, total=False):
    user_query: str
    cached: bool
    reply: str


def test_an_answer_from_a_cache_is_one_though_a_model_said_something_else() -> None:
    llm = says("cacheable")
    builder = StateGraph(State)
    builder.add_node(
        "classify", lambda s: {"cached": llm.invoke(f"Cacheable? {s['user_query']}").content == "cacheable"}
    )
    builder.add_node("from_cache", lambda s: {"reply": ANSWER})
    builder.add_edge(START, "classify")
    builder.add_edge("classify", "from_cache")
    builder.add_edge("from_cache", END)

    assert asked(builder.compile(), {"user_query": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="only_text"
    )
