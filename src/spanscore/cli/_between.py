"""``--since`` and ``--until`` → seconds since the epoch."""

from __future__ import annotations

import time

from spanscore.errors import ConfigurationError
from spanscore.stored.trace_stores import time_of

__all__ = ["between"]


def between(since: str, until: str) -> tuple[float | None, float | None]:
    """Return both ends of a time; None of one that is empty.

    Raises:
        ConfigurationError: one is none, or nothing lies between them.
    """
    now_s = time.time()
    since_s, until_s = (None if not text else time_of(text, now_s) for text in (since, until))
    if since_s is not None and until_s is not None and until_s <= since_s:
        raise ConfigurationError(f"--until {until} is not after --since {since}: no unit began between them")
    return since_s, until_s
