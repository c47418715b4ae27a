"""A metric without an await is scored in a task and a context of its own, and lets the loop take its turns."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, cast

import pytest
from tests.pipeline.parts import Computes, a_job, a_sampled_unit, scores_of
from tests.pipeline.virtual_time import RunningLoop, run

from spanscore.core.context import is_judging
from spanscore.core.job import Job, JobResult
from spanscore.core.score import Outcome, Score
from spanscore.pipeline.engine import ScoringEngine
from spanscore.pipeline.evaluation import Evaluation
from spanscore.pipeline.jobs import JobBuilder
from spanscore.pipeline.queues import MemoryQueue
from spanscore.testing import make_score

mark: ContextVar[str] = ContextVar("mark", default="nobody's")


class Says(Computes):
    """Returns the given value, and awaits nothing."""

    def __init__(self, answer: Any = 1.0, name: str = "says") -> None:
        super().__init__(name)
        self.answer, self.seen = answer, list[Any]()

    async def score(self, sample: Any) -> Score:
        self.begun += 1
        self.seen = [is_judging(), mark.get()]
        mark.set("the metric's")
        if isinstance(self.answer, BaseException):
            raise self.answer
        if not isinstance(self.answer, float):
            return cast(Score, self.answer)  # it breaks the protocol
        return make_score(self.answer, self.name)


def test_its_context_is_its_own() -> None:
    says = Says(0.75)

    async def scored() -> Any:
        mark.set("the caller's")
        (score,) = await scores_of(Evaluation({"says": says}), a_job("says"))
        return score, mark.get()

    score, left = run(scored())
    assert (score.value, score.metric, score.probability) == (0.75, "says", 1.0)
    assert score.id is not None
    assert (says.seen, left) == ([True, "the caller's"], "the caller's")


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        (ValueError("secret"), "ValueError"),
        (SystemExit(1), "SystemExit"),
        (asyncio.CancelledError(), "CancelledError"),
        ("no score", "no_score"),
    ],
)
def test_what_it_raises_is_its_score(answer: Any, error_type: str) -> None:
    (score,) = run(scores_of(Evaluation({"says": Says(answer)}), a_job("says")))

    assert (score.outcome, score.error_type) == (Outcome.METRIC_ERROR, error_type)
    assert "secret" not in str(score.reason)


def test_beside_one_that_waits_each_has_its_score() -> None:
    metrics = {"says": Says(), "waits": Computes("waits", 5)}

    assert [score.value for score in run(scores_of(Evaluation(metrics), a_job("says", "waits")))] == [1.0, 1.0]


def test_jobs_that_are_over_at_once_leave_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    running = RunningLoop()
    monkeypatch.setattr("spanscore.pipeline.engine.loop", running)
    posted, turns, says = list[JobResult](), list[int](), Says()
    queue, evaluation = MemoryQueue(), Evaluation({"says": says})
    engine = ScoringEngine(queue, JobBuilder(()), lambda _: evaluation, post=posted.append, workers=2)

    async def work() -> None:
        for _ in range(40):
            queue.reserve(0)
        engine.accept([a_sampled_unit(number, "says") for number in range(40)])
        while len(posted) < 40:
            turns.append(len(posted))
            await asyncio.sleep(0)
        engine.stop(1.0)
        await running.submitted

    run(work())
    assert [result.unit.key.span_id for result in posted] == list(range(40))
    assert max(after - before for before, after in zip(turns, [*turns[1:], 40], strict=True)) <= 16
    assert all(result.over for result in posted)
    assert len(queue) == 0


def test_a_worker_is_woken_for_what_is_left_and_not_for_each_job() -> None:
    queue, looked = MemoryQueue(), list[int]()
    jobs = [a_job("says") for _ in range(6)]

    async def worker(number: int, most: int) -> list[Job]:
        taken = []
        for _ in range(most):
            taken.append(await queue.get())
            looked.append(number)
        return taken

    async def work() -> Any:
        first = asyncio.ensure_future(worker(1, 4))
        others = [asyncio.ensure_future(worker(number, 1)) for number in (2, 3, 4)]
        await asyncio.sleep(0)
        for job in jobs:
            queue.put(job)
        await asyncio.wait({first, *others}, timeout=1)
        return first.done(), [other.done() for other in others]

    assert run(work()) == (True, [True, True, False])
    assert looked == [1, 1, 1, 1, 2, 3]


def test_a_worker_that_is_cancelled_when_it_was_woken_leaves_the_job_to_the_next() -> None:
    queue = MemoryQueue()

    async def work() -> Any:
        first, second = asyncio.ensure_future(queue.get()), asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.put(a_job("says"))
        first.cancel()
        await asyncio.wait({first, second}, timeout=1)
        return first.cancelled(), second.done()

    assert run(work()) == (True, True)
