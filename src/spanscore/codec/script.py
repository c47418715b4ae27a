"""A text → the script in which it is written, which says how its sentences end."""

from __future__ import annotations

import unicodedata
from collections import Counter
from itertools import islice
from typing import Final

__all__ = ["WITHOUT_STOPS", "script_of"]

WITHOUT_STOPS: Final = frozenset({"THAI", "LAO", "KHMER", "TIBETAN"})
"""Scripts in which a blank ends a sentence, as a full stop does elsewhere."""
_LOOKED_AT: Final = 400
"""Letters: more change no majority, and each costs a look-up."""


def script_of(text: str) -> str:
    """Return the script of most letters of a text by its name in Unicode, such as ``LATIN``, ``CJK`` or ``DEVANAGARI``.

    Japanese is ``HIRAGANA``, also if most of its letters are Chinese. A text without a letter is ``LATIN``.
    """
    if text.isascii():
        return "LATIN"
    letters = islice(filter(str.isalpha, text), _LOOKED_AT)
    counts = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in letters)
    if counts["HIRAGANA"]:
        counts["HIRAGANA"] += counts.pop("CJK", 0) + counts.pop("KATAKANA", 0)
    return max(counts, key=counts.__getitem__, default="LATIN")
