"""The clock by which units wait: nanoseconds since the epoch, by the wall clock when the process began, and steady from there.

A wall clock steps: an hour back, and what was to wait a second would wait an hour. Spans keep the wall clock's times.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import Final

__all__ = ["steady_ns"]

_AHEAD_NS: Final = time_ns() - monotonic_ns()


def steady_ns() -> int:
    """Return the time; never less than before."""
    return monotonic_ns() + _AHEAD_NS
