"""A score's time is the time in which a judge works for it or it computes; a question that waits to be sent is not late."""

import asyncio
from contextlib import suppress
from types import MappingProxyType

import pytest
from tests.pipeline.parts import Answers, Computes, Critic, a_job, scores_of
from tests.pipeline.virtual_time import now_s, run

from spanscore.core.loop import after_turns
from spanscore.judges import FallingBack, judge
from spanscore.judges.effects.limited import RateLimited
from spanscore.metrics import BaseMetric
from spanscore.pipeline.evaluation import Deadline, Evaluation, wait_for_cancelled


def scored(*metrics, timeout_s=180.0):
    """Return each score's outcome, and the second at which the last one was there."""
    evaluation = Evaluation({metric.name: metric for metric in metrics}, timeout_s=timeout_s)

    async def all_of_them():
        scores = await scores_of(evaluation, a_job(*(metric.name for metric in metrics)))
        return {score.metric: score.outcome.value for score in scores}, now_s()

    return run(all_of_them())


@pytest.mark.parametrize(
    ("judge", "outcome", "at_s"),
    [
        (Answers(170), "scored", 170),
        (Answers(200), "timeout", 180),
        (Answers(170, waits_s=500), "scored", 670),
        (Answers(200, waits_s=500), "timeout", 680),
    ],
)
def test_only_the_time_in_which_its_judge_works_is_a_scores(judge, outcome, at_s):
    assert scored(Critic(judge)) == ({"critic": outcome}, at_s)


def test_a_question_that_waits_for_its_place_at_a_judge_is_not_late():
    judge = RateLimited(Answers(100), max_concurrency=1, timeout=1_000.0)

    found = scored(*(Critic(judge, name) for name in ("one", "other", "third")))

    assert found == ({"one": "scored", "other": "scored", "third": "scored"}, 300)


def test_a_score_of_which_one_question_is_worked_for_does_not_wait():
    class OneByOne(Answers):
        async def ask(self, prompt):
            self.waits_s = 0.0 if prompt.vote_index else 500.0
            self.after_s = 200.0 if prompt.vote_index else 0.0
            return await super().ask(prompt)

    assert scored(Critic(OneByOne(), strictness=3)) == ({"critic": "timeout"}, 180)


def test_what_computes_is_late_when_its_time_is_up():
    assert scored(Computes(for_s=200)) == ({"computes": "timeout"}, 180)


def test_one_that_waits_keeps_no_other_from_its_end():
    found = scored(Critic(Answers(waits_s=500), "waits"), Critic(Answers(200), "late"), Computes("quick"))

    assert found == ({"waits": "scored", "late": "timeout", "quick": "scored"}, 500)


class Deaf(Computes):
    """Goes on for long the first time, whatever is asked of it."""

    async def measure(self, sample):
        first = not self.begun
        while first and now_s() < 1_000:
            with suppress(asyncio.CancelledError):
                self.begun = 1
                await asyncio.sleep(1_000)
        return await super().measure(sample)


def of_three(metric):
    evaluation = Evaluation({metric.name: metric}, at_once=1)

    async def three():
        scores = await asyncio.gather(*(scores_of(evaluation, a_job(metric.name)) for _ in range(3)))
        return [score.outcome.value for (score,) in scores], now_s()

    return run(three())


def test_what_asks_nobody_we_know_of_waits_for_its_turn_and_that_is_not_its_time():
    assert of_three(Computes(for_s=100)) == (["scored"] * 3, 300)


def test_a_turn_is_over_with_its_time_and_not_when_its_metric_ends():
    outcomes, _ = of_three(Deaf(for_s=1))

    assert outcomes == ["timeout", "scored", "scored"]


def late_score(judge):
    """Return the score of a critic with a judge that takes too long."""
    evaluation = Evaluation({"critic": Critic(judge)}, timeout_s=10.0)
    [score] = run(scores_of(evaluation, a_job("critic")))
    assert score.outcome == "timeout"
    return score


@pytest.mark.parametrize("more", [{}, {"cache": "memory"}], ids=["plain", "cached"])
def test_a_question_that_is_out_when_its_score_is_late_is_a_call_of_it(more):
    slow = judge(Answers(60), timeout=100.0, queue_timeout=600.0, prices={"answers": (1, 1)}, **more)

    [call] = late_score(slow).usage.calls

    assert (call.error_type, call.estimated, call.duration_s > 0) == ("timeout", True, True)
    assert call.input_tokens > 0
    assert call.cost_usd == pytest.approx(call.input_tokens / 1e6)


@pytest.mark.parametrize("effects", [{}, {"timeout": 100.0}, {"max_attempts": 2}, {"cache": "memory"}], ids=str)
def test_a_question_to_a_judge_without_a_limiter_that_is_out_when_its_score_is_late_is_a_call_of_it(effects):
    [call] = late_score(judge(Answers(60), **effects)).usage.calls

    assert (call.error_type, call.estimated, call.input_tokens > 0) == ("timeout", True, True)


def test_a_question_to_a_judge_without_a_limiter_that_is_late_itself_is_one_call():
    evaluation = Evaluation({"critic": Critic(judge(Answers(60), timeout=4.0, max_attempts=2))})

    [score] = run(scores_of(evaluation, a_job("critic")))

    assert [call.error_type for call in score.usage.calls] == ["timeout"] * 2


def calls_of_two_when_time_is_up(slow):
    evaluation = Evaluation({name: Critic(slow, name) for name in "ab"}, timeout_s=10.0)

    async def given_up():
        begun = evaluation.begin(a_job("a", "b"), lambda: None)
        await asyncio.sleep(11)
        return [len(score.usage.calls) for score in begun.scores]

    return run(given_up())


def test_a_question_that_waits_for_a_place_of_a_users_own_limit_is_no_call():
    assert calls_of_two_when_time_is_up(judge(Answers(60), max_concurrency=1)) == [1]


def test_questions_that_are_out_when_a_job_is_given_up_are_calls_of_scores_that_were_shut_down():
    evaluation = Evaluation({"asks": Critic(Answers(60), "asks"), "computes": Computes("computes")})

    async def given_up():
        begun = evaluation.begin(a_job("asks", "computes"), lambda: None)
        await asyncio.sleep(1)
        begun.take()
        begun.give_up()
        await wait_for_cancelled()
        begun.add_unused()
        return begun.take()

    [score] = run(given_up())

    assert (score.metric, score.outcome, score.value) == ("asks", "shutdown", None)
    assert [(call.error_type, call.estimated) for call in score.usage.calls] == [("timeout", True)]


def test_the_calls_of_a_metric_that_is_late_when_its_job_is_given_up_are_kept():
    evaluation = Evaluation({"asks": Critic(Answers(60), "asks")}, timeout_s=10.0)

    async def given_up():
        begun = evaluation.begin(a_job("asks"), lambda: None)
        asyncio.get_running_loop().call_later(10, lambda: after_turns(1, begun.give_up))  # late, and not yet ended
        await asyncio.sleep(11)
        assert begun.take() == []
        begun.add_unused()
        return begun.take()

    [score] = run(given_up())

    assert (score.metric, score.outcome, len(score.usage.calls)) == ("asks", "shutdown", 1)


def test_a_question_that_was_not_sent_when_its_score_ends_is_none():
    slow = judge(Answers(60), timeout=100.0, queue_timeout=600.0, max_concurrency=1)

    assert calls_of_two_when_time_is_up(slow) == [1]


def test_a_late_score_is_of_the_series_of_the_judge_that_stood_in():
    other = Answers(60)
    other.model = "other"

    score = late_score(FallingBack(Answers(), [other], lambda one: one is not other))

    assert (score.evaluator_version.split("/")[1], score.source) == ("other", "fallback")


def test_work_before_and_after_each_wait_adds_up_to_one_deadline():
    class Toggled:
        is_waiting = False

    async def late_at_s():
        current_score, late = Toggled(), asyncio.get_running_loop().create_future()
        deadline = Deadline(current_score, 180.0, lambda: late.set_result(now_s()))
        for work_s in (100, 70):
            await asyncio.sleep(work_s)
            current_score.is_waiting = True
            deadline.update()
            await asyncio.sleep(500)
            current_score.is_waiting = False
            deadline.update()
        return await late

    assert run(late_at_s()) == 100 + 500 + 70 + 500 + 10


class Endless(BaseMetric):
    """Computes until it is ended."""

    requires = MappingProxyType({"single_turn": ()})
    cpu_bound = True

    def __init__(self, number, at_work):
        self.name, self._at_work = f"endless_{number}", at_work

    async def measure(self, sample):
        self._at_work.add(self.name)
        try:
            while True:
                pass
        finally:
            self._at_work.remove(self.name)


class Quick(BaseMetric):
    """Computes for no time."""

    name, requires, cpu_bound = "quick", MappingProxyType({"single_turn": ()}), True

    async def measure(self, sample):
        return 1.0


def test_what_computes_too_long_ends_and_what_waits_for_its_thread_is_not_late():
    at_work = set()
    metrics = [*(Endless(number, at_work) for number in range(4)), Quick()]

    async def outcomes():
        evaluation = Evaluation({metric.name: metric for metric in metrics}, timeout_s=0.2)
        found = await scores_of(evaluation, a_job(*(metric.name for metric in metrics)))
        for _ in range(500):
            if not at_work:
                break
            await asyncio.sleep(0.01)
        return [score.outcome.value for score in found]

    assert asyncio.run(outcomes()) == ["timeout", "timeout", "timeout", "timeout", "scored"]
    assert not at_work
