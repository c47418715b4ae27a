"""SessionPieces: which conversations may have turns in another process, by how the processes share what they read.

A worker shares a topic with others. A conversation is a piece here if another worker has, had or will have turns of it: its
score would be counted as that of a whole conversation, in each worker that has a piece.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

__all__ = ["MOVED", "RESUMED", "SessionPieces"]

MOVED: Final = "its partition went to another worker, which reads its later turns"
RESUMED: Final = "its turns bring along earlier ones that this worker has not read"
_TAKEN_OVER: Final = (
    "another worker may have read its first turns: it goes on within sessions.idle_timeout of a partition's change"
)


class SessionPieces:
    """Knows what a source of turns shares with other processes. Owned by one thread.

    Attributes:
        shared: why any conversation may have turns elsewhere; empty = turns of one conversation all come here.
    """

    def __init__(self) -> None:
        self.shared = ""
        self._until_ns: dict[Hashable, int] = {}

    def take_over(self, stream: Hashable, until_ns: int) -> None:
        """Note that others have read a stream before.

        Args:
            stream: name of the stream; None = all of them.
            until_ns: a conversation of which a turn ended before, since the epoch, may have begun elsewhere.
        """
        self._until_ns[stream] = max(until_ns, self._until_ns.get(stream, 0))

    def is_taken_over(self, stream: Hashable) -> bool:
        """Whether others have read a stream before."""
        return stream in self._until_ns

    def why(self, stream: Hashable, end_ns: int) -> str:
        """Return why a conversation is a piece, by one of its turns; empty where that turn does not show it."""
        if self.shared:
            return self.shared
        return _TAKEN_OVER if end_ns < self._until_ns.get(stream, 0) else ""
