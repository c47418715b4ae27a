"""Round robin by metric; units with waiting spans come first."""

from __future__ import annotations

import asyncio
from math import inf

from spanscore.judges.effects.account_limiter import FairQueue, Waiter


def waiter(metric: str, *, held_until_s: float = inf) -> Waiter:
    return Waiter(metric, held_until_s, 0.0, 0.0, asyncio.get_running_loop().create_future())


def drained(queue: FairQueue, now_s: float = 0.0) -> list[Waiter]:
    gone = []
    while one := queue.next(now_s):
        queue.pop()
        gone.append(one)
    return gone


async def test_a_metric_with_many_questions_does_not_starve_one_with_a_single_one() -> None:
    queue = FairQueue()
    for metric in ["many"] * 3 + ["one"] + ["many"] * 2 + ["two"]:
        queue.put(waiter(metric))

    assert [one.metric for one in drained(queue)] == ["many", "one", "two", "many", "many", "many", "many"]


async def test_first_come_is_first_served_within_a_metric() -> None:
    queue, came = FairQueue(), [waiter("m") for _ in range(3)]
    for one in came:
        queue.put(one)

    assert drained(queue) == came


async def test_who_was_sent_away_goes_before_its_metric_s_others() -> None:
    queue, new, back = FairQueue(), waiter("m"), waiter("m")
    queue.put(new)
    queue.put(back, again=True)

    assert drained(queue) == [back, new]


async def test_a_unit_whose_spans_still_wait_goes_before_one_whose_have_left() -> None:
    queue, late, held = FairQueue(), waiter("a", held_until_s=1.0), waiter("b", held_until_s=9.0)
    queue.put(late)
    queue.put(held)

    assert drained(queue, now_s=2.0) == [held, late]


async def test_who_waits_no_longer_is_passed_over() -> None:
    queue, gone, stays = FairQueue(), waiter("m"), waiter("m")
    queue.put(gone)
    queue.put(stays)
    gone.slot.cancel()

    assert (drained(queue), len(queue)) == ([stays], 0)


async def test_all_who_wait_are_counted() -> None:
    queue = FairQueue()
    for metric, held_until_s in [("a", 1.0), ("a", 9.0), ("b", 1.0)]:
        queue.put(waiter(metric, held_until_s=held_until_s))
    queue.next(2.0)

    assert (len(queue), len(list(queue))) == (3, 3)


async def test_a_refused_question_goes_first_even_if_the_spans_of_its_unit_are_exported() -> None:
    queue, first, second = FairQueue(), waiter("m", held_until_s=-inf), waiter("m", held_until_s=-inf)
    queue.put(first)
    queue.put(second)
    queue.next(0.0)
    queue.pop()
    queue.put(first, again=True)

    assert drained(queue) == [first, second]
