"""The workloads: small applications with an instant, deterministic model, so that only the handlers are measured.

Every ratio is a worst case, because a real model answers in seconds, and these models answer in microseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool

__all__ = ["InstantChat", "Workload", "make_chain", "workloads"]

QUESTION = "Which river flows through Paris, and how long is it?"
ANSWER = "The Seine flows through Paris; it is about 777 kilometres long."
SHORT_DOCUMENT = "The Seine is a river in northern France. It rises near Dijon and is 777 kilometres long. " * 3
BIG_DOCUMENT_CHARS = 19_700  # nine of them: 177 kB
USAGE: UsageMetadata = {"input_tokens": 42, "output_tokens": 14, "total_tokens": 56}

Invoke = Callable[[Sequence[BaseCallbackHandler]], Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """One application.

    Attributes:
        name: name of the workload.
        invoke: runs it once, to the end, with these handlers; blocks.
        iterations: iterations of the interleaved part, at full length.
        block: invokes of one timed block, at full length.
    """

    name: str
    invoke: Invoke
    iterations: int
    block: int


class InstantChat(BaseChatModel):
    """Answers at once: with a tool call if it has tools and none was called yet, otherwise with one sentence.

    Only the asynchronous call sleeps for ``delay_s``, for the load test.
    """

    delay_s: float = 0.0
    model_name: str = "instant"
    has_tools: bool = False

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        return self.model_copy(update={"has_tools": bool(tools)})

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return self._generate(messages)

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks():
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _chunks():
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        if self.has_tools and not isinstance(messages[-1], ToolMessage):
            call = {"name": "river_length", "args": {"river": "Seine"}, "id": "call_1"}
            return AIMessage(content="", tool_calls=[call], usage_metadata=USAGE)
        return AIMessage(content=ANSWER, usage_metadata=USAGE, response_metadata={"model_name": self.model_name})


class FixedRetriever(BaseRetriever):
    """Finds the same documents for every query."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return list(self.documents)


@tool
def river_length(river: str) -> str:
    """Return the length of a river."""
    return f"The {river} is 777 km long."


def workloads(loop: asyncio.AbstractEventLoop) -> list[Workload]:
    """Return all workloads; the asynchronous one runs on the given loop."""
    return [
        Workload("chain", _chain(), iterations=800, block=600),
        Workload("rag", _rag(_short_documents()), iterations=400, block=240),
        Workload("rag_big", _rag(_big_documents()), iterations=120, block=80),
        Workload("agent", _agent(), iterations=300, block=120),
        Workload("stream", _stream(), iterations=400, block=300),
        Workload("async_chain", _async_chain(loop), iterations=600, block=400),
    ]


def make_chain(delay_s: float = 0.0) -> Runnable[Any, str]:
    """Return prompt | model | parser: four runs."""
    prompt = ChatPromptTemplate.from_messages([("system", "Answer in one sentence."), ("human", "{question}")])
    return prompt | InstantChat(delay_s=delay_s) | StrOutputParser()


def _chain() -> Invoke:
    chain = make_chain()
    return lambda handlers: chain.invoke({"question": QUESTION}, {"callbacks": list(handlers)})


def _stream() -> Invoke:
    chain = make_chain()
    return lambda handlers: [*chain.stream({"question": QUESTION}, {"callbacks": list(handlers)})]


def _async_chain(loop: asyncio.AbstractEventLoop) -> Invoke:
    chain = make_chain()
    return lambda handlers: loop.run_until_complete(
        chain.ainvoke({"question": QUESTION}, {"callbacks": list(handlers)})
    )


def _rag(documents: list[Document]) -> Invoke:
    """Return retriever, formatting, prompt, model and parser: nine runs."""
    prompt = ChatPromptTemplate.from_template("Answer from the context.\n\n{context}\n\nQuestion: {question}")
    found = FixedRetriever(documents=documents) | RunnableLambda(_joined)
    chain = {"context": found, "question": RunnablePassthrough()} | prompt | InstantChat() | StrOutputParser()
    return lambda handlers: chain.invoke(QUESTION, {"callbacks": list(handlers)})


def _agent() -> Invoke:
    """Return model, one tool call, model."""
    agent = create_agent(InstantChat(), [river_length])
    return lambda handlers: agent.invoke({"messages": [HumanMessage(QUESTION)]}, {"callbacks": list(handlers)})


def _joined(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)


def _short_documents() -> list[Document]:
    return [
        Document(page_content=SHORT_DOCUMENT, metadata={"source": f"rivers-{n}.md"}, id=f"short-{n}") for n in range(3)
    ]


def _big_documents() -> list[Document]:
    text = (SHORT_DOCUMENT * (BIG_DOCUMENT_CHARS // len(SHORT_DOCUMENT) + 1))[:BIG_DOCUMENT_CHARS]
    return [Document(page_content=text, metadata={"source": f"rivers-{n}.md"}, id=f"big-{n}") for n in range(9)]


def _chunks() -> Iterator[ChatGenerationChunk]:
    words = ANSWER.split(" ")
    for n, word in enumerate(words):
        last = n == len(words) - 1
        message = AIMessageChunk(content=word + ("" if last else " "), usage_metadata=USAGE if last else None)
        yield ChatGenerationChunk(message=message)
