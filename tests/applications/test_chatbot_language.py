"""LangChain, "Build a chatbot": messages and a language in one state, over the turns of a thread."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from tests.applications.application import judged, sample, says


class State(MessagesState):
    language: str


def chatbot() -> Any:
    prompt = ChatPromptTemplate.from_messages([("system", "Answer in {language}."), MessagesPlaceholder("messages")])
    model = prompt | says("¡Hola, Bob!", "Tu nombre es Bob.")
    workflow = StateGraph(State)
    workflow.add_node("model", lambda state: {"messages": [model.invoke(state)]})
    workflow.add_edge(START, "model")
    return workflow.compile(checkpointer=InMemorySaver())


def test_each_turn_is_asked_by_its_message_and_not_by_the_language() -> None:
    app = chatbot()

    def two_turns(config: Any) -> None:
        app.invoke({"messages": [HumanMessage("Hi! I'm Bob.")], "language": "Spanish"}, config)
        app.invoke({"messages": [HumanMessage("What is my name?")]}, config)

    first, second = judged(two_turns)
    assert (first.single_turn, first.multi_turn, first.source) == (
        sample("Hi! I'm Bob.", "¡Hola, Bob!"),
        None,
        "messages",
    )
    assert (second.single_turn, second.source) == (sample("What is my name?", "Tu nombre es Bob."), "messages")
    assert second.conversation == "Human: Hi! I'm Bob.\nAI: ¡Hola, Bob!\nHuman: What is my name?\nAI: Tu nombre es Bob."
