"""The lexical judge on entities: a text → its capitalised names and its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from spanscore.core.prompt import Prompt
from spanscore.judges.lexical.answer import LexicalAnswer, text_in
from spanscore.judges.lexical.words import sentences, words

__all__ = ["ANSWERS"]

_CAPITALISED = r"[A-ZÀ-ÖØ-Þ][\w'’-]*"
_ENTITY = re.compile(rf"{_CAPITALISED}(?: (?:(?:of|de|van|von|la) )?{_CAPITALISED})*|\d+(?:[.,:]\d+)*")


def _extract_entities(prompt: Prompt) -> Mapping[str, Any]:
    """Runs of capitalised words, and numbers. A word that only opens a sentence is a name when it is one elsewhere too."""
    text = text_in(prompt, "text")
    inside = words(text).names
    found: dict[str, None] = {}
    for sentence in sentences(text):
        for opens, entity in _candidates(sentence):
            if not opens or " " in entity or set(words(entity).content) & inside or entity[0].isdigit():
                found[entity] = None
    return {"entities": list(found)}


def _candidates(sentence: str) -> Iterator[tuple[bool, str]]:
    """Yield runs of capitalised words without the "The" before them, and whether they open the sentence."""
    for match in _ENTITY.finditer(sentence):
        said = match.group().split()
        while said and not (words(said[0]).content or words(said[0]).numbers):
            del said[0]
        if said:
            yield match.start() == 0 and len(said) == len(match.group().split()), " ".join(said)


ANSWERS: Mapping[str, LexicalAnswer] = {
    "extract_entities_reference": _extract_entities,
    "extract_entities_contexts": _extract_entities,
}
