"""Limits and budgets of one configuration, divided among the processes that share its work."""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from random import Random

import pytest
from tests.judges.models import QUESTION
from tests.pipeline.virtual_time import now_s, run

from spanscore.config.judging import Budget, Spent
from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeBudgetSpent
from spanscore.judges import RateLimited
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.budget_ledger import BudgetLedger
from spanscore.pipeline.sampling import BudgetPacer

MINUTE_S = 60
PER_MINUTE = 600
NOON = 20_000 * 86_400.0 + 12 * 3600
THIRDS, HALVES = (4 / 12, 4 / 12, 4 / 12), (6 / 12, 6 / 12, 0.0)
"""Shares of 12 partitions: for three workers, and after the third has left."""
HOUR = Budget(calls=1_200, per="1h")


class Endless:
    """One worker: a judge of an account of its own, and more questions than it may ever send."""

    model = "endless"

    def __init__(self, name: str, **limits: float) -> None:
        self.account = Account("openai", "m", key=name)
        self.sent_s: list[float] = []
        self.out = self.most_out = 0
        self.takes_s = 0.1
        self.judge = RateLimited(self, queue_timeout=1e9, **limits)  # type: ignore[arg-type]  # keywords of it

    async def ask(self, prompt: Prompt) -> Reply:
        self.sent_s.append(now_s())
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        await asyncio.sleep(self.takes_s)
        self.out -= 1
        return Reply(text="yes", input_tokens=50, output_tokens=50)

    async def work(self) -> None:
        while True:
            await self.judge.ask(QUESTION)


async def through(workers: Sequence[Endless], shares: Sequence[Sequence[float]], each_s: float) -> None:
    """Let the workers work, in one division after the other; a worker without partitions gets no new unit."""
    tasks = [asyncio.create_task(worker.work()) for worker in workers for _ in range(40)]
    for division in shares:
        for worker, fraction in zip(workers, division, strict=True):
            worker.judge.limiter.share(max(fraction, 0.01))
        await asyncio.sleep(each_s)
    for task in tasks:
        task.cancel()


def sent_by_minute(workers: Sequence[Endless]) -> list[int]:
    minutes = Counter(int(sent_s // MINUTE_S) for worker in workers for sent_s in worker.sent_s)
    return [minutes[minute] for minute in range(max(minutes) + 1)]


def test_the_rate_of_all_workers_is_the_one_that_was_given_through_two_rebalances() -> None:
    async def scene() -> list[int]:
        workers = [Endless(f"rate {number}", requests_per_minute=PER_MINUTE) for number in range(3)]
        await through(workers, [THIRDS, HALVES, THIRDS], 3 * MINUTE_S)
        return sent_by_minute(workers)

    minutes = run(scene())

    assert len(minutes) == 9
    assert all(0.9 * PER_MINUTE <= sent <= 1.1 * PER_MINUTE for sent in minutes), minutes


def test_the_tokens_of_all_workers_are_those_that_were_given_through_two_rebalances() -> None:
    async def scene() -> list[int]:
        workers = [Endless(f"tokens {number}", tokens_per_minute=60_000) for number in range(3)]
        for worker in workers:
            worker.judge.limiter.largest_answer = 50
        await through(workers, [THIRDS, HALVES, THIRDS], 3 * MINUTE_S)
        return sent_by_minute(workers)

    minutes = run(scene())

    even = sum(minutes) / len(minutes)
    assert len(minutes) == 9
    assert all(0.9 * even <= sent <= 1.1 * even for sent in minutes), minutes


def test_no_more_questions_are_out_with_all_workers_than_with_one() -> None:
    async def scene() -> list[int]:
        workers = [Endless(f"places {number}", max_concurrency=13) for number in range(3)]
        await through(workers, [THIRDS, HALVES, THIRDS], 30.0)
        return [worker.most_out for worker in workers]

    assert run(scene()) == [6, 6, 4]


def test_a_part_of_a_place_is_a_pace() -> None:
    async def scene() -> list[int]:
        workers = [Endless(f"part {number}", max_concurrency=1) for number in range(3)]
        await through(workers, [(0.5, 0.25, 0.25)], 120.0)
        return [len([sent_s for sent_s in worker.sent_s if sent_s >= 20.0]) for worker in workers]

    sent = run(scene())

    assert 900 <= sum(sent) <= 1_100  # a single one would have had 1,000 round trips
    assert sent[0] == pytest.approx(2 * sent[1], rel=0.1)


def test_what_waits_goes_on_as_soon_as_there_is_a_share_again() -> None:
    async def scene() -> float:
        (worker,) = [Endless("again", requests_per_minute=PER_MINUTE, max_concurrency=4)]
        await through([worker], [(0.0,), (1.0,)], 10.0)
        return len([sent_s for sent_s in worker.sent_s if sent_s >= 10.0])

    assert run(scene()) >= 0.9 * PER_MINUTE / 6


def test_a_process_without_any_work_still_asks_now_and_then() -> None:
    async def scene() -> list[float]:
        worker = Endless("idle", requests_per_minute=PER_MINUTE, max_concurrency=4)
        await through([worker], [(0.0,)], 60.0)
        return worker.sent_s

    assert 4 <= len(run(scene())) <= 7


def test_a_ceiling_that_nobody_gave_is_of_each_process() -> None:
    worker = Endless("own")

    worker.judge.limiter.share(0.25)

    assert (worker.judge.limiter.state.ceiling, worker.judge.limiter.state.share) == (64, 0.25)


class Clock:
    def __init__(self) -> None:
        self.now_s = NOON

    def __call__(self) -> float:
        return self.now_s


class Spender:
    """One worker: each unit costs a call, at the pace of its share of the budget."""

    def __init__(self, clock: Clock) -> None:
        self.budget_ledger = BudgetLedger([HOUR], clock=clock)
        self.pacer = BudgetPacer([HOUR], self.budget_ledger, dict, clock=clock)
        self.rng = Random(1)
        self.paid = 0

    def unit(self) -> None:
        taken = self.rng.random() < self.pacer.factor("m")
        self.pacer.count("m", taken=taken)
        if taken:
            with suppress(JudgeBudgetSpent):
                self.budget_ledger.reserve("m", Spent(calls=1))
                self.paid += 1


def hour_of(workers: Sequence[Spender], clock: Clock, shares: Sequence[Sequence[float]]) -> int:
    """Send a unit each second, three times the budget's allowance, to the worker with its partition."""
    paid_before = sum(worker.paid for worker in workers)
    for second in range(3_600):
        division = shares[second * len(shares) // 3_600]
        if second % (3_600 // len(shares)) == 0:
            for worker, fraction in zip(workers, division, strict=True):
                worker.budget_ledger.share(fraction)
        workers[bisect(list(accumulate(division)), second * 7 % 12 / 12 + 1e-9)].unit()
        clock.now_s += 1
    return sum(worker.paid for worker in workers) - paid_before


def test_three_workers_spend_one_budget_through_two_rebalances() -> None:
    clock = Clock()
    workers = [Spender(clock) for _ in range(3)]

    paid = [hour_of(workers, clock, [THIRDS, HALVES, THIRDS]) for _ in range(3)]

    assert all(0.9 * HOUR.amount <= calls <= 1.1 * HOUR.amount for calls in paid), paid


def test_the_parts_of_a_window_add_up_to_one_budget() -> None:
    clock = Clock()
    budget_ledgers = [BudgetLedger([HOUR], clock=clock) for _ in range(3)]

    for division in (THIRDS, HALVES, THIRDS, HALVES):
        for budget_ledger, fraction in zip(budget_ledgers, division, strict=True):
            budget_ledger.share(fraction)
        clock.now_s += 13 * 60

    assert sum(budget_ledger.limit(HOUR) for budget_ledger in budget_ledgers) == pytest.approx(HOUR.amount)
    assert budget_ledgers[0].limit(HOUR) == budget_ledgers[1].limit(HOUR) > budget_ledgers[2].limit(HOUR)


def test_who_joins_in_the_middle_of_a_window_has_what_accrues_from_then_on() -> None:
    clock = Clock()
    clock.now_s += 1_800
    budget_ledger = BudgetLedger([HOUR], clock=clock)

    budget_ledger.share(0.25)
    in_this_window = budget_ledger.limit(HOUR)
    clock.now_s += 1_800

    assert (in_this_window, budget_ledger.limit(HOUR)) == (150.0, 300.0)


def test_a_clock_that_is_set_back_doubles_no_budget() -> None:
    clock = Clock()
    clock.now_s += 3_600
    budget_ledger = BudgetLedger([HOUR], clock=clock)
    budget_ledger.share(0.5)

    clock.now_s -= 3_600
    budget_ledger.share(0.25)
    budget_ledger.share(0.5)

    assert budget_ledger.limit(HOUR) == 600.0


def test_another_loop_has_the_same_part_of_a_ceiling() -> None:
    async def ceiling() -> int:
        return limiter.here().state.ceiling

    async def ceilings() -> tuple[int, int]:
        return await ceiling(), await asyncio.to_thread(asyncio.run, ceiling())

    limiter = Endless("two loops", max_concurrency=12).judge.limiter
    limiter.share(0.5)

    assert asyncio.run(ceilings()) == (6, 6)
