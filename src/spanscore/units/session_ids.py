"""SessionIds: which conversations are open, as any thread may ask. Without a lock: a step is a dict's."""

from __future__ import annotations

__all__ = ["SessionIds"]


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
        self._open: dict[str, None] = {}
        self._ending: dict[str, None] = {}

    def began(self, session_id: str) -> None:
        """Note that a turn began."""
        if session_id in self._open:
            return
        self._open[session_id] = None
        if len(self._open) > self._most:
            try:
                self._open.pop(next(iter(self._open)), None)
            except (RuntimeError, StopIteration):  # another thread was at it: it makes room, too
                return

    def seen(self, session_id: str) -> None:
        """Note a turn that is in, and perhaps was not known before; not one of a conversation that is about to end."""
        if session_id not in self._ending:
            self.began(session_id)

    def end(self, session_id: str) -> bool:
        """Note that one is about to end, as somebody says so; return whether it was open."""
        if self._open.pop(session_id, self) is not None:
            return False
        self._ending[session_id] = None
        return True

    def ended(self, session_id: str) -> None:
        """Note that one has ended, for whatever reason."""
        if self._ending.pop(session_id, self) is not None:  # else a turn may have begun meanwhile, of the next one
            self._open.pop(session_id, None)
