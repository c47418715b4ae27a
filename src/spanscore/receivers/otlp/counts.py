"""DoorCounts: what came to the door by which spans arrive over the wire, and what was refused there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from threading import Lock
from typing import Final

__all__ = ["OVERLOADS", "DoorCounts"]

OVERLOADS: Final = ("bytes", "traces", "event_queue")
"""What may be full, so that a request is refused and is to come again."""
_MOST_UNREAD: Final = 10_000
"""Ids of unread traces that are remembered, as a trace may come in several requests."""


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
        unread: scope → traces without any span that is read, as another scope traces the same library in their process.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Count from zero: in a forked child."""
        self._lock = Lock()
        self.requests = self.bytes = self.spans = self.ours = self.unclaimed = 0
        self.refused: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self._unread_traces: set[bytes] = set()

    def came(self, size_bytes: int) -> None:
        """Count a request, whatever comes of it.

        Args:
            size_bytes: of its body, without compression; 0 where that is not known.
        """
        with self._lock:
            self.requests += 1
            self.bytes += size_bytes

    def refuse(self, reason: str) -> None:
        """Count a request that is refused, by a reason of few: ``bytes``, ``traces``, ``event_queue``, ``too_large`` …"""
        with self._lock:
            self.refused[reason] += 1

    def leave_unread(self, scope: str, traces: Set[bytes]) -> None:
        """Count traces of a request with spans of an ignored scope; each once, unless thousands came in between.

        Args:
            scope: the ignored scope.
            traces: ids of its traces, without traces of which the same request has spans that are read.
        """
        with self._lock:
            self.unread[scope] += len(traces - self._unread_traces)
            if len(self._unread_traces) >= _MOST_UNREAD:
                self._unread_traces.clear()
            self._unread_traces |= traces

    def took(self, spans: int, rejected: Mapping[str, int], *, ours: int, unclaimed: int) -> None:
        """Count the spans of one request."""
        with self._lock:
            self.spans += spans
            if rejected:  # a counter that is told nothing takes longer than all else here
                self.rejected.update(rejected)
            self.ours += ours
            self.unclaimed += unclaimed
