"""The engine alone: the order and the posts of its jobs."""

import asyncio

import pytest
from tests.pipeline.parts import Answers, Computes, Critic, a_job, a_sampled_unit
from tests.pipeline.virtual_time import RunningLoop, now_s, run

from spanscore.pipeline import engine as engine_module
from spanscore.pipeline.engine import ScoringEngine
from spanscore.pipeline.evaluation import Evaluation
from spanscore.pipeline.jobs import JobBuilder
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.population import ScoreSource
from spanscore.pipeline.queues import MemoryQueue


class Posts(list):
    """The posts and their times."""

    def add(self, result):
        self.append((round(now_s(), 3), [score.metric for score in result.scores], result.over))


def an_engine(*metrics, posts, **more):
    evaluation = Evaluation({metric.name: metric for metric in metrics})
    return ScoringEngine(MemoryQueue(), JobBuilder([]), lambda _: evaluation, post=posts.add, **more)


def posted(*metrics, units=1, for_s=100.0, **more):
    """Return the posts for this many simultaneous units."""
    posts, names = Posts(), [metric.name for metric in metrics]

    async def work():
        engine = an_engine(*metrics, posts=posts, **more)
        give(engine, units, *names)
        await asyncio.sleep(for_s)
        await stop(engine)

    run(work())
    return posts


def give(engine, units, *names):
    for number in range(units):
        engine.queue.reserve(0)
        engine.accept([a_sampled_unit(number, *names)])


async def stop(engine):
    engine.stop(1.0)
    await engine_module.loop.submitted


@pytest.fixture(autouse=True)
def on_the_running_loop(monkeypatch):
    monkeypatch.setattr(engine_module, "loop", RunningLoop())


def test_scores_that_come_together_are_posted_together():
    assert posted(Computes("one"), Computes("other")) == [(0, ["one", "other"], True)]


def test_what_ends_at_once_is_posted_together_before_its_job_is_over():
    found = posted(Computes("one", 1), Computes("other", 1), Computes("slow", 5))

    assert found == [(1, ["one", "other"], False), (5, ["slow"], True)]


def test_a_unit_of_which_nothing_computes_leaves_its_worker():
    found = posted(Critic(Answers(50), "asks"), Computes("own", 50), Computes("quick"), units=5, workers=1)

    assert [when for when, metrics, _ in found if metrics == ["quick"]] == [0, 0.2, 0.4, 0.6, 0.8]


class Clings(Computes):
    """Takes 0.5 s to be cancelled."""

    async def score(self, sample):
        try:
            await asyncio.sleep(50)
        finally:
            asyncio.get_running_loop().advance(0.5)


def test_a_job_that_has_just_begun_has_no_end_of_its_own_when_the_engine_stops():
    # the score of the cancelled question, which may be billed; without the check: an end without scores
    assert posted(Critic(Answers(50)), Clings("clings"), for_s=0.1) == [(0.6, ["critic"], False)]


def test_with_a_judge_that_answers_soon_no_more_are_begun_than_there_are_workers():
    found = posted(Critic(Answers(0.05)), units=6, workers=2)

    assert [when for when, *_ in found] == [0.05, 0.05, 0.1, 0.1, 0.15, 0.15]


def test_what_is_in_at_the_end_is_posted_and_every_place_given_back():
    posts = Posts()

    async def work():
        engine = an_engine(Computes(), Critic(Answers(50)), posts=posts, workers=1)
        give(engine, 3, "computes", "critic")
        await asyncio.sleep(0.3)
        await stop(engine)
        return len(engine.queue), asyncio.all_tasks() - {asyncio.current_task()}

    assert run(work()) == (0, set())
    in_time = [(0, ["computes"], False), (0.2, ["computes"], False)]
    assert posts == [*in_time, *[(0.3, ["critic"], False)] * 2]  # a timed-out question may still have to be paid


class Breaks(Critic):
    """Loses its attributes after its scorer was made."""

    lost = False

    @property
    def requires(self):
        if self.lost:
            raise RuntimeError("lost")
        return {"single_turn": ("response",)}


def test_a_metric_that_breaks_between_two_units_fails_alone():
    posts, breaks = Posts(), Breaks(Answers(), "breaks")

    async def work():
        engine = an_engine(breaks, Computes(), posts=posts, workers=1)
        breaks.lost = True
        give(engine, 2, "breaks", "computes")
        await asyncio.sleep(1)
        await stop(engine)
        return len(engine.queue)

    assert run(work()) == 0
    assert sorted(name for _, metrics, _ in posts for name in metrics) == ["breaks", "breaks", "computes", "computes"]


def test_an_evaluation_that_raises_costs_no_place_and_no_worker():
    posts = Posts()

    async def work():
        engine = an_engine(posts=posts, workers=1)
        engine.evaluation = {}.pop  # raises for each unit
        give(engine, 2, "computes")
        await asyncio.sleep(1)
        await stop(engine)
        return len(engine.queue)

    assert run(work()) == 0
    assert posts == [(0, [], True)] * 2


def test_a_second_judge_that_cannot_be_asked_keeps_no_place():
    ledger, places, job = Ledger(["computes"]), MemoryQueue(), a_job("computes")
    source = ScoreSource(
        ledger=ledger,
        hold=None,
        sink=None,
        name="shadow",
        evaluation={}.pop,
        places=places,
        run_on_span_thread=lambda call: call(),
        on_scores=lambda *_: None,
    )
    source.enter(job.unit.key, job.decisions)
    source.ask(job)

    assert len(places) == 0
    assert ledger.open_units() == []


class ScriptedTurns:
    """Rests as scripted, and then no more."""

    def __init__(self, *rests_s):
        self.left = list(rests_s)

    def rest_s(self):
        return self.left.pop(0) if self.left else 0.0


def test_while_it_gives_way_no_job_is_made_and_then_they_are():
    found = posted(Computes(), units=3, turns=ScriptedTurns(0.0, 2.0, 0.0, 3.0))

    assert [when for when, *_ in found] == [0, 2, 5]


def test_what_waits_as_it_gives_way_is_given_up_at_the_end():
    posts = Posts()

    async def work():
        engine = an_engine(Computes(), posts=posts, turns=ScriptedTurns(50.0))
        give(engine, 3, "computes")
        await asyncio.sleep(1)
        await stop(engine)
        assert len(engine.queue) == 0

    run(work())
    assert posts == []
