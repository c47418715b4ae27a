"""Chat bots: each turn is a unit, and the turns before it are its conversation."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from langchain_classic.chains import ConversationChain
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from tests.applications.application import Judged, asked, judged, sample, says

# --- LangGraph, "Build a basic chatbot", with memory ----------------------------------------------------------------
# A thread of several turns; the model may be shown only the last of it.

TURNS = [("Hi, I'm Will.", "Hello Will!"), ("I like tea.", "Noted."), ("What's my name?", "You are Will.")]
THREAD = "\n".join(f"Human: {question}\nAI: {answer}" for question, answer in TURNS)


def chat_bot(messages_shown: int) -> Any:
    llm = says(*[answer for _, answer in TURNS])
    trimmer = trim_messages(max_tokens=messages_shown, token_counter=len, strategy="last", start_on="human")

    def chatbot(state: MessagesState) -> dict[str, Any]:
        return {"messages": [llm.invoke(trimmer.invoke(state["messages"]))]}

    builder = StateGraph(MessagesState)
    builder.add_node("chatbot", chatbot)
    builder.add_edge(START, "chatbot")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("messages_shown", [100, 1])
def test_the_conversation_is_the_thread_whatever_the_model_was_shown_of_it(messages_shown: int) -> None:
    app = chat_bot(messages_shown)

    def talk(config: RunnableConfig) -> None:
        for question, _ in TURNS:
            app.invoke({"messages": [{"role": "user", "content": question}]}, config)

    seen = judged(talk)

    assert [turn.single_turn for turn in seen] == [sample(question, answer) for question, answer in TURNS]
    assert seen[0].multi_turn is None
    assert seen[-1].conversation == THREAD


# --- LangChain, "Build a chatbot": messages and a language in one state, over the turns of a thread -----------------


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


# --- LangChain, "Add message history", under an unknown key: the history comes with the request, or from a store

HISTORY = [HumanMessage("hi, I'm Bob"), AIMessage("Hello Bob!")]
CONVERSATION = "Human: hi, I'm Bob\nAI: Hello Bob!\nHuman: what's my name?\nAI: Your name is Bob."


def history_chat(key: str, *said: str) -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "You are helpful."), MessagesPlaceholder("chat_history"), ("human", f"{{{key}}}")]
    )
    return prompt | says(*said) | StrOutputParser()


def test_a_history_that_is_given_beside_an_unknown_key_is_the_conversation_before_it() -> None:
    seen = asked(
        history_chat("user_message", "Your name is Bob."), {"user_message": "what's my name?", "chat_history": HISTORY}
    )

    assert (seen.single_turn, seen.source) == (sample("what's my name?", "Your name is Bob."), "only_text")
    assert seen.conversation == CONVERSATION


def test_a_history_that_is_stored_is_the_conversation_too() -> None:
    store = InMemoryChatMessageHistory()
    app = RunnableWithMessageHistory(
        history_chat("ability", "Hello Bob!", "Your name is Bob."),
        lambda session_id: store,
        input_messages_key="ability",
        history_messages_key="chat_history",
    )

    def two_turns(config: Any) -> None:
        config = {**config, "configurable": {"session_id": "s"}}
        app.invoke({"ability": "hi, I'm Bob"}, config)
        app.invoke({"ability": "what's my name?"}, config)

    first, second = judged(two_turns)
    assert (first.single_turn, second.single_turn) == (
        sample("hi, I'm Bob", "Hello Bob!"),
        sample("what's my name?", "Your name is Bob."),
    )
    assert (first.conversation, second.conversation) == (None, CONVERSATION)


# --- LangChain, `RunnableWithMessageHistory`: a store keeps the turns of each session, and puts them into the prompt

STORED_INTRODUCTION, STORED_WELCOME = "Hi, I'm Bob.", "Hello Bob!"
STORED_QUESTION, STORED_ANSWER = "What's my name?", "Your name is Bob."


EXAMPLES = [("human", "Hi, I'm Eve."), ("ai", "Hello Eve!")]


def chat_with_history(*examples: tuple[str, str]) -> Any:
    store: dict[str, InMemoryChatMessageHistory] = {}
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be kind."), *examples, MessagesPlaceholder("history"), ("human", "{input}")]
    )
    return RunnableWithMessageHistory(
        prompt | says(STORED_WELCOME, STORED_ANSWER),
        lambda session_id: store.setdefault(session_id, InMemoryChatMessageHistory()),
        input_messages_key="input",
        history_messages_key="history",
    )


@pytest.mark.parametrize("examples", [[], EXAMPLES], ids=["alone", "beside examples"])
def test_the_turns_that_the_store_kept_are_the_users(examples: list[tuple[str, str]]) -> None:
    app = chat_with_history(*examples)

    def two_turns(config: RunnableConfig) -> None:
        session: RunnableConfig = {**config, "configurable": {"session_id": "bob"}}
        app.invoke({"input": STORED_INTRODUCTION}, session)
        app.invoke({"input": STORED_QUESTION}, session)

    first, second = judged(two_turns)

    assert (first.single_turn, first.multi_turn) == (sample(STORED_INTRODUCTION, STORED_WELCOME), None)
    assert second.single_turn == sample(STORED_QUESTION, STORED_ANSWER)
    assert (
        second.conversation
        == f"Human: {STORED_INTRODUCTION}\nAI: {STORED_WELCOME}\nHuman: {STORED_QUESTION}\nAI: {STORED_ANSWER}"
    )


# --- langchain-classic, `ConversationChain`: a memory writes the turns before into a prompt of one text -------------

MEMORY_INTRODUCTION, MEMORY_WELCOME = "Hi, I'm Ann.", "Hello Ann!"
MEMORY_QUESTION, MEMORY_ANSWER = "What's my name?", "Your name is Ann."


def test_each_turn_is_the_users_words_and_not_the_prompt_with_its_memory() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and much used
        app: Any = ConversationChain(llm=says(MEMORY_WELCOME, MEMORY_ANSWER))

    def two_turns(config: RunnableConfig) -> None:
        app.invoke({"input": MEMORY_INTRODUCTION}, config)
        app.invoke({"input": MEMORY_QUESTION}, config)

    first, second = judged(two_turns)

    assert first.single_turn == sample(MEMORY_INTRODUCTION, MEMORY_WELCOME)
    assert second.single_turn == sample(MEMORY_QUESTION, MEMORY_ANSWER)
    assert (first.multi_turn, second.multi_turn) == (None, None)  # its memory is one text, and no turns


# --- LangGraph, the functional API: an entrypoint gets one message, and keeps the turns before in its checkpoint

FUNCTIONAL_INTRODUCTION, FUNCTIONAL_WELCOME = "Hi! I'm Bob.", "Hello Bob!"
FUNCTIONAL_QUESTION, FUNCTIONAL_ANSWER = "What's my name?", "Your name is Bob."


def functional_chat() -> Any:
    model = says(FUNCTIONAL_WELCOME, FUNCTIONAL_ANSWER)

    @task
    def call_model(messages: list[BaseMessage]) -> BaseMessage:
        return model.invoke(messages)

    @entrypoint(checkpointer=InMemorySaver())
    def workflow(inputs: list[Any], *, previous: Any = None) -> Any:
        messages: Any = add_messages(previous or [], inputs)
        response = call_model(messages).result()
        return entrypoint.final(value=response, save=add_messages(messages, response))

    return workflow


def of_two_turns() -> list[Judged]:
    app = functional_chat()

    def talk(config: RunnableConfig) -> None:
        app.invoke([{"role": "user", "content": FUNCTIONAL_INTRODUCTION}], config)
        app.invoke([{"role": "user", "content": FUNCTIONAL_QUESTION}], config)

    return judged(talk)


def test_each_turn_is_judged_by_its_own_words() -> None:
    first, second = of_two_turns()

    assert first.single_turn == sample(FUNCTIONAL_INTRODUCTION, FUNCTIONAL_WELCOME)
    assert first.multi_turn is None
    assert second.single_turn == sample(FUNCTIONAL_QUESTION, FUNCTIONAL_ANSWER)


def test_the_turns_that_the_checkpoint_kept_are_the_users() -> None:
    _, second = of_two_turns()

    assert (
        second.conversation
        == f"Human: {FUNCTIONAL_INTRODUCTION}\nAI: {FUNCTIONAL_WELCOME}\nHuman: {FUNCTIONAL_QUESTION}\nAI: {FUNCTIONAL_ANSWER}"
    )
