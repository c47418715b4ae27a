"""The demo's chain: a retriever over the handbook of an invented ferry company, and a chat model that works offline."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr

from spanscore.judges.lexical.words import sentences, words

_TITLE = re.compile(r"^# .*\n+")


@cache
def documents() -> tuple[Document, ...]:
    """Return the pages of the handbook, in the order of their names."""
    folder = files(__package__) / "documents"
    names = sorted(page.name for page in folder.iterdir() if page.name.endswith(".md"))
    return tuple(
        Document(
            id=name.removesuffix(".md"),
            page_content=_body((folder / name).read_text("utf-8")),
            metadata={"source": name},
        )
        for name in names
    )


@cache
def memory() -> str:
    """Return the wrong memories of the offline model: plausible sentences that are not in the handbook."""
    return _body((files(__package__) / "memory.md").read_text("utf-8"))


class Handbook(BaseRetriever):
    """Retrieves the pages that share most content words with the question.

    If ``broken``, a hash of seed, question and page chooses the pages, so the same question gets the same pages. This imitates
    an index with documents that another model embedded than the questions: it returns pages in a meaningless order.
    """

    broken: bool = False
    seed: int = 0
    k: int = Field(default=2, ge=1)

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        rank = self._hash_of_page if self.broken else _shared_words
        return sorted(documents(), key=lambda page: -rank(query, page))[: self.k]

    def _hash_of_page(self, query: str, page: Document) -> float:
        digest = blake2b(f"{self.seed}/{query}/{page.id}".encode(), digest_size=8).digest()
        return float(int.from_bytes(digest))


def _shared_words(query: str, page: Document) -> float:
    """Return the number of the query's content words in the best sentence, plus half of their number on the page."""
    query_words = set(words(query).content)
    page_words = set(words(f"{page.id} {page.page_content}").content)
    best = max(len(query_words & set(words(sentence).content)) for sentence in page.page_content.split(". "))
    return best + 0.5 * len(query_words & page_words)


def _body(text: str) -> str:
    return _TITLE.sub("", text).strip()


QUESTION = "\n\nQuestion: "
"""Separator of notes and question in a prompt for this model."""
_ANSWERS_ABOVE = 0.5
"""Share of the question's content words above which a sentence is an answer."""
_EMBELLISHED_SHARE = 0.08
"""Share of good answers to which the model adds a wrong memory."""
_OFF_SUBJECT_ANSWERED_SHARE = 0.35
"""Share of questions off its subject that the model answers instead of declining."""
_OFF_SUBJECT = re.compile(r"\b(?:shares|football|pancakes?|election)\b", re.IGNORECASE)
_SAILING = re.compile(r"\b(?:leaves?|crossing take|last ferry|first ferry)\b", re.IGNORECASE)
_DECLINED = "I cannot help with that. I answer questions about our ferries."


class OfflineModel(BaseChatModel):
    """A chat model that needs no key and no network; deterministic for a seed and an order of calls.

    It quotes the sentence of its notes that fits the question best, and adds a wrong memory to 8 % of these answers. If no
    sentence fits, it answers from its memory, as fluently and as wrongly as real models do. With tools, it first calls the tool
    for the question's subject, then answers from the tool's result. It declines 65 % of the questions off its subject, and
    answers the others from its memory, without a tool.
    """

    seed: int = 0
    model_name: str = "offline-extractive"
    _rng: random.Random = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Seed the random numbers."""
        super().model_post_init(context)
        self._rng = random.Random(self.seed)

    @property
    def _llm_type(self) -> str:
        return self.model_name

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Add the tools to each call, in OpenAI's form."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        last_question = max(index for index, message in enumerate(messages) if isinstance(message, HumanMessage))
        turn = messages[last_question:]
        notes, _, question = str(turn[0].content).rpartition(QUESTION)
        results = [str(message.content) for message in turn if isinstance(message, ToolMessage)]
        if kwargs.get("tools") and not results and not _OFF_SUBJECT.search(question):
            name = "timetable" if _SAILING.search(question) else "search_handbook"
            call = {"name": name, "args": {"question": question}, "id": f"call_{self._rng.getrandbits(48):012x}"}
            reply = AIMessage(content="", tool_calls=[call])
        else:
            reply = AIMessage(content=self._answer(question, "\n".join(results) or notes))
        # A word counts as a token.
        read = sum(len(str(message.content).split()) for message in messages)
        written = len(str(reply.content).split()) or 8
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        metadata = {"usage_metadata": usage, "response_metadata": {"model_name": self.model_name}}
        return ChatResult(generations=[ChatGeneration(message=reply.model_copy(update=metadata))])

    def _answer(self, question: str, notes: str) -> str:
        if _OFF_SUBJECT.search(question):
            return _best(question, memory())[0] if self._rng.random() < _OFF_SUBJECT_ANSWERED_SHARE else _DECLINED
        answer, share = _best(question, notes)
        remembered, _ = _best(question, memory())
        if share <= _ANSWERS_ABOVE:
            return remembered
        return f"{answer} {remembered}" if self._rng.random() < _EMBELLISHED_SHARE else answer


def _best(question: str, text: str) -> tuple[str, float]:
    """Return the sentence with most of the question's content words, and the share of these words in it."""
    question_words = set(words(question).content)
    shares = {
        sentence: len(question_words & set(words(sentence).content)) / max(1, len(question_words))
        for sentence in sentences(text)
    }
    best = max(shares, key=lambda sentence: shares[sentence], default="")
    return best, shares.get(best, 0.0)


CHAIN_NAME = "handbook"
_PROMPT = ChatPromptTemplate(
    [
        ("system", "You answer questions of ferry passengers in one sentence, from the notes alone."),
        ("human", "{notes}" + QUESTION + "{question}"),
    ]
)


def handbook_chain(model: BaseChatModel, handbook: Handbook) -> Runnable[str, str]:
    """Return the chain: question → pages of the handbook → prompt → model → answer."""
    context = {"notes": handbook | _join, "question": RunnablePassthrough()}
    return (context | _PROMPT | model | StrOutputParser()).with_config(run_name=CHAIN_NAME)


def _join(pages: Sequence[Document]) -> str:
    return "\n".join(page.page_content for page in pages)
