"""So many at once, so long each, again when that may help."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.judges.models import QUESTION, Answers

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import ConfigurationError, JudgeError, JudgeTimeout, JudgeUnavailable
from spanscore.judges import Limited, Retrying, Timed, recorded_calls

GOOD = '{"verdict": 1}'


class Counting:
    """Counts how many questions are open at once."""

    model = "counting"

    def __init__(self) -> None:
        self.open = self.most = 0

    async def ask(self, prompt: Prompt) -> Reply:
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        return Reply(text=GOOD)


class Hung:
    """Never answers, and swallows its cancellation."""

    model = "hung"

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def ask(self, prompt: Prompt) -> Reply:
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("late")


class Naps:
    """Records the length of its sleeps."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


async def test_no_more_questions_are_open_than_allowed() -> None:
    inner = Counting()
    judge = Limited(inner, max_concurrency=3)

    await asyncio.gather(*(judge.ask(QUESTION) for _ in range(20)))

    assert inner.most == 3


def test_a_limit_works_again_on_another_loop() -> None:
    inner = Counting()
    judge = Limited(inner, max_concurrency=2)

    async def many() -> None:
        await asyncio.gather(*(judge.ask(QUESTION) for _ in range(10)))

    asyncio.run(many())
    asyncio.run(many())

    assert inner.most == 2


async def test_a_judge_that_swallows_its_cancellation_is_left_behind() -> None:
    hung = Hung()
    started = time.perf_counter()

    with pytest.raises(JudgeTimeout, match=r"no answer from hung within 0\.02 s"):
        await Timed(hung, timeout_s=0.02).ask(QUESTION)

    assert time.perf_counter() - started < 1.0
    hung.release.set()
    await asyncio.sleep(0)  # a later exception has no receiver


async def test_a_cancelled_question_is_passed_on_to_the_judge() -> None:
    cancelled = asyncio.Event()

    class Waiting(Counting):
        async def ask(self, prompt: Prompt) -> Reply:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError

    task = asyncio.ensure_future(Timed(Waiting()).ask(QUESTION))
    await asyncio.wait({task}, timeout=0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(cancelled.wait(), 1.0)


async def test_a_hung_judge_gives_its_place_back() -> None:
    hung = Hung()
    judge = Limited(Timed(hung, timeout_s=0.01), max_concurrency=1)

    results = await asyncio.gather(*(judge.ask(QUESTION) for _ in range(3)), return_exceptions=True)

    assert all(isinstance(result, JudgeTimeout) for result in results)
    hung.release.set()


@pytest.mark.parametrize("error", [JudgeUnavailable("gone"), JudgeTimeout("late")])
async def test_what_may_pass_is_asked_again(error: JudgeError) -> None:
    naps = Naps()
    inner = Answers(error, error, GOOD)

    reply = await Retrying(inner, max_attempts=3, sleep=naps).ask(QUESTION)

    assert reply.text == GOOD
    assert len(inner.asked) == 3
    assert 0 <= naps.taken[0] <= 0.5
    assert 0 <= naps.taken[1] <= 1.0


async def test_what_will_not_pass_is_not_asked_again() -> None:
    inner = Answers(JudgeError("no", error_type="http_401"))

    with pytest.raises(JudgeError, match="no"):
        await Retrying(inner, max_attempts=3, sleep=Naps()).ask(QUESTION)

    assert len(inner.asked) == 1


async def test_the_last_error_is_raised_when_the_attempts_are_used_up() -> None:
    inner = Answers(JudgeUnavailable("first"), JudgeUnavailable("second"))

    with pytest.raises(JudgeUnavailable, match="second"):
        await Retrying(inner, max_attempts=2, sleep=Naps()).ask(QUESTION)


async def test_a_longer_retry_after_is_honoured() -> None:
    naps = Naps()

    await Retrying(Answers(JudgeUnavailable("busy", retry_after_s=9.0), GOOD), sleep=naps).ask(QUESTION)

    assert 9.0 <= naps.taken[0] <= 9.5


async def test_a_judge_that_wants_more_than_a_minute_is_given_up() -> None:
    inner = Answers(JudgeUnavailable("closed for today", retry_after_s=3600.0))

    with pytest.raises(JudgeUnavailable):
        await Retrying(inner, sleep=Naps()).ask(QUESTION)

    assert len(inner.asked) == 1


async def test_attempts_that_were_given_up_are_on_record() -> None:
    with recorded_calls() as calls:
        await Retrying(Answers(JudgeUnavailable("x", error_type="http_429"), GOOD), sleep=Naps()).ask(QUESTION)

    assert [(call.step, call.model, call.error_type) for call in calls] == [("critique", "answers", "http_429")]


@pytest.mark.parametrize(
    ("wrapper", "setting"),
    [(Limited, {"max_concurrency": 0}), (Timed, {"timeout_s": 0}), (Retrying, {"max_attempts": 0})],
)
def test_a_limit_of_nothing_is_refused(wrapper: Any, setting: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="is 0; it must be"):
        wrapper(Counting(), **setting)
