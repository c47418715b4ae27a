"""Workflows of LangGraph with several steps: the samples have the first input and the last output."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableParallel
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from tests.applications.application import Judged, asked, calls, replies, sample, says

# --- LangGraph, "Workflows and agents", parallelization -------------------------------------------------------------
# A joke, a story and a poem side by side, put together into one text.


class ParallelState(TypedDict):
    topic: str
    joke: str
    story: str
    poem: str
    combined_output: str


def parallel_workflow() -> Any:
    llm = replies({"a joke": "Cats laugh.", "a story": "A cat went out.", "a poem": "O cat, o hat."})

    def aggregator(state: ParallelState) -> dict[str, Any]:
        combined = f"Here's a story, joke, and poem about {state['topic']}!\n\n"
        combined += f"STORY:\n{state['story']}\n\nJOKE:\n{state['joke']}\n\nPOEM:\n{state['poem']}"
        return {"combined_output": combined}

    builder = StateGraph(ParallelState)
    builder.add_node("aggregator", aggregator)
    for key in ("joke", "story", "poem"):
        builder.add_node(
            f"write_{key}", lambda s, key=key: {key: llm.invoke(f"Write a {key} about {s['topic']}").content}
        )
        builder.add_edge(START, f"write_{key}")
        builder.add_edge(f"write_{key}", "aggregator")
    builder.add_edge("aggregator", END)
    return builder.compile()


def test_the_text_that_holds_the_others_is_the_answer() -> None:
    assert asked(parallel_workflow(), {"topic": "cats"}) == Judged(
        single_turn=sample(
            "cats",
            "Here's a story, joke, and poem about cats!\n\n"
            "STORY:\nA cat went out.\n\nJOKE:\nCats laugh.\n\nPOEM:\nO cat, o hat.",
        ),
        source="matched",
    )


# --- LangGraph, "Workflows and agents", prompt chaining -------------------------------------------------------------
# A joke, a gate that looks for a punchline, two rounds of polishing.


class ChainState(TypedDict):
    topic: str
    joke: str
    improved_joke: str
    final_joke: str


def joke_graph(*said: str) -> Any:
    llm = says(*said)

    def ask(key: str, prompt: str, of: str) -> Any:
        return lambda state: {key: llm.invoke(f"{prompt}{state[of]}").content}

    def check_punchline(state: ChainState) -> str:
        return "Pass" if "?" in state["joke"] or "!" in state["joke"] else "Fail"

    workflow = StateGraph(ChainState)
    workflow.add_node("generate_joke", ask("joke", "Write a short joke about ", "topic"))
    workflow.add_node("improve_joke", ask("improved_joke", "Make this joke funnier by adding wordplay: ", "joke"))
    workflow.add_node("polish_joke", ask("final_joke", "Add a surprising twist to this joke: ", "improved_joke"))
    workflow.add_edge(START, "generate_joke")
    workflow.add_conditional_edges("generate_joke", check_punchline, {"Fail": "improve_joke", "Pass": END})
    workflow.add_edge("improve_joke", "polish_joke")
    workflow.add_edge("polish_joke", END)
    return workflow.compile()


def test_a_joke_that_passes_the_gate_is_the_answer() -> None:
    joke = "What do you call a cat that bowls? An alley cat!"

    assert asked(joke_graph(joke), {"topic": "cats"}) == Judged(single_turn=sample("cats", joke), source="only_text")


def test_the_versions_of_a_joke_that_fails_it_are_all_given() -> None:
    chain = joke_graph("A cat bowls.", "An alley cat bowls.", "An alley cat bowls nine lives.")

    assert asked(chain, {"topic": "cats"}) == Judged(
        single_turn=sample(
            "cats",
            '{"joke":"A cat bowls.","improved_joke":"An alley cat bowls.","final_joke":"An alley cat bowls nine lives."}',
        ),
        source="object",
    )


# --- LangGraph, "Workflows and agents", routing: a structured decision, then the model of that route ----------------


class Route(BaseModel):
    step: Literal["poem", "story", "joke"]


class RouteState(TypedDict):
    input: str
    decision: str
    output: str


def router_workflow() -> Any:
    llm = replies({"Route the input": calls("Route", step="joke"), "a joke about cats": "Cats? They purr-fer naps."})

    def llm_call_router(state: RouteState) -> dict[str, Any]:
        system = SystemMessage("Route the input to story, joke, or poem based on the user's request.")
        return {"decision": llm.with_structured_output(Route).invoke([system, HumanMessage(state["input"])]).step}

    def write(state: RouteState) -> dict[str, Any]:
        return {"output": llm.invoke(state["input"]).content}

    builder = StateGraph(RouteState)
    builder.add_node("llm_call_router", llm_call_router)
    for kind in ("story", "joke", "poem"):
        builder.add_node(kind, write)
        builder.add_edge(kind, END)
    builder.add_edge(START, "llm_call_router")
    builder.add_conditional_edges("llm_call_router", lambda state: state["decision"], ["story", "joke", "poem"])
    return builder.compile()


def test_input_and_output_are_question_and_answer() -> None:
    assert asked(router_workflow(), {"input": "Write me a joke about cats"}) == Judged(
        single_turn=sample("Write me a joke about cats", "Cats? They purr-fer naps."), source="keys"
    )


# --- LangChain, "Invoke runnables in parallel": a joke and a poem of one topic --------------------------------------

JOKE = "Why don't bears wear shoes? They like to go bear-foot."
POEM = "In the wild woods the bear does roam."


def joke_and_poem(*, parse: bool = True) -> Any:
    model = replies({"joke": JOKE, "poem": POEM})
    joke_chain = ChatPromptTemplate.from_template("tell me a joke about {topic}") | model
    poem_chain = ChatPromptTemplate.from_template("write a 2-line poem about {topic}") | model
    if parse:
        return RunnableParallel(joke=joke_chain | StrOutputParser(), poem=poem_chain | StrOutputParser())
    return RunnableParallel(joke=joke_chain, poem=poem_chain)


def test_both_texts_are_the_answer() -> None:
    assert asked(joke_and_poem(), {"topic": "bear"}) == Judged(
        single_turn=sample("bear", f'{{"joke":"{JOKE}","poem":"{POEM}"}}'), source="object"
    )


def test_both_are_where_the_models_messages_are_given_as_they_came() -> None:
    assert asked(joke_and_poem(parse=False), {"topic": "bear"}) == Judged(
        single_turn=sample("bear", f'{{"joke":"{JOKE}","poem":"{POEM}"}}'), source="object"
    )


# --- LangGraph, "Workflows and agents", evaluator-optimizer ---------------------------------------------------------
# A joke is written, graded, and written again until it is funny.


class OptimizerState(TypedDict):
    joke: str
    topic: str
    feedback: str
    funny_or_not: str


class Feedback(BaseModel):
    grade: Literal["funny", "not funny"] = Field(description="Decide if the joke is funny or not.")
    feedback: str = Field(description="If the joke is not funny, provide feedback on how to improve it.")


def optimizer() -> Any:
    llm = says("Why did the cat sit?", "Why did the cat sit on the laptop? To keep an eye on the mouse.")
    evaluator = says(
        calls("Feedback", grade="not funny", feedback="Add a pun."),
        calls("Feedback", grade="funny", feedback="Well done."),
    ).with_structured_output(Feedback)

    def generate(state: OptimizerState) -> dict[str, Any]:
        if state.get("feedback"):
            msg = llm.invoke(
                f"Write a joke about {state['topic']} but take into account the feedback: {state['feedback']}"
            )
        else:
            msg = llm.invoke(f"Write a joke about {state['topic']}")
        return {"joke": msg.content}

    def evaluate(state: OptimizerState) -> dict[str, Any]:
        grade = evaluator.invoke(f"Grade the joke {state['joke']}")
        return {"funny_or_not": grade.grade, "feedback": grade.feedback}

    def route(state: OptimizerState) -> str:
        return "Accepted" if state["funny_or_not"] == "funny" else "Rejected + Feedback"

    builder = StateGraph(OptimizerState)
    builder.add_node("llm_call_generator", generate)
    builder.add_node("llm_call_evaluator", evaluate)
    builder.add_edge(START, "llm_call_generator")
    builder.add_edge("llm_call_generator", "llm_call_evaluator")
    builder.add_conditional_edges(
        "llm_call_evaluator", route, {"Accepted": END, "Rejected + Feedback": "llm_call_generator"}
    )
    return builder.compile()


def test_the_joke_is_judged_and_not_its_grade() -> None:
    assert asked(optimizer(), {"topic": "cats"}) == Judged(
        single_turn=sample("cats", "Why did the cat sit on the laptop? To keep an eye on the mouse."), source="matched"
    )
