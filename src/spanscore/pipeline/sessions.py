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
"""Maximum number of root names of which the modes of the history are remembered."""
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

    If turns go to any of several processes, a process has a whole conversation only if each turn contains the whole history.
    The table learns from earlier conversations with the same root name whether that is so, and whether a first turn can have a
    history.

    Attributes:
        bounds: limits of open sessions.
        bytes: approximate size of open sessions.
        shared: why any conversation may have turns in other workers of a topic, each of which would count its part as a whole;
            empty if all turns of a conversation arrive here.
    """

    def __init__(self, bounds: SessionBounds) -> None:
        self.bounds = bounds
        self.bytes = 0
        self.shared = ""
        self._open: OrderedDict[str, OpenSession] = OrderedDict()
        self._past = PastSessions(_REMEMBERED)
        # stream (None = every stream) → Unix time in ns until which other processes may have read it
        self._read_elsewhere_ns: dict[Hashable, int] = {}
        self._bring_all: dict[str, bool] = {}  # name of a root → whether its turns contain the whole history
        self._begin_empty: set[str] = set()  # names of roots with a conversation that began without a history

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
        was_elsewhere = turn.end_ns < self._read_elsewhere_ns.get(session.stream, 0)
        session.why_partial = session.why_partial or self.shared or (_TAKEN_OVER if was_elsewhere else "")
        session.add(turn, now_ns)
        self.bytes += session.held_bytes - before
        return [*self._after_turn(session), *self._evict()]

    def share(self, why: str, now_ns: int) -> None:
        """Record why from now on turns of any conversation may be in other processes. An empty ``why`` ends this state."""
        if self.shared and not why:
            self.take_over(None, now_ns)
        self.shared = why
        for session in self._open.values():
            session.why_partial = session.why_partial or why

    def take_over(self, stream: Hashable, since_ns: int) -> None:
        """Record that other processes have read a stream (None = every stream) until a time, in ns since the epoch."""
        until_ns = since_ns + self.bounds.idle_ns  # a conversation with an earlier turn may have begun in another process
        self._read_elsewhere_ns[stream] = max(until_ns, self._read_elsewhere_ns.get(stream, 0))

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
        name, bring_all = session.name, self._bring_all
        if session.brings is not None and (name in bring_all or len(bring_all) < _NAMES):
            bring_all[name] = bring_all.get(name, True) and session.brings
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
        began_empty = not session.why_partial and session.past is None and session.exchanges <= session.units
        if began_empty and len(self._begin_empty) < _NAMES:  # no example or greeting precedes its first question
            self._begin_empty.add(session.name)
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
        is_alone, history_is_whole = self.bounds.replicas != "any", self._bring_all.get(session.name, False)
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
        if session.why_partial or session.stream not in self._read_elsewhere_ns:
            return session.why_partial
        has_more = session.exchanges > session.units and session.name in self._begin_empty
        return RESUMED if has_more else ""


def session_key(id: str) -> UnitKey:
    """Return the key of a conversation in the ledger: a hash of its id, the same in every process."""
    digest = sha256(id.encode("utf-8", "surrogatepass")).digest()
    return UnitKey(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1)
