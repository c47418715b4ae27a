"""PastSessions: which conversations have ended, so that one that goes on is a revision and no second observation."""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from spanscore.core.span import UnitKey

__all__ = ["PastSession", "PastSessions"]

_KEY_BITS: Final = (1 << 60) - 1
"""An int of 60 bits takes 32 bytes, one of 64 takes 48."""
_TIME_BITS: Final = 64
_EXCHANGE_BITS: Final = 16
_HEAD_BITS: Final = 32
_SLACK: Final = 8
"""An eighth is forgotten at a time: to take the first of a dict walks over all that were taken before."""


class PastSession(NamedTuple):
    """What is remembered of a conversation that has ended.

    Attributes:
        revision: under which it ended.
        end_ns: of its last turn, 64 bits.
        exchanges: that it held.
        head: 32 bits that tell what was said first.
    """

    revision: int
    end_ns: int
    exchanges: int
    head: int


class PastSessions:
    """Remembers conversations by 120 to 170 bytes each: the hash of their key → a number that holds what is remembered.

    Python's hash of bytes is keyed per process: ids cannot be made to collide, and do so by chance once in 10¹² look-ups.

    Args:
        most: conversations that are remembered at least, those that ended last; an eighth more at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._past: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._past)

    def add(self, key: UnitKey, past: PastSession) -> None:
        """Remember one that has ended, or how it ended once more."""
        exchanges = min(past.exchanges, (1 << _EXCHANGE_BITS) - 1)
        packed = (past.revision << _TIME_BITS) + past.end_ns
        packed = (packed << _EXCHANGE_BITS) + exchanges
        self._past.pop(_hash(key), None)
        self._past[_hash(key)] = (packed << _HEAD_BITS) + past.head
        if len(self._past) > self._most + self._most // _SLACK:
            for forgotten in [*islice(self._past, len(self._past) - self._most)]:
                del self._past[forgotten]

    def get(self, key: UnitKey) -> PastSession | None:
        """Return what is known of one; None where it has not ended, or has been forgotten."""
        packed = self._past.get(_hash(key))
        if packed is None:
            return None
        packed, head = divmod(packed, 1 << _HEAD_BITS)
        packed, exchanges = divmod(packed, 1 << _EXCHANGE_BITS)
        return PastSession(*divmod(packed, 1 << _TIME_BITS), exchanges, head)


def _hash(key: UnitKey) -> int:
    return hash(key.trace_id.to_bytes(16, "big")) & _KEY_BITS
