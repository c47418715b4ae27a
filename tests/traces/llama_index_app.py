"""Programs on LlamaIndex: a chat, RAG over nodes, an agent with a tool, a thread of three turns, a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core import PromptTemplate
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.llms.openai_like import OpenAILike
from tests.traces.said import CAPITAL, DOCUMENTS, MODEL, RAG_PROMPT, SUM, SYSTEM, TICKET, TURNS


def chain(model: OpenAILike) -> object:
    return model.chat([ChatMessage(SYSTEM, role="system"), ChatMessage(CAPITAL)]).message.content


def stream(model: OpenAILike) -> object:
    asked = [ChatMessage(SYSTEM, role="system"), ChatMessage(CAPITAL)]
    return [word.delta for word in model.stream_chat(asked)]


class Pages(BaseRetriever):
    """Finds every document, with ids and scores."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = enumerate(DOCUMENTS.items())
        return [NodeWithScore(node=TextNode(text=text, id_=name), score=0.9 - 0.2 * at) for at, (name, text) in found]


def rag(model: OpenAILike) -> object:
    template = PromptTemplate(RAG_PROMPT.replace("{context}", "{context_str}").replace("{question}", "{query_str}"))
    engine = RetrieverQueryEngine.from_args(Pages(), llm=model, text_qa_template=template)
    return str(engine.query(TICKET))


def agent(model: OpenAILike) -> object:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def asked() -> Any:
        calculator = FunctionAgent(tools=[add], llm=model, system_prompt=SYSTEM, name="calculator", streaming=False)
        return await calculator.run(SUM)

    return str(asyncio.run(asked()))


def thread(model: OpenAILike) -> object:
    companion = SimpleChatEngine.from_defaults(llm=model)
    return [str(companion.chat(said)) for said in TURNS]


def programs(url: str) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called: their model is at this address."""
    model = OpenAILike(MODEL, api_base=url, api_key="none", is_chat_model=True, is_function_calling_model=True)
    named = {"chain": chain, "rag": rag, "agent": agent, "thread": thread, "stream": stream}
    return {name: lambda program=program: program(model) for name, program in named.items()}
