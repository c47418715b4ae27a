"""The five programs on LangChain and LangGraph: a chain, RAG, an agent with a tool, a thread of three turns, a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnablePassthrough
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from tests.traces.said import CAPITAL, DOCUMENTS, MODEL, RAG_PROMPT, SUM, SYSTEM, TICKET, TURNS

Program = Callable[[ChatOpenAI, RunnableConfig], object]


def chain(model: ChatOpenAI, config: RunnableConfig) -> object:
    return _chain(model).invoke({"question": CAPITAL}, config)


def stream(model: ChatOpenAI, config: RunnableConfig) -> object:
    return list(_chain(model).stream({"question": CAPITAL}, config))


def _chain(model: ChatOpenAI) -> Runnable[Any, str]:
    return ChatPromptTemplate([("system", SYSTEM), ("human", "{question}")]) | model | StrOutputParser()


class Pages(BaseRetriever):
    """Finds every document, with ids and scores."""

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        found = enumerate(DOCUMENTS.items())
        return [Document(text, id=name, metadata={"score": 0.9 - 0.2 * at}) for at, (name, text) in found]


def rag(model: ChatOpenAI, config: RunnableConfig) -> object:
    given = {"context": Pages() | _joined, "question": RunnablePassthrough()}
    return (given | ChatPromptTemplate.from_template(RAG_PROMPT) | model | StrOutputParser()).invoke(TICKET, config)


def _joined(found: Sequence[Document]) -> str:
    return "\n\n".join(document.page_content for document in found)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(model: ChatOpenAI, config: RunnableConfig) -> object:
    calculator = create_agent(model, [add], system_prompt=SYSTEM, name="calculator")
    return calculator.invoke({"messages": [("user", SUM)]}, config)


def thread(model: ChatOpenAI, config: RunnableConfig) -> object:
    def respond(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("respond", respond).add_edge(START, "respond")
    app = graph.compile(checkpointer=InMemorySaver(), name="companion")
    named: RunnableConfig = {**config, "configurable": {"thread_id": "thread-1"}}
    return [app.invoke({"messages": [("user", said)]}, named) for said in TURNS]


PROGRAMS: Mapping[str, Program] = {"chain": chain, "rag": rag, "agent": agent, "thread": thread, "stream": stream}


def model_at(url: str) -> ChatOpenAI:
    return ChatOpenAI(model=MODEL, base_url=url, api_key="none", max_retries=0, stream_usage=True)


def programs(url: str, config: RunnableConfig | None = None) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called: their model is at this address."""
    model = model_at(url)
    return {name: lambda program=program: program(model, config or {}) for name, program in PROGRAMS.items()}
