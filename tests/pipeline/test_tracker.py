"""Whatever comes when: each score is counted once and emitted once, and each unit leaves once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.core.job import Decision, JobResult
from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.pipeline import tracker
from spanscore.pipeline.assembly import Assembler
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.population import Revisions
from spanscore.pipeline.queues import AccountQuotas, MemoryQueue
from spanscore.pipeline.sizes import SampleObservers
from spanscore.pipeline.span_buffer import ExportPace, SpanBuffer
from spanscore.pipeline.tracker import UnitTracker
from spanscore.testing import MemorySink, make_score, make_span, make_unit

QUOTAS = {"one": "a", "other": "b", "third": "b"}
SAMPLES = Samples(single_turn=SingleTurnSample(user_input="q", response="a"))
S = 1_000_000_000


class Root:
    """A root span that records its attributes at the end."""

    size = 10

    def __init__(self):
        self.left = []

    def end(self, attributes=None):
        self.left.append(dict(attributes or {}))


def flushed():
    done = Future()
    done.set_result(True)
    return done


class World:
    """Units between an application that submits and workers that score; a random generator chooses the order."""

    def __init__(self, chance, *, attach=True, condition_metrics=()):
        self.chance, self.now_ns, self.attach, self.condition_metrics = chance, 0, attach, frozenset(condition_metrics)
        self.roots, self.working, self.scored, self.undecided = {}, {}, [], set()
        self.sink, self.ledger, self.queue = MemorySink(), Ledger(QUOTAS), MemoryQueue(capacity=8)
        self.account_quotas = AccountQuotas(QUOTAS, capacity=lambda: 8)
        self.hold = SpanBuffer(ExportPace(flushed), max_units=4, attach=attach)
        revisions = Revisions(
            [*QUOTAS],
            sampler=self,
            ledger=Ledger(QUOTAS),
            queue=self.queue,
            with_room=self.account_quotas.with_room,
            dispatch=self.take,
            hold=self.hold,
            sink=self.sink,
        )
        self.units = UnitTracker(
            [*QUOTAS],
            revisions=revisions,
            sample_observers=SampleObservers(self.queue),
            ledger=self.ledger,
            assembler=Assembler(),
            sampler=self,
            queue=self.queue,
            account_quotas=self.account_quotas,
            hold=self.hold,
            sink=self.sink,
            dispatch=self.take,
            dispatch_rest=self.take_rest,
        )

    def decide(self, facts, metric):
        return Decision(take=self.chance.random() < 0.8, probability=0.8, threshold=0)

    def take(self, chosen):
        self.working |= {sampled.unit.key: (sampled.unit, [*sampled.decisions]) for sampled in chosen}

        self.undecided |= {sampled.unit.key for sampled in chosen if sampled.undecided}

    def take_rest(self, rest):
        for key, decisions in rest.items():
            self.undecided.remove(key)
            self.working[key][1].extend(decisions)
            self.end(key)

    def submit(self):
        unit = make_unit(make_span())
        self.roots[unit.key] = Root()
        self.units.sample_submitted(unit, SAMPLES, self.roots[unit.key], sampled=True, now_ns=self.now_ns)
        self.tick()

    def score(self):
        """Give some of the scores of a unit, be it all."""
        if not self.working:
            return
        key = self.chance.choice([*self.working])
        unit, left = self.working[key]
        cut = self.chance.randint(0, len(left))
        scores, left[:] = [make_score(metric=metric) for metric in left[:cut]], left[cut:]
        self.units.settle(JobResult(unit, scores, over=not left and key not in self.undecided))
        if key in self.undecided:
            self.tick()
        else:
            self.end(key, settled=True)

    def end(self, key, *, settled=False):
        unit, left = self.working[key]
        if not left:
            del self.working[key]
            self.queue.cancel(0)
            if not settled:
                self.units.settle(JobResult(unit, ()))

    def wait(self):
        self.now_ns += self.chance.randint(1, 12) * S
        self.tick()

    def tick(self):
        self.units.tick(self.now_ns)

    def shut_down(self):
        self.units.export_held_spans()
        self.units.give_up([*self.units.hold.in_flight], self.now_ns)
        self.hold.flush_ready(self.now_ns, unpaced=True)


def counted(ledger, outcome):
    return Counter({metric: n for (metric, ended), n in ledger.outcomes().items() if ended is outcome})


@pytest.mark.parametrize("screens", [(), ("other",), ("one", "third"), tuple(QUOTAS)])
@pytest.mark.parametrize("attach", [True, False])
@given(
    st.lists(st.sampled_from(["submit", "submit", "score", "score", "score", "wait"]), max_size=60),
    st.randoms(use_true_random=False),
)
def test_every_score_is_counted_once_and_emitted_once(attach, screens, actions, chance: Random):
    world = World(chance, attach=attach, condition_metrics=screens)
    for action in [*actions, "shut_down"]:
        getattr(world, action)()
        outcomes, pending = world.ledger.outcomes(), world.ledger.pending()
        assert world.ledger.eligible() == {
            metric: pending[metric] + sum(n for (name, _), n in outcomes.items() if name == metric) for metric in QUOTAS
        }

    emitted = Counter((unit.key, score.metric) for unit, scores in world.sink.emitted for score in scores)
    assert set(emitted.values()) <= {1}
    assert Counter(metric for _, metric in emitted) == counted(world.ledger, Outcome.SCORED)
    assert [len(root.left) for root in world.roots.values()] == [1] * len(world.roots)
    assert (world.units.hold.in_flight, len(world.hold), world.account_quotas.fill()) == ({}, 0, 0)


def test_what_waits_for_a_revision_leaves_at_once():
    """A proxy keeps late spans, too: the root was exported with the first scores."""
    world, late = World(Random(1)), Root()
    unit = replace(make_unit(make_span()), revision=1)

    world.units.unit_complete(unit, {unit.key.span_id: late}, world.now_ns)
    world.tick()

    assert late.left == [{}]


def test_nothing_is_made_for_a_root_that_is_not_here(monkeypatch):
    """With a Collector every root belongs to another process: attributes of a unit's span would never be read there."""
    made = []
    monkeypatch.setattr(tracker, "unit_attributes", lambda *scores, **of: made.append(scores) or {})
    world, unit = World(Random(1)), make_unit(make_span())
    monkeypatch.setattr(world, "decide", lambda facts, metric: Decision(take=True, probability=1.0, threshold=0))
    world.units.sample_submitted(unit, SAMPLES, None, sampled=True, now_ns=0)
    world.tick()

    made.clear()
    world.units.settle(JobResult(unit, [make_score(metric=metric) for metric in QUOTAS]))
    world.tick()

    assert (made, len(world.sink.emitted)) == ([], 1)
    assert counted(world.ledger, Outcome.SCORED) == dict.fromkeys(QUOTAS, 1)
