"""``Retry-After``: how long somebody wants to be left alone, in either form that RFC 9110 allows."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from math import isfinite

__all__ = ["retry_after_s"]


def retry_after_s(told: str) -> float | None:
    """Return seconds, 0 or more: a number of them, or until a date; None for anything else."""
    try:
        seconds = float(told)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(told).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return max(0.0, seconds) if isfinite(seconds) else None
