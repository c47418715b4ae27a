"""Revisions: units that have been scored, and are once more, as further spans of them came.

What comes of one stands beside the first scores and not among them: on evaluation spans of its own, in no sum, and in a
ledger of its own, where each revision ends in exactly one outcome per metric.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from math import inf
from time import monotonic

from spanscore.core.job import Decision, Job, JobResult, SampledUnit
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, Unit, UnitKey
from spanscore.protocols import Queue, Sampler, Sink
from spanscore.units.content_size import size_bytes_of
from spanscore.units.ledger import Ledger
from spanscore.units.score_batch import ScoreBatch, has_span
from spanscore.units.span_buffer import SpanBuffer

__all__ = ["Revisions"]


@dataclass(eq=False, repr=False)
class Revisions:
    """Decides on revisions and settles them. Span thread.

    Metrics that are chosen by what others scored are not asked again: the dice fall as they did, and those scores are gone.

    Attributes:
        metrics: names of all.
        sampler: the same as of first revisions.
        ledger: of revisions alone.
        queue: the scorer's.
        with_room: of some metrics, returns those whose judge may be asked for one more unit.
        handover: gives chosen units to the loop.
        hold: what leaves, leaves at its pace.
        sink: one that never raises.
        clock: seconds, the loop's.
        ledger: as it was given.
    """

    metrics: Sequence[str]
    _: KW_ONLY
    sampler: Sampler
    ledger: Ledger
    queue: Queue
    with_room: Callable[[Collection[str]], Collection[str]]
    handover: Callable[[Sequence[SampledUnit]], None]
    hold: SpanBuffer
    sink: Sink
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._next: dict[UnitKey, deque[Unit]] = {}

    def take(self, unit: Unit) -> None:
        """Take in a unit whose ``revision`` is not the first; it waits while an earlier revision is being scored."""
        if self._waits(unit):
            self._next.setdefault(unit.key, deque()).append(unit)
        else:
            self._begin(unit)

    def taken_over(self, job: Job) -> None:
        """Take in a revision that another process has handed over."""
        if self.ledger.enter(_entry(job.unit), job.decisions):
            self.ledger.choose(_entry(job.unit), job.decisions)

    def settled(self, result: JobResult) -> None:
        """Take in scores of a job: count and emit them."""
        key, settle = _entry(result.unit), self.ledger.settle
        scores = [score for score in result.scores if settle(key, score.metric, score.outcome, score.source)]
        if emitted := [score for score in scores if has_span(score)]:
            batch = ScoreBatch(self.sink, result.unit, emitted)
            self.hold.enqueue(batch, batch.spans)
        if result.over:
            self.ledger.settle_all(key, result.rest)
            waiting = self._next.get(result.unit.key, deque())
            while waiting and not self._waits(waiting[0]):
                self._begin(waiting.popleft())
            if not waiting:
                self._next.pop(result.unit.key, None)

    def open_units(self) -> list[UnitKey]:
        """Return the revisions that are being scored, or wait for an earlier one."""
        return [*self.ledger.open_units(), *(_entry(unit) for waiting in self._next.values() for unit in waiting)]

    def give_up(self) -> None:
        """End all of them as ``shutdown``."""
        waiting, self._next = self._next, {}
        for key in self.ledger.open_units():
            self.ledger.settle_all(key, Outcome.SHUTDOWN)
        for _ in range(sum(map(len, waiting.values()))):
            self.ledger.record_rejected(Outcome.SHUTDOWN)

    def _waits(self, unit: Unit) -> bool:
        return any(self.ledger.is_open(_entry(unit, earlier)) for earlier in range(1, unit.revision + 1))

    def _begin(self, unit: Unit) -> None:
        key = _entry(unit)
        self.ledger.enter(key)
        if not unit.complete:
            self.ledger.settle_all(key, Outcome.INCOMPLETE)
            return
        chosen = self._choose_metrics(key, unit.facts())
        held = size_bytes_of(unit, None)
        if not chosen or not self.queue.reserve(held):
            self.ledger.settle_all(key, Outcome.QUEUE_FULL)  # of those that were chosen, if any were
            return
        now_s = self.clock()
        self.handover([SampledUnit(unit, chosen, None, held, now_s, -inf)])

    def _choose_metrics(self, key: UnitKey, facts: SamplingContext) -> Mapping[str, Decision]:
        """Return the decisions of the metrics that take a unit and have room for it; settle the others."""
        decisions = {name: self.sampler.decide(facts._replace(scores={}), name) for name in self.metrics}
        taken = {name: decision for name, decision in decisions.items() if decision.take}
        roomy = set(self.with_room(taken))
        for name in self.metrics:
            if name not in roomy:
                self.ledger.settle(key, name, Outcome.QUEUE_FULL if name in taken else Outcome.NOT_SAMPLED)
        self.ledger.choose(key, taken)
        return {name: decision for name, decision in taken.items() if name in roomy}


def _entry(unit: Unit, revision: int | None = None) -> UnitKey:
    """Return by what a revision is counted: of those that others have handed over several of a unit are scored at once."""
    return UnitKey(unit.key.trace_id, unit.key.span_id | (revision or unit.revision) << 64)
