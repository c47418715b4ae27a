"""Gathers turns into conversations, ends each, and finds conversations of which this process has only a part."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Set
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from spanscore.core.log import log_once
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.core.span import SessionEnd, Unit, UnitKey
from spanscore.pipeline.decisions import keep_latest
from spanscore.pipeline.session_turns import OpenSession, PastSessions, Turn

__all__ = ["MOVED", "RESUMED", "EndedSession", "SessionBounds", "SessionIds", "SessionTable", "Turn", "session_key"]

_NONE: Final[Set[str]] = frozenset()


class SessionIds:
    """Ids of the ``most`` latest open conversations. Safe on any thread without a lock: each step is one dict operation."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[str, int] = OrderedDict()  # → when the latest turn began, in ns
        self._ending: dict[str, None] = {}
        self._missed: OrderedDict[str, Outcome] = OrderedDict()
        self._shared: OrderedDict[str, Set[str]] = OrderedDict()

    def record_start(self, session_id: str, start_ns: int, shared: Set[str] = _NONE) -> None:
        """Record the start of a turn, and the metrics that another scorer of this process scores for the conversation."""
        keep_latest(self._open, session_id, start_ns, self._most)
        if shared:
            self.share(session_id, shared)

    def share(self, session_id: str, metrics: Set[str]) -> None:
        """Record the metrics that another scorer of this process scores for the conversation; this scorer skips them."""
        keep_latest(self._shared, session_id, metrics, self._most)

    def shared(self, session_id: str) -> Set[str]:
        """Return the metrics that this scorer skips for a conversation, because another scorer scores them."""
        return self._shared.get(session_id, _NONE)

    def record_rejection(self, session_id: str, outcome: Outcome) -> None:
        """Record the rejection of a turn, which makes the conversation incomplete."""
        keep_latest(self._missed, session_id, outcome, self._most)

    def why_missed(self, session_id: str) -> Outcome | None:
        """Return why a turn of a conversation was rejected; None if no turn was rejected."""
        return self._missed.get(session_id)

    def record_arrival(self, session_id: str, start_ns: int) -> None:
        """Record a turn that has arrived, perhaps the first known one. A conversation that is about to end still ends."""
        if session_id not in self._ending and session_id not in self._open:
            self.record_start(session_id, start_ns)

    def end(self, session_id: str) -> bool:
        """Record that ``end_session`` ends a conversation soon; return whether it was open."""
        if self._open.pop(session_id, None) is None:
            return False
        self._ending[session_id] = None
        return True

    def count(self) -> int:
        """Return the number of conversations that are open, or that ``end_session`` ends soon."""
        return len(self._open) + len(self._ending)

    def record_end(self, session_id: str, start_ns: int) -> None:
        """Record a conversation's end; ``start_ns`` is its last turn's start. If a later turn has begun, the id stays open."""
        was_announced = self._ending.pop(session_id, self) is None
        if not was_announced and self._open.get(session_id, start_ns) <= start_ns:
            self._open.pop(session_id, None)


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
        max_turns: number of turns after which a conversation ends.
        max_open: maximum number of open conversations.
        max_bytes: maximum bytes of all open conversations.
        score_every: number of turns after which an open conversation is scored provisionally; 0 = never.
        replicas: ``one`` or ``sticky`` if every turn of a conversation arrives here; ``any`` if turns go to any of several
            processes. With ``any``, ``idle_ns`` and ``score_every`` are off.
    """

    idle_ns: int = 300_000_000_000
    max_turns: int = 50
    max_open: int = 10_000
    max_bytes: int = 64_000_000
    score_every: int = 10
    replicas: Literal["one", "sticky", "any"] = "one"


class EndedSession(NamedTuple):
    """A conversation that has ended, or that is scored provisionally (``end`` is ``open``).

    Attributes:
        id: the application's own id.
        key: key in the ledger of sessions.
        turns: number of its turns.
        revision: number of its earlier ends.
        unit: the last turn, which represents the conversation.
        samples: the whole conversation, or an outcome if it has no messages.
        why_incomplete: why the conversation is ``incomplete``; None if every turn is present.
    """

    id: str
    key: UnitKey
    end: SessionEnd
    turns: int
    revision: int
    unit: Unit
    samples: Samples
    why_incomplete: str | None


class SessionTable:
    """Gathers turns, in any order, into conversations, and ends each.

        turn ─▶ open ─┬─ ``end`` ─▶ explicit
                      ├─ silent for ``idle_timeout`` ─▶ idle
                      ├─ it has ``max_turns`` turns ─▶ max_turns
                      ├─ too many, or too large open ones ─▶ evicted, the one with the oldest latest turn first
                      └─ ``close_all`` ─▶ shutdown

    A turn after the end opens the conversation again, as the next revision. One thread owns the table. ``now_ns`` is the time
    of a clock that is never set back, in nanoseconds since the epoch.

    Sessions are ordered by their latest turn, so that sessions that are due or evicted are at the front.

    Attributes:
        bounds: limits of open sessions.
        bytes: approximate size of open sessions.
        sharding: how the turns are divided among processes.
    """

    def __init__(self, bounds: SessionBounds) -> None:
        self.bounds = bounds
        self.bytes = 0
        self._open: OrderedDict[str, OpenSession] = OrderedDict()
        self._past = PastSessions(_REMEMBERED)
        self._histories = HistoryModes()
        self.sharding = SessionSharding()

    @property
    def open(self) -> int:
        """Number of open sessions."""
        return len(self._open)

    def take(self, turn: Turn, now_ns: int) -> list[EndedSession]:
        """Gather a turn. Return the sessions that ended by it, or that are to be scored provisionally (``open``)."""
        session = self._of(turn.id)
        before = session.held_bytes
        if not session.units:
            session.stream = turn.stream
        session.why_partial = session.why_partial or self.sharding.why(session.stream, turn.end_ns)
        session.add(turn, now_ns)
        self.bytes += session.held_bytes - before
        return [*self._after_turn(session), *self._evict()]

    def share(self, why: str, now_ns: int) -> None:
        """Record why from now on turns of any conversation may be in other processes. An empty ``why`` ends this state."""
        if self.sharding.shared and not why:
            self.take_over(None, now_ns)
        self.sharding.shared = why
        for session in self._open.values():
            session.why_partial = session.why_partial or why

    def take_over(self, stream: Hashable, since_ns: int) -> None:
        """Record that other processes have read a stream (None = every stream) until a time, in ns since the epoch."""
        self.sharding.take_over(stream, since_ns + self.bounds.idle_ns)

    def leave(self, stream: Hashable) -> None:
        """Record that another process reads a stream from now on."""
        for session in self._open.values():
            if session.stream == stream:
                session.why_partial = session.why_partial or MOVED

    def end(self, id: str) -> EndedSession | None:
        """End a session; None if no open session has that id."""
        session = self._open.get(id)
        return None if session is None else self._close(session, "explicit")

    def due(self, now_ns: int) -> list[EndedSession]:
        """End and return the sessions that have been silent for too long. Other sessions are not read."""
        ended = []
        while (due_ns := self.next_due_ns()) is not None and due_ns <= now_ns:
            ended.append(self._close(self._oldest(), "idle"))
        return ended

    def next_due_ns(self) -> int | None:
        """Return the time at which ``due`` ends a session without further turns; None = never."""
        if not self._open or self.bounds.replicas == "any":
            return None
        return self._oldest().last_ns + self.bounds.idle_ns

    def close_all(self) -> list[EndedSession]:
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
        if self._turns(session) >= self.bounds.max_turns:
            return [self._close(session, "max_turns")]
        every = 0 if self.bounds.replicas == "any" else self.bounds.score_every
        if not every or session.unscored < every or self._why_incomplete(session, "open") is not None:
            return []
        session.unscored = 0
        return [self._make_ended_session(session, "open")]

    def _turns(self, session: OpenSession) -> int:
        """Return the turns since the conversation last ended, which count against ``max_turns``."""
        return session.turns if session.past is None else session.units

    def _evict(self) -> list[EndedSession]:
        ended = []
        while len(self._open) > self.bounds.max_open or (self._open and self.bytes > self.bounds.max_bytes):
            ended.append(self._close(self._oldest(), "evicted"))
        return ended

    def _close(self, session: OpenSession, end: SessionEnd) -> EndedSession:
        del self._open[session.id]
        self.bytes -= session.held_bytes
        if not session.why_partial and session.past is None and session.exchanges <= session.units:
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
            why_incomplete=self._why_incomplete(session, end),
        )

    def _why_incomplete(self, session: OpenSession, end: SessionEnd) -> str | None:
        is_alone, history_is_whole = self.bounds.replicas != "any", self._histories.are_whole(session.name)
        if not is_alone and end not in ("explicit", "max_turns"):
            return _LEFT
        if not is_alone and not (history_is_whole and (session.is_brought or session.exchanges == 1)):
            return _PART
        if self._turns(session) > self.bounds.max_turns and not (is_alone and session.units > 1):
            return _BEFORE
        if is_alone and (why_partial := self._why_partial(session)):
            log_once(
                f"session piece {why_partial}", f"conversations are incomplete here, and not scored: {why_partial}"
            )
            return why_partial
        return session.incomplete(history_fills_gaps=history_is_whole)

    def _why_partial(self, session: OpenSession) -> str:
        """Return why other processes may have turns of a conversation; empty if every turn arrived here."""
        if session.why_partial or not self.sharding.is_taken_over(session.stream):
            return session.why_partial
        has_more = session.exchanges > session.units and self._histories.begin_empty(session.name)
        return RESUMED if has_more else ""


def session_key(id: str) -> UnitKey:
    """Return the key of a conversation in the ledger: a hash of its id, the same in every process."""
    digest = sha256(id.encode("utf-8", "surrogatepass")).digest()
    return UnitKey(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1)


class HistoryModes:
    """Remembers, by a root's name, whether turns contain the whole history, and whether conversations begin without a history.

    If turns go to any of several processes, a process has a whole conversation only if each turn contains the whole history.
    This class learns from earlier conversations with the same root name whether that is so. It also learns whether a first
    turn can have a history.
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
        """Whether conversations of that name begin without a history, so that a turn with a history is not a first turn."""
        return name in self._empty

    def are_whole(self, name: str) -> bool:
        """Whether turns of that name contain the whole history; False while that is unknown."""
        return self._whole.get(name, False)


class SessionSharding:
    """Finds conversations that may have turns in another worker of a topic. Each worker would count its part as a whole.

    Attributes:
        shared: why any conversation may have turns in other processes; empty if all turns of a conversation arrive here.
    """

    def __init__(self) -> None:
        self.shared = ""
        self._until_ns: dict[Hashable, int] = {}

    def take_over(self, stream: Hashable, until_ns: int) -> None:
        """Record that other processes have read a stream (None = every stream) before.

        Args:
            stream: the stream.
            until_ns: Unix time in ns. A conversation with a turn that ended before it may have begun in another process.
        """
        self._until_ns[stream] = max(until_ns, self._until_ns.get(stream, 0))

    def is_taken_over(self, stream: Hashable) -> bool:
        """Whether other processes have read a stream before."""
        return stream in self._until_ns

    def why(self, stream: Hashable, end_ns: int) -> str:
        """Return why a conversation may be only a part, given the end of one of its turns; empty if there is no reason."""
        if self.shared:
            return self.shared
        return _TAKEN_OVER if end_ns < self._until_ns.get(stream, 0) else ""
