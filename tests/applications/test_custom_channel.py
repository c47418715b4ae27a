"""LangGraph, "Working with messages in graph state": the channel of messages has an unusual name, next to other state."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph, add_messages
from tests.applications.application import Judged, asked, judged, sample, says

from spanscore import Extract

QUESTION, ANSWER = "How high is the tower?", "62 metres."


class State(TypedDict, total=False):
    conversation: Annotated[list[AnyMessage], add_messages]
    user_id: str
    intent: str
    verdict: str


def guide(*answers: str) -> Any:
    """A classifier before the answer and a guard after it; both store their output in the state."""
    llm, classifier, guard = says(*answers), says("facts", "facts"), says("SAFE", "SAFE")
    builder = StateGraph(State).add_sequence(
        [
            ("classify", lambda s: {"intent": classifier.invoke(f"Classify: {s['conversation'][-1].content}").content}),
            ("answer", lambda s: {"conversation": [llm.invoke(s["conversation"])]}),
            ("guard", lambda s: {"verdict": guard.invoke(f"Is it safe? {s['conversation'][-1].content}").content}),
        ]
    )
    builder.add_edge(START, "classify")
    return builder.compile(checkpointer=InMemorySaver())


def of_one(given: Any, **options: Any) -> Judged:
    [only] = judged(lambda config: guide(ANSWER).invoke({"conversation": given, "user_id": "u-1"}, config), **options)
    return only


@pytest.mark.parametrize(
    "given",
    [
        [HumanMessage(QUESTION)],
        [("user", QUESTION)],
        [{"role": "user", "content": QUESTION}],
        HumanMessage(QUESTION),
        QUESTION,
    ],
)
def test_its_last_messages_are_question_and_answer(given: Any) -> None:
    assert of_one(given) == Judged(single_turn=sample(QUESTION, ANSWER), source="messages")


def test_the_turns_of_its_thread_are_the_conversation() -> None:
    app = guide("Hello Bob!", ANSWER)

    def talk(config: RunnableConfig) -> None:
        app.invoke({"conversation": [("user", "Hi, I'm Bob.")]}, config)
        app.invoke({"conversation": [("user", QUESTION)]}, config)

    _, second = judged(talk)
    assert second.single_turn == sample(QUESTION, ANSWER)
    assert second.conversation == f"Human: Hi, I'm Bob.\nAI: Hello Bob!\nHuman: {QUESTION}\nAI: {ANSWER}"


def test_a_history_beside_a_text_is_no_such_channel() -> None:
    history = [HumanMessage("hi"), AIMessage("hello")]
    builder = StateGraph(dict)
    builder.add_node("answer", lambda s: {"reply": says(ANSWER).invoke([*s["chat"], HumanMessage(s["ask"])]).content})
    builder.add_edge(START, "answer")

    seen = asked(builder.compile(), {"ask": QUESTION, "chat": history})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.conversation == f"Human: hi\nAI: hello\nHuman: {QUESTION}\nAI: {ANSWER}"


def test_it_is_found_by_its_name() -> None:
    extract = Extract(user_input="output.conversation.0", response="output.conversation.-1")

    seen = of_one([("user", QUESTION)], extract=extract)

    assert seen == Judged(single_turn=sample(QUESTION, ANSWER), source="extract")
