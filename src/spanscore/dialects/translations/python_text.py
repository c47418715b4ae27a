"""Texts in which Python shows its values, as some instrumentations write them → the values.

{'a': 2}                             a dict, which LangChain's tools are given; a list of dicts
messages=[HumanMessage(content='…    messages of LangChain
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from spanscore.core.codecs.text import from_wire, jsonable

__all__ = ["arguments_in", "shown_messages", "value_of"]

_LONGEST: Final = 20_000
"""Characters that are read as Python: 2 ms."""
_OPENINGS: Final = ("{", "[{'")
_SHOWN: Final = re.compile(r"(?:messages=)?\[?[A-Z][A-Za-z]*Message(?:Chunk)?\(content=")
_SHOWN_MESSAGE: Final = re.compile(
    r"""([A-Z][A-Za-z]*)Message(?:Chunk)?\(content=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\[)""", re.DOTALL
)
_MESSAGE: Final = re.compile(
    r"""\{'role': '(\w+)', '(?:text|content)': ('(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?)""", re.DOTALL
)
"""A message that Python shows: one that holds objects, or was cut, is no literal, and says something nevertheless."""
_AS_PRINTED: Final = re.compile(r"(?:[^\\]|\\[\\'nrtxuU])*")
"""Escapes as ``repr`` writes them; of any other Python warns on stderr."""


def arguments_in(value: Any) -> Any:
    """Return what a function was given of ``{"args", "kwargs"}``: names with values, or its only argument; else the value."""
    if not isinstance(value, dict) or not value or value.keys() - {"args", "kwargs"}:
        return value
    args, named = value.get("args"), value.get("kwargs")
    if not args:
        return named
    return args[0] if not named and isinstance(args, list) and len(args) == 1 else value


def value_of(text: Any) -> Any:
    """Return what a text says: JSON, a Python dict or a list of these; any other text, and what is no text, as it is."""
    if not isinstance(text, str):
        return text
    known = from_wire(text)
    if known is not text or not text.startswith(_OPENINGS):
        return known
    value = _literal(text) if text.endswith(("}", "]")) and len(text) <= _LONGEST else None
    if isinstance(value, (dict, list)):
        return jsonable(value)
    begun = _MESSAGE.match(text)
    return text if begun is None else {"role": begun[1], "content": _words(begun[2])}


def shown_messages(text: str) -> list[tuple[str, str]] | None:
    """Return role and words of the messages of LangChain that a text shows; None for a text that shows none.

    A message whose words cannot be read is left out.
    """
    if not _SHOWN.match(text):
        return None
    found = [(named.lower(), _literal(shown)) for named, shown in _SHOWN_MESSAGE.findall(text)]
    return [(role, words) for role, words in found if isinstance(words, str)]


def _words(shown: str) -> str:
    """Return the words of a text that Python shows, without its closing quote where it was cut."""
    words = _literal(shown + shown[0] if len(shown) == 1 or not shown.endswith(shown[0]) else shown)
    return words if isinstance(words, str) else shown[1:]


def _literal(text: str) -> Any:
    if not _AS_PRINTED.fullmatch(text):
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
