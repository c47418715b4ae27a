"""The handbook of Skerrow Sound Ferries, an invented company, and a retriever over it that can be broken on purpose."""

from __future__ import annotations

import re
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from spanscore.judges.lexical.words import words

__all__ = ["Handbook", "documents", "memory"]

_TITLE = re.compile(r"^# .*\n+")


@cache
def documents() -> tuple[Document, ...]:
    """Return the pages of the handbook, by name."""
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
    """Return what the offline model wrongly believes to remember: plausible, and nowhere in the handbook."""
    return _body((files(__package__) / "memory.md").read_text("utf-8"))


class Handbook(BaseRetriever):
    """Finds the pages that share most words with the question; when ``broken``, any pages.

    Broken is as after an index was built with one embedding model and is asked with another: it still answers, in time and
    in form, and near and far have lost their meaning.
    """

    broken: bool = False
    seed: int = 0
    k: int = Field(default=2, ge=1)

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        near = self._by_chance if self.broken else _shared_words
        return sorted(documents(), key=lambda page: -near(query, page))[: self.k]

    def _by_chance(self, query: str, page: Document) -> float:
        digest = blake2b(f"{self.seed}/{query}/{page.id}".encode(), digest_size=8).digest()
        return float(int.from_bytes(digest))


def _shared_words(query: str, page: Document) -> float:
    """Return how much of the query one sentence holds, and the whole page."""
    asked = set(words(query).content)
    page_words = set(words(f"{page.id} {page.page_content}").content)
    best = max(len(asked & set(words(sentence).content)) for sentence in page.page_content.split(". "))
    return best + 0.5 * len(asked & page_words)


def _body(text: str) -> str:
    return _TITLE.sub("", text).strip()
