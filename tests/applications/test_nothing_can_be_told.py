"""Applications with an ambiguous question or answer: no sample, and a reason with advice."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, asked, judged_once, sample, says

from spanscore import Extract

FILE = {"path": "orders.csv", "encoding": "utf-8"}


def etl() -> Any:
    return RunnableLambda(lambda given: {"table": "orders", "status": "loaded", "rows": 3})


class Counter(TypedDict):
    foo: int
    bar: list[int]


def counter() -> Any:
    builder = StateGraph(Counter)
    builder.add_node("add", lambda state: {"foo": state["foo"] + 1, "bar": [state["foo"]]})
    builder.add_edge(START, "add")
    return builder.compile()


class Letter(TypedDict, total=False):
    sender: str
    body: str
    folder: str
    summary: str


def mailbox() -> Any:
    """A model is asked inside, but of something else than the mail."""
    llm = says("The weather is fine.")
    builder = StateGraph(Letter)
    builder.add_node(
        "look_out", lambda state: llm.invoke("How is the weather?") and {"folder": "event_queue", "summary": "-"}
    )
    builder.add_edge(START, "look_out")
    return builder.compile()


def named(seen: Judged, *words: str) -> bool:
    return all(word in (seen.reason or "") for word in (*words, "extract="))


def test_several_texts_that_no_model_saw_are_no_sample() -> None:
    seen = asked(etl(), FILE)

    assert (seen.single_turn, seen.multi_turn, seen.source, seen.outcome) == (None, None, None, "no_sample")
    assert named(seen, "path", "encoding", "table", "status")


def test_the_reason_names_the_keys_of_the_side_that_could_not_be_known() -> None:
    seen = asked(etl(), {"path": "orders.csv"})

    assert (seen.single_turn, seen.outcome) == (None, "no_sample")
    assert named(seen, "table", "status")
    assert "orders" not in (seen.reason or "")


def test_a_state_of_numbers_is_no_sample_and_its_keys_are_named() -> None:
    seen = asked(counter(), {"foo": 1, "bar": []})

    assert (seen.single_turn, seen.outcome) == (None, "no_sample")
    assert named(seen, "foo", "bar")


def test_what_an_inner_model_was_asked_is_no_question_where_the_root_has_texts() -> None:
    seen = asked(mailbox(), {"sender": "ann@example.org", "body": "Dear Bob,"})

    assert (seen.single_turn, seen.multi_turn, seen.outcome) == (None, None, "no_sample")
    assert named(seen, "sender", "body")


def test_what_is_reported_is_judged() -> None:
    extract = Extract(user_input="input.path", response="output.status")

    seen = judged_once(lambda config: etl().invoke(FILE, config), extract=extract)

    assert seen == Judged(single_turn=sample("orders.csv", "loaded"), source="extract")


def test_of_a_list_of_requests_no_inner_prompt_is_the_question() -> None:
    answer = ChatPromptTemplate.from_template("Answer: {frage}") | says("Nine.", "Ten.") | StrOutputParser()

    seen = asked(answer.map(), [{"frage": "When does the ferry leave?"}, {"frage": "When does the bus leave?"}])

    assert (seen.single_turn, seen.outcome) == (None, "no_sample")
    assert named(seen, "question")
