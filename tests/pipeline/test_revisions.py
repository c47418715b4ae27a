"""Which revisions of a unit are scored, and when."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from spanscore.config import Rule, RuleCondition
from spanscore.core.job import JobResult, SampledUnit
from spanscore.core.score import Outcome
from spanscore.core.span import Unit
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.population import Revisions
from spanscore.pipeline.queues import MemoryQueue
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.span_buffer import ExportPace, SpanBuffer
from spanscore.testing import MemorySink, make_score, make_span, make_unit


def flushed() -> Future[bool]:
    done: Future[bool] = Future()
    done.set_result(True)
    return done


class Revised:
    """Revisions of one metric, and the units they hand over."""

    def __init__(self, sampler: RateSampler) -> None:
        self.begun: list[Unit] = []
        self.ledger = Ledger(["judged"])
        self.revisions = Revisions(
            ["judged"],
            sampler=sampler,
            ledger=self.ledger,
            queue=MemoryQueue(capacity=8),
            with_room=lambda names: names,
            dispatch=self._take,
            hold=SpanBuffer(ExportPace(flushed), max_units=4),
            sink=MemorySink(),
        )

    def _take(self, chosen: Sequence[SampledUnit]) -> None:
        self.begun += [sampled.unit for sampled in chosen]


def test_a_revision_that_comes_again_waits_until_the_first_of_its_number_is_scored() -> None:
    revised = Revised(RateSampler({"judged": 1.0}))
    unit = replace(make_unit(make_span()), revision=1)

    revised.revisions.take(unit)
    revised.revisions.take(unit)
    begun_at_first = len(revised.begun)
    revised.revisions.settle(JobResult(unit, [make_score(metric="judged")], over=True))

    assert (begun_at_first, len(revised.begun)) == (1, 2)
    assert revised.ledger.eligible() == {"judged": 2}


def test_a_rule_on_another_score_takes_no_revision() -> None:
    """That score is known of the first revision only."""
    doubtful = Rule(rate=1.0, name="doubtful", when=RuleCondition(score={"metric": "screen", "below": 0.5}))
    revised = Revised(RateSampler({"judged": 0.0}, rules=[doubtful]))

    revised.revisions.take(replace(make_unit(make_span()), revision=1))

    assert revised.begun == []
    assert revised.ledger.outcomes() == {("judged", Outcome.NOT_SAMPLED): 1}
