"""Conversations: turns in any order are gathered into conversations, and each is ended and scored.

    turn's samples ─▶ gathered (``SessionTable``) ─▶ ended ─▶ decided ─▶ handed over ─▶ settled, emitted
                                          └─▶ goes on: decided, handed over, emitted as provisional

A session is a conversation. It is eligible (counted in the ledger) once, after its end. Scores of a session that goes on, or
went on after its end, are on evaluation spans, and in no sum and no outcome. ``SessionPipeline`` is a population with a ledger
of its own.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from time import monotonic
from typing import Final, Literal, NamedTuple

from spanscore import semconv
from spanscore.core.event_queue import steady_ns
from spanscore.core.job import Decision, Job, JobResult, SampledUnit
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, SessionEnd, SpanData, Unit, UnitKey
from spanscore.pipeline.decisions import keep_latest
from spanscore.pipeline.ledger import Notes, log_failures
from spanscore.pipeline.population import Population
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.session_turns import OpenSession, PastSessions, Turn
from spanscore.pipeline.sizes import size_bytes_of
from spanscore.pipeline.tracker import AccountQuotas
from spanscore.protocols import Queue

_NONE: Final[Set[str]] = frozenset()


class SessionIds:
    """Ids of open conversations, at most ``most``; the latest are kept.

    Safe on any thread without a lock: each step is one dict operation.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[str, int] = OrderedDict()  # → when the latest turn began, in ns
        self._ending: dict[str, None] = {}
        self.missed: OrderedDict[str, Outcome] = OrderedDict()  # → why a turn was rejected
        # → metrics that another scorer of this process scores
        self.metrics_elsewhere: OrderedDict[str, Set[str]] = OrderedDict()

    def record_start(self, session_id: str, start_ns: int, shared: Set[str] = _NONE) -> None:
        """Record the start of a turn, and the metrics that this scorer skips for the conversation."""
        keep_latest(self._open, session_id, start_ns, self._most)
        if shared:
            self.share(session_id, shared)

    def share(self, session_id: str, metrics: Set[str]) -> None:
        """Record the metrics that another scorer of this process scores for the conversation; this scorer skips them."""
        keep_latest(self.metrics_elsewhere, session_id, metrics, self._most)

    def record_rejection(self, session_id: str, outcome: Outcome) -> None:
        """Record the rejection of a turn, which makes the conversation incomplete."""
        keep_latest(self.missed, session_id, outcome, self._most)

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
    "when this process first had the whole conversation, it had more turns than sessions.max_turns: it ended before, in"
    " another process"
)
_NAMES: Final = 1_000
"""Maximum number of root names for which the table remembers whether their turns contain the whole history."""
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
        unit: the last turn, which represents the conversation.
        samples: the whole conversation, or an outcome if it has no messages.
        why_incomplete: why the conversation is ``incomplete``; None if every turn is present.
    """

    id: str
    key: UnitKey
    end: SessionEnd
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
        bytes: approximate size of open sessions.
        why_shared: why any conversation may have turns in other workers of a topic, each of which would count its part as a
            whole; empty if all turns of a conversation arrive here.
    """

    def __init__(self, bounds: SessionBounds) -> None:
        self.bounds = bounds
        self.bytes = 0
        self.why_shared = ""
        self._open: OrderedDict[str, OpenSession] = OrderedDict()
        self._past = PastSessions(_REMEMBERED)
        # stream (one source of all turns of a conversation, such as a Kafka partition; None = every stream) → Unix time in ns
        # until which other processes may have read it
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
        session.why_partial = session.why_partial or self.why_shared or (_TAKEN_OVER if was_elsewhere else "")
        session.add(turn, now_ns)
        self.bytes += session.held_bytes - before
        return [*self._after_turn(session), *self._evict()]

    def share(self, why: str, now_ns: int) -> None:
        """Record why from now on turns of any conversation may be in other processes. An empty ``why`` ends this state."""
        if self.why_shared and not why:
            self.take_over(None, now_ns)
        self.why_shared = why
        for session in self._open.values():
            session.why_partial = session.why_partial or why

    def take_over(self, stream: Hashable, since_ns: int) -> None:
        """Record that other processes have read a stream (None = every stream) until a time, in ns since the epoch."""
        until_ns = since_ns + self.bounds.idle_ns  # an earlier conversation may have begun in another process
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
        # The first turn brought no earlier exchange, such as an example in the prompt.
        if began_empty and len(self._begin_empty) < _NAMES:
            self._begin_empty.add(session.name)
        self._past.add(session.key, session.ended())
        return self._make_ended_session(session, end)

    def _make_ended_session(self, session: OpenSession, end: SessionEnd) -> EndedSession:
        return EndedSession(
            id=session.id,
            key=session.key,
            end=end,
            unit=session.as_unit(end),
            samples=session.samples(),
            why_incomplete=self._why_incomplete(session, end),
        )

    def _why_incomplete(self, session: OpenSession, end: SessionEnd) -> str | None:
        gets_every_turn, history_is_whole = self.bounds.replicas != "any", self._bring_all.get(session.name, False)
        if not gets_every_turn and end not in ("explicit", "max_turns"):
            return _LEFT
        if not gets_every_turn and not (history_is_whole and (session.is_brought or session.exchanges == 1)):
            return _PART
        if self._turns(session) > self.bounds.max_turns and not (gets_every_turn and session.units > 1):
            return _BEFORE
        if gets_every_turn and (why_partial := self._why_partial(session)):
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


_REMEMBERED_IDS: Final = 100_000
"""Number of remembered ids: ten times the default number of open sessions (``max_open``), because most sessions are not
sampled. 0.1 kB each.
"""
_NOBODY: Final = UnitKey(0, 0)
_THE_REST: Final = UnitKey(0, 0)
"""A key that is in flight during a shutdown, until the last session is exported."""


class _InWork(NamedTuple):
    """A session that is being scored: at its end, or provisionally before it.

    Attributes:
        key: key in the ledger of sessions.
        provisional: number of turns so far if the scores are provisional; 0 after its end.
        units: latest turns of the session; a flush that waits for one of these turns also waits for the session's scores.
    """

    key: UnitKey
    revision: int
    provisional: int
    units: tuple[UnitKey, ...]

    @property
    def counts(self) -> bool:
        """Whether the session's scores count in the ledger: they are neither provisional nor a later revision."""
        return not self.revision and not self.provisional


@dataclass(eq=False, repr=False)
class SessionPipeline(Population):
    """Gathers turns, decides on sessions and settles them.

    Call on the span thread; ``ids``, ``end`` and ``noticed`` may be used on any thread.

    Attributes:
        metrics: names of the metrics that score sessions; may be empty.
        table: gathers the turns of sessions.
        sampler: decides on each session that has ended or is scored provisionally.
        handover: passes sampled sessions to the event loop that scores them.
        post: runs a call on the span thread.
        possible_turns: conversation's id (None = any) → ended units that may still become turns of it.
        shown: conversation's id → its exported form; None if it is not exported.
        ids: ids of open sessions. Thread-safe.
        ended: kind of end → sessions.
        without_id: units without a conversation id.
        notes: remarks on scores of sessions, for ``status()``.
        stream_of: unit → the stream that has all turns of its conversation; None without such a stream.
    """

    metrics: Collection[str]
    _: KW_ONLY
    table: SessionTable
    sampler: RateSampler
    queue: Queue
    account_quotas: AccountQuotas
    handover: Callable[[Sequence[SampledUnit]], None]
    post: Callable[[Callable[[], None]], None]
    possible_turns: Callable[[str | None], Collection[UnitKey]]
    shown: Callable[[str], str | None] = lambda session_id: session_id

    def __post_init__(self) -> None:
        self.stream_of: Callable[[UnitKey], Hashable] = lambda _: None
        self.ids = SessionIds(_REMEMBERED_IDS)
        self.ended: Counter[str] = Counter()
        self.notes = Notes()
        self.without_id = 0
        self._lock = threading.Lock()
        self._left_out: OrderedDict[UnitKey, None] = OrderedDict()
        self._ending: dict[str | None, set[UnitKey]] = {}  # None = every session
        self._over = False
        self._at_work: dict[_InWork, set[str]] = {}
        self._leaving: deque[tuple[int, _InWork]] = deque()

    def end(self, session_id: str) -> bool:
        """End an open session when its ended units have arrived. Returns False if the id is not open. Does not block."""
        is_open = self.ids.end(session_id)
        if is_open:
            self.post(lambda: self._end_when_whole(session_id))
        return is_open

    def is_interested(self, facts: SamplingContext) -> bool:
        """Whether a unit is a turn of a session that may be scored."""
        return self.sampler.wants_session(facts.conversation_id or "")

    def noticed(self, facts: SamplingContext) -> None:
        """Count a unit that has no conversation id, and, at its first turn, a session that no metric samples. Thread-safe."""
        if facts.conversation_id == "":
            self.without_id += 1
        elif facts.conversation_id is not None and not self.is_interested(facts):
            with self._lock:
                self._leave_out(facts.conversation_id)

    def on_samples(self, facts: SamplingContext, unit: Unit, samples: Samples) -> None:
        """Gather a turn."""
        session_id, root, now_ns = facts.conversation_id or "", unit.root, steady_ns()
        if unit.shared:
            self.ids.share(session_id, unit.shared)
        self.ids.record_arrival(session_id, now_ns if root is None else root.start_ns)
        end_ns = now_ns if root is None else root.end_ns
        stream = self.stream_of(facts.key)
        turn = Turn(session_id, facts.key, self._named(unit, session_id), end_ns, samples, stream)
        self._begin_each(self.table.take(turn, now_ns))

    def tick(self, now_ns: int) -> None:
        """End sessions that are idle for too long, and sessions that ``end`` announced and whose units have arrived."""
        self._begin_each(self.table.due(now_ns))
        for session_id, waiting in list(self._ending.items()):
            waiting &= {*self.possible_turns(session_id)}
            if not waiting:
                del self._ending[session_id]
                self._end(session_id)

    def next_due_ns(self) -> int | None:
        """Return the time at which the next session becomes idle for too long.

        None if no session is open, or if ``replicas`` is ``any``.
        """
        return self.table.next_due_ns()

    def in_flight(self) -> set[UnitKey]:
        """Return the sessions whose scores are not exported yet, with their turns.

        These are ended sessions, sessions whose end waits for units, and sessions that are scored provisionally.
        """
        while self._leaving and self._leaving[0][0] <= self.hold.ended:
            self._leaving.popleft()
        waiting = {session_key(session_id) for session_id in self._ending if session_id is not None}
        for work in [*self._at_work, *(work for _, work in self._leaving)]:
            waiting |= {work.key, *work.units}
        return waiting | {_THE_REST} if self._over and (waiting or self._ending) else waiting

    def end_all(self) -> None:
        """End every session when the ended units have arrived, at a shutdown."""
        self._over = True
        self._ending[None] = {*self.possible_turns(None)}
        self.tick(steady_ns())

    def give_up(self) -> None:
        """End every session as ``shutdown``."""
        self._over = True
        for session in self.table.close_all():
            if _work_of(session.unit).counts:
                self._enter(session)
        self._ending.clear()
        self._at_work.clear()
        for key in self.end_open():
            self.account_quotas.leave(key)

    def take_over(self, job: Job) -> None:
        """Accept a session from another process."""
        work = _work_of(job.unit)
        if work in self._at_work:
            return
        self._at_work[work] = set(job.decisions)
        if work.counts:
            self.enter(work.key, job.decisions)
            self.ledger.belongs(job.unit)
            self.account_quotas.enter(work.key, job.decisions, job.size_bytes)

    def settle(self, result: JobResult) -> None:
        """Count and emit the scores of a session."""
        unit, work = result.unit, _work_of(result.unit)
        open_ones = self._at_work.get(work)
        if open_ones is None:  # the work was abandoned
            return
        scores = [score for score in result.scores if score.metric in open_ones]
        open_ones -= {score.metric for score in scores}
        if work.counts:
            for score in scores:
                self.ledger.settle(work.key, score.metric, score.outcome, score.source)
            self.account_quotas.settle(work.key, [score.metric for score in scores])
        self.notes.scored(unit.key, scores)
        log_failures(scores)
        self.emit(unit, scores)
        if result.over:
            del self._at_work[work]
            if work.counts:
                self.ledger.settle_all(work.key, result.rest)
                self.account_quotas.leave(work.key)
            self._leaving.append((self.hold.queued, work))  # exported when everything queued so far is exported

    def _end_when_whole(self, session_id: str) -> None:
        self._ending[session_id] = {*self.possible_turns(session_id)}
        self.tick(steady_ns())

    def _end(self, session_id: str | None) -> None:
        if session_id is None:
            self._begin_each(self.table.close_all())
        elif (ended := self.table.end(session_id)) is not None:
            self._begin_each([ended])
        else:  # no metric samples it, or no turn arrived
            self.ids.record_end(session_id, 0)

    def _named(self, unit: Unit, session_id: str) -> SpanData | None:
        """Return the turn's root with an exportable conversation id; spans of other instrumentations have the raw id."""
        root = unit.root
        if root is None or root.attributes.get(semconv.CONVERSATION_ID, session_id) != session_id:
            return root
        return unit.in_conversation(self.shown(session_id)).root

    def _leave_out(self, session_id: str) -> None:
        key = session_key(session_id)
        if key not in self._left_out:
            self.ledger.enter(key, self._own(session_id))
            self.ledger.settle_all(key, Outcome.NOT_SAMPLED)
            keep_latest(self._left_out, key, None, _REMEMBERED_IDS)
        self._left_out.move_to_end(key)

    def _begin_each(self, sessions: Iterable[EndedSession]) -> None:
        for session in sessions:
            try:
                self._begin(session)
            except Exception as error:  # noqa: BLE001  (the other sessions go on, and this one ends)
                log_internal_error("decide on a session", error)
                self.ledger.settle_all(session.key, Outcome.INCOMPLETE)

    def _begin(self, session: EndedSession) -> None:
        work = _work_of(session.unit)
        if not work.provisional:
            root = session.unit.root
            self.ids.record_end(session.id, 0 if root is None else root.start_ns)
        taken = self._enter(session) if work.counts else self._taken(session)
        if work in self._at_work or not taken:
            return
        if why := self._why_incomplete(session):
            self._lose(work, taken, Outcome.INCOMPLETE, why, session.unit.key)
            return
        roomy = self.account_quotas.with_room(taken)
        held = size_bytes_of(session.unit, session.samples)
        if not roomy or not self.queue.reserve(held):
            self._lose(work, taken, Outcome.SHUTDOWN if self._over else Outcome.QUEUE_FULL)
            return
        self._lose(work, taken.keys() - roomy, Outcome.QUEUE_FULL)
        self._hand_over(work, session, {name: taken[name] for name in roomy}, held)

    def _why_incomplete(self, session: EndedSession) -> str | None:
        missed = self.ids.missed.get(session.id)
        return session.why_incomplete or (
            None if missed is None else f"a turn of the conversation was rejected: {missed}"
        )

    def _hand_over(self, work: _InWork, session: EndedSession, chosen: Mapping[str, Decision], held: int) -> None:
        try:
            self.handover([SampledUnit(session.unit, chosen, session.samples, held, monotonic(), redacted=True)])
        except Exception:
            self.queue.cancel(held)
            raise
        # It may be set after the handover: scores arrive on this thread, so none can arrive earlier.
        self._at_work[work] = set(chosen)
        if work.counts:
            self.account_quotas.enter(work.key, chosen, held)

    def _enter(self, session: EndedSession) -> Mapping[str, Decision]:
        """Make an ended session eligible; return the decisions of the metrics that sample it, and end the other metrics."""
        self.ended[session.end] += 1
        if not (own := self._own(session.id)):
            return {}
        taken = self._taken(session)
        self.ledger.enter(session.key, own)
        self.ledger.belongs(session.unit)
        for name in own:
            if name not in taken:
                self.ledger.settle(session.key, name, Outcome.NOT_SAMPLED)
        self.ledger.choose(session.key, taken)
        return taken

    def _own(self, session_id: str) -> Collection[str]:
        """Return the metrics that score a conversation here; metrics that another scorer of the process scores are left out."""
        elsewhere = self.ids.metrics_elsewhere.get(session_id, ())
        return [name for name in self.metrics if name not in elsewhere] if elsewhere else self.metrics

    def _taken(self, session: EndedSession) -> Mapping[str, Decision]:
        decisions = {name: self.sampler.session(session.id, name) for name in self._own(session.id)}
        return {name: decision for name, decision in decisions.items() if decision.take}

    def _lose(
        self, work: _InWork, metrics: Iterable[str], outcome: Outcome, reason: str = "", unit: UnitKey = _NOBODY
    ) -> None:
        if work.counts:
            for name in metrics:
                self.ledger.settle(work.key, name, outcome)
                self.notes.unscored(unit, {name: outcome}, reason)


def _work_of(unit: Unit) -> _InWork:
    assert unit.session is not None
    turns = unit.session.turns if unit.is_provisional else 0
    return _InWork(unit.session.key, unit.revision, turns, unit.session.links)
