"""WhenRead: what receivers have in common that hand a unit on as soon as they read it."""

from __future__ import annotations

from spanscore.core.span import UnitKey

__all__ = ["WhenRead"]


class WhenRead:
    """The mixin of a receiver in which nothing waits. What it lets in, and what it has not read, is its own matter."""

    _closed = False

    def tick(self, now_ns: int) -> None:
        """Do nothing: what came is handed on when it is read."""

    def next_due_ns(self) -> int | None:
        """Return None: nothing waits for a time."""
        return None

    def in_flight(self) -> set[UnitKey]:
        """Return nothing, likewise."""
        return set()

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Return nothing, likewise."""
        return []

    def close(self) -> None:
        """Take nothing further. Any thread."""
        self._closed = True
