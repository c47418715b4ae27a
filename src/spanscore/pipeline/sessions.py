"""``SessionTable`` gathers turns into conversations and ends each once; also the ids of open conversations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Set
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

from spanscore.core.log import log_once
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.core.span import SessionEnd, Unit, UnitKey
from spanscore.pipeline.session_turns import OpenSession, PastSessions, Turn

__all__ = ["MOVED", "RESUMED", "EndedSession", "SessionBounds", "SessionIds", "SessionTable", "Turn", "session_key"]

_NONE: Final[Set[str]] = frozenset()


class SessionIds:
    """Ids of open conversations, the latest ``most``. Any thread: each step is one operation of a dict, without a lock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, int] = {}  # → when the latest turn began, in ns
        self._ending: dict[str, None] = {}
        self._missed: dict[str, Outcome] = {}
        self._shared: dict[str, Set[str]] = {}

    def began(self, session_id: str, start_ns: int, shared: Set[str] = _NONE) -> None:
        """Record the start of a turn, and the metrics that another scorer of the process scores on its conversation."""
        self._open[session_id] = start_ns
        self._make_room(self._open)
        if shared:
            self.share(session_id, shared)

    def share(self, session_id: str, metrics: Set[str]) -> None:
        """Record metrics that another scorer of the process scores on a conversation: they are left out here."""
        self._shared[session_id] = metrics
        self._make_room(self._shared)

    def shared(self, session_id: str) -> Set[str]:
        """Return the metrics that are left out for a conversation here."""
        return self._shared.get(session_id, _NONE)

    def missed(self, session_id: str, outcome: Outcome) -> None:
        """Record the rejection of a turn, which makes the conversation incomplete."""
        self._missed[session_id] = outcome
        self._make_room(self._missed)

    def why_missed(self, session_id: str) -> Outcome | None:
        """Return why a turn of a conversation was rejected; None if none was."""
        return self._missed.get(session_id)

    def seen(self, session_id: str, start_ns: int) -> None:
        """Record a turn that is in, and may be the first known one; a conversation that is about to end stays so."""
        if session_id not in self._ending and session_id not in self._open:
            self.began(session_id, start_ns)

    def end(self, session_id: str) -> bool:
        """Record that ``end_session`` ends a conversation soon; return whether it was open."""
        if self._open.pop(session_id, None) is None:
            return False
        self._ending[session_id] = None
        return True

    def ended(self, session_id: str, start_ns: int) -> None:
        """Record that a conversation has ended; ``start_ns`` is the start of its last turn. If a later turn has begun, it is
        open again.
        """
        was_announced = self._ending.pop(session_id, self) is None
        if not was_announced and self._open.get(session_id, start_ns) <= start_ns:
            self._open.pop(session_id, None)

    def _make_room(self, ids: dict[str, Any]) -> None:
        if len(ids) > self._most:
            try:
                ids.pop(next(iter(ids)), None)
            except (RuntimeError, StopIteration):  # another thread is making room at the same time
                return


_REMEMBERED: Final = 100_000
"""Number of remembered ended sessions: 19 MB at most."""
_LEFT: Final = "turns go to several replicas: only end_session or max_turns ends a whole conversation"
_PART: Final = "turns go to several replicas, and the last one here did not contain the whole conversation"
_BEFORE: Final = (
    "the conversation had more turns than sessions.max_turns when it was first seen whole: it has ended before"
)
_NAMES: Final = 1_000
MOVED: Final = "its partition went to another worker, which reads its later turns"
RESUMED: Final = "its turns contain earlier ones that this worker has not read"
_TAKEN_OVER: Final = (
    "another worker may have read its first turns: it goes on within sessions.idle_timeout of a partition's change"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBounds:
    """Conditions for the end of a conversation, and bounds of open conversations.

    Attributes:
        idle_ns: time without a turn after which a conversation ends.
        max_turns: number of the turn with which a conversation ends.
        max_open: maximum number of open conversations.
        max_bytes: maximum bytes of all open conversations.
        score_every: number of turns after which an open conversation is scored provisionally; 0: never.
        replicas: ``one`` and ``sticky``: every turn of a conversation arrives here. ``any``: turns go to any of several
            processes; ``idle_ns`` and ``score_every`` are then off.
    """

    idle_ns: int = 300_000_000_000
    max_turns: int = 50
    max_open: int = 10_000
    max_bytes: int = 64_000_000
    score_every: int = 10
    replicas: Literal["one", "sticky", "any"] = "one"


class EndedSession(NamedTuple):
    """A conversation that has ended, or (``end`` is ``open``) is scored provisionally.

    Attributes:
        id: the application's own id.
        key: key in the ledger of sessions.
        turns: number of its turns.
        revision: number of its earlier ends.
        unit: the last turn, which represents the conversation.
        samples: the whole conversation, or an outcome without one.
        whole: None if every turn is present; otherwise the reason why it is ``incomplete``.
    """

    id: str
    key: UnitKey
    end: SessionEnd
    turns: int
    revision: int
    unit: Unit
    samples: Samples
    whole: str | None


class SessionTable:
    """Gathers turns, in any order, into conversations, each ended once. Owned by one thread; its clock is never set back.

        turn ─▶ open ─┬─ ``end`` ─▶ explicit               a turn after its end opens it again, as the next revision
                      ├─ silent for ``idle_timeout`` ─▶ idle
                      ├─ its turn number ``max_turns`` ─▶ max_turns
                      ├─ too many, or too large open ones ─▶ evicted, the longest silent one first
                      └─ ``close_all`` ─▶ shutdown

    Sessions are ordered by their latest turn, so that sessions that are due or evicted are at the front.

    Attributes:
        bytes: approximate size of open sessions.
        pieces: how the turns are divided among processes.
    """

    def __init__(self, bounds: SessionBounds) -> None:
        self._bounds = bounds
        self.bytes = 0
        self._open: OrderedDict[str, OpenSession] = OrderedDict()
        self._past = PastSessions(_REMEMBERED)
        self._histories = HistoryModes()
        self.pieces = SessionSharding()

    @property
    def open(self) -> int:
        """Number of open sessions."""
        return len(self._open)

    def take(self, turn: Turn, now_ns: int) -> list[EndedSession]:
        """Gather a turn; return the sessions that it ended, or that are to be scored provisionally (``open``)."""
        session = self._of(turn.id)
        before = session.held_bytes
        if not session.units:
            session.stream = turn.stream
        session.piece = session.piece or self.pieces.why(session.stream, turn.end_ns)
        session.add(turn, now_ns)
        self.bytes += session.held_bytes - before
        return [*self._after_turn(session), *self._evict()]

    def share(self, why: str, now_ns: int) -> None:
        """Record why any conversation may have turns in other processes from now on, open ones too; empty: none has."""
        if self.pieces.shared and not why:
            self.take_over(None, now_ns)
        self.pieces.shared = why
        for session in self._open.values():
            session.piece = session.piece or why

    def take_over(self, stream: Hashable, since_ns: int) -> None:
        """Record that other processes have read a stream (None: every stream) until a time, since the epoch."""
        self.pieces.take_over(stream, since_ns + self._bounds.idle_ns)

    def leave(self, stream: Hashable) -> None:
        """Record that another process reads a stream from now on."""
        for session in self._open.values():
            if session.stream == stream:
                session.piece = session.piece or MOVED

    def end(self, id: str, now_ns: int) -> EndedSession | None:
        """End a session; None if no open session has that id."""
        session = self._open.get(id)
        return None if session is None else self._close(session, "explicit")

    def due(self, now_ns: int) -> list[EndedSession]:
        """End and return the sessions that have been silent for too long; reads no others."""
        ended = []
        while (due_ns := self.next_due_ns()) is not None and due_ns <= now_ns:
            ended.append(self._close(self._oldest(), "idle"))
        return ended

    def next_due_ns(self) -> int | None:
        """Return the time at which ``due`` ends a session without further turns; None: never."""
        if not self._open or self._bounds.replicas == "any":
            return None
        return self._oldest().last_ns + self._bounds.idle_ns

    def close_all(self, now_ns: int) -> list[EndedSession]:
        """End every session, at shutdown."""
        return [self._close(session, "shutdown") for session in [*self._open.values()]]

    def _of(self, id: str) -> OpenSession:
        session = self._open.get(id)
        if session is None:
            key = session_key(id)
            session = self._open[id] = OpenSession(id, key, self._past.get(key))
        self._open.move_to_end(id)
        return session

    def _oldest(self) -> OpenSession:
        return next(iter(self._open.values()))

    def _after_turn(self, session: OpenSession) -> list[EndedSession]:
        if session.brings is not None:
            self._histories.learn(session.name, whole=session.brings)
        if self._turns(session) >= self._bounds.max_turns:
            return [self._close(session, "max_turns")]
        every = 0 if self._bounds.replicas == "any" else self._bounds.score_every
        if not every or session.unscored < every or self._why_incomplete(session, "open") is not None:
            return []
        session.unscored = 0
        return [self._make_ended_session(session, "open")]

    def _turns(self, session: OpenSession) -> int:
        """Return the turns since the conversation last ended, which count against ``max_turns``."""
        return session.turns if session.past is None else session.units

    def _evict(self) -> list[EndedSession]:
        ended = []
        while len(self._open) > self._bounds.max_open or (self._open and self.bytes > self._bounds.max_bytes):
            ended.append(self._close(self._oldest(), "evicted"))
        return ended

    def _close(self, session: OpenSession, end: SessionEnd) -> EndedSession:
        del self._open[session.id]
        self.bytes -= session.held_bytes
        if not session.piece and session.past is None and session.exchanges <= session.units:
            self._histories.learn_begin(session.name)
        self._past.add(session.key, session.ended())
        return self._make_ended_session(session, end)

    def _make_ended_session(self, session: OpenSession, end: SessionEnd) -> EndedSession:
        return EndedSession(
            id=session.id,
            key=session.key,
            end=end,
            turns=session.turns,
            revision=session.revision,
            unit=session.as_unit(end),
            samples=session.samples(),
            whole=self._why_incomplete(session, end),
        )

    def _why_incomplete(self, session: OpenSession, end: SessionEnd) -> str | None:
        is_alone, believed = self._bounds.replicas != "any", self._histories.are_whole(session.name)
        if not is_alone and end not in ("explicit", "max_turns"):
            return _LEFT
        if not is_alone and not (believed and (session.is_brought or session.exchanges == 1)):
            return _PART
        if self._turns(session) > self._bounds.max_turns and not (is_alone and session.units > 1):
            return _BEFORE
        if is_alone and (piece := self._why_piece(session)):
            log_once(f"session piece {piece}", f"conversations are incomplete here, and not scored: {piece}")
            return piece
        return session.incomplete(heals=believed)

    def _why_piece(self, session: OpenSession) -> str:
        """Return why other processes may have turns of a conversation; empty: every turn arrived here."""
        if session.piece or not self.pieces.is_taken_over(session.stream):
            return session.piece
        has_more = session.exchanges > session.units and self._histories.begin_empty(session.name)
        return RESUMED if has_more else ""


def session_key(id: str) -> UnitKey:
    """Return the key of a conversation in the ledger: a hash of its id, the same in every process."""
    digest = sha256(id.encode("utf-8", "surrogatepass")).digest()
    return UnitKey(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1)


class HistoryModes:
    """Remembers, by the name of a root, whether turns contain the whole history, and whether conversations begin without one.

    If turns go to any of several processes, a process sees a whole conversation only if each turn contains it. Other
    conversations of the application show whether a history was cut, or a turn is a first one.
    """

    def __init__(self) -> None:
        self._whole: dict[str, bool] = {}
        self._empty: set[str] = set()

    def learn(self, name: str, *, whole: bool) -> None:
        """Record whether a turn contained the whole history, or a part."""
        if name in self._whole or len(self._whole) < _NAMES:
            self._whole[name] = self._whole.get(name, True) and whole

    def learn_begin(self, name: str) -> None:
        """Record that a conversation began without a history: no example or greeting precedes its first question."""
        if len(self._empty) < _NAMES:
            self._empty.add(name)

    def begin_empty(self, name: str) -> bool:
        """Whether conversations of that name begin without a history, so that a turn with one is not a first turn."""
        return name in self._empty

    def are_whole(self, name: str) -> bool:
        """Whether turns of that name contain the whole history; False while that is unknown."""
        return self._whole.get(name, False)


class SessionSharding:
    """Finds conversations that may have turns in another worker of a topic: each worker would count its part as a whole.

    Attributes:
        shared: why any conversation may have turns in other processes; empty: all turns of a conversation arrive here.
    """

    def __init__(self) -> None:
        self.shared = ""
        self._until_ns: dict[Hashable, int] = {}

    def take_over(self, stream: Hashable, until_ns: int) -> None:
        """Record that other processes have read a stream (None: every stream) before.

        Args:
            stream: the stream.
            until_ns: a conversation with a turn that ended before this time, since the epoch, may have begun there.
        """
        self._until_ns[stream] = max(until_ns, self._until_ns.get(stream, 0))

    def is_taken_over(self, stream: Hashable) -> bool:
        """Whether other processes have read a stream before."""
        return stream in self._until_ns

    def why(self, stream: Hashable, end_ns: int) -> str:
        """Return why a conversation is a part, given the end of one of its turns; empty if the turn does not show it."""
        if self.shared:
            return self.shared
        return _TAKEN_OVER if end_ns < self._until_ns.get(stream, 0) else ""
