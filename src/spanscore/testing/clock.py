"""ManualClock: time that moves when a test says so."""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """Nanoseconds since the epoch, moved by hand; call it to read it.

    Args:
        now_ns: where it starts.
    """

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        return self.now_ns

    def advance(self, seconds: float) -> int:
        """Move forward; return the new time in nanoseconds."""
        self.now_ns += int(seconds * 1e9)
        return self.now_ns
