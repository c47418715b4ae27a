"""LangChain, `SummarizationMiddleware`: earlier messages become one message that no user wrote."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from tests.applications.application import Judged, judged, sample, says

TURNS = [
    ("Hi, I'm Bob.", "Hello Bob!"),
    ("Write a poem about cats.", "Cats purr."),
    ("Now about dogs.", "Dogs bark."),
    ("What's my name?", "Your name is Bob."),
]


def of_each_turn(keep: int) -> list[Judged]:
    summarization: Any = SummarizationMiddleware(
        says(*["The user is Bob, and likes poems."] * 9), trigger=("messages", 5), keep=("messages", keep)
    )
    model = says(*[answer for _, answer in TURNS])
    app = create_agent(model, middleware=[summarization], checkpointer=InMemorySaver())

    def talk(config: RunnableConfig) -> None:
        for question, _ in TURNS:
            app.invoke({"messages": question}, config)

    return judged(talk)


def test_each_question_is_the_users_and_each_answer_the_agents() -> None:
    seen = of_each_turn(keep=2)

    assert [turn.single_turn for turn in seen] == [sample(question, answer) for question, answer in TURNS]


def test_a_summary_is_no_turn_of_the_user() -> None:
    *_, third, fourth = of_each_turn(keep=3)

    assert third.conversation == "\n".join(f"Human: {question}\nAI: {answer}" for question, answer in TURNS[1:3])
    assert fourth.conversation == "\n".join(f"Human: {question}\nAI: {answer}" for question, answer in TURNS[2:4])


def test_a_summary_and_a_question_are_one_turn_of_the_user_and_so_no_conversation() -> None:
    *_, third, _ = of_each_turn(keep=2)

    assert third.multi_turn is None


def test_a_question_that_a_summary_swallowed_is_still_the_users() -> None:
    seen = of_each_turn(keep=1)

    assert [turn.single_turn for turn in seen] == [sample(question, answer) for question, answer in TURNS]
