"""Gathers turns, in any order, into sessions (conversations), and has each session scored after its end.

    turn's samples ─▶ gathered (``SessionTable``) ─┬─ ended ─▶ decided ─▶ dispatched ─▶ settled, emitted
                                                   └─ goes on: decided, dispatched, emitted as provisional

A session is eligible (counted in the ledger) once, after its end. The scores of a session that goes on, or that went on after
its end, are on evaluation spans and count in no sum and no outcome.
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
from spanscore.core.span import SamplingContext, SessionEnd, Unit, UnitKey
from spanscore.pipeline.decisions import keep_latest
from spanscore.pipeline.ledger import Notes, log_failures
from spanscore.pipeline.population import Population
from spanscore.pipeline.queues import AccountQuotas
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.session_turns import OpenSession, PastSessions, Turn
from spanscore.pipeline.sizes import size_bytes_of
from spanscore.protocols import Queue

_NONE: Final[Set[str]] = frozenset()


class SessionIds:
    """Ids of open conversations, at most ``most``; the latest are kept. Thread-safe: each step is one dict operation.

    Attributes:
        rejected: conversation's id → outcome with which a turn of it was rejected; such a conversation is incomplete.
        metrics_elsewhere: conversation's id → metrics that another scorer of this process scores.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[str, int] = OrderedDict()  # id → start of the latest turn, in ns
        self._ending: dict[str, None] = {}
        self.rejected: OrderedDict[str, Outcome] = OrderedDict()
        self.metrics_elsewhere: OrderedDict[str, Set[str]] = OrderedDict()

    def record_start(self, session_id: str, start_ns: int, shared: Set[str] = _NONE) -> None:
        """Record the start of a turn, and the ``shared`` metrics, which another scorer of this process scores."""
        if shared:
            self.record_metrics_elsewhere(session_id, shared)
        keep_latest(self._open, session_id, start_ns, self._most)
        try:
            self._open.move_to_end(session_id)
        except KeyError:  # another thread removed it
            return

    def record_metrics_elsewhere(self, session_id: str, metrics: Set[str]) -> None:
        """Record the metrics that another scorer of this process scores for the conversation."""
        keep_latest(self.metrics_elsewhere, session_id, metrics, self._most)

    def record_rejection(self, session_id: str, outcome: Outcome) -> None:
        """Record that a turn was rejected, which makes the conversation incomplete."""
        keep_latest(self.rejected, session_id, outcome, self._most)

    def record_arrival(self, session_id: str, start_ns: int) -> None:
        """Record a turn that has arrived, perhaps without a recorded start. A conversation that is about to end still ends."""
        if session_id not in self._ending and session_id not in self._open:
            self.record_start(session_id, start_ns)

    def end(self, session_id: str) -> bool:
        """Record that ``end_session`` is about to end a conversation; return whether it was open."""
        if self._open.pop(session_id, None) is None:
            return False
        self._ending[session_id] = None
        return True

    def count(self) -> int:
        """Return the number of conversations that are open or about to end."""
        return len(self._open) + len(self._ending)

    def record_end(self, session_id: str, start_ns: int) -> None:
        """Record a conversation's end; ``start_ns`` is its last turn's start. If a later turn has begun, the id stays open."""
        was_ending = self._ending.pop(session_id, self) is None
        if not was_ending and self._open.get(session_id, start_ns) <= start_ns:
            self._open.pop(session_id, None)


_REMEMBERED_SESSIONS: Final = 100_000
"""Number of remembered ended sessions, 19 MB at most; up to an eighth more."""
_WHY_REPLICAS: Final = "turns go to several replicas: only end_session or max_turns ends a whole conversation"
_WHY_NO_HISTORY: Final = "turns go to several replicas, and the last one here did not contain the whole conversation"
_WHY_TOO_LONG: Final = (
    "when this process first had the whole conversation, it had more turns than sessions.max_turns: it ended before, in"
    " another process"
)
_MAX_NAMES: Final = 1_000
"""Maximum number of root names for which the table remembers whether their turns contain the whole history."""
WHY_MOVED: Final = "its partition went to another worker, which reads its later turns"
WHY_RESUMED: Final = "its turns contain earlier ones that this worker has not read"
_WHY_TAKEN_OVER: Final = (
    "another worker may have read its first turns: it goes on within sessions.idle_timeout of a partition's change"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBounds:
    """Conditions for the end of a conversation, and bounds of open conversations.

    Attributes:
        idle_ns: time without a turn after which a conversation ends.
        max_turns: number of turns after which a conversation ends.
        max_open: maximum number of open conversations; beyond it, the one with the oldest latest turn ends.
        max_bytes: maximum approximate bytes of open conversations; beyond it, the one with the oldest latest turn ends.
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
        unit: the last turn, which gets the scores of the conversation.
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
                      ├─ has ``max_turns`` turns ─▶ max_turns
                      ├─ ``max_open`` or ``max_bytes`` exceeded ─▶ evicted, the session with the oldest latest turn first
                      └─ ``close_all`` ─▶ shutdown

    A turn after the end opens the conversation again, as the next revision. One thread owns the table. ``now_ns`` is the time
    of a clock that is never set back, in nanoseconds since the epoch. Sessions are in the order of their latest turn, so that
    due sessions are at the front.

    If turns go to any of several processes, this process has a whole conversation only if each turn contains the whole
    history. The table infers this from earlier turns with the same root name. It infers from earlier conversations whether a
    first turn can contain a history.

    Attributes:
        bytes: approximate size of open sessions.
        why_shared: why any conversation may have turns in other workers of a topic; empty if all turns of a conversation
            arrive here. Each worker would otherwise score its part as a whole conversation.
    """

    def __init__(self, bounds: SessionBounds) -> None:
        self.bounds = bounds
        self.bytes = 0
        self.why_shared = ""
        self._open: OrderedDict[str, OpenSession] = OrderedDict()
        self._past = PastSessions(_REMEMBERED_SESSIONS)
        # stream (`Turn.stream`; None = every stream) → time until which other processes may have read it, ns since the epoch
        self._read_elsewhere_ns: dict[Hashable, int] = {}
        self._has_history: dict[str, bool] = {}  # root's name → whether its turns contain the whole history
        self._starts_empty: set[str] = set()  # names of roots with a conversation whose first turn had no history

    @property
    def open(self) -> int:
        """Number of open sessions."""
        return len(self._open)

    def take(self, turn: Turn, now_ns: int) -> list[EndedSession]:
        """Gather a turn. Return the sessions that it ended, and sessions to be scored provisionally (``end`` is ``open``)."""
        session = self._open.get(turn.id)
        if session is None:
            key = session_key(turn.id)
            session = self._open[turn.id] = OpenSession(turn.id, key, self._past.get(key), stream=turn.stream)
        self._open.move_to_end(turn.id)
        before = session.size_bytes
        was_elsewhere = turn.end_ns < self._read_elsewhere_ns.get(session.stream, 0)
        session.why_partial = session.why_partial or self.why_shared or (_WHY_TAKEN_OVER if was_elsewhere else "")
        session.add(turn, now_ns)
        self.bytes += session.size_bytes - before
        ended = self._after_turn(session)
        while len(self._open) > self.bounds.max_open or (self._open and self.bytes > self.bounds.max_bytes):
            ended.append(self._close(self._oldest(), "evicted"))
        return ended

    def mark_shared(self, why: str, now_ns: int) -> None:
        """Record why turns of any conversation may be in other processes from now on; empty = all are here again."""
        if self.why_shared and not why:
            self.mark_read_elsewhere(None, now_ns)
        self.why_shared = why
        for session in self._open.values():
            session.why_partial = session.why_partial or why

    def mark_read_elsewhere(self, stream: Hashable, since_ns: int) -> None:
        """Record that other processes read a stream (None = every stream) until a time, in ns since the epoch."""
        until_ns = since_ns + self.bounds.idle_ns  # an earlier conversation may have begun in another process
        self._read_elsewhere_ns[stream] = max(until_ns, self._read_elsewhere_ns.get(stream, 0))

    def mark_moved(self, stream: Hashable) -> None:
        """Record that another process reads a stream from now on."""
        for session in self._open.values():
            if session.stream == stream:
                session.why_partial = session.why_partial or WHY_MOVED

    def end(self, id: str) -> EndedSession | None:
        """End a session; None if no open session has that id."""
        session = self._open.get(id)
        return None if session is None else self._close(session, "explicit")

    def due(self, now_ns: int) -> list[EndedSession]:
        """End and return the sessions that have been silent for too long. O(returned sessions)."""
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

    def _oldest(self) -> OpenSession:
        return next(iter(self._open.values()))

    def _after_turn(self, session: OpenSession) -> list[EndedSession]:
        name, has_history = session.name, self._has_history
        if session.arrived_with_history is not None and (name in has_history or len(has_history) < _MAX_NAMES):
            has_history[name] = has_history.get(name, True) and session.arrived_with_history
        if self._turns(session) >= self.bounds.max_turns:
            return [self._close(session, "max_turns")]
        every = 0 if self.bounds.replicas == "any" else self.bounds.score_every
        if not every or session.unscored < every or self._why_incomplete(session, "open") is not None:
            return []
        session.unscored = 0
        return [self._make_ended_session(session, "open")]

    def _turns(self, session: OpenSession) -> int:
        """Return the number of turns since the last end, which ``max_turns`` bounds."""
        return session.turns if session.past is None else session.units

    def _close(self, session: OpenSession, end: SessionEnd) -> EndedSession:
        del self._open[session.id]
        self.bytes -= session.size_bytes
        # Otherwise the first turn contained an earlier exchange, such as an example in the prompt.
        began_empty = not session.why_partial and session.past is None and session.exchanges <= session.units
        if began_empty and len(self._starts_empty) < _MAX_NAMES:
            self._starts_empty.add(session.name)
        self._past.add(session.key, session.ended())
        return self._make_ended_session(session, end)

    def _make_ended_session(self, session: OpenSession, end: SessionEnd) -> EndedSession:
        why_incomplete = self._why_incomplete(session, end)
        return EndedSession(session.id, session.key, end, session.as_unit(end), session.samples(), why_incomplete)

    def _why_incomplete(self, session: OpenSession, end: SessionEnd) -> str | None:
        """Return why a conversation is not whole here; None if it is."""
        has_history = self._has_history.get(session.name, False)
        if self.bounds.replicas == "any":
            if end not in ("explicit", "max_turns"):
                return _WHY_REPLICAS
            if not (has_history and (session.ends_with_history or session.exchanges == 1)):
                return _WHY_NO_HISTORY
            if self._turns(session) > self.bounds.max_turns:
                return _WHY_TOO_LONG
        elif session.units <= 1 and self._turns(session) > self.bounds.max_turns:
            return _WHY_TOO_LONG
        elif why_partial := self._why_partial(session):
            message = f"conversations are incomplete here, and not scored: {why_partial}"
            log_once(f"session piece {why_partial}", message)
            return why_partial
        return session.incomplete(history_fills_gaps=has_history)

    def _why_partial(self, session: OpenSession) -> str:
        if session.why_partial or session.stream not in self._read_elsewhere_ns:
            return session.why_partial
        has_unread_turns = session.exchanges > session.units and session.name in self._starts_empty
        return WHY_RESUMED if has_unread_turns else ""


def session_key(id: str) -> UnitKey:
    """Return the key of a conversation in the ledger: a hash of its id, the same in every process."""
    digest = sha256(id.encode("utf-8", "surrogatepass")).digest()
    return UnitKey(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1)


_MAX_IDS: Final = 100_000
"""Maximum number of remembered ids, 0.1 kB each: ten times ``max_open``'s default, because most sessions are not sampled."""
_NO_UNIT: Final = UnitKey(0, 0)
"""No unit, as the unit of a remark; in ``in_flight`` it stands for the sessions that a shutdown has not exported yet."""


class _SessionScoring(NamedTuple):
    """One scoring of a session: at an end, or provisional.

    Attributes:
        provisional: number of turns so far if the scores are provisional; otherwise 0.
        units: latest turns of the session; a flush that waits for one of these turns also waits for the session's scores.
    """

    key: UnitKey
    revision: int
    provisional: int
    units: tuple[UnitKey, ...]

    @property
    def counts(self) -> bool:
        """Whether the scores count in the ledger: those of the first end do."""
        return not self.revision and not self.provisional


@dataclass(eq=False, repr=False)
class SessionPipeline(Population):
    """Gathers turns, decides which metrics score a session, and settles its outcomes.

    Call on the span thread; ``ids``, ``end`` and ``count_unit`` may be used on any thread.

    Attributes:
        metrics: names of the metrics that score sessions; may be empty.
        sampler: decides on each session that has ended or is scored provisionally.
        dispatch: passes sampled sessions to the event loop that scores them.
        post: runs a call on the span thread.
        possible_turns: conversation's id (None = any) → ended units that may still become turns of it.
        shown: conversation's id → its exported form; None if it is not exported.
        ended: kind of end → number of sessions.
        without_id: number of units without a conversation id.
        stream_of: unit → the stream that has all turns of its conversation; None without such a stream.
    """

    metrics: Collection[str]
    _: KW_ONLY
    table: SessionTable
    sampler: RateSampler
    queue: Queue
    account_quotas: AccountQuotas
    dispatch: Callable[[Sequence[SampledUnit]], None]
    post: Callable[[Callable[[], None]], None]
    possible_turns: Callable[[str | None], Collection[UnitKey]]
    shown: Callable[[str], str | None] = lambda session_id: session_id

    def __post_init__(self) -> None:
        self.stream_of: Callable[[UnitKey], Hashable] = lambda _: None
        self.ids = SessionIds(_MAX_IDS)
        self.ended: Counter[str] = Counter()
        self.notes = Notes()
        self.without_id = 0
        self._lock = threading.Lock()
        self._unsampled: OrderedDict[UnitKey, None] = OrderedDict()
        self._ending: dict[str | None, set[UnitKey]] = {}  # None = every session
        self._is_shutting_down = False
        self._active: dict[_SessionScoring, set[str]] = {}  # → metrics without an outcome
        # scorings that have ended, each with the entry of the export queue (`SpanBuffer.queued`) after which it is exported
        self._unexported: deque[tuple[int, _SessionScoring]] = deque()

    def end(self, session_id: str) -> bool:
        """End an open session when all its ended units have arrived. Returns False if the id is not open. Does not block."""
        is_open = self.ids.end(session_id)
        if is_open:
            self.post(lambda: self._end_when_complete(session_id))
        return is_open

    def is_interested(self, facts: SamplingContext) -> bool:
        """Whether a unit is a turn of a session that may be scored."""
        return self.sampler.wants_session(facts.conversation_id or "")

    def count_unit(self, facts: SamplingContext) -> None:
        """Count a unit without a conversation id, or a session that no metric samples, at its first turn. Thread-safe."""
        if facts.conversation_id == "":
            self.without_id += 1
        elif facts.conversation_id is not None and not self.is_interested(facts):
            key = session_key(facts.conversation_id)
            with self._lock:
                if key not in self._unsampled:
                    self.ledger.enter(key, self._metrics_here(facts.conversation_id))
                    self.ledger.settle_all(key, Outcome.NOT_SAMPLED)
                    keep_latest(self._unsampled, key, None, _MAX_IDS)
                self._unsampled.move_to_end(key)

    def on_samples(self, facts: SamplingContext, unit: Unit, samples: Samples) -> None:
        """Gather a turn."""
        session_id, root, now_ns = facts.conversation_id or "", unit.root, steady_ns()
        if unit.shared:
            self.ids.record_metrics_elsewhere(session_id, unit.shared)
        self.ids.record_arrival(session_id, now_ns if root is None else root.start_ns)
        end_ns = now_ns if root is None else root.end_ns
        # Other instrumentations record the raw id of the conversation.
        if root is not None and root.attributes.get(semconv.CONVERSATION_ID, session_id) == session_id:
            root = unit.in_conversation(self.shown(session_id)).root
        turn = Turn(session_id, facts.key, root, end_ns, samples, self.stream_of(facts.key))
        self._begin_each(self.table.take(turn, now_ns))

    def tick(self, now_ns: int) -> None:
        """End idle sessions, and sessions for which ``end`` was called and whose units have arrived."""
        self._begin_each(self.table.due(now_ns))
        for session_id, waiting in list(self._ending.items()):
            waiting &= {*self.possible_turns(session_id)}
            if not waiting:
                del self._ending[session_id]
                self._end(session_id)

    def next_due_ns(self) -> int | None:
        """Return the time at which an idle session ends; None if no session is open, or if ``replicas`` is ``any``."""
        return self.table.next_due_ns()

    def in_flight(self) -> set[UnitKey]:
        """Return the sessions whose scores are not exported yet, with their turns.

        These are sessions that are scored, at their end or provisionally, and sessions whose end waits for units.
        """
        while self._unexported and self._unexported[0][0] <= self.hold.ended:
            self._unexported.popleft()
        waiting = {session_key(session_id) for session_id in self._ending if session_id is not None}
        for scoring in [*self._active, *(scoring for _, scoring in self._unexported)]:
            waiting |= {scoring.key, *scoring.units}
        return waiting | {_NO_UNIT} if self._is_shutting_down and (waiting or self._ending) else waiting

    def end_all(self) -> None:
        """Begin a shutdown: end every session when all ended units have arrived."""
        self._is_shutting_down = True
        self._end_when_complete(None)

    def give_up(self) -> None:
        """End the shutdown: give each session without an outcome the outcome ``shutdown``."""
        self._is_shutting_down = True
        for session in self.table.close_all():
            if _scoring_of(session.unit).counts:
                self._make_eligible(session)
        self._ending.clear()
        self._active.clear()
        for key in self.end_open():
            self.account_quotas.leave(key)

    def accept_job(self, job: Job) -> None:
        """Accept a session from another process."""
        scoring = _scoring_of(job.unit)
        if scoring in self._active:
            return
        self._active[scoring] = set(job.decisions)
        if scoring.counts:
            self.enter(scoring.key, job.decisions)
            self.ledger.record_compared_value(job.unit)
            self.account_quotas.enter(scoring.key, job.decisions, job.size_bytes)

    def settle(self, result: JobResult) -> None:
        """Count and emit the scores of a session."""
        unit, scoring = result.unit, _scoring_of(result.unit)
        unscored = self._active.get(scoring)
        if unscored is None:  # `give_up` has settled it
            return
        scores = [score for score in result.scores if score.metric in unscored]
        unscored -= {score.metric for score in scores}
        if scoring.counts:
            for score in scores:
                self.ledger.settle(scoring.key, score.metric, score.outcome, score.source)
            self.account_quotas.settle(scoring.key, [score.metric for score in scores])
        self.notes.record_scores(unit.key, scores)
        log_failures(scores)
        self.emit(unit, scores)
        if result.over:
            del self._active[scoring]
            if scoring.counts:
                self.ledger.settle_all(scoring.key, result.rest)
                self.account_quotas.leave(scoring.key)
            self._unexported.append((self.hold.queued, scoring))

    def _end_when_complete(self, session_id: str | None) -> None:
        self._ending[session_id] = {*self.possible_turns(session_id)}
        self.tick(steady_ns())

    def _end(self, session_id: str | None) -> None:
        if session_id is None:
            self._begin_each(self.table.close_all())
        elif (ended := self.table.end(session_id)) is not None:
            self._begin_each([ended])
        else:  # no metric samples it, or no turn has arrived
            self.ids.record_end(session_id, 0)

    def _begin_each(self, sessions: Iterable[EndedSession]) -> None:
        for session in sessions:
            try:
                self._begin(session)
            except Exception as error:  # noqa: BLE001  (the other sessions go on, and this one ends)
                log_internal_error("decide on a session", error)
                self.ledger.settle_all(session.key, Outcome.INCOMPLETE)

    def _begin(self, session: EndedSession) -> None:
        scoring = _scoring_of(session.unit)
        if not scoring.provisional:
            root = session.unit.root
            self.ids.record_end(session.id, 0 if root is None else root.start_ns)
        sampled = self._make_eligible(session) if scoring.counts else self._decide(session)
        if scoring in self._active or not sampled:
            return
        if why := self._why_incomplete(session):
            self._settle_unscored(scoring, sampled, Outcome.INCOMPLETE, why, session.unit.key)
            return
        chosen = {name: sampled[name] for name in self.account_quotas.with_room(sampled)}
        size_bytes = size_bytes_of(session.unit, session.samples)
        if not chosen or not self.queue.reserve(size_bytes):
            self._settle_unscored(scoring, sampled, Outcome.SHUTDOWN if self._is_shutting_down else Outcome.QUEUE_FULL)
            return
        self._settle_unscored(scoring, sampled.keys() - chosen, Outcome.QUEUE_FULL)
        self._dispatch(scoring, session, chosen, size_bytes)

    def _why_incomplete(self, session: EndedSession) -> str | None:
        if session.why_incomplete is None and (outcome := self.ids.rejected.get(session.id)) is not None:
            return f"a turn of the conversation was rejected: {outcome}"
        return session.why_incomplete

    def _dispatch(
        self, scoring: _SessionScoring, session: EndedSession, chosen: Mapping[str, Decision], size_bytes: int
    ) -> None:
        try:
            self.dispatch([SampledUnit(session.unit, chosen, session.samples, size_bytes, monotonic(), redacted=True)])
        except Exception:
            self.queue.cancel(size_bytes)
            raise
        # Scores arrive on this thread, so none can arrive before this line.
        self._active[scoring] = set(chosen)
        if scoring.counts:
            self.account_quotas.enter(scoring.key, chosen, size_bytes)

    def _make_eligible(self, session: EndedSession) -> Mapping[str, Decision]:
        """Make an ended session eligible, and settle the metrics that do not sample it; return the others' decisions."""
        self.ended[session.end] += 1
        if not (metrics := self._metrics_here(session.id)):
            return {}
        sampled = self._decide(session)
        self.ledger.enter(session.key, metrics)
        self.ledger.record_compared_value(session.unit)
        for name in metrics:
            if name not in sampled:
                self.ledger.settle(session.key, name, Outcome.NOT_SAMPLED)
        self.ledger.record_probabilities(session.key, sampled)
        return sampled

    def _metrics_here(self, session_id: str) -> Collection[str]:
        """Return the metrics that score a conversation, without the metrics of another scorer of the process."""
        elsewhere = self.ids.metrics_elsewhere.get(session_id, ())
        return [name for name in self.metrics if name not in elsewhere] if elsewhere else self.metrics

    def _decide(self, session: EndedSession) -> Mapping[str, Decision]:
        decisions = {name: self.sampler.session(session.id, name) for name in self._metrics_here(session.id)}
        return {name: decision for name, decision in decisions.items() if decision.take}

    def _settle_unscored(
        self,
        scoring: _SessionScoring,
        metrics: Iterable[str],
        outcome: Outcome,
        reason: str = "",
        unit: UnitKey = _NO_UNIT,
    ) -> None:
        if scoring.counts:
            for name in metrics:
                self.ledger.settle(scoring.key, name, outcome)
                self.notes.record_unscored(unit, {name: outcome}, reason)


def _scoring_of(unit: Unit) -> _SessionScoring:
    assert unit.session is not None
    turns = unit.session.turns if unit.is_provisional else 0
    return _SessionScoring(unit.session.key, unit.revision, turns, unit.session.links)
