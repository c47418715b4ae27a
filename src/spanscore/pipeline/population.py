"""Populations, each with a ledger of its own: sources of scores (second judges, feedback), and revisions of units."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import inf
from time import monotonic

from spanscore.core.job import Decision, Job, JobResult, SampledUnit
from spanscore.core.log import log_internal_error
from spanscore.core.score import Outcome, Score, change_score
from spanscore.core.span import Unit, UnitKey
from spanscore.pipeline.evaluation import Evaluation, RunningJob
from spanscore.pipeline.ledger import Ledger, ScoreBatch, has_span
from spanscore.pipeline.queues import MemoryQueue
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.sizes import size_bytes_of
from spanscore.pipeline.span_buffer import SpanBuffer
from spanscore.protocols import Queue, Sink

_SPAN_ID_BITS = 64


@dataclass(eq=False, repr=False, kw_only=True)
class Population:
    """Units that are counted separately from the units of their traces: sessions, revisions, or the units of a source of
    scores.

    Attributes:
        ledger: counts only this population; each unit ends in exactly one outcome per metric.
        hold: span buffer with the export queue through which the scores reach the sink.
        sink: a sink that never raises.
    """

    ledger: Ledger
    hold: SpanBuffer
    sink: Sink

    def enter(self, key: UnitKey, decisions: Mapping[str, Decision]) -> bool:
        """Make a unit eligible for the metrics in ``decisions``. Returns False if it is already open. Thread-safe."""
        entered = self.ledger.enter(key, decisions)
        if entered:
            self.ledger.record_probabilities(key, decisions)
        return entered

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Queue the scores that have a span (`has_span`) for the sink. Call on the span thread."""
        if emitted := [score for score in scores if has_span(score)]:
            batch = ScoreBatch(self.sink, unit, emitted)
            self.hold.enqueue(batch, batch.spans)

    def end_open(self) -> list[UnitKey]:
        """End every open unit as ``shutdown``; return their keys. Thread-safe."""
        keys = self.ledger.open_units()
        for key in keys:
            self.ledger.settle_all(key, Outcome.SHUTDOWN)
        return keys


@dataclass(eq=False, repr=False)
class ScoreSource(Population):
    """Scores units outside sampled traffic, and counts these scores in a separate ledger.

    The source has its own deadlines, budget and queue: a judge that fails, is slow or is down does not affect sampled traffic.
    ``publish`` and ``emit`` run on the span thread, ``enter`` and ``end_open`` on any thread, and the other methods on the
    loop.

    Attributes:
        name: ``Score.source`` of these scores.
        places: limits the number of units without all scores; further units end as ``queue_full``.
        run_on_span_thread: runs a call on the span thread. Called on any thread.
        on_scores: called with the source's name, a unit and its scores before their export. Called on the span thread.
        scores_traffic: whether ``begin`` scores each unit of sampled traffic.
    """

    name: str
    evaluation: Callable[[Unit], Evaluation]
    _: KW_ONLY
    places: MemoryQueue
    run_on_span_thread: Callable[[Callable[[], None]], None]
    on_scores: Callable[[str, Unit, Sequence[Score]], None]
    scores_traffic: bool = False

    def __post_init__(self) -> None:
        self._running: set[RunningJob] = set()
        self._stopped = False

    def begin(self, job: Job) -> None:
        """Score the metrics of a job that the source has, too, if the source scores traffic. Never raises."""
        if not self.scores_traffic:
            return
        metrics = self.evaluation(job.unit).metrics
        decisions = {name: decision for name, decision in job.decisions.items() if name in metrics}
        if decisions and self.enter(job.unit.key, decisions):
            self.ask(replace(job, decisions=decisions, held_until_s=-inf))  # no span waits for these scores

    def ask(self, job: Job) -> None:
        """Score the metrics of a job after its unit was entered in the ledger. Never raises."""
        if self._stopped or not self.places.reserve(job.size_bytes):
            self._end(job, Outcome.SHUTDOWN if self._stopped else Outcome.QUEUE_FULL)
            return
        try:
            running = self.evaluation(job.unit).begin(job, lambda: self._take_scores(running))
        except Exception as error:  # noqa: BLE001  (it must not stop the scores of sampled traffic)
            log_internal_error("ask a second judge", error)
            self.places.ack(job)
            self._end(job, Outcome.METRIC_ERROR)
            return
        self._running.add(running)
        self._take_scores(running)

    def give_up(self) -> None:
        """Cancel every running metric, at shutdown."""
        for running in self._running:
            running.give_up()

    def stop(self) -> None:
        """Begin no further metrics, and publish the cost of the cancelled ones. Call it after ``wait_for_cancelled``."""
        self._stopped = True
        for running in list(self._running):
            running.add_unused()
            self._take_scores(running)

    def publish(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Export scores of the source; each is counted after its export. Call on the span thread."""
        self.on_scores(self.name, unit, scores)
        for score in scores:
            batch = ScoreBatch(self.sink, unit, [score], self.ledger)
            if has_span(score):
                self.hold.enqueue(batch, batch.spans)
            else:
                batch.count()

    def _end(self, job: Job, outcome: Outcome) -> None:
        for name in job.decisions:
            self.ledger.settle(job.unit.key, name, outcome)

    def _take_scores(self, running: RunningJob) -> None:
        unit = running.job.unit
        if scores := [change_score(score, unit, source=self.name) for score in running.take()]:
            self.run_on_span_thread(lambda: self.publish(unit, scores))
        if running.is_over:
            self._running.discard(running)
            self.places.ack(running.job)


@dataclass(eq=False, repr=False)
class Revisions(Population):
    """Scores units again after late spans. Each repeated scoring has the next revision number. Call on the span thread.

    The scores of a revision are on separate evaluation spans and are not counted in sums or means. A rule that reads scores
    selects no revision, because the unit's earlier scores are not kept.

    Attributes:
        metrics: names of the metrics that score units.
        sampler: samples revisions by the same rules as first scores.
        dispatch: passes sampled units to the loop.
    """

    metrics: Sequence[str]
    _: KW_ONLY
    sampler: RateSampler
    queue: Queue
    with_room: Callable[[Collection[str]], Collection[str]]
    dispatch: Callable[[Sequence[SampledUnit]], None]

    def __post_init__(self) -> None:
        self._next: dict[UnitKey, deque[Unit]] = {}

    def take(self, unit: Unit) -> None:
        """Accept a unit whose ``revision`` is 1 or more. It waits while an earlier or the same revision is scored."""
        if self._waits(unit):
            self._next.setdefault(unit.key, deque()).append(unit)
        else:
            self._begin(unit)

    def accept_job(self, job: Job) -> None:
        """Accept a revision from another process."""
        self.enter(_entry(job.unit), job.decisions)

    def settle(self, result: JobResult) -> None:
        """Count and emit the scores of a job."""
        key, settle = _entry(result.unit), self.ledger.settle
        scores = [score for score in result.scores if settle(key, score.metric, score.outcome, score.source)]
        self.emit(result.unit, scores)
        if result.over:
            self.ledger.settle_all(key, result.rest)
            waiting = self._next.get(result.unit.key, deque())
            while waiting and not self._waits(waiting[0]):
                self._begin(waiting.popleft())
            if not waiting:
                self._next.pop(result.unit.key, None)

    def open_units(self) -> list[UnitKey]:
        """Return the revisions that are being scored, or wait for another revision of their unit."""
        return [*self.ledger.open_units(), *(_entry(unit) for waiting in self._next.values() for unit in waiting)]

    def give_up(self) -> None:
        """End all revisions as ``shutdown``."""
        self.end_open()
        if waiting := sum(map(len, self._next.values())):
            self.ledger.record_rejected(Outcome.SHUTDOWN, waiting)
        self._next = {}

    def _waits(self, unit: Unit) -> bool:
        return any(self.ledger.is_open(_entry(unit, earlier)) for earlier in range(1, unit.revision + 1))

    def _begin(self, unit: Unit) -> None:
        key = _entry(unit)
        self.ledger.enter(key)
        if not unit.complete:
            self.ledger.settle_all(key, Outcome.INCOMPLETE)
            return
        facts = unit.facts()._replace(scores={})
        decisions = {name: self.sampler.decide(facts, name) for name in self.metrics}
        sampled = {name: decision for name, decision in decisions.items() if decision.take}
        chosen = {name: sampled[name] for name in self.with_room(sampled)}
        for name in decisions.keys() - chosen.keys():
            self.ledger.settle(key, name, Outcome.QUEUE_FULL if name in sampled else Outcome.NOT_SAMPLED)
        # The outcomes above count with weight 1, losses after this line with 1 / (sampling probability).
        self.ledger.record_probabilities(key, sampled)
        size_bytes = size_bytes_of(unit)
        if not chosen or not self.queue.reserve(size_bytes):
            self.ledger.settle_all(key, Outcome.QUEUE_FULL)
            return
        self.dispatch([SampledUnit(unit, chosen, None, size_bytes, monotonic(), -inf)])


def unit_of(key: UnitKey) -> UnitKey:
    """Return the unit's key of a key in any ledger: a key of the ledger of revisions without its revision."""
    return UnitKey(key.trace_id, key.span_id % (1 << _SPAN_ID_BITS))


def _entry(unit: Unit, revision: int | None = None) -> UnitKey:
    """Return the key of a revision in the ledger.

    The key contains the revision, in the bits above the span id, because a revision that came from another process and a later
    revision may be open at the same time.
    """
    return UnitKey(unit.key.trace_id, unit.key.span_id | (revision or unit.revision) << _SPAN_ID_BITS)
