"""Drafts and critics: the last draft is the answer, and no critic is the user."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langgraph.graph import END, START, MessagesState, StateGraph
from tests.applications.application import Judged, asked, replies, sample, says

# --- LangGraph, "Reflection": a critique of the draft returns to the writer with the role of a human ----------------

REQUEST = "Generate an essay on the topicality of The Little Prince"


def writer() -> Any:
    essayist = ChatPromptTemplate.from_messages(
        [("system", "You write essays."), MessagesPlaceholder("messages")]
    ) | says("Draft: it is topical.", "It is topical: it asks what matters.")
    teacher = ChatPromptTemplate.from_messages(
        [("system", "You grade essays."), MessagesPlaceholder("messages")]
    ) | says("Say why it is topical.")

    def generate(state: MessagesState) -> dict[str, Any]:
        return {"messages": [essayist.invoke(state["messages"])]}

    def reflect(state: MessagesState) -> dict[str, Any]:
        swapped = {"ai": HumanMessage, "human": AIMessage}
        rows = [state["messages"][0], *(swapped[m.type](content=m.content) for m in state["messages"][1:])]
        return {"messages": [HumanMessage(content=teacher.invoke(rows).content)]}

    builder = StateGraph(MessagesState)
    builder.add_node("generate", generate)
    builder.add_node("reflect", reflect)
    builder.add_edge(START, "generate")
    builder.add_conditional_edges("generate", lambda s: END if len(s["messages"]) > 3 else "reflect", ["reflect", END])
    builder.add_edge("reflect", "generate")
    return builder.compile()


def test_the_critique_is_no_turn_of_the_user() -> None:
    assert asked(writer(), {"messages": [HumanMessage(REQUEST)]}) == Judged(
        single_turn=sample(REQUEST, "It is topical: it asks what matters."), source="messages"
    )


# --- LangGraph, "Reflection": one model writes, another criticises as if it were the user, until the third draft

CRITIC_QUESTION = "Write an essay on why the little prince is relevant."
DRAFTS = ["It is a book.", "It tells of friendship.", "It tells of friendship, which we need today."]
CRITIQUES = ["Say what it tells of.", "Say why this matters."]
MAX_MESSAGES = 5


def essay_writer() -> Any:
    def prompt(system: str) -> ChatPromptTemplate:
        return ChatPromptTemplate.from_messages([("system", system), MessagesPlaceholder("messages")])

    generate = prompt("You write excellent five-paragraph essays.") | says(*DRAFTS)
    reflect = prompt("You are a teacher grading an essay.") | says(*CRITIQUES)

    def generation_node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [generate.invoke({"messages": state["messages"]})]}

    def reflection_node(state: MessagesState) -> dict[str, Any]:
        swapped: dict[str, Any] = {"ai": HumanMessage, "human": AIMessage}
        first, *rest = state["messages"]
        translated = [first, *(swapped[message.type](content=message.content) for message in rest)]
        return {"messages": [HumanMessage(content=reflect.invoke({"messages": translated}).content)]}

    builder = StateGraph(MessagesState)
    builder.add_node("generate", generation_node)
    builder.add_node("reflect", reflection_node)
    builder.add_edge(START, "generate")
    builder.add_conditional_edges("generate", lambda s: END if len(s["messages"]) >= MAX_MESSAGES else "reflect")
    builder.add_edge("reflect", "generate")
    return builder.compile()


def test_what_a_critic_says_is_no_turn_of_the_user() -> None:
    seen = asked(essay_writer(), {"messages": [HumanMessage(CRITIC_QUESTION)]})

    assert seen.single_turn == sample(CRITIC_QUESTION, DRAFTS[-1])
    assert seen.multi_turn is None


# --- LCEL: a draft, its critique and a final text, given back together ----------------------------------------------

DRAFT_QUESTION = "Why is the sky blue?"
ALL = '{"draft":"It is scattered.","critique":"Say what is scattered.","final":"Blue light is scattered most."}'


def revised(last: str) -> Any:
    llm = says("It is scattered.", "Say what is scattered.", "Blue light is scattered most.")

    def step(template: str) -> Any:
        return ChatPromptTemplate.from_template(template) | llm | StrOutputParser()

    return (
        RunnablePassthrough.assign(draft=step("Answer: {question}"))
        .assign(critique=step("Criticise: {draft}"))
        .assign(**{last: step("Revise: {draft}\nCritique: {critique}")})
    )


def test_a_known_key_is_the_answer_among_what_models_said() -> None:
    assert asked(revised("final_answer"), {"question": DRAFT_QUESTION}) == Judged(
        single_turn=sample(DRAFT_QUESTION, "Blue light is scattered most."), source="keys"
    )


def test_without_one_all_that_models_said_is_given() -> None:
    assert asked(revised("final"), {"question": DRAFT_QUESTION}) == Judged(
        single_turn=sample(
            DRAFT_QUESTION,
            ALL,
        ),
        source="object",
    )


def test_a_question_that_is_asked_as_a_text_and_passed_through_is_no_part_of_the_answer() -> None:
    taking_text = {"question": RunnablePassthrough()} | revised("final")

    assert asked(taking_text, DRAFT_QUESTION) == Judged(single_turn=sample(DRAFT_QUESTION, ALL), source="object")


# --- LangGraph, "Self-Discover" -------------------------------------------------------------------------------------
# The modules that suit a task, adapted to it, as a structure, and the answer reasoned after it.

TASK = "This SVG path draws a: (A) circle (B) heptagon"
MODULES = "1. How could I devise an experiment?\n2. How could I simplify the problem?"
ANSWER = "The path has seven sides: (B) heptagon."


class SelfDiscoverState(TypedDict):
    reasoning_modules: str
    task_description: str
    selected_modules: str | None
    adapted_modules: str | None
    reasoning_structure: str | None
    answer: str | None


def self_discover() -> Any:
    model = replies(
        {
            "Select several": "2. How could I simplify the problem?",
            "Rephrase": "Count the corners.",
            "Operationalize": '{"Corners": ""}',
            "Follow": ANSWER,
        }
    )
    prompts = {
        "selected_modules": "Select several modules: {reasoning_modules}\nTask: {task_description}",
        "adapted_modules": "Rephrase: {selected_modules}\nTask: {task_description}",
        "reasoning_structure": "Operationalize: {adapted_modules}\nTask: {task_description}",
        "answer": "Follow this structure: {reasoning_structure}\nTask: {task_description}",
    }

    def step(key: str) -> Any:
        chain = PromptTemplate.from_template(prompts[key]) | model | StrOutputParser()
        return lambda state: {key: chain.invoke(state)}

    graph = StateGraph(SelfDiscoverState)
    before = START
    for node, key in zip(("select", "adapt", "structure", "reason"), prompts, strict=True):
        graph.add_node(node, step(key))
        graph.add_edge(before, node)
        before = node
    graph.add_edge(before, END)
    return graph.compile()


def test_the_text_that_stands_in_the_answers_prompt_is_the_question() -> None:
    assert asked(self_discover(), {"task_description": TASK, "reasoning_modules": MODULES}) == Judged(
        single_turn=sample(TASK, ANSWER), source="matched"
    )


# --- LCEL: an outline on a topic, and an essay after the outline ----------------------------------------------------

ESSAY = "Ferries tie islands to the world."


def essay_chain() -> Any:
    llm = says("1. Islands 2. Ships", ESSAY)
    outline = ChatPromptTemplate.from_template("Write an outline on {topic}") | llm | StrOutputParser()
    essay = ChatPromptTemplate.from_template("Write an essay after this outline:\n{outline}") | llm | StrOutputParser()
    return {"outline": outline} | essay


def test_the_topic_is_the_question_and_not_the_first_prompt() -> None:
    assert asked(essay_chain(), {"topic": "ferries"}) == Judged(
        single_turn=sample("ferries", ESSAY), source="only_text"
    )


def test_a_topic_that_is_a_bare_text_is_read_the_same() -> None:
    assert asked(essay_chain(), "ferries") == Judged(single_turn=sample("ferries", ESSAY), source="only_text")


# --- A draft that its reviewer approves: it is in the state twice, but is one answer --------------------------------

BRIEF = "A post on the new ferry"
POST = "The new ferry sails on Monday."


class State(TypedDict):
    brief: str
    draft: str
    post: str
    reviewed_by: str


def editors() -> Any:
    llm = says(POST, "APPROVED")

    def review(state: State) -> dict[str, Any]:
        approved = llm.invoke(f"Approve this? {state['draft']}").content == "APPROVED"
        return {"post": state["draft"] if approved else "", "reviewed_by": "the editor"}

    builder = StateGraph(State)
    builder.add_node("write", lambda state: {"draft": llm.invoke(f"Write: {state['brief']}").content})
    builder.add_node("review", review)
    builder.add_edge(START, "write")
    builder.add_edge("write", "review")
    return builder.compile()


def test_one_text_under_two_keys_is_one_text() -> None:
    assert asked(editors(), {"brief": BRIEF}) == Judged(single_turn=sample(BRIEF, POST), source="matched")


# --- LangChain's sequential chain in LCEL: a synopsis of a play of that title and era, and a review of it -----------

SYNOPSIS = "Two lovers meet at the shore."
REVIEW = "A moving evening."


def play_and_review() -> Any:
    llm = FakeListLLM(responses=[SYNOPSIS, REVIEW])
    synopsis = PromptTemplate.from_template("Title: {title}\nWrite a synopsis for the above play:") | llm
    review = PromptTemplate.from_template("Play Synopsis:\n{synopsis}\nReview from a critic of the above play:") | llm
    return RunnablePassthrough.assign(synopsis=synopsis).assign(review=review)


def of_an_era() -> Any:
    llm = FakeListLLM(responses=[SYNOPSIS])
    prompt = PromptTemplate.from_template("Title: {title}\nEra: {era}\nWrite a synopsis for the above play:")
    return prompt | llm | StrOutputParser()


def test_synopsis_and_review_are_both_the_answer() -> None:
    title = "Tragedy at sunset on the beach"

    assert asked(play_and_review(), {"title": title}) == Judged(
        single_turn=sample(title, f'{{"synopsis":"{SYNOPSIS}","review":"{REVIEW}"}}'), source="object"
    )


def test_of_two_inputs_that_stand_in_one_prompt_neither_is_guessed() -> None:
    seen = asked(of_an_era(), {"title": "Tragedy at sunset", "era": "Victorian England"})

    assert (seen.single_turn, seen.outcome) == (None, "no_sample")
    assert all(word in (seen.reason or "") for word in ("title", "era", "extract="))
