"""langchain-classic, `create_retrieval_chain`: documents stuffed into a prompt; a follow-up is put anew with its history."""

from __future__ import annotations

from typing import Any

from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from tests.applications.application import asked, sample, says
from tests.applications.shelf import Shelf, looked_up

QUESTION = "What is task decomposition?"
ANSWER = "Breaking a task into steps."
STEPS = "Task decomposition breaks a hard task into smaller steps."
FOLLOW_UP = "How is it done?"
DONE = "By prompting: 'Steps for XYZ.'"
WAYS = "Task decomposition is done by simple prompting, or with human inputs."
SHELF = Shelf(holds={"done": (WAYS, STEPS), "decomposition": (STEPS,)})


def answering(answer: str) -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [
            ("system", "Use the retrieved context to answer.\n\n{context}"),
            MessagesPlaceholder("chat_history", optional=True),
            ("human", "{input}"),
        ]
    )
    return create_stuff_documents_chain(says(answer), prompt)


def history_aware_chain() -> Any:
    contextualize = ChatPromptTemplate.from_messages(
        [
            ("system", "Formulate a standalone question."),
            MessagesPlaceholder("chat_history"),
            ("human", "{input}"),
        ]
    )
    retriever = create_history_aware_retriever(says("How is task decomposition done?"), SHELF, contextualize)
    return create_retrieval_chain(retriever, answering(DONE))


def test_the_stuffed_documents_are_the_contexts() -> None:
    app = create_retrieval_chain(SHELF, answering(ANSWER))

    seen, unused = looked_up(lambda config: app.invoke({"input": QUESTION}, config))

    assert seen == sample(QUESTION, ANSWER, [STEPS])
    assert unused == 0


def test_a_question_with_a_history_is_the_users_and_so_are_the_turns_before_it() -> None:
    history = [HumanMessage(QUESTION), AIMessage(ANSWER)]

    seen = asked(history_aware_chain(), {"input": FOLLOW_UP, "chat_history": history})

    assert seen.single_turn == sample(FOLLOW_UP, DONE, [WAYS, STEPS])
    assert seen.conversation == f"Human: {QUESTION}\nAI: {ANSWER}\nHuman: {FOLLOW_UP}\nAI: {DONE}"
