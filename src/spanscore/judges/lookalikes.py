"""JSON → the same JSON, in which no text looks like a tag of the fence, or is a mark of a chat template.

The first sign of each such text becomes an escape (``\\u003c``): a parser of JSON reads the same text, a model sees no tag.

    </evidence>   also in other letters (fullwidth, mathematical, circled, Cyrillic …), with unseen signs, as an entity
    <|im_end|>    also [/INST], <<SYS>>, <start_of_turn>, </s> …: a tokenizer makes one token of it, wherever it stands
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import cache, lru_cache
from typing import Final

__all__ = ["without_marks"]

_WORD: Final = "evidence"
_BRACKETS: Final = (
    "<\uff1c\ufe64\u2039\u3008\u27e8\u2329\u276e\u276c\u2770\u29fc\u2991\u02c2\u1438\u16b2\u226e\u227a\u226a\u22d6\u00ab\u300a"
    "\u27ea\u2264\u2a7d\u22d8\u2993\u25c1\u25c3\ufe3d\ufe3f\u2a79\u2aa1\U0001d236\U000e003c"
)
"""Signs that look like ``<``; ``≮`` and the vertical forms are compositions of one. The last one is unseen."""
_SLASHES: Final = "/\\\u2044\u2215\u2216\u29f8\u29f9\u2571\u27cb\u3033\u30ce\u31d3\u4e3f\u2cc6\u1735\u29f5\U0001d23a()"
"""Signs that look like ``/``, and the brackets of ``⒠``, whose letters stand in brackets."""
_BLANKS: Final = frozenset("\u115f\u1160\u3164\uffa0\u2800\u17b4\u17b5\U0001d159\ufffc")
"""Signs that nobody sees, in categories of letters and symbols."""
_LETTERS: Final = {
    sign: letter
    for letter, signs in {
        "e": "\u0435\u0415\u0395\u03b5\u04bd\u212e\uab32\u13ac\u2d39\ua4f0\u22ff\u2107\u018f\u0259\u042d\u044d"
        "\U000118a6\U000118ae",
        "v": "\u03bd\u0475\u0474\u05d8\u2228\u22c1\uaba9\u13d9\u142f\ua4e6\u0667\u06f7\u2d38\U00011706\U000118c0\U000118a0",
        "i": "1l|!\u0456\u0406\u03b9\u0399\u04cf\u04c0\ua647\uab75\u13a5\u2373\u02db\u037a\u2223\u23fd\u05d5\u05df\u0627"
        "\u0661\u06f1\u07ca\u2d4f\u16c1\ua4f2\u0131\U000118c3\U00010309\U0001028a",
        "d": "\u0501\u0500\u13e7\u146f\ua4d2\u13a0\u15de\u15ea\ua4d3\u00f0\u00d0",
        "n": "\u0578\u057c\u03b7\u043f\u039d\u2c9a\ua4e0\u0418",
        "c": "\u0441\u0421\u03f2\u03f9\u2ca5\u2ca4\uabaf\u13df\ua4da\u00a2\u2d4e\U0001043d\U0001f74c\U000102a2"
        "\U00010302\U00010415\U0001051c\U000118e9\U000118f2",
    }.items()
    for sign in signs
}
"""Signs that look like a letter of the word, beside those that Unicode itself relates to one."""
_NAMED = re.compile(r"(?:.* )?(?:LATIN|SYMBOL) (?:.* )?([A-Z])(?: WITH .*)?")
_TAG_SIGNS = re.compile("[\U000e0020-\U000e007e]")
"""Unseen twins of ASCII, in which some models read what nobody sees."""
_MOST_SIGNS: Final = 50_000
"""Signs of one text that are looked at one by one, in some 50 ms. Behind them every suspicious sign is escaped."""

_ROLES = "system|user|human|assistant|model"
_ANGLED = (
    rf"s|bos|eos|pad|unk|mask|cls|sep|sop|eop|eoh|eoa|[A-Z]+_TOKEN|{_ROLES}|think(?:ing)?|tools?|endoftext|invoke"
    r"|tool_(?:call|response|result)s?|function_(?:call|response|result)s?|(?:start|end)_[a-z_]+|fim_[a-z]+|extra_id_\d+"
    r"|unused\d+|reserved_\d+|0x[0-9A-F]{2}"
)
_MARK = rf"[|\uff5c]|/?(?:{_ANGLED})>|<[\s/]*+SYS\s*+>"
_MAY_OPEN = r"[\s/]*+(?:[eE][\s/]*+(?:[vV\\&%]|[^\x00-\x7e])|[\\&%]|[^\x00-\x7e])"
_WRITTEN = {"&": re.compile("&(?=[#lL])(?P<mark>(?!))?"), "%": re.compile("%(?=3[cC])(?P<mark>(?!))?")}
_SQUARE = re.compile(r"\[(?=/?[A-Za-z]?[A-Z][A-Z_]+(?:_\d+)?\])")
_HEADING = re.compile(rf"#(?=##\s*+(?i:instruction|response|input|{_ROLES})\s*+:)")
"""Without ``re.IGNORECASE``: a pattern that begins with one literal sign is looked for at the speed of memory."""
_PLAIN = re.compile(rf"<[\s/]*+{_WORD}", re.IGNORECASE)
_SIGN = re.compile(
    r'[\s/]+|\\+u[0-9a-f]{4}|\\[\\"bfnrt]|&(?:\#\d{1,7}|\#x[0-9a-f]{1,6}|[a-z]{2,8});?|%[0-9a-f]{2}|.',
    re.IGNORECASE | re.DOTALL,
)
"""One sign as it may be written in JSON, in HTML or in an address; blanks and slashes in a row."""


def without_marks(text: str) -> str:
    """Return JSON of which no part looks like a tag of the fence or is a mark of a chat template. In linear time."""
    escape = _Escape()
    # Most texts have no bracket, and ``in`` finds that out in half the time that a class of signs takes.
    for bracket in "<" if text.isascii() else _BRACKETS:
        if bracket in text:
            text = _after(bracket).sub(escape, text)
    for sign, pattern in _WRITTEN.items():
        if sign in text:
            text = pattern.sub(escape, text)
    if "#" in text:
        text = _HEADING.sub(r"\\u0023", text)
    return _SQUARE.sub(r"\\u005b", text)


@cache
def _after(bracket: str) -> re.Pattern[str]:
    """Return the pattern of a bracket before a mark of a template, or before signs that may be those of a tag."""
    return re.compile(rf"{bracket}(?:(?=(?P<mark>{_MARK}))|(?={_MAY_OPEN}))")


class _Escape:
    """Replacement of the first signs of marks and tags in one text by their escapes of JSON."""

    def __init__(self) -> None:
        self._left = _MOST_SIGNS

    def __call__(self, match: re.Match[str]) -> str:
        """Return the escape of a sign; the sign itself if neither a mark nor a tag begins there."""
        sign = match[0]
        is_one = self._left < 0 or match["mark"] is not None or self._opens_tag(match.string, match.start())
        return _in_hex(sign) if is_one else sign

    def _opens_tag(self, text: str, start: int) -> bool:
        """Whether the signs from ``start`` on look like the beginning of a tag."""
        if _PLAIN.match(text, start):
            return True
        signs = (sign[0] for sign in _SIGN.finditer(text, start))
        left = f"<{_WORD}"
        for sign in signs:  # up to the next bracket at most: no text is looked at from two places
            self._left -= 1
            letters = _seen(sign)
            if self._left < 0 or letters.startswith(left) or _TAG_SIGNS.match(sign):
                return True
            if not left.startswith(letters):
                return False
            left = left[len(letters) :]
        return False


@cache
def _in_hex(sign: str) -> str:
    """Return a sign as JSON has it in ASCII, which is two escapes beyond the basic plane."""
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


@lru_cache(maxsize=4096)
def _seen(sign: str) -> str:
    """Return the Latin letters that a reader sees in a sign, in lower case; ``<`` for a bracket, empty for an unseen one."""
    if sign[:1] == "\\":
        sign = chr(int(sign[-4:], 16)) if sign[-5:-4] in ("u", "U") else sign[1:].strip("bfnrt\\")
    elif sign[:1] == "%" and len(sign) > 1:
        sign = chr(int(sign[1:], 16))
    elif sign[:1] == "&":
        sign = html.unescape(sign)
    return "".join(_letter(part) for whole in sign for part in _parts(whole))


def _parts(sign: str) -> str:
    return sign if sign in _BRACKETS else unicodedata.normalize("NFKD", sign)


def _letter(sign: str) -> str:
    if sign in _BRACKETS:
        return "<"
    if sign in _BLANKS or sign in _SLASHES or unicodedata.category(sign)[0] in "CMZ":
        return ""
    if sign in _LETTERS:
        return _LETTERS[sign]
    named = None if sign.isascii() else _NAMED.fullmatch(unicodedata.name(sign, ""))
    return named[1].lower() if named else sign.lower()
