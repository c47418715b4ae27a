"""Guards before and after an answer: neither their question nor their verdict is the sample."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableBranch, RunnableLambda, RunnablePassthrough
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, replies, sample, says

# --- LangChain, "Migrating from ConstitutionalChain" ----------------------------------------------------------------
# An answer is criticised by principles, and revised if it breaks one.

CONSTITUTION_QUESTION = "What is the meaning of life? Answer in 10 words or fewer."
REVISED = "Life's meaning is found in joy and purpose."


class Critique(BaseModel):
    critique_needed: bool
    critique: str


class State(TypedDict):
    query: str
    constitutional_principles: list[dict[str, str]]
    initial_response: str
    critiques_and_revisions: list[tuple[str, str]]
    response: str


def constitutional() -> Any:
    llm = says(
        "Life's meaning is a personal journey.",
        calls("Critique", critique_needed=True, critique="It lacks concreteness."),
        REVISED,
    )

    def generate_response(state: State) -> dict[str, Any]:
        said = llm.invoke(state["query"]).content
        return {"response": said, "initial_response": said}

    def critique_and_revise(state: State) -> dict[str, Any]:
        critique = llm.with_structured_output(Critique).invoke(f"Criticise: {state['response']}").critique
        revision = llm.invoke(f"Revise: {state['response']}\nCritique: {critique}").content
        return {"critiques_and_revisions": [(critique, revision)], "response": revision}

    graph = StateGraph(State)
    graph.add_node("generate_response", generate_response)
    graph.add_node("critique_and_revise", critique_and_revise)
    graph.add_edge(START, "generate_response")
    graph.add_edge("generate_response", "critique_and_revise")
    graph.add_edge("critique_and_revise", END)
    return graph.compile()


def test_the_revised_response_is_the_answer_to_the_query() -> None:
    principle = {"critique_request": "Tell if this answer is good.", "revision_request": "Give a better answer."}

    assert asked(
        constitutional(), {"query": CONSTITUTION_QUESTION, "constitutional_principles": [principle]}
    ) == Judged(single_turn=sample(CONSTITUTION_QUESTION, REVISED), source="keys")


# --- A model answers, and another model checks the answer before it is returned: the answer is judged, under any key

GUARD_QUESTION = "How high is the tower?"
GUARD_ANSWER = "62 metres."


def guard_guarded(key: str) -> Any:
    State = TypedDict("State", {"question": str, key: str, "safe": bool})  # type: ignore[misc]
    llm = says(GUARD_ANSWER, "SAFE")

    def answer(state: dict[str, Any]) -> dict[str, Any]:
        return {key: llm.invoke(f"Answer the question: {state['question']}").content}

    def guard(state: dict[str, Any]) -> dict[str, Any]:
        return {"safe": llm.invoke(f"Is this safe? Say SAFE or UNSAFE.\n\n{state[key]}").content == "SAFE"}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_node("guard", guard)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "guard")
    return builder.compile()


@pytest.mark.parametrize("key", ["answer", "output", "result", "response", "generation", "final_answer"])
def test_a_known_key_of_the_state_holds_the_answer(key: str) -> None:
    assert asked(guard_guarded(key), {"question": GUARD_QUESTION}) == Judged(
        single_turn=sample(GUARD_QUESTION, GUARD_ANSWER), source="keys"
    )


@pytest.mark.parametrize("key", ["text", "output_text", "content", "reply", "antwort"])
def test_the_one_text_that_the_graph_adds_is_the_answer(key: str) -> None:
    assert asked(guard_guarded(key), {"question": GUARD_QUESTION}) == Judged(
        single_turn=sample(GUARD_QUESTION, GUARD_ANSWER), source="only_text"
    )


# --- Like the guarded answer, but the guard's text stays in the state next to it ------------------------------------

VERDICT_QUESTION = "How high is the tower?"
VERDICT_ANSWER = "62 metres."


def verdict_guarded(key: str) -> Any:
    State = TypedDict("State", {"question": str, key: str, "verdict": str})  # type: ignore[misc]
    llm = says(VERDICT_ANSWER, "SAFE")

    builder = StateGraph(State)
    builder.add_node("answer", lambda state: {key: llm.invoke(state["question"]).content})
    builder.add_node("guard", lambda state: {"verdict": llm.invoke(f"SAFE or UNSAFE? {state[key]}").content})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "guard")
    return builder.compile()


def test_a_known_key_wins_over_the_verdict() -> None:
    assert asked(verdict_guarded("final_answer"), {"question": VERDICT_QUESTION}) == Judged(
        single_turn=sample(VERDICT_QUESTION, VERDICT_ANSWER), source="keys"
    )


def test_of_two_texts_that_models_said_neither_is_thrown_away() -> None:
    assert asked(verdict_guarded("reply"), {"question": VERDICT_QUESTION}) == Judged(
        single_turn=sample(VERDICT_QUESTION, '{"reply":"62 metres.","verdict":"SAFE"}'), source="object"
    )


# --- A model checks the user's message before another model answers; a forbidden message gets a fixed text ----------

MODERATION_QUESTION = "How do I open the lock of my own door?"
REFUSED = "I am sorry, I cannot help with that."


def moderated(verdict: str, *said: str) -> Any:
    llm = says(verdict, *said)
    moderate = ChatPromptTemplate.from_template("Is this allowed? {message}") | llm | StrOutputParser()
    answer = ChatPromptTemplate.from_template("Help: {message}") | llm | StrOutputParser()
    return RunnablePassthrough.assign(verdict=moderate) | RunnableBranch(
        (lambda given: given["verdict"] == "ALLOWED", answer), lambda _: REFUSED
    )


def test_the_message_is_the_question_and_not_the_moderators_prompt() -> None:
    assert asked(moderated("ALLOWED", "With its key."), {"message": MODERATION_QUESTION}) == Judged(
        single_turn=sample(MODERATION_QUESTION, "With its key."), source="only_text"
    )


def test_a_refusal_that_no_model_said_is_the_answer() -> None:
    assert asked(moderated("FORBIDDEN"), {"message": MODERATION_QUESTION}) == Judged(
        single_turn=sample(MODERATION_QUESTION, REFUSED), source="only_text"
    )


# --- LangChain, "Route between sub-chains": a model chooses the topic, and the branch of that topic answers ---------

CLASSIFIER_QUESTION = "How high is the tower?"
CLASSIFIER_ANSWER = "The tower is 62 metres high."


def router(key: str) -> Any:
    llm = replies({"Topic of:": "buildings", "You are an architect.": CLASSIFIER_ANSWER})
    classify = PromptTemplate.from_template("Topic of: {asked}") | llm | StrOutputParser()
    architect = PromptTemplate.from_template("You are an architect. Answer: {asked}") | llm | StrOutputParser()
    general = PromptTemplate.from_template("Answer: {asked}") | llm | StrOutputParser()

    def route(info: dict[str, str]) -> Any:
        return architect if "buildings" in info["topic"] else general

    as_asked = RunnableLambda(lambda given: {"asked": given[key]})
    return {"topic": as_asked | classify, "asked": lambda given: given[key]} | RunnableLambda(route)


def test_the_users_words_are_the_question_and_not_the_classifiers_prompt() -> None:
    assert asked(router("user_input"), {"user_input": CLASSIFIER_QUESTION}) == Judged(
        single_turn=sample(CLASSIFIER_QUESTION, CLASSIFIER_ANSWER), source="only_text"
    )


def test_so_they_are_under_a_key_that_nobody_knows() -> None:
    assert asked(router("frage"), {"frage": CLASSIFIER_QUESTION}) == Judged(
        single_turn=sample(CLASSIFIER_QUESTION, CLASSIFIER_ANSWER), source="only_text"
    )
