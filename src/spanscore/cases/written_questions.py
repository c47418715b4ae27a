"""WrittenQuestions: which questions a file of cases has already, as far as this process knows."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Final

from spanscore.core.files import Appended, FileIdentity

__all__ = ["MOST_QUESTIONS", "WrittenQuestions"]

MOST_QUESTIONS: Final = 10_000
"""Of a file, the latest: some 0.1 kB each."""
_DIGEST_BYTES: Final = 16


class WrittenQuestions:
    """The latest questions of each file, by hash: those of a file that is gone are as new. One thread."""

    def __init__(self) -> None:
        self._of_file: dict[FileIdentity, dict[bytes, None]] = {}

    def has(self, question: str, files: Collection[FileIdentity]) -> bool:
        """Whether one of these files has a question; of others it is forgotten."""
        self._of_file = {file: known for file, known in self._of_file.items() if file in files}
        return any(_digest(question) in known for known in self._of_file.values())

    def add(self, question: str, appended: Appended) -> None:
        """Note that a file has a question; of one of which it is the first, it is all there is."""
        if appended.is_first:
            self._of_file[appended.file] = {}
        known = self._of_file.setdefault(appended.file, {})
        known[_digest(question)] = None
        if len(known) > MOST_QUESTIONS:
            del known[next(iter(known))]


def _digest(question: str) -> bytes:
    return blake2b(question.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).digest()
