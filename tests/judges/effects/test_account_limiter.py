"""One limiter per account: the order of sending, and the effects of a place, a refusal and a broken judge; in virtual time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import inf

import pytest
from tests.judges.models import QUESTION
from tests.pipeline.virtual_time import now_s, run

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import (
    JudgeBudgetSpent,
    JudgeError,
    JudgeOutOfQuota,
    JudgeOverloaded,
    JudgeRateLimited,
    JudgeTimeout,
    JudgeUnavailable,
)
from spanscore.judges import RateLimited, recorded_calls
from spanscore.judges.effects.account import Account, AccountState
from spanscore.judges.score_context import ScoreContext, asked_by

Answer = Callable[[int], Awaitable[Reply]]
GOOD = Reply(text="yes")
DOWN = JudgeUnavailable("down", error_type="connection")
WAIT = "its questions wait, for at most judge.queue_timeout, see scorer.status()"


class Scripted:
    """A judge with a scripted answer to the n-th question, which records the time of each."""

    model = "scripted"

    def __init__(self, answer: Answer, *, account: str = "") -> None:
        self.answer = answer
        self.sent_s: list[float] = []
        self.steps: list[str] = []
        if account:
            self.account = Account("openai", "m", key=account)

    async def ask(self, prompt: Prompt) -> Reply:
        self.sent_s.append(now_s())
        self.steps.append(prompt.step)
        return await self.answer(len(self.sent_s))


async def at_once(_: int) -> Reply:
    return GOOD


async def after_a_second(_: int) -> Reply:
    await asyncio.sleep(1.0)
    return GOOD


async def never(_: int) -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


async def thread_that_hangs(_: int) -> Reply:
    """Swallow a cancellation for 100 s, as a client's blocking call does."""
    ends_s = now_s() + 100.0
    while now_s() < ends_s:
        try:
            await asyncio.sleep(ends_s - now_s())
        except asyncio.CancelledError:
            continue
    return GOOD


def raising(error: Exception, *, until: int = 1_000_000, then: Answer = at_once) -> Answer:
    async def answer(number: int) -> Reply:
        if number <= until:
            raise error
        return await then(number)

    return answer


def limited_judge(judge: Scripted, **settings: float) -> RateLimited:
    return RateLimited(judge, jitter=lambda longest: longest, **settings)  # type: ignore[arg-type]  # keywords of it


async def asked(judge: RateLimited, **current_score: object) -> Reply | JudgeError:
    with asked_by(ScoreContext(**current_score)):  # type: ignore[arg-type]  # fields of it
        try:
            return await judge.ask(QUESTION)
        except JudgeError as error:
            return error


async def many(judge: RateLimited, number: int, **current_score: object) -> list[Reply | JudgeError]:
    return await asyncio.gather(*(asked(judge, **current_score) for _ in range(number)))


def state(judge: RateLimited) -> AccountState:
    return replace(judge.limiter.state, account=Account("", ""))


def test_no_more_are_out_than_there_are_places() -> None:
    async def scene() -> None:
        inner = Scripted(never)
        tasks = [asyncio.create_task(asked(limited_judge(inner, max_concurrency=3))) for _ in range(10)]
        await asyncio.sleep(1.0)
        assert len(inner.sent_s) == 3
        for task in tasks:
            task.cancel()

    run(scene())


def test_two_judges_of_one_account_share_its_limiter_and_the_stricter_limit_holds() -> None:
    one, other = Scripted(at_once, account="k"), Scripted(at_once, account="k")

    first, second = limited_judge(one, max_concurrency=2), limited_judge(other, max_concurrency=8)

    assert first.limiter is second.limiter
    assert (first.limiter.state.ceiling, len(first.limiter.state.notes)) == (2, 1)
    assert limited_judge(Scripted(at_once, account="another key")).limiter is not first.limiter


def test_a_model_of_this_process_has_one_place_and_a_service_up_to_64() -> None:
    local = Scripted(at_once)
    local.in_process = True  # type: ignore[attr-defined]

    assert [limited_judge(one).limiter.ceiling for one in (local, Scripted(at_once))] == [1, 64]
    assert limited_judge(local, max_concurrency=4).limiter.ceiling == 4


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DOWN, f"fails (connection): {WAIT}; check base_url"),
        (JudgeOutOfQuota("m: paid up"), f"fails (quota): {WAIT}"),
        (JudgeUnavailable("m", error_type="My key: 1"), f"fails (judge_error): {WAIT}"),
    ],
    ids=["down", "quota", "text of a user"],
)
def test_questions_that_wait_for_a_judge_that_is_down_are_logged_once(
    error: JudgeError, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    judge = limited_judge(Scripted(raising(error), account=f"down {line}"), queue_timeout=30.0)

    run(many(judge, 40))

    logged = [message for message in caplog.messages if "fails" in message]
    assert logged == [f"spanscore: the judge openai m {line}"]


def test_a_metric_with_many_questions_does_not_starve_one_with_a_single_one() -> None:
    async def scene() -> float:
        judge = limited_judge(Scripted(after_a_second), max_concurrency=2)
        crowd = [asyncio.create_task(asked(judge, metric="many", held_until_s=99.0)) for _ in range(40)]
        await asyncio.sleep(0.5)
        await asked(judge, metric="one", held_until_s=99.0)
        ended_s = now_s()
        await asyncio.wait(crowd)
        return ended_s

    assert run(scene()) == pytest.approx(2.0)


def test_waiting_is_no_time_in_which_a_judge_works() -> None:
    async def scene() -> tuple[bool, bool]:
        judge, waits = limited_judge(Scripted(after_a_second), max_concurrency=1), ScoreContext()

        async def question() -> None:
            with asked_by(waits), waits.asks():
                await judge.ask(QUESTION)

        task = asyncio.gather(asked(judge), question())
        await asyncio.sleep(0.5)
        before = waits.is_waiting
        await asyncio.sleep(1.0)
        seen = before, waits.is_waiting
        await task
        return seen

    assert run(scene()) == (True, False)


def test_who_waits_for_longer_than_max_wait_is_rate_limited_by_a_limit() -> None:
    async def scene() -> tuple[float, list[Reply | JudgeError]]:
        judge = limited_judge(Scripted(thread_that_hangs), max_concurrency=1, queue_timeout=20.0, max_attempts=1)
        first = asyncio.create_task(asked(judge))
        await asyncio.sleep(0)
        error = await asked(judge, taken_s=-5.0)
        return now_s(), [error, await first]

    ended_s, (waited, hung) = run(scene())
    assert ended_s == 15.0
    assert isinstance(waited, JudgeRateLimited)
    assert (waited.error_type, waited.request_sent) == ("rate_limit", False)
    assert isinstance(hung, JudgeTimeout)


def test_a_call_that_hangs_keeps_its_place_until_it_has_really_ended() -> None:
    async def scene() -> list[float]:
        inner = Scripted(thread_that_hangs)
        judge = limited_judge(inner, max_concurrency=1, timeout=10.0, max_attempts=1)
        assert isinstance(await asked(judge), JudgeTimeout)
        assert (now_s(), judge.limiter.state.inflight) == (10.0, 1)
        inner.answer = at_once
        await asked(judge)
        return inner.sent_s

    assert run(scene()) == [0.0, 100.0]


def test_a_question_that_is_called_back_gives_its_place_back() -> None:
    async def scene() -> None:
        inner = Scripted(never)
        judge = limited_judge(inner, max_concurrency=1)
        out, waiting = (asyncio.create_task(asked(judge)) for _ in range(2))
        await asyncio.sleep(1.0)
        waiting.cancel()
        out.cancel()
        await asyncio.wait({out, waiting})
        inner.answer = at_once
        assert await asked(judge) is GOOD
        assert state(judge) == replace(state(judge), inflight=0, waiting=0)

    run(scene())


def test_leave_that_comes_as_its_question_is_called_back_is_not_lost() -> None:
    async def scene() -> None:
        judge = limited_judge(Scripted(after_a_second), max_concurrency=1)
        first, second = (asyncio.create_task(asked(judge)) for _ in range(2))
        first.add_done_callback(lambda _: second.cancel())
        await asyncio.wait({first, second})
        assert await asked(judge) is GOOD
        assert judge.limiter.state.inflight == 0

    run(scene())


def test_what_may_pass_is_asked_again_and_each_attempt_is_recorded() -> None:
    async def scene() -> list[float]:
        inner = Scripted(raising(DOWN, until=3))
        with recorded_calls() as calls:
            assert await asked(limited_judge(inner)) is GOOD
        assert [call.error_type for call in calls] == ["connection"] * 3
        return inner.sent_s

    assert run(scene()) == [0.0, 0.5, 1.5, 3.5]


def test_what_will_not_pass_is_not_asked_again() -> None:
    inner = Scripted(raising(JudgeError("declined", error_type="declined")))

    assert run(asked(limited_judge(inner))).error_type == "declined"  # type: ignore[union-attr]
    assert len(inner.sent_s) == 1


def test_the_last_error_is_raised_when_the_attempts_are_used_up() -> None:
    inner = Scripted(raising(DOWN))

    assert run(asked(limited_judge(inner))) is DOWN
    assert len(inner.sent_s) == 4


def test_a_question_given_up_is_recorded_as_what_it_may_have_come_to() -> None:
    async def scene() -> None:
        with recorded_calls() as calls:
            assert isinstance(await asked(limited_judge(Scripted(never), max_attempts=2, timeout=5.0)), JudgeTimeout)
        (call,) = calls
        assert (call.error_type, call.estimated, call.input_tokens > 10) == ("timeout", True, True)

    run(scene())


def test_a_judge_that_is_away_is_asked_again_after_its_retry_after() -> None:
    inner = Scripted(raising(JudgeUnavailable("busy", retry_after_s=9.0), until=1))

    assert run(asked(limited_judge(inner))) is GOOD
    assert inner.sent_s == [0.0, 9.5]


def test_a_judge_that_is_away_for_more_than_a_minute_is_not_asked_again() -> None:
    inner = Scripted(raising(closed := JudgeUnavailable("closed for today", retry_after_s=3_600.0)))

    assert run(asked(limited_judge(inner))) is closed
    assert len(inner.sent_s) == 1


def test_a_long_retry_after_ends_no_question_once_others_fail_too() -> None:
    inner = Scripted(raising(JudgeUnavailable("away", retry_after_s=120.0), until=20))

    answers = run(many(limited_judge(inner, max_concurrency=1), 10))

    assert [answer is GOOD for answer in answers[-5:]] == [True] * 5


def test_a_judge_without_a_deadline_may_take_any_time() -> None:
    async def after_an_hour(_: int) -> Reply:
        await asyncio.sleep(3_600.0)
        return GOOD

    assert run(asked(limited_judge(Scripted(after_an_hour), timeout=inf))) is GOOD


def test_a_refusal_for_load_costs_no_attempt() -> None:
    inner = Scripted(raising(JudgeOverloaded("busy"), until=8))

    assert run(asked(limited_judge(inner, max_attempts=1))) is GOOD
    assert len(inner.sent_s) == 9


def test_retry_after_stops_the_whole_account_and_then_they_leave_one_by_one() -> None:
    async def scene() -> tuple[list[float], AccountState]:
        inner = Scripted(raising(JudgeOverloaded("busy", retry_after_s=20.0), until=1, then=after_a_second))
        judge = limited_judge(inner)
        await many(judge, 4)
        return inner.sent_s[4:], state(judge)

    again_s, found = run(scene())
    assert again_s == [pytest.approx(20.0, abs=0.5)]
    assert (found.throttled, found.breaker) == (1, "closed")


def test_who_comes_while_the_account_is_stopped_leaves_after_it_at_the_learned_pace() -> None:
    async def scene() -> list[float]:
        inner = Scripted(raising(JudgeOverloaded("busy", retry_after_s=20.0), until=1, then=after_a_second))
        judge = limited_judge(inner)
        first = asyncio.create_task(asked(judge))
        await asyncio.sleep(1.0)
        await asyncio.gather(first, many(judge, 10))
        return inner.sent_s[1:]

    sent_s = run(scene())
    assert sent_s[0] == 20.0
    assert len(set(sent_s)) == len(sent_s)


def test_what_headers_say_is_left_is_not_overrun() -> None:
    async def one_a_second_and_three_at_first(number: int) -> Reply:
        left = int(3 + now_s() - number)
        assert left >= 0
        headers = {"limit": "3", "remaining": f"{left}", "reset": f"{3 - left}s"}
        await asyncio.sleep(0.1)
        return replace(GOOD, headers={f"x-ratelimit-{name}-requests": value for name, value in headers.items()})

    async def scene() -> list[Reply | JudgeError]:
        judge = limited_judge(Scripted(one_a_second_and_three_at_first))
        return [await asked(judge), *await many(judge, 9)]

    assert [type(end) for end in run(scene())] == [Reply] * 10


def test_where_a_key_is_wrong_those_who_wait_end_at_once_with_that_error() -> None:
    async def scene() -> None:
        async def refuses(_: int) -> Reply:
            await asyncio.sleep(1.0)
            raise JudgeError("wrong key", error_type="not_allowed")

        inner = Scripted(refuses)
        judge = limited_judge(inner, max_concurrency=1)
        errors = [*await many(judge, 5), await asked(judge)]
        assert [error.error_type for error in errors] == ["not_allowed"] * 6  # type: ignore[union-attr]
        assert [error.request_sent for error in errors] == [True] + [False] * 5  # type: ignore[union-attr]
        assert (now_s(), len(inner.sent_s)) == (1.0, 1)
        await asyncio.sleep(300.0)
        await asked(judge)
        assert len(inner.sent_s) == 2

    run(scene())


def test_an_account_without_money_is_asked_every_five_minutes_and_its_questions_name_the_quota() -> None:
    async def scene() -> None:
        inner = Scripted(raising(JudgeOutOfQuota("no money")))
        errors = await many(limited_judge(inner, queue_timeout=400.0), 2)
        assert [type(error) for error in errors] == [JudgeRateLimited] * 2
        assert [error.error_type for error in errors] == ["quota"] * 2  # type: ignore[union-attr]
        assert all("quota" in str(error) for error in errors)
        assert (now_s(), inner.sent_s) == (400.0, [0.0, 0.0, 300.0])

    run(scene())


def test_while_a_judge_is_away_questions_wait_and_none_is_lost() -> None:
    async def down_for_a_minute(_: int) -> Reply:
        await asyncio.sleep(0.01)
        if now_s() < 60.0:
            raise DOWN
        return GOOD

    async def scene() -> None:
        inner = Scripted(down_for_a_minute)
        judge, tasks = limited_judge(inner), []
        for _ in range(450):
            tasks.append(asyncio.create_task(asked(judge)))
            await asyncio.sleep(0.2)
        assert [await task for task in tasks] == [GOOD] * 450
        first_s = next(sent_s for sent_s in inner.sent_s if sent_s >= 60.0)
        assert sum(sent_s < 60.0 for sent_s in inner.sent_s) <= 30
        assert first_s <= 65.0

    run(scene())


def test_a_probe_needs_no_place_where_calls_that_hang_have_them_all() -> None:
    async def scene() -> None:
        inner = Scripted(thread_that_hangs)
        judge = limited_judge(inner, timeout=1.0, queue_timeout=50.0)
        errors = await many(judge, 40)
        assert {error.error_type for error in errors} == {"breaker_open"}  # type: ignore[union-attr]
        assert judge.limiter.state.inflight <= judge.limiter.state.places + 16
        assert max(inner.sent_s) > 10.0

    run(scene())


def test_retries_of_an_account_are_bounded_by_its_answers() -> None:
    async def every_other(number: int) -> Reply:
        if number % 2:
            raise DOWN
        return GOOD

    async def scene() -> None:
        judge = limited_judge(Scripted(every_other), max_attempts=2)
        ends = [await asked(judge) for _ in range(200)]
        assert state(judge).retries <= 20 + 0.5 * ends.count(GOOD)
        assert DOWN in ends

    run(scene())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_limiter_is_as_new_in_a_forked_child() -> None:
    async def scene() -> int:
        judge = limited_judge(Scripted(never), max_concurrency=2)
        tasks = [asyncio.create_task(asked(judge)) for _ in range(5)]
        await asyncio.sleep(1.0)
        child = os.fork()
        if not child:
            os._exit(state(judge) != AccountState(Account("", ""), places=2.0, ceiling=2))
        assert (judge.limiter.state.inflight, judge.limiter.state.waiting) == (2, 3)
        for task in tasks:
            task.cancel()
        return child

    assert os.waitpid(run(scene()), 0)[1] == 0


def test_a_limiter_works_on_one_loop_after_another() -> None:
    judge = limited_judge(Scripted(after_a_second), max_concurrency=1)

    assert [run(many(judge, 3)) for _ in range(2)] == [[GOOD] * 3] * 2


def test_a_key_is_shown_nowhere() -> None:
    judge = limited_judge(Scripted(at_once, account="hash of a key"))

    assert "hash" not in f"{judge.limiter.state} {judge} {judge.limiter.account}"


def test_a_probe_for_which_no_money_was_left_says_nothing_of_the_judge() -> None:
    async def answer(number: int) -> Reply:
        raise DOWN if number <= 12 else JudgeBudgetSpent("none left: nothing was sent")

    async def breaker_after() -> str:
        limited = RateLimited(Scripted(answer), max_attempts=1, queue_timeout=8.0)
        await asyncio.gather(*(limited.ask(QUESTION) for _ in range(12)), return_exceptions=True)
        with pytest.raises(JudgeBudgetSpent):
            await limited.ask(QUESTION)
        return limited.limiter.state.breaker

    assert run(breaker_after()) == "open"


def test_a_question_that_fails_alone_is_not_excused_by_its_own_failures() -> None:
    inner = Scripted(raising(DOWN))

    error = run(asked(limited_judge(inner, max_attempts=8)))

    assert error is DOWN
    assert len(inner.sent_s) == 8
