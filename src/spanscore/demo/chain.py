"""The demo's chain: question → pages → prompt → model → answer. An ordinary chain; nothing in it knows about spanscore."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnablePassthrough

from spanscore.demo.library import Handbook
from spanscore.demo.offline_model import QUESTION

__all__ = ["CHAIN_NAME", "handbook_chain"]

CHAIN_NAME = "handbook"
_PROMPT = ChatPromptTemplate(
    [
        ("system", "You answer questions of ferry passengers in one sentence, from the notes alone."),
        ("human", "{notes}" + QUESTION + "{question}"),
    ]
)


def handbook_chain(model: BaseChatModel, handbook: Handbook) -> Runnable[str, str]:
    """Return the chain."""
    found = {"notes": handbook | _joined, "question": RunnablePassthrough()}
    return (found | _PROMPT | model | StrOutputParser()).with_config(run_name=CHAIN_NAME)


def _joined(pages: Sequence[Document]) -> str:
    return "\n".join(page.page_content for page in pages)
