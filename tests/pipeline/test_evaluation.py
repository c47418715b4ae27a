"""Each metric of a job has its deadline. A computing metric runs in a pool; when it is given up there, stderr stays empty."""

import asyncio
import gc
import threading
import warnings

from tests.live import QUESTION, a_line, rag, run_rag
from tests.pipeline.parts import scores_of

from spanscore.config import Limits
from spanscore.core.job import Decision, Job
from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.span import Unit, UnitKey
from spanscore.metrics import BaseMetric, Finding
from spanscore.pipeline.evaluation import Evaluation


class Computes(BaseMetric):
    """Blocks its thread until it is let go."""

    cpu_bound = True
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self, name, release):
        self.name, self.release = name, release

    async def measure(self, sample):
        self.release.wait(10)
        return Finding(value=1.0)


def test_what_times_out_before_its_turn_leaves_no_coroutine_behind():
    release = threading.Event()
    metrics = [Computes(f"computes_{n}", release) for n in range(4)]  # two threads: two of them wait
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with a_line(*metrics, limits=Limits(timeout=0.2)) as (scorer, _):
            run_rag(scorer)
            assert [*scorer.status().outcomes.values()] == [{"timeout": 1}] * 4
            release.set()
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})  # computed when the threads are free
            assert scorer.flush(5)
        assert [*scorer.status().outcomes.values()] == [{"timeout": 1, "scored": 1}] * 4
        gc.collect()

    assert [str(one.message) for one in said if "never awaited" in str(one.message)] == []


class Sleeps(BaseMetric):
    """Answers after a while."""

    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self, name, *, for_s, timeout_s):
        self.name, self.for_s, self.timeout_s = name, for_s, timeout_s
        self.given_up = False

    async def measure(self, sample):
        try:
            await asyncio.sleep(self.for_s)
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return Finding(value=1.0)


def test_each_metric_of_a_job_has_a_deadline_of_its_own():
    quick, late, slow = (
        Sleeps("quick", for_s=0, timeout_s=0.1),
        Sleeps("late", for_s=30, timeout_s=0.1),
        Sleeps("slow", for_s=0.5, timeout_s=30),
    )
    with a_line(quick, late, slow) as (scorer, _):
        run_rag(scorer)
        outcomes = {name: dict(counts) for name, counts in scorer.status().outcomes.items()}

    assert outcomes == {"quick": {"scored": 1}, "late": {"timeout": 1}, "slow": {"scored": 1}}
    assert late.given_up


class Unreadable(Sleeps):
    """A metric with unreadable requirements."""

    @property
    def requires(self):
        raise RuntimeError("no idea")


def a_job(*names):
    decisions = dict.fromkeys(names, Decision(take=True, probability=1.0, threshold=0, rule="base"))
    return Job(Unit(UnitKey(1, 2), ()), Samples(single_turn=SingleTurnSample(user_input="q", response="a")), decisions)


def test_a_metric_that_cannot_begin_ends_as_its_error_and_the_others_are_scored():
    broken, fine = Unreadable("broken", for_s=0, timeout_s=60), Sleeps("fine", for_s=0, timeout_s=60)
    evaluation = Evaluation({"broken": broken, "fine": fine})

    one, other = asyncio.run(scores_of(evaluation, a_job("broken", "fine")))

    assert (one.metric, one.outcome, one.error_type) == ("broken", "metric_error", "RuntimeError")
    assert (other.metric, other.value) == ("fine", 1.0)


def test_every_score_is_filtered_if_scoring_is_disabled():
    fine = Sleeps("fine", for_s=0, timeout_s=60)
    evaluation = Evaluation(
        {"fine": fine, "unreadable": Unreadable("unreadable", for_s=0, timeout_s=60)}, disabled=True
    )

    scores = asyncio.run(scores_of(evaluation, a_job("fine", "unreadable", "of another process")))

    assert {(score.outcome, score.reason, score.error_type) for score in scores} == {("filtered", "disabled", None)}


def test_what_is_at_work_is_cancelled_with_its_job():
    begun = Sleeps("begun", for_s=30, timeout_s=60)
    evaluation = Evaluation({"begun": begun})

    async def left_running():
        scoring = asyncio.ensure_future(scores_of(evaluation, a_job("begun")))
        await asyncio.sleep(0)
        scoring.cancel()
        await asyncio.wait({scoring})
        await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(left_running()) == set()
