"""``2MB``, ``500kB``, ``1MiB`` → bytes."""

from __future__ import annotations

import re

__all__ = ["SIZE", "bytes_of"]

SIZE = r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG]?[iI]?[bB])?\s*"
"""How one is written."""

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SPELLED = {unit.lower(): size for unit, size in _UNITS.items()}


def bytes_of(text: str) -> int:
    """Return a size in bytes; a number without a unit is bytes.

    Raises:
        ValueError: it is none; the message says what is.
    """
    found = re.fullmatch(SIZE, text)
    size = None if found is None else _SPELLED.get((found[2] or "B").lower())
    if found is None or size is None:
        raise ValueError(f"{text!r} is no size; write for example 2MB, 500kB, 1MiB or a number of bytes")
    return round(float(found[1]) * size)
