"""Text → sentences, word stems, numbers and names, which the lexical judge compares.

Sentences end by the rules of any script. The dictionary is English and stands in this file; signs of a script without blanks
between words are compared one by one.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from spanscore.core.codecs.text import WITHOUT_STOPS, script_of

__all__ = ["OPPOSITES", "Words", "akin", "listed", "sentences", "words"]

_BEGINS = r"[\"'(\[¿¡]?[A-Z0-9À-ÞΆ-ΫЀ-ЯԱ-Ֆ\u0590-\u1cff\u2e80-\ufdff]"
"""A capital letter, a digit, or a letter of a script without capitals."""
_END = re.compile(rf"(?<=[.!?…؟])[\"')\]]*\s+(?={_BEGINS})|(?<=[。！？｡।॥۔։።၏။།។])[\"'”’」』）)\]]*\s*|\n+")
_ABBREVIATION = re.compile(r"\b(?:dr|mr|mrs|ms|st|no|vs|e\.g|i\.e|etc|approx|fig|jr|sr|[A-Z])\.$", re.IGNORECASE)
_SIGN = r"\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Signs of Japanese and Chinese, which have no blank between words."""
_MARK = r"\u064b-\u065f\u0900-\u0963\u0971-\u0dff\u0e31-\u0e4e\u0eb1-\u0ecd\u0f71-\u0f84\u102b-\u103e\u17b4-\u17d3"
"""Vowel signs that are part of an Arabic, Indian or Thai word, and that a regular expression does not take for a letter."""
_LETTER = rf"(?:[^\W\d_{_SIGN}]|[{_MARK}])"
_TOKEN = re.compile(rf"\d+(?:[.,:]\d+)*|[{_SIGN}]|{_LETTER}+(?:['’]{_LETTER}+)*|[.,;:!?()]")


def listed(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_STOP = listed("""
    a about above after again all also an and any anybody anyone are as at be because been before being but by can could did do
    does doing down during each either else even ever every everybody everyone few for from further get gets had has have having
    he her here hers him his how however i if in into is it its itself just let like made make makes many may me might more most
    much must my of off on once only or other our out over own per quite rather really same shall she should since so some
    somebody such than that the their them then there these they this those though through thus to too under until up upon us
    very was we well were what when where whether which while who whom whose why will with within would yes yet you your
""")
_NEGATIVE = listed("no not never none nobody nothing nowhere neither nor without cannot hardly instead")
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS: dict[str, str] = {
    **{word: str(number) for number, word in enumerate(_ONES.split())},
    **{word: str(10 * ten) for ten, word in enumerate(_TENS.split(), 2)},
    **{"hundred": "100", "thousand": "1000", "twice": "2", "half": "0.5", "dozen": "12"},
}
_VAGUE_NUMBERS = frozenset({"0", "0.5", "1"})
"""Said in passing ("one of them", "half a day", "below zero"): no evidence of anything."""
_WHOLE_CLAUSE = listed("required needed necessary allowed possible permitted available included mandatory true")
"""What "not" before one of these denies stands in front of it: "insurance is not required"."""
_REACH = 2
"""Content words that a denial reaches."""
_ENDINGS = (("ies", 5), ("ing", 6), ("edly", 7), ("ed", 5), ("ly", 6), ("es", 5), ("s", 4), ("e", 5), ("y", 5))
"""Ending → shortest word it is cut from."""
_UN = re.compile(r"\b[Uu]n(?!til|less|der|it|ion|ique|iver|cle)(?=\w{3})")
"""The prefix that denies: "unworn" is "not worn"."""

_PAIRS = """allow/forbid allowed/forbidden always/never before/after begin/end big/small both/neither buy/sell cheap/expensive
cold/hot decrease/increase early/late easy/difficult enable/disable fail/succeed fall/rise fast/slow first/last
full/empty gain/lose high/low higher/lower improve/worsen include/exclude indoor/outdoor inside/outside keep/lose
large/small left/right less/more light/heavy long/short maximum/minimum most/least new/old open/closed optional/required
paid/unpaid pass/fail permit/refuse permanent/temporary private/public safe/dangerous single/double start/stop strengthen/weaken
summer/winter top/bottom true/false upper/lower weekday/weekend win/lose with/without worn/unworn young/old"""
OPPOSITES: dict[str, frozenset[str]] = {}
"""Stem → stems that say the contrary."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a text is compared by.

    Attributes:
        content: stems that carry meaning, in order.
        numbers: as digits, number words included.
        names: stems of capitalised words, the first word of the text left out.
        denied: stems that stand under a denial ("not", "never" …).
    """

    content: tuple[str, ...]
    numbers: frozenset[str]
    names: frozenset[str]
    denied: frozenset[str]

    @property
    def affirmed(self) -> frozenset[str]:
        """Stems that stand under no denial."""
        return frozenset(self.content) - self.denied


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, list items included; an abbreviation does not end one."""
    found: list[str] = []
    for raw in _END.split(text):
        piece = raw.strip().lstrip("-*•– ").strip()
        if found and _ABBREVIATION.search(found[-1]):
            found[-1] = f"{found[-1]} {piece}"
        elif script_of(piece) in WITHOUT_STOPS:
            found += piece.split()
        elif piece:
            found.append(piece)
    return found


@lru_cache(maxsize=2048)
def words(text: str) -> Words:
    """Return what a text is compared by."""
    plain = unicodedata.normalize("NFKC", text).replace("’", "'").replace("rather than", "not")
    tokens = _TOKEN.findall(_UN.sub("not ", plain))
    lowered = [token.casefold() for token in tokens]
    numbers = [_digits(token) for token in lowered]
    names = {_stem(low) for low in _names(tokens, lowered)}
    return Words(
        content=tuple(_stem(low) for low in lowered if _says_something(low)),
        numbers=frozenset(number for number in numbers if number is not None) - _VAGUE_NUMBERS,
        names=frozenset(names),
        denied=frozenset(_denied(lowered)),
    )


def akin(one: str, other: str) -> bool:
    """Whether two stems are likely of one family: equal, or alike in their first letters (``manufactur``, ``manufact``)."""
    if one == other:
        return True
    shared = min(len(one), len(other), 5)
    return shared >= 4 and one[:shared] == other[:shared]  # noqa: PLR2004  (shorter beginnings are shared by strangers)


def _says_something(low: str) -> bool:
    """Whether a word carries meaning of its own: no number, no function word, no punctuation."""
    return low[0].isalpha() and _digits(low) is None and low not in _STOP and not _denies(low)


def _denies(low: str) -> bool:
    return low in _NEGATIVE or low.endswith("n't")


def _names(tokens: list[str], lowered: list[str]) -> list[str]:
    """Return capitalised words; the first of a sentence is capitalised anyway."""
    pairs = zip(tokens, lowered, [".", *tokens], strict=False)
    return [low for token, low, before in pairs if token[0].isupper() and before not in ".!?" and _says_something(low)]


def _denied(lowered: list[str]) -> list[str]:
    found: list[str] = []
    for place, low in enumerate(lowered):
        if _denies(low):
            after = _reached(lowered[place + 1 :])
            found += after
            if after and lowered[place + 1 :] and any(word in _WHOLE_CLAUSE for word in lowered[place + 1 : place + 4]):
                found += _reached(lowered[:place][::-1])
    return found


def _reached(lowered: list[str]) -> list[str]:
    """Return the first content stems, up to the next punctuation."""
    stems: list[str] = []
    for low in lowered:
        if not low[0].isalnum() or len(stems) == _REACH:
            break
        if _says_something(low):
            stems.append(_stem(low))
    return stems


def _digits(token: str) -> str | None:
    """Return a number as plain digits: ``1,200`` and ``1200`` are the same, as are ``3.60`` and ``3.6``."""
    if token in _NUMBERS:
        return _NUMBERS[token]
    if not token[0].isdigit():
        return None
    digits = re.sub(r",(?=\d{3}\b)", "", token).replace(",", ".")
    return digits.rstrip("0").rstrip(".") if re.fullmatch(r"\d+\.\d+", digits) else digits


@lru_cache(maxsize=8192)
def _stem(word: str) -> str:
    """Cut the common endings off: enough to bring forms of one word together, not to be a linguist."""
    word = word.removesuffix("'s").removesuffix("'")
    for ending, shortest in _ENDINGS:
        if word.endswith(ending) and len(word) >= shortest and not word.endswith("ss"):
            return word.removesuffix(ending)
    return word


for _pair in _PAIRS.split():
    _one, _other = map(_stem, _pair.split("/"))
    OPPOSITES[_one] = OPPOSITES.get(_one, frozenset()) | {_other}
    OPPOSITES[_other] = OPPOSITES.get(_other, frozenset()) | {_one}
