"""``30s``, ``5m``, ``1h`` → seconds."""

from __future__ import annotations

import re

__all__ = ["seconds_of"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str) -> float:
    """Return a duration in seconds; a number without a unit is seconds.

    Raises:
        ValueError: it is none; the message says what is.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*", text)
    if found is None:
        raise ValueError(f"{text!r} is no duration; write for example 30s, 500ms, 5m, 1h or a number of seconds")
    return float(found[1]) * _UNITS[found[2] or "s"]
