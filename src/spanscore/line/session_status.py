"""SessionStatus: what the conversations of a scorer are at, for ``status()``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spanscore.line.build import Line

__all__ = ["SessionStatus", "session_status_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """The conversations that metrics score, those left out that no metric takes.

    Attributes:
        open: conversations that go on.
        ended: how they ended → conversations, each counted once.
        without_id: units that are in none, as nothing names their conversation.
        pieces: why every conversation is a part of one and so ``incomplete``, and what to do; empty = they are whole.
    """

    open: int
    ended: Mapping[str, int]
    without_id: int
    pieces: str = ""

    def __str__(self) -> str:
        ended = ", ".join(f"{sessions:,} {end}" for end, sessions in sorted(self.ended.items()))
        line = f"conversations: {self.open:,} open; ended: {ended or 'none'}"
        line = f"{line}; incomplete, as {self.pieces}" if self.pieces else line
        if not self.without_id:
            return line
        units = f"{self.without_id:,} unit{'s are' if self.without_id > 1 else ' is'}"
        how = "use spanscore.session(…), or metadata thread_id or session_id"
        return f"{line}; {units} in none, as nothing names a conversation: {how}"


def session_status_of(line: Line) -> SessionStatus | None:
    """Return what they are at; None where no metric scores them."""
    if not line.of_sessions:
        return None
    sessions = line.sessions
    return SessionStatus(
        open=sessions.table.open,
        ended=dict(sessions.ended),
        without_id=sessions.without_id,
        pieces=sessions.table.pieces.shared,
    )
