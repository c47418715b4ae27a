"""DoorCounts: what came to the door by which spans arrive over the wire, and what was refused there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock
from typing import Final

__all__ = ["OVERLOADS", "DoorCounts"]

OVERLOADS: Final = ("bytes", "traces", "inbox")
"""What may be full, so that a request is refused and is to come again."""


class DoorCounts:
    """Counts since the start. Any thread.

    Who listens counts requests and refusals; ``OtlpSpans.take`` counts the spans of what is taken.

    Attributes:
        requests: that came, refused ones included.
        bytes: of their bodies, without compression.
        refused: why a request was refused → how many.
        spans: valid ones that were taken.
        rejected: why a span of a request that was taken is not valid → how many.
        ours: of the spans, evaluations: they are never evaluated.
        unclaimed: of the spans, those that nobody claims.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Count from zero: in a forked child."""
        self._lock = Lock()
        self.requests = self.bytes = self.spans = self.ours = self.unclaimed = 0
        self.refused: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()

    def came(self, size_bytes: int) -> None:
        """Count a request, whatever comes of it.

        Args:
            size_bytes: of its body, without compression; 0 where that is not known.
        """
        with self._lock:
            self.requests += 1
            self.bytes += size_bytes

    def refuse(self, reason: str) -> None:
        """Count a request that is refused, by a reason of few: ``bytes``, ``traces``, ``inbox``, ``too_large`` …"""
        with self._lock:
            self.refused[reason] += 1

    def took(self, spans: int, rejected: Mapping[str, int], *, ours: int, unclaimed: int) -> None:
        """Count the spans of one request."""
        with self._lock:
            self.spans += spans
            if rejected:  # a counter that is told nothing takes longer than all else here
                self.rejected.update(rejected)
            self.ours += ours
            self.unclaimed += unclaimed
