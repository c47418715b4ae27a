"""``30s``, ``5m``, ``1h`` → seconds; and back, for people."""

from __future__ import annotations

import re

__all__ = ["DURATION", "duration", "seconds_of"]

DURATION = r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*"
"""How one is written."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str) -> float:
    """Return a duration in seconds; a number without a unit is seconds.

    Raises:
        ValueError: it is none; the message says what is.
    """
    found = re.fullmatch(DURATION, text)
    if found is None:
        raise ValueError(f"{text!r} is no duration; write for example 30s, 500ms, 5m, 1h or a number of seconds")
    return float(found[1]) * _UNITS[found[2] or "s"]


def duration(seconds: float) -> str:
    """Return a duration in the largest unit in which it is whole: ``6 h``."""
    whole = (unit for unit in ("d", "h", "m") if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0)
    unit = next(whole, "s")
    return f"{seconds / _UNITS[unit]:g} {unit}"
