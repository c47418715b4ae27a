"""One request for all callers with the same question: its payer, its clock, and the time when it is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from spanscore.core.prompt import Reply
from spanscore.core.score import JudgeCall
from spanscore.errors import JudgeBudgetSpent, JudgeError, JudgeRateLimited
from spanscore.judges.effects.cache import SingleFlight
from spanscore.judges.records import record, recorded_calls
from spanscore.judges.score_context import ScoreContext, asked_by, current_score

PAID = Reply(text="said", model="m-1", input_tokens=10, output_tokens=2, duration_s=3.0, cost_usd=0.5)
FREE = Reply(text="said", model="m-1", duration_s=0.0, cost_usd=0.0, cached=True)


class Request:
    """A request that a test ends, each with the next scripted end; the last one is repeated."""

    def __init__(self, *ends: Reply | Exception) -> None:
        self.ends = list(ends)
        self.askers: list[ScoreContext] = []
        self.cancelled = 0
        self.answered = asyncio.Event()

    async def __call__(self) -> Reply:
        self.askers.append(current_score())
        try:
            await self.answered.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if isinstance(end, Exception):
            raise end
        return end


async def in_the_air(number: int, ask: Callable[[], object]) -> tuple[SingleFlight, list[asyncio.Task[Reply]]]:
    """Return so many equal questions that are out."""
    flights = SingleFlight()
    tasks = [asyncio.ensure_future(flights.share("key", ask)) for _ in range(number)]  # type: ignore[arg-type]  # a Request
    await settled()
    return flights, tasks


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_all_who_ask_at_once_get_the_answer_of_one_request_and_the_first_pays() -> None:
    request = Request(PAID)

    _, tasks = await in_the_air(1_000, request)
    request.answered.set()
    replies = await asyncio.gather(*tasks)

    assert (len(request.askers), replies) == (1, [PAID, *[FREE] * 999])


async def test_what_one_may_cost_whose_price_is_unknown_stays_unknown() -> None:
    request = Request(Reply(text="said", input_tokens=10))

    _, tasks = await in_the_air(2, request)
    request.answered.set()

    assert [(reply.cost_usd, reply.input_tokens) for reply in await asyncio.gather(*tasks)] == [(None, 10), (None, 0)]


async def test_a_question_after_the_answer_is_asked_anew() -> None:
    request = Request(PAID)
    request.answered.set()

    flights, tasks = await in_the_air(1, request)
    replies = [await tasks[0], await flights.share("key", request)]

    assert (len(request.askers), replies) == (2, [PAID, PAID])


async def test_a_request_goes_on_while_one_waits_and_who_waits_longest_then_pays() -> None:
    request = Request(PAID)
    _, tasks = await in_the_air(3, request)

    tasks[0].cancel()
    await settled()
    request.answered.set()

    assert await asyncio.gather(*tasks[1:]) == [PAID, FREE]
    assert (tasks[0].cancelled(), request.cancelled) == (True, 0)


async def test_a_request_for_which_nobody_waits_is_given_up_and_the_next_question_is_asked() -> None:
    request = Request(PAID)
    flights, tasks = await in_the_air(3, request)

    for task in tasks:
        task.cancel()
    await settled()
    request.answered.set()

    assert (request.cancelled, await flights.share("key", request)) == (1, PAID)


async def test_what_the_judge_fails_with_is_everybodys() -> None:
    request = Request(JudgeError("no", error_type="declined"))

    _, tasks = await in_the_air(2, request)
    request.answered.set()
    ended = await asyncio.gather(*tasks, return_exceptions=True)

    assert [getattr(error, "error_type", None) for error in ended] == ["declined"] * 2
    assert [getattr(error, "request_sent", None) for error in ended] == [True, False]  # the request is charged to one
    assert len(request.askers) == 1


@pytest.mark.parametrize("error", [JudgeBudgetSpent("spent"), JudgeRateLimited("waited", error_type="limit")])
async def test_who_has_no_money_or_patience_left_ends_alone_and_the_next_asks(error: JudgeError) -> None:
    request = Request(error, PAID)

    _, tasks = await in_the_air(3, request)
    request.answered.set()
    ended = await asyncio.gather(*tasks, return_exceptions=True)

    assert (ended, len(request.askers)) == ([error, PAID, FREE], 2)


async def test_a_system_exit_of_the_judge_is_an_error_of_those_who_wait() -> None:
    async def leave() -> Reply:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await SingleFlight().share("key", leave)


async def test_the_request_is_asked_for_the_first_and_every_clock_goes_as_that_of_the_request() -> None:
    request, flights = Request(PAID), SingleFlight()
    askers = [ScoreContext(metric="a", taken_s=1.0), ScoreContext(metric="b", taken_s=2.0)]

    async def asks(one: ScoreContext) -> Reply:
        with asked_by(one), one.asks():
            return await flights.share("key", request)

    tasks = [asyncio.ensure_future(asks(one)) for one in askers]
    await settled()
    (name,) = request.askers
    with name.waits():
        standing = [one.is_waiting for one in askers]
    running = [one.is_waiting for one in askers]
    request.answered.set()
    await asyncio.gather(*tasks)

    assert (name.metric, name.taken_s, standing, running) == ("a", 1.0, [True, True], [False, False])
    assert [(one.asking, one.waiting) for one in askers] == [(0, 0), (0, 0)]


async def test_who_comes_while_the_request_waits_waits_too_and_no_more_when_given_up() -> None:
    request, flights, late = Request(PAID), SingleFlight(), ScoreContext()
    first = asyncio.ensure_future(flights.share("key", request))
    await settled()

    with request.askers[0].waits(), asked_by(late), late.asks():
        second = asyncio.ensure_future(flights.share("key", request))
        await settled()
        waiting = late.waiting
        second.cancel()
        await settled()
    first.cancel()

    assert (waiting, late.waiting) == (1, 0)


async def test_calls_that_came_to_nothing_are_charged_to_who_pays_at_that_time() -> None:
    flights, go, calls = SingleFlight(), asyncio.Event(), [JudgeCall(step="s", model=name) for name in "ab"]

    async def request() -> Reply:
        record(calls[0])
        await go.wait()
        record(calls[1])
        return PAID

    async def asks() -> Reply:
        return await flights.share("key", request)

    with recorded_calls() as of_first:
        first = asyncio.ensure_future(asks())
    with recorded_calls() as of_second:
        second = asyncio.ensure_future(asks())
    await settled()
    first.cancel()
    await settled()
    go.set()

    assert (await second, of_first, of_second) == (PAID, calls[:1], calls[1:])


def test_what_is_out_on_a_loop_that_is_gone_as_after_a_fork_is_not_waited_for() -> None:
    flights, inherited = SingleFlight(), asyncio.new_event_loop()

    async def leave_one_out() -> asyncio.Task[Reply]:
        task = asyncio.ensure_future(flights.share("key", Request(PAID)))
        await settled()
        return task

    async def paid() -> Reply:
        return PAID

    out = inherited.run_until_complete(leave_one_out())
    try:
        assert asyncio.run(flights.share("key", paid)) == PAID
    finally:
        out.cancel()
        inherited.run_until_complete(asyncio.gather(out, return_exceptions=True))
        inherited.close()
