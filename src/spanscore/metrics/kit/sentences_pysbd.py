"""Text → sentences, by pysbd (extra ``text``): the rules of a line's script, or of the language that a user names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from spanscore.core.codecs.text import WITHOUT_STOPS, script_of
from spanscore.errors import MissingExtraError

Segmenter: TypeAlias = Callable[[str], list[str]]
"""A text → its sentences, in order, without white space at their ends."""

_RULES: Final[Mapping[str, tuple[str, ...]]] = {
    "LATIN": ("en", "es", "fr", "it", "de", "nl", "da", "pl", "sk"),
    "CYRILLIC": ("ru", "bg", "kk"),
    "CJK": ("zh", "ja"),
    "HIRAGANA": ("ja",),
    "DEVANAGARI": ("hi", "mr"),
    "ARABIC": ("fa", "ur"),
    **dict.fromkeys(("BENGALI", "GURMUKHI", "GUJARATI", "ORIYA"), ("hi",)),
    "GREEK": ("el",),
    "ARMENIAN": ("hy",),
    "ETHIOPIC": ("am",),
    "MYANMAR": ("my",),
}
"""Script → languages of pysbd that are written in it, the one first whose rules hold if no language is named.

Arabic goes by the rules of Persian: pysbd's Arabic ends sentences at commas, and takes each word whose last letter is an alef
or a meem for an abbreviation.
"""
_URDU_STOP: Final = "۔"


def segmenter(language: str | None = None) -> Segmenter:
    """Return a cut into sentences.

    A line is cut by the rules of ``language`` if it is written in the script of that, else by those of its own script; a script
    that pysbd does not know has the rules of English. In Thai, Lao, Khmer and Tibetan a blank ends a sentence.

    Args:
        language: two letters, such as ``de``; None = English for the Latin script, Russian for the Cyrillic one, and so on.

    Raises:
        MissingExtraError: pysbd is not installed.
    """
    try:
        import pysbd
    except ImportError as error:
        raise MissingExtraError("pysbd", "text") from error

    def cut(line: str) -> list[str]:
        script = script_of(line)
        if script in WITHOUT_STOPS:
            return line.split()
        # A segmenter keeps its text, so one that two threads share mixes them up: one per line.
        return list(pysbd.Segmenter(language=_rules_of(line, script, language), clean=False).segment(line))

    def sentences(text: str) -> list[str]:
        # Line by line: no sentence runs over a line break, and the time grows with the square of the length (100 kB in one
        # piece take 9 s).
        found = [sentence.strip() for line in text.splitlines() if line.strip() for sentence in cut(line)]
        return [sentence for sentence in found if sentence]

    return sentences


def _rules_of(line: str, script: str, language: str | None) -> str:
    known = _RULES.get(script, ("en",))
    if language in known:
        return language
    return "ur" if script == "ARABIC" and _URDU_STOP in line else known[0]
