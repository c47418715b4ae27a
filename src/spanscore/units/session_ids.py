"""SessionIds: which conversations are open, as any thread may ask. Without a lock: a step is a dict's."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

from spanscore.core.score import Outcome

__all__ = ["SessionIds"]

_NONE: Final[Set[str]] = frozenset()


class SessionIds:
    """Ids of open conversations, bounded: past it the oldest is forgotten, and ending that one is told as unknown.

    Args:
        most: how many are remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.reset()

    def reset(self) -> None:
        """Forget all of them: in a forked child."""
        self._open: dict[str, int] = {}  # → when the latest turn began, in ns
        self._ending: dict[str, None] = {}
        self._missed: dict[str, Outcome] = {}
        self._shared: dict[str, Set[str]] = {}

    def began(self, session_id: str, start_ns: int, shared: Set[str] = _NONE) -> None:
        """Note that a turn began, and the metrics that another scorer of the process gives it."""
        self._open[session_id] = start_ns
        self._make_room(self._open)
        if shared:
            self.share(session_id, shared)

    def share(self, session_id: str, metrics: Set[str]) -> None:
        """Note metrics that another scorer of the process gives a turn, and so the conversation: they do not score it here."""
        self._shared[session_id] = metrics
        self._make_room(self._shared)

    def shared(self, session_id: str) -> Set[str]:
        """Return the metrics that do not score a conversation here."""
        return self._shared.get(session_id, _NONE)

    def missed(self, session_id: str, outcome: Outcome) -> None:
        """Note that a turn was turned away: nothing of it will come, and what is gathered is not the whole."""
        self._missed[session_id] = outcome
        self._make_room(self._missed)

    def why_missed(self, session_id: str) -> Outcome | None:
        """Return why a turn of it was turned away; None where none was."""
        return self._missed.get(session_id)

    def seen(self, session_id: str, start_ns: int) -> None:
        """Note a turn that is in, and perhaps was not known before; not one of a conversation that is about to end."""
        if session_id not in self._ending and session_id not in self._open:
            self.began(session_id, start_ns)

    def end(self, session_id: str) -> bool:
        """Note that one is about to end, as somebody says so; return whether it was open."""
        if self._open.pop(session_id, None) is None:
            return False
        self._ending[session_id] = None
        return True

    def ended(self, session_id: str, start_ns: int) -> None:
        """Note that one has ended whose last turn began then: where a later one has begun, the next is open."""
        was_announced = self._ending.pop(session_id, self) is None
        if not was_announced and self._open.get(session_id, start_ns) <= start_ns:
            self._open.pop(session_id, None)

    def _make_room(self, ids: dict[str, Any]) -> None:
        if len(ids) > self._most:
            try:
                ids.pop(next(iter(ids)), None)
            except (RuntimeError, StopIteration):  # another thread was at it: it makes room, too
                return
