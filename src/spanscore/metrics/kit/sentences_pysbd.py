"""Text → sentences, by pysbd (extra ``text``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from spanscore.errors import MissingExtraError

__all__ = ["Segmenter", "segmenter"]

Segmenter: TypeAlias = Callable[[str], list[str]]
"""A text → its sentences, in order, without white space at their ends."""


def segmenter() -> Segmenter:
    """Return a cut into English sentences.

    Raises:
        MissingExtraError: pysbd is not installed.
    """
    try:
        import pysbd
    except ImportError as error:
        raise MissingExtraError("pysbd", "text") from error

    def sentences(text: str) -> list[str]:
        # A segmenter keeps its text, so one that two threads share mixes them up: one per text. Line by line: no sentence runs
        # over a line break, and the time grows with the square of the length (100 kB in one piece take 9 s).
        cut = pysbd.Segmenter(language="en", clean=False)
        found = [sentence.strip() for line in text.splitlines() if line.strip() for sentence in cut.segment(line)]
        return [sentence for sentence in found if sentence]

    return sentences
