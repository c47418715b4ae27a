"""Text of a Python dict, ``{'a': 2}``, which LangChain's tools are given and some instrumentations write → the dict."""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from spanscore.codec.text import from_wire, jsonable

__all__ = ["arguments_in", "value_of"]

_LONGEST: Final = 20_000
"""Characters that are read as Python: 2 ms."""
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
    """Return what a text says, JSON or a Python dict; any other text, and what is no text, as it is."""
    if not isinstance(text, str):
        return text
    known = from_wire(text)
    if known is not text or not text.startswith("{"):
        return known
    if not text.endswith("}") or len(text) > _LONGEST or not _AS_PRINTED.fullmatch(text):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
    return jsonable(value) if isinstance(value, dict) else text
