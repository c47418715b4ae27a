"""Transcript: what a judge was asked in one call, and what it said; kept only where somebody traces judges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from spanscore import semconv

__all__ = ["Transcript"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What of a judge's call its span tells, beside what it cost.

    Attributes:
        ended_ns: when it ended, since the epoch.
        operation: ``chat``, or ``embeddings``, of which the texts are nowhere: the conventions know no place for them.
        provider: as ``gen_ai.provider.name`` has it; empty where nobody is asked, or nobody tells.
        asked_model: the model that was asked, as it is configured.
        finish: why the model stopped, as its provider names it; None where it does not tell.
        trouble: what is wrong with a call that gave no answer of use; quotes nothing.
        system: what it was told to do. Empty where content is not exported; likewise the next two.
        user: the evidence, as it was sent.
        answer: what it said, readable or not.
    """

    ended_ns: int
    operation: str = semconv.CHAT
    provider: str = ""
    asked_model: str = ""
    finish: str | None = None
    trouble: str = ""
    system: str = ""
    user: str = ""
    answer: str = ""

    @property
    def size(self) -> int:
        """Characters of what was said."""
        return len(self.system) + len(self.user) + len(self.answer)

    def without_question(self) -> Self:
        """Return it without what was asked: another attempt of the same question tells that."""
        return replace(self, system="", user="")
