"""Flat attributes, ``llm.input_messages.0.message.role`` → one mapping per position, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["positions"]

_MOST_DIGITS: Final = 18
"""Of a position; longer ones are no position."""


def positions(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return what stands under a prefix, position by position, by what follows the position; gaps are left out.

    A position is a key and not an index: ``…1000000000.…`` costs as much as ``…0.…``.
    """
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            number, _, rest = name[len(prefix) :].partition(".")
            if number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS:
                found.setdefault(int(number), {})[rest] = value
    return [found[position] for position in sorted(found)]
