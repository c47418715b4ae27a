"""LangChain, "Conversational RAG": a history-aware chain inside of `RunnableWithMessageHistory`."""

from __future__ import annotations

from typing import Any

from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.history import RunnableWithMessageHistory
from tests.applications.application import judged, sample, says
from tests.applications.shelf import Shelf

QUESTION, ANSWER = "What is task decomposition?", "Breaking a task into steps."
STEPS = "Task decomposition breaks a hard task into smaller steps."
FOLLOW_UP, WAYS = "What are common ways of doing it?", "Prompting, or human inputs."
DONE = "Task decomposition is done by simple prompting, or with human inputs."


def conversational_rag() -> Any:
    def prompt(system: str) -> ChatPromptTemplate:
        return ChatPromptTemplate.from_messages(
            [("system", system), MessagesPlaceholder("chat_history"), ("human", "{input}")]
        )

    shelf = Shelf(holds={"ways": (DONE,), "decomposition": (STEPS,)})
    rewriter = says("What are common ways of task decomposition?")
    retriever = create_history_aware_retriever(rewriter, shelf, prompt("Formulate a standalone question."))
    answering = create_stuff_documents_chain(says(ANSWER, WAYS), prompt("Answer from this.\n\n{context}"))
    store: dict[str, InMemoryChatMessageHistory] = {}
    return RunnableWithMessageHistory(
        create_retrieval_chain(retriever, answering),
        lambda session_id: store.setdefault(session_id, InMemoryChatMessageHistory()),
        input_messages_key="input",
        history_messages_key="chat_history",
        output_messages_key="answer",
    )


def test_each_turn_has_its_own_contexts_and_the_turns_before_it() -> None:
    app = conversational_rag()

    def two_turns(config: RunnableConfig) -> None:
        session: RunnableConfig = {**config, "configurable": {"session_id": "abc"}}
        app.invoke({"input": QUESTION}, session)
        app.invoke({"input": FOLLOW_UP}, session)

    first, second = judged(two_turns)

    assert (first.single_turn, first.multi_turn) == (sample(QUESTION, ANSWER, [STEPS]), None)
    assert second.single_turn == sample(FOLLOW_UP, WAYS, [DONE])
    assert second.conversation == f"Human: {QUESTION}\nAI: {ANSWER}\nHuman: {FOLLOW_UP}\nAI: {WAYS}"
