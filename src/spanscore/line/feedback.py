"""FeedbackJudging: a unit that somebody was not content with → its scores in a source of their own.

Whoever complains is no random draw: beside the scores of the population theirs would pull every mean down. What the source
says is how the judge sees those units, each standing for 1/rate of its like.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spanscore import semconv
from spanscore.core import loop
from spanscore.core.job import Decision, Job, JobResult
from spanscore.core.sample import Annotation
from spanscore.core.score import Outcome, Score, from_source
from spanscore.core.span import Unit, UnitKey
from spanscore.pipeline.engine import Shadows
from spanscore.pipeline.ledger import Ledger, ShadowBatch, has_span
from spanscore.pipeline.queues import MemoryQueue
from spanscore.pipeline.sizes import KeptSamples, KeptUnit

if TYPE_CHECKING:
    from spanscore.config.sampling import FeedbackSampling
    from spanscore.line.build import Line

__all__ = ["FeedbackJudging", "feedback_of"]

_MOST: Final = 10_000
"""Units that are remembered as judged, and that were spoken of before they were done."""
JUDGED, TOO_LATE, NOT_KEPT = "judged", "too_late", "not_kept"


def feedback_of(line: Line) -> FeedbackJudging | None:
    """Return what judges the units that labels are about; None where none is kept."""
    settings = line.settings.sampling.feedback
    if settings is None:
        return None
    made = FeedbackJudging(line, settings)
    line.keeping.observers.append(made.kept)
    line.engine.beside.append(made.asked)
    if line.telemetry is not None:
        line.telemetry.declare(line.of_units.values(), semconv.SOURCE_FEEDBACK)
        for result in (JUDGED, TOO_LATE, NOT_KEPT):
            line.telemetry.count(semconv.FEEDBACK, ((semconv.RESULT, result),), 0)
    return made


class FeedbackJudging:
    """Has units judged of which a label says that they were no good, each once. Span thread.

    Attributes:
        ledger: of the source.
        kept: the samples.
        asked: the metrics, beside their other work.
    """

    def __init__(self, line: Line, settings: FeedbackSampling) -> None:
        limits = line.settings.limits
        self._line = line
        self._metrics = tuple(line.of_units)
        self._below = settings.below
        self.ledger = Ledger(self._metrics)
        self.kept = KeptSamples(
            line.sampler.for_feedback,
            within_ns=int(settings.max_age * 1e9),
            max_bytes=settings.max_bytes,
            on_kept=self.judge_waiting,
        )
        self.asked = Shadows(
            self._metrics,
            line.evaluation,
            ledger=self.ledger,
            room=MemoryQueue(limits.queue_size, limits.queue_bytes),
            post=lambda settled: line.span_thread.leave(lambda: self.settled_beside(settled)),
            source=semconv.SOURCE_FEEDBACK,
        )
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self.ledger.reset()
        self.kept.reset()
        self._early: OrderedDict[UnitKey, None] = OrderedDict()
        self._done: OrderedDict[UnitKey, None] = OrderedDict()

    def judge_unit_of(self, label: Annotation) -> None:
        """Have the unit of a label judged, where that is low enough; one whose scores are to come, when they are there."""
        key = label.unit
        if key is None or label.quality is None or label.quality >= self._below or key in self._done:
            return
        if self._is_under_way(key):
            _keep(self._early, key)
        else:
            self._judge(key)

    def judge_waiting(self, key: UnitKey) -> None:
        """Have a unit judged that was spoken of too early: its samples were made, or its own scores are in."""
        if key in self._early and not self._is_under_way(key):
            del self._early[key]
            self._judge(key)

    def settled(self, result: JobResult) -> None:
        """Note the population's scores of a unit."""
        key = result.unit.key
        self.kept.scored(key, [score for score in result.scores if score.source is None])
        if result.over:
            self.judge_waiting(key)

    def settled_beside(self, result: JobResult) -> None:
        """Let scores of the source leave: each is counted when it is out."""
        self._line.units.notes.costs(result.scores)
        self._publish(result.unit, result.scores)

    def look(self) -> None:
        """Let go of what is too old, and of what was waited for in vain."""
        self.kept.make_room()
        for key in list(self._early):
            self.judge_waiting(key)

    def give_up(self) -> None:
        """End what is open: at the end of the scorer."""
        while self._early:
            self._early.popitem()
            self._count(NOT_KEPT)
        for key in self.ledger.open_units():
            self.ledger.settle_all(key, Outcome.SHUTDOWN)

    def _is_under_way(self, key: UnitKey) -> bool:
        return self._line.ledger.is_open(key) or key in self._line.keeping.making()

    def _judge(self, key: UnitKey) -> None:
        _keep(self._done, key)
        kept = self.kept.take(key)
        if kept is None:
            self._count(TOO_LATE if self.kept.was_kept(key) else NOT_KEPT)
            return
        self._count(JUDGED)
        decisions = dict.fromkeys(self._metrics, kept.decision)
        self.ledger.enter(key, self._metrics)
        self.ledger.choose(key, decisions)
        self._publish(
            kept.unit,
            [
                from_source(_with_decision(score, kept.decision), kept.unit, semconv.SOURCE_FEEDBACK)
                for score in kept.scores.values()
            ],
        )
        self._ask(kept, {name: decision for name, decision in decisions.items() if name not in kept.scores})

    def _ask(self, kept: KeptUnit, decisions: Mapping[str, Decision]) -> None:
        if decisions:
            job = Job(kept.unit, kept.samples, decisions, kept.size_bytes)
            loop.call_soon(self.asked.ask, job)

    def _publish(self, unit: Unit, scores: Sequence[Score]) -> None:
        for score in scores:
            beside = ShadowBatch(self._line.sinks, unit, [score], self.ledger)
            if has_span(score):
                self._line.hold.enqueue(beside, beside.spans)
            else:
                beside.count()

    def _count(self, result: str) -> None:
        if self._line.telemetry is not None:
            self._line.telemetry.count(semconv.FEEDBACK, ((semconv.RESULT, result),))


def _with_decision(score: Score, decision: Decision) -> Score:
    return replace(score, probability=decision.probability, threshold=decision.threshold, rule=decision.rule)


def _keep(of: OrderedDict[UnitKey, None], key: UnitKey) -> None:
    of[key] = None
    if len(of) > _MOST:
        of.popitem(last=False)
