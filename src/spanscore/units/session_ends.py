"""PastSessions: which conversations have ended, so that one that goes on is a revision and no second observation."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from spanscore.model.span import UnitKey

__all__ = ["PastSession", "PastSessions"]


class PastSession(NamedTuple):
    """What is remembered of a conversation that has ended.

    Attributes:
        revision: under which it ended.
        exchanges: that it held.
        head: a hash of the first that was said in it.
    """

    revision: int
    exchanges: int
    head: int


class PastSessions:
    """Remembers conversations by their key, those that ended last; some 300 bytes each.

    Args:
        most: that are remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._past: OrderedDict[bytes, PastSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._past)

    def add(self, key: UnitKey, past: PastSession) -> None:
        """Remember one that has ended, or how it ended once more."""
        self._past[_name(key)] = past
        self._past.move_to_end(_name(key))
        if len(self._past) > self._most:
            self._past.popitem(last=False)

    def get(self, key: UnitKey) -> PastSession | None:
        """Return what is known of one; None where it has not ended, or has been forgotten."""
        return self._past.get(_name(key))


def _name(key: UnitKey) -> bytes:
    return key.trace_id.to_bytes(16, "big")
