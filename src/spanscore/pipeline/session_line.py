"""``SessionPipeline`` turns samples of turns into conversations and settles their scores, as a population with its own ledger.

    turn's samples ─▶ gathered (``pipeline/sessions.py``) ─▶ ended ─▶ decided ─▶ handed over ─▶ settled, emitted
                                          └─▶ goes on: decided, handed over, emitted as provisional

A session is eligible once, after its end. Scores of a session that goes on, or went on after its end, are on evaluation spans,
and in no sum and no outcome.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from time import monotonic
from typing import Final, NamedTuple

from spanscore import semconv
from spanscore.core.event_queue import steady_ns
from spanscore.core.job import Decision, Job, JobResult, SampledUnit
from spanscore.core.log import log_internal_error
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, SpanData, Unit, UnitKey
from spanscore.pipeline.decisions import keep_latest
from spanscore.pipeline.ledger import Notes, log_failures
from spanscore.pipeline.population import Population
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.session_turns import Turn
from spanscore.pipeline.sessions import EndedSession, SessionIds, SessionTable, session_key
from spanscore.pipeline.sizes import size_bytes_of
from spanscore.pipeline.tracker import AccountQuotas
from spanscore.protocols import Queue

_REMEMBERED: Final = 100_000
"""Number of remembered ids: ten for each session that may be gathered, because most sessions are not sampled. 0.1 kB each."""
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
        return not self.revision and not self.provisional


@dataclass(eq=False, repr=False)
class SessionPipeline(Population):
    """Gathers turns, decides on sessions and settles them.

    Call on the span thread; ``ids``, ``end`` and ``noticed`` may be used on any thread.

    Attributes:
        metrics: names of the metrics that score sessions; may be empty.
        table: gathers the turns of sessions.
        sampler: decides on each session that has ended or is scored provisionally.
        queue: the scorer's queue.
        account_quotas: quotas of the queue's places.
        handover: passes sampled sessions to the loop.
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
        self.ids = SessionIds(_REMEMBERED)
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
        """Return the time at which the next session becomes idle for too long; None if no session is open."""
        return self.table.next_due_ns()

    def in_flight(self) -> set[UnitKey]:
        """Return the ended sessions whose scores are not exported yet, with their turns."""
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
            keep_latest(self._left_out, key, None, _REMEMBERED)
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
        missed = self.ids.why_missed(session.id)
        return session.why_incomplete or (
            None if missed is None else f"a turn of the conversation was rejected: {missed}"
        )

    def _hand_over(self, work: _InWork, session: EndedSession, chosen: Mapping[str, Decision], held: int) -> None:
        try:
            self.handover([SampledUnit(session.unit, chosen, session.samples, held, monotonic(), redacted=True)])
        except Exception:
            self.queue.cancel(held)
            raise
        self._at_work[work] = set(chosen)  # set after the start is early enough, because scores arrive on this thread
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
        shared = self.ids.shared(session_id)
        return [name for name in self.metrics if name not in shared] if shared else self.metrics

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
