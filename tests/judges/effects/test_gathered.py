"""A vote is one question, whatever limits it waits for: one place, one request, one price, and asked again as a whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from spanscore.config.judging import Budget
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import Image
from spanscore.errors import JudgeError, JudgeOverloaded, JudgeTimeout, JudgeUnavailable
from spanscore.judges.ask import call_judge
from spanscore.judges.build import wrap_judge
from spanscore.judges.effects.budget_ledger import BudgetLedger
from spanscore.judges.effects.limited import RateLimited
from spanscore.judges.effects.middleware import layers
from spanscore.judges.records import recorded_calls
from spanscore.judges.score_context import ScoreContext, asked_by


class BinaryAnswer(BaseModel):
    verdict: int


SAID = '{"verdict": 1}'
PRICES = {"m": (1_000_000.0, 10_000_000.0)}
"""A token that is read costs 1 USD, one that is written 10."""


class Voting:
    """A judge that gives as many answers as requested; each request ends as scripted, further ones with answers.

    Attributes:
        asked: the numbers of answers that it was asked for.
    """

    model = "m"
    answers_several = True

    def __init__(self, *ends: Exception, at_most: int = 100) -> None:
        self.ends = list(ends)
        self.at_most = at_most
        self.asked: list[int] = []
        self.holds = asyncio.Event()
        self.holds.set()

    async def ask(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt.n)
        await self.holds.wait()
        if self.ends:
            raise self.ends.pop(0)
        more = min(prompt.n, self.at_most) - 1
        sibling = Reply(text=SAID, model="m", output_tokens=2)
        return Reply(text=SAID, model="m", input_tokens=10, output_tokens=2, other_completions=(sibling,) * more)


def limited(judge: Any, **settings: Any) -> Any:
    """Return a judge behind a limiter of its own, which asks again at once."""
    made: Any = wrap_judge(judge, {"prices": PRICES, **settings}, chat_model=True)
    (limited,) = (layer for layer in layers(made) if isinstance(layer, RateLimited))
    limited.jitter = lambda longest: 0.0
    return made


async def cast(judge: Any, votes: int = 5, *, about: str = "a") -> list[Any]:
    """Ask for votes and return the result of each."""
    prompts = [
        Prompt(
            step="critique", instruction="Judge.", evidence={"answer": about}, output=BinaryAnswer, vote_index=number
        )
        for number in range(votes)
    ]
    return await asyncio.gather(*(call_judge(judge, prompt) for prompt in prompts), return_exceptions=True)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("limits", [{}, {"max_concurrency": 2}, {"requests_per_minute": 6_000}])
async def test_a_vote_is_one_request_whatever_limits_it(limits: dict[str, Any]) -> None:
    inner = Voting()
    judge = limited(inner, **limits)

    votes = await asyncio.gather(*(cast(judge, about=str(i)) for i in range(8)))

    assert inner.asked == [5] * 8
    assert [reply.text for vote in votes for reply in vote] == [SAID] * 40


async def test_a_vote_that_fails_is_asked_again_as_a_whole() -> None:
    inner = Voting(JudgeUnavailable("down"), JudgeOverloaded("busy"))

    with recorded_calls() as calls:
        vote = await cast(limited(inner))

    assert inner.asked == [5, 5, 5]
    assert [reply.text for reply in vote] == [SAID] * 5
    assert [call.error_type for call in calls] == ["unavailable", "http_429"]


@pytest.mark.parametrize("error", [JudgeTimeout("late"), JudgeError("no", error_type="declined")])
async def test_votes_that_are_lost_are_one_call_and_every_vote_is_reported(error: JudgeError) -> None:
    with recorded_calls() as calls:
        vote = await cast(limited(Voting(error), max_attempts=1))

    assert [(type(rows), rows.error_type) for rows in vote] == [(type(error), error.error_type)] * 5
    assert [(call.error_type, call.estimated) for call in calls] == [
        (error.error_type, isinstance(error, JudgeTimeout))
    ]


async def test_answers_that_the_judge_did_not_give_are_asked_for_one_by_one() -> None:
    inner = Voting(at_most=3)

    vote = await cast(limited(inner))

    assert inner.asked == [5, 1, 1]
    assert [reply.text for reply in vote] == [SAID] * 5


async def test_a_judge_that_gives_one_answer_to_a_question_is_asked_for_each_vote() -> None:
    inner = Voting()
    inner.answers_several = False

    await cast(limited(inner))

    assert inner.asked == [1] * 5


async def test_the_same_sample_twice_is_two_votes() -> None:
    inner = Voting()
    judge = limited(inner)

    await asyncio.gather(cast(judge), cast(judge))

    assert inner.asked == [5, 5]


async def test_a_vote_costs_what_its_one_request_costs_and_its_budget_knows_it() -> None:
    budget_ledger = BudgetLedger([Budget(usd=100_000, per="1h"), Budget(calls=10, per="1h")])

    with asked_by(ScoreContext("polite", budget_ledger=budget_ledger)):
        vote = await cast(limited(Voting()))

    assert [reply.cost_usd for reply in vote] == [30.0, 20.0, 20.0, 20.0, 20.0]
    assert [budget_ledger.spent(budget) for budget in budget_ledger.budgets] == [110.0, 1.0]


async def test_what_a_vote_may_cost_is_reserved_before_it_is_sent() -> None:
    budget_ledger = BudgetLedger([Budget(tokens=100_000, per="1h")])
    inner = Voting()
    inner.holds.clear()

    with asked_by(ScoreContext("polite", budget_ledger=budget_ledger)):
        vote = asyncio.ensure_future(cast(limited(inner)))
        await settled()
        reserved = budget_ledger.spent(budget_ledger.budgets[0])
        inner.holds.set()
        await vote

    assert reserved > 5 * 500  # for an answer of unknown length


async def test_the_clock_of_a_score_stands_still_while_its_vote_waits_for_a_place() -> None:
    inner, score = Voting(), ScoreContext("polite")
    inner.holds.clear()
    judge = limited(inner, max_concurrency=1)
    first = asyncio.ensure_future(cast(judge, about="b"))
    await settled()

    with asked_by(score):
        vote = asyncio.ensure_future(cast(judge))
        await settled()
        waits = score.asking, score.is_waiting
        inner.holds.set()
        await vote
    await first

    assert waits == (5, True)
    assert (score.asking, score.waiting) == (0, 0)


async def test_a_vote_that_is_cancelled_is_recorded_as_one_call_that_was_given_up() -> None:
    inner = Voting()
    inner.holds.clear()

    with recorded_calls() as calls:
        vote = asyncio.ensure_future(cast(limited(inner)))
        await settled()
        vote.cancel()
        await asyncio.wait({vote})

    assert [(call.error_type, call.estimated) for call in calls] == [("timeout", True)]


async def test_one_vote_that_is_cancelled_leaves_the_others_their_answers() -> None:
    inner = Voting()
    inner.holds.clear()
    judge = limited(inner)
    prompts = [
        Prompt(step="critique", instruction="", evidence={}, output=BinaryAnswer, vote_index=number)
        for number in range(3)
    ]
    votes = [asyncio.ensure_future(call_judge(judge, prompt)) for prompt in prompts]
    await settled()

    votes[0].cancel()
    await settled()
    inner.holds.set()
    replies = await asyncio.gather(*votes[1:])

    assert inner.asked == [3]
    assert [reply.input_tokens for reply in replies] == [10, 0]  # the remaining caller pays


async def test_votes_that_were_answered_before_are_not_asked_again() -> None:
    inner = Voting()
    judge = limited(inner, cache="memory")

    await cast(judge, 3)
    vote = await cast(judge, 5)

    assert inner.asked == [3, 2]
    assert [reply.cached for reply in vote] == [True] * 3 + [False] * 2


async def test_votes_on_equal_texts_with_different_images_are_two_requests() -> None:
    shown = []

    class Looking(Voting):
        async def ask(self, prompt: Prompt) -> Reply:
            shown.extend([prompt.images[1].url] * prompt.n)
            return await super().ask(prompt)

    def question(url: str, vote_index: int) -> Prompt:
        images, evidence = {1: Image(url=url)}, {"answer": "[image 1]"}
        return Prompt(
            step="critique",
            instruction="Judge.",
            evidence=evidence,
            output=BinaryAnswer,
            images=images,
            vote_index=vote_index,
        )

    judge = limited(Looking())
    urls = ["https://a.example/cat.png", "https://a.example/dog.png"]

    await asyncio.gather(*(call_judge(judge, question(url, number)) for number in range(2) for url in urls))

    assert sorted(shown) == [urls[0]] * 2 + [urls[1]] * 2
