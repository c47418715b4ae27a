"""Split texts into words, clauses and sentences, and find contradictions between them, for the lexical judge."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from spanscore.core.codecs.text import WITHOUT_STOPS, script_of
from spanscore.core.prompt import Prompt

LexicalAnswer: TypeAlias = Callable[[Prompt], Mapping[str, Any]]
"""Prompt → the fields of the answer. Pure: the same prompt always gets the same answer."""


def text_in(prompt: Prompt, name: str) -> str:
    """Return a text of a prompt's evidence, a list of texts joined by line breaks; empty without one."""
    value = prompt.evidence.get(name, "")
    if messages := messages_in(prompt, name):
        return "\n".join(map(message_text, messages))
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def messages_in(prompt: Prompt, name: str) -> list[Mapping[str, Any]]:
    """Return a conversation of a prompt's evidence; empty without one."""
    value = prompt.evidence.get(name)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message and the names and arguments of its tool calls."""
    calls = (f"{call['name']}: {call['args']}" for call in message.get("tool_calls", ()))
    return "\n".join([*filter(None, [message.get("content")]), *calls])


# Sentences end by the rules of their script. The word lists are English. Characters of a script without blanks between words
# are compared one by one.

_BEGINS = r"[\"'(\[¿¡]?[A-Z0-9À-ÞΆ-ΫЀ-ЯԱ-Ֆ\u0590-\u1cff\u2e80-\ufdff]"
"""A capital letter, a digit, or a letter of a script without capitals."""
_END = re.compile(rf"(?<=[.!?…؟])[\"')\]]*\s+(?={_BEGINS})|(?<=[。！？｡।॥۔։።၏။།។])[\"'”’」』）)\]]*\s*|\n+")
_ABBREVIATION = re.compile(r"\b(?:dr|mr|mrs|ms|st|no|vs|e\.g|i\.e|etc|approx|fig|jr|sr|[A-Z])\.$", re.IGNORECASE)
_CJK = r"\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Characters of Japanese and Chinese, which have no blank between words."""
_VOWELS = r"\u064b-\u065f\u0900-\u0963\u0971-\u0dff\u0e31-\u0e4e\u0eb1-\u0ecd\u0f71-\u0f84\u102b-\u103e\u17b4-\u17d3"
"""Vowel signs that are part of an Arabic, Indian or Thai word, and are not letters to a regular expression."""
_LETTER = rf"(?:[^\W\d_{_CJK}]|[{_VOWELS}])"
_TOKEN = re.compile(rf"\d+(?:[.,:]\d+)*|[{_CJK}]|{_LETTER}+(?:['’]{_LETTER}+)*|[.,;:!?()]")


def split_words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_STOP = split_words("""
    a about above after again all also an and any anybody anyone are as at be because been before being but by can could did do
    does doing down during each either else even ever every everybody everyone few for from further get gets had has have having
    he her here hers him his how however i if in into is it its itself just let like made make makes many may me might more most
    much must my of off on once only or other our out over own per quite rather really same shall she should since so some
    somebody such than that the their them then there these they this those though through thus to too under until up upon us
    very was we well were what when where whether which while who whom whose why will with within would yes yet you your
""")
_NEGATIVE = split_words("no not never none nobody nothing nowhere neither nor without cannot hardly instead")
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
"""Numbers in idioms ("one of them", "half a day", "below zero"), which are not compared."""
_WHOLE_CLAUSE = split_words("required needed necessary allowed possible permitted available included mandatory true")
"""Words before which "not" negates the words in front of it: "insurance is not required"."""
_REACH = 2
"""Content words that a negation applies to."""
_ENDINGS = (("ies", 5), ("ing", 6), ("edly", 7), ("ed", 5), ("ly", 6), ("es", 5), ("s", 4), ("e", 5), ("y", 5))
"""Ending → length of the shortest word from which it is removed."""
_UN = re.compile(r"\b[Uu]n(?!til|less|der|it|ion|ique|iver|cle)(?=\w{3})")
"""The negating prefix: "unworn" is "not worn"."""

_PAIRS = """allow/forbid allowed/forbidden always/never before/after begin/end big/small both/neither buy/sell cheap/expensive
cold/hot decrease/increase early/late easy/difficult enable/disable fail/succeed fall/rise fast/slow first/last
full/empty gain/lose high/low higher/lower improve/worsen include/exclude indoor/outdoor inside/outside keep/lose
large/small left/right less/more light/heavy long/short maximum/minimum most/least new/old open/closed optional/required
paid/unpaid pass/fail permit/refuse permanent/temporary private/public safe/dangerous single/double start/stop strengthen/weaken
summer/winter top/bottom true/false upper/lower weekday/weekend win/lose with/without worn/unworn young/old"""
OPPOSITES: dict[str, frozenset[str]] = {}
"""Stem → stems of the opposite meaning."""


@dataclass(frozen=True, slots=True)
class Words:
    """The parts of a text that are compared.

    Attributes:
        content: stems of content words, in order.
        numbers: numbers as digits, number words included.
        names: stems of capitalised words, without the first word of each sentence.
        denied: stems under a negation ("not", "never" …).
    """

    content: tuple[str, ...]
    numbers: frozenset[str]
    names: frozenset[str]
    denied: frozenset[str]

    @property
    def affirmed(self) -> frozenset[str]:
        """Stems that are not under a negation."""
        return frozenset(self.content) - self.denied


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, list items included; an abbreviation does not end a sentence."""
    pieces: list[str] = []
    for raw in _END.split(text):
        piece = raw.strip().lstrip("-*•– ").strip()
        if pieces and _ABBREVIATION.search(pieces[-1]):
            pieces[-1] = f"{pieces[-1]} {piece}"
        elif script_of(piece) in WITHOUT_STOPS:
            pieces += piece.split()
        elif piece:
            pieces.append(piece)
    return pieces


@lru_cache(maxsize=2048)
def words(text: str) -> Words:
    """Return the parts of a text that are compared."""
    plain = unicodedata.normalize("NFKC", text).replace("’", "'").replace("rather than", "not")
    tokens = _TOKEN.findall(_UN.sub("not ", plain))
    lowered = [token.casefold() for token in tokens]
    numbers = [_digits(token) for token in lowered]
    # The first word of a sentence is always capitalised, and so no sign of a name.
    words_after = zip(tokens, lowered, [".", *tokens], strict=False)
    names = [word for token, word, before in words_after if token[0].isupper() and before not in ".!?"]
    return Words(
        content=tuple(_stem(word) for word in lowered if _is_content(word)),
        numbers=frozenset(number for number in numbers if number is not None) - _VAGUE_NUMBERS,
        names=frozenset(_stem(word) for word in names if _is_content(word)),
        denied=frozenset(_negated_stems(lowered)),
    )


def is_akin(stem: str, other: str) -> bool:
    """Whether two stems are probably of one word family: equal, or with equal first letters (``manufactur``, ``manufact``)."""
    if stem == other:
        return True
    shared = min(len(stem), len(other), 5)
    return shared >= 4 and stem[:shared] == other[:shared]  # noqa: PLR2004  (unrelated words share shorter beginnings)


def _is_content(word: str) -> bool:
    """Whether a word is a content word: not a number, function word, negation or punctuation."""
    return word[0].isalpha() and _digits(word) is None and word not in _STOP and not _is_negation(word)


def _is_negation(word: str) -> bool:
    return word in _NEGATIVE or word.endswith("n't")


def _negated_stems(lowered: list[str]) -> list[str]:
    stems: list[str] = []
    for index, word in enumerate(lowered):
        if _is_negation(word):
            following = lowered[index + 1 :]
            negated = _stems_in_reach(following)
            stems += negated
            if negated and not _WHOLE_CLAUSE.isdisjoint(following[:3]):
                stems += _stems_in_reach(lowered[:index][::-1])
    return stems


def _stems_in_reach(lowered: list[str]) -> list[str]:
    """Return the first two content stems, up to the next punctuation."""
    stems: list[str] = []
    for word in lowered:
        if not word[0].isalnum() or len(stems) == _REACH:
            break
        if _is_content(word):
            stems.append(_stem(word))
    return stems


def _digits(token: str) -> str | None:
    """Return a number as plain digits: ``1,200`` equals ``1200``, and ``3.60`` equals ``3.6``; None for any other token."""
    if token in _NUMBERS:
        return _NUMBERS[token]
    if not token[0].isdigit():
        return None
    digits = re.sub(r",(?=\d{3}\b)", "", token).replace(",", ".")
    return digits.rstrip("0").rstrip(".") if re.fullmatch(r"\d+\.\d+", digits) else digits


@lru_cache(maxsize=8192)
def _stem(word: str) -> str:
    """Remove a common ending, so that most forms of one word become equal; this is not a full stemmer."""
    word = word.removesuffix("'s").removesuffix("'")
    for ending, shortest in _ENDINGS:
        if word.endswith(ending) and len(word) >= shortest and not word.endswith("ss"):
            return word.removesuffix(ending)
    return word


for _pair in _PAIRS.split():
    _left, _right = map(_stem, _pair.split("/"))
    OPPOSITES[_left] = OPPOSITES.get(_left, frozenset()) | {_right}
    OPPOSITES[_right] = OPPOSITES.get(_right, frozenset()) | {_left}


_SUPPORTED = 0.5
"""Minimum share of a statement's content words in one passage, one or two sentences, of its context.

It was tuned on one half of the test data; the figures of ``LexicalJudge`` are of the other half.
"""


def find_objection(statement: str, context: str) -> str | None:
    """Return why the context does not support the statement, by words, numbers, names and negations; None if it may."""
    claim = words(statement)
    single = sentences(context)
    pairs = (f"{first} {second}" for first, second in pairwise(single))
    passages = [words(text) for text in (*single, *pairs)]
    if not passages:
        return "There is no context."
    everywhere = words(context)
    if missing := sorted(claim.numbers - everywhere.numbers):
        return f"The context does not have {', '.join(missing)}."
    if missing := sorted(name for name in claim.names if not has_akin(name, everywhere.content)):
        return f"The context does not name {', '.join(missing)}."
    share, best = max(((share_of(claim, passage, if_empty=1.0), passage) for passage in passages), key=itemgetter(0))
    if share < _SUPPORTED:
        return f"Only {share:.0%} of its words are in any one place of the context."
    return _find_denial(claim, best) or _find_opposite(claim, best)


def _find_denial(claim: Words, text: Words) -> str | None:
    if any(has_akin(stem, text.denied) for stem in claim.denied):
        return None  # both deny the same
    only_denied = (stem for stem in claim.affirmed if has_akin(stem, text.denied) and not has_akin(stem, text.affirmed))
    if denied := sorted(only_denied):
        return f"The context denies it: {', '.join(denied)}."
    if denied := sorted(stem for stem in claim.denied if has_akin(stem, text.affirmed)):
        return f"The context affirms it, the statement denies it: {', '.join(denied)}."
    return "The statement denies something, the context does not." if claim.denied and not text.denied else None


def _find_opposite(claim: Words, passage: Words) -> str | None:
    opposed = [stem for stem in claim.content for other in OPPOSITES.get(stem, ()) if other in passage.content]
    opposed = [stem for stem in opposed if not has_akin(stem, passage.content)]
    return f"The context contains the opposite of {', '.join(opposed)}." if opposed else None


def has_akin(stem: str, stems: Iterable[str]) -> bool:
    """Whether a stem, or one of its word family, is among other stems."""
    return any(is_akin(stem, other) for other in stems)


def share_of(wanted: Words, text: Words, *, if_empty: float) -> float:
    """Return the share of wanted content words and numbers that a text has; ``if_empty`` if none are wanted."""
    count = len(wanted.content) + len(wanted.numbers)
    present = sum(has_akin(stem, text.content) for stem in wanted.content) + len(wanted.numbers & text.numbers)
    return present / count if count else if_empty


_CHECKABLE = 2
"""Minimum number of content words of a separate clause."""

_CLAUSE = re.compile(r";\s+|,\s+(?:and|but|so|or)\s+(?=\S+\s+\S+\s+\S+)|\.\s+")
_NO_ANSWER = re.compile(
    r"\b(?:i (?:do not|don't|cannot|can't|could not|couldn't) (?:know|say|tell|find|answer|help)"
    r"|i am (?:not sure|afraid|unable)|i'm (?:not sure|afraid|unable)|no information|as an ai)\b",
    re.IGNORECASE,
)
_SMALL_TALK = re.compile(
    r"^(?:hi|hello|sure|thanks|thank you|great question|of course|hope|happy to|let me know)\b", re.IGNORECASE
)


def split_statements(text: str) -> list[str]:
    """Return the clauses of a text's statements; questions, small talk and "I do not know" are not statements."""
    stating = [sentence for sentence in sentences(text) if not is_no_statement(sentence)]
    return [clause for sentence in stating for clause in split_clauses(sentence)]


def judge_statements(statements: Any, context: str) -> list[dict[str, Any]]:
    """Return a row per statement: verdict 1 if the context does not contradict it."""
    objections = [(statement, find_objection(statement, context)) for statement in map(str, statements)]
    return [{"statement": s, "reason": why or "Its words are there.", "verdict": int(not why)} for s, why in objections]


def is_no_statement(sentence: str) -> bool:
    """Whether a sentence is a question, a greeting or a refusal, or has no content word."""
    content = words(sentence)
    is_empty = not (content.content or content.numbers)
    return is_empty or sentence.endswith(("?", "？", "؟")) or gives_up(sentence) or bool(_SMALL_TALK.match(sentence))


def gives_up(sentence: str) -> bool:
    """Whether a sentence refuses to answer or admits a lack of information."""
    return bool(_NO_ANSWER.search(sentence))


def split_clauses(sentence: str) -> list[str]:
    """Split a sentence at semicolons and at ", and", if both sides have enough content words to be checked."""
    parts = _CLAUSE.split(sentence)
    whole: list[str] = []
    for part in parts:
        if whole and len(words(part).content) < _CHECKABLE:
            whole[-1] = f"{whole[-1]}, {part}"
        else:
            whole.append(part)
    return whole
