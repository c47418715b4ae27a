"""Programs of an application that traces its own functions with a decorator, as Langfuse's and MLflow's users do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from openai import OpenAI
from tests.traces.openai_app import asked, said, with_tool
from tests.traces.said import CAPITAL, DOCUMENTS, RAG_PROMPT, SUM, TICKET

Decorator = Callable[[str], Callable[[Callable[..., Any]], Callable[..., Any]]]


def decorated(client: OpenAI, traced: Decorator) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called; ``traced`` gives the decorator of a kind (chain, retriever, tool, agent)."""

    @traced("chain")
    def chain(question: str) -> str:
        return str(said(client, asked(question)).content)

    @traced("retriever")
    def retrieve(query: str) -> list[dict[str, Any]]:
        return [{"page_content": text, "metadata": {}, "id": name} for name, text in DOCUMENTS.items()]

    @traced("chain")
    def rag(question: str) -> str:
        context = "\n\n".join(page["page_content"] for page in retrieve(question))
        prompt = RAG_PROMPT.format(context=context, question=question)
        return str(said(client, [{"role": "user", "content": prompt}]).content)

    @traced("tool")
    def add(a: int, b: int) -> int:
        return a + b

    @traced("agent")
    def agent(question: str) -> str:
        return with_tool(client, add)

    return {"chain": lambda: chain(CAPITAL), "rag": lambda: rag(TICKET), "agent": lambda: agent(SUM)}
