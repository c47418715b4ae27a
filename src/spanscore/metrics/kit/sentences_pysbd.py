"""Split a text into sentences by pysbd (extra ``text``), with the rules of the line's script or of a given language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from spanscore.core.codecs.text import WITHOUT_STOPS, script_of
from spanscore.errors import MissingExtraError

SentenceSplitter: TypeAlias = Callable[[str], list[str]]
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
"""Script → languages whose rules may split a line in that script; the first one is the default.

pysbd has no language in Bengali, Gurmukhi, Gujarati or Oriya script, so Hindi's rules apply. Arabic text is split by the
rules of Persian, or of Urdu if it has ``_URDU_STOP``. pysbd's Arabic ends sentences at commas, and treats each word that ends
in an alef or a meem as an abbreviation.
"""
_URDU_STOP: Final = "۔"
"""Full stop of Urdu, which Arabic and Persian do not use."""


def segmenter(language: str | None = None) -> SentenceSplitter:
    """Return a function that splits a text into sentences.

    A line in the script of ``language`` is split by the rules of that language. Another line is split by the default language
    of its script, or as English if pysbd has no language of that script. Thai, Lao, Khmer and Tibetan are split at spaces.

    Args:
        language: two-letter code, such as ``de``; None = the script's default: English for Latin, Russian for Cyrillic, …

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
        languages = _RULES.get(script, ("en",))
        is_urdu = script == "ARABIC" and _URDU_STOP in line
        rules = language if language in languages else "ur" if is_urdu else languages[0]
        # A segmenter stores its text, so threads cannot share a segmenter: each line gets a new one.
        return list(pysbd.Segmenter(language=rules, clean=False).segment(line))

    def sentences(text: str) -> list[str]:
        # Lines are split one by one, because sentences do not cross line breaks, and the time grows with the square of the
        # length (9 s for 100 kB in one piece).
        found = [sentence.strip() for line in text.splitlines() if line.strip() for sentence in cut(line)]
        return [sentence for sentence in found if sentence]

    return sentences
