"""The budget: cost is reserved, sent, then corrected; a spent budget sends nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.judges.models import QUESTION

from spanscore.config.judging import Budget, Spent
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall
from spanscore.errors import JudgeBudgetSpent, JudgeError, JudgeOverloaded, JudgeTimeout, JudgeUnavailable
from spanscore.judges import Priced, RateLimited, ask, recorded_calls
from spanscore.judges.effects.budget_ledger import BudgetLedger, BudgetState, paid_from, reserve_request
from spanscore.judges.effects.cost import Budgeted, budgeted
from spanscore.judges.records import record
from spanscore.judges.score_context import ScoreContext, asked_by
from spanscore.protocols import Judge

NOON = 20_000 * 86_400.0 + 12 * 3600
GOOD = '{"reason": "r", "verdict": 1}'
CALLS = Budget(calls=3, per="1h")
TOKENS = Budget(tokens=10_000, per="1h")
PRICES = {"m": (1.0, 10.0), "dear": (5.0, 50.0)}


class Scripted:
    """Answers with its script, then with its last line for good; counts."""

    model = "m"

    def __init__(self, *script: Reply | BaseException) -> None:
        self.script = list(script) or [Reply(text=GOOD, input_tokens=100, output_tokens=20)]
        self.asked = 0

    async def ask(self, prompt: Prompt) -> Reply:
        self.asked += 1
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, BaseException):
            raise said
        return said


class Clock:
    def __init__(self) -> None:
        self.now_s = NOON

    def __call__(self) -> float:
        return self.now_s


async def asked(judge: Judge, budget_ledger: BudgetLedger, times: int = 1, metric: str = "m") -> list[Reply | str]:
    """Ask in the name of a metric; replies, or the types of the errors."""
    found: list[Reply | str] = []
    with asked_by(ScoreContext(metric, budget_ledger=budget_ledger)):
        for _ in range(times):
            try:
                found.append(await budgeted(judge).ask(QUESTION))
            except JudgeError as error:
                found.append(error.error_type)
    return found


async def test_at_the_budget_no_further_question_is_sent() -> None:
    judge, budget_ledger = Scripted(), BudgetLedger([CALLS], clock=Clock())

    found = await asked(judge, budget_ledger, times=5)

    assert judge.asked == 3
    assert found[3:] == ["budget", "budget"]


async def test_the_next_window_has_its_own_money() -> None:
    judge, clock = Scripted(), Clock()
    budget_ledger = BudgetLedger([CALLS], clock=clock)

    await asked(judge, budget_ledger, times=5)
    clock.now_s = NOON + 3600
    await asked(judge, budget_ledger, times=5)

    assert judge.asked == 6


async def test_a_judge_that_nobody_budgets_is_asked_as_ever() -> None:
    judge = Scripted()

    await ask(judge, QUESTION)

    assert judge.asked == 1


async def test_a_budget_of_one_metric_is_no_other_metrics() -> None:
    judge, budget_ledger = Scripted(), BudgetLedger([Budget(calls=1, per="1h", metric="mine")], clock=Clock())

    mine = await asked(judge, budget_ledger, times=2, metric="mine")
    others = await asked(judge, budget_ledger, times=2, metric="other")

    assert mine[1] == "budget"
    assert "budget" not in others


async def test_what_comes_back_takes_the_place_of_what_was_reserved() -> None:
    budget_ledger = BudgetLedger([TOKENS], clock=Clock())

    await asked(Scripted(), budget_ledger)

    assert budget_ledger.spent(TOKENS) == 120
    assert budget_ledger.paid()["m"].spent == Spent(0.0, 120, 1)
    assert budget_ledger.paid()["m"].reserved == Spent()


async def test_questions_that_are_out_hold_their_reservation() -> None:
    budget_ledger, answered = BudgetLedger([CALLS], clock=Clock()), asyncio.Event()

    class Slow(Scripted):
        async def ask(self, prompt: Prompt) -> Reply:
            self.asked += 1
            await answered.wait()
            return Reply(text=GOOD)

    judge = Slow()
    questions = [asyncio.create_task(asked(judge, budget_ledger)) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    out = judge.asked
    answered.set()
    found = [one for replies in await asyncio.gather(*questions) for one in replies]

    assert out == 3
    assert found.count("budget") == 2


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (JudgeTimeout("late"), 1),
        (JudgeUnavailable("cut off", error_type="connection"), 1),
        (JudgeError("cut", error_type="cut"), 1),
        (ValueError("who knows"), 1),
        (JudgeOverloaded("not now"), 0),
        (JudgeUnavailable("down", error_type="http_503"), 0),
        (JudgeError("who?", error_type="no_such_model"), 0),
    ],
)
async def test_what_may_be_billed_stays_spent(error: Exception, calls: int) -> None:
    budget_ledger = BudgetLedger([CALLS], clock=Clock())

    with asked_by(ScoreContext("m", budget_ledger=budget_ledger)), pytest.raises(type(error)):
        await budgeted(Scripted(error)).ask(QUESTION)

    assert budget_ledger.spent(CALLS) == calls


async def test_a_question_given_up_by_its_deadline_keeps_its_reservation() -> None:
    class Hangs(Scripted):
        async def ask(self, prompt: Prompt) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

    budget_ledger = BudgetLedger([CALLS], clock=Clock())

    found = await asked(RateLimited(Priced(Hangs(), {}), max_attempts=1, timeout=0.001), budget_ledger)
    await asyncio.sleep(0)

    assert (found, budget_ledger.spent(CALLS)) == (["timeout"], 1)


def test_a_question_that_waits_to_be_sent_keeps_no_other_from_what_is_left() -> None:
    budget_ledger = BudgetLedger([Budget(calls=1, per="1h")])

    with paid_from(budget_ledger, "m", Spent(calls=1.0)):  # it waits
        with paid_from(budget_ledger, "m", Spent(calls=1.0)), reserve_request() as other:
            assert other is not None

        with pytest.raises(JudgeBudgetSpent), reserve_request():
            raise AssertionError


def test_after_some_answers_the_longest_of_them_is_what_is_expected() -> None:
    budget_ledger = BudgetLedger([Budget(tokens=1_000, per="1h")])

    before = budget_ledger.longest_answer
    for tokens in [*[20] * 19, 30]:
        budget_ledger.note_answer(tokens)

    assert (before, budget_ledger.longest_answer) == (500, 30)


async def test_each_attempt_is_paid_for_when_it_is_sent() -> None:
    judge = Scripted(JudgeTimeout("late"))
    retrying = RateLimited(Priced(judge, {}), max_attempts=5, jitter=lambda _: 0.0)
    budget_ledger = BudgetLedger([CALLS], clock=Clock())

    found = await asked(retrying, budget_ledger)

    assert (judge.asked, budget_ledger.spent(CALLS), found) == (3, 3, ["budget"])


async def test_a_question_that_waited_is_paid_from_the_window_in_which_it_is_sent() -> None:
    clock, judge = Clock(), Scripted()
    budget_ledger = BudgetLedger([CALLS], clock=clock)

    class Waits(Budgeted):
        async def ask(self, prompt: Prompt) -> Reply:
            clock.now_s = NOON + 3600
            return await self.judge.ask(prompt)

    with asked_by(ScoreContext("m", budget_ledger=budget_ledger)):
        await Budgeted(Waits(Priced(judge, {}))).ask(QUESTION)

    assert budget_ledger.spent(CALLS) == 1


@pytest.mark.parametrize(("actual", "owed"), [(150, 50), (10, 0)])
def test_of_an_answer_that_comes_in_the_next_window_that_owes_what_was_not_reserved(actual: int, owed: int) -> None:
    clock = Clock()
    budget_ledger = BudgetLedger([TOKENS], clock=clock)

    reservation = budget_ledger.reserve("m", Spent(tokens=100, calls=1))
    clock.now_s = NOON + 3600
    reservation.settle(Spent(tokens=actual, calls=1))

    assert budget_ledger.spent(TOKENS) == owed
    assert budget_ledger.paid()["m"].spent.tokens == actual


async def test_money_is_reserved_by_the_price_of_the_model() -> None:
    usd = Budget(usd=1.0, per="1h")
    budget_ledger = BudgetLedger([usd], clock=Clock())

    await asked(Priced(Scripted(), PRICES), budget_ledger)

    assert budget_ledger.spent(usd) == pytest.approx((100 * 1.0 + 20 * 10.0) / 1e6)


async def test_a_model_that_first_shows_in_an_answer_costs_as_the_dearest(caplog: pytest.LogCaptureFixture) -> None:
    usd = Budget(usd=1.0, per="1h")
    budget_ledger = BudgetLedger([usd], clock=Clock())
    judge = Scripted(Reply(text=GOOD, model="surprise", input_tokens=100, output_tokens=20))

    first, _ = await asked(Priced(judge, PRICES), budget_ledger, times=2)

    assert budget_ledger.spent(usd) == pytest.approx(2 * (100 * 5.0 + 20 * 50.0) / 1e6)
    assert isinstance(first, Reply)
    assert first.cost_usd is None
    assert caplog.text.count("no price of surprise") == 1


async def test_an_answer_without_usage_costs_what_was_reserved() -> None:
    budget_ledger = BudgetLedger([TOKENS], clock=Clock())

    await asked(Scripted(Reply(text=GOOD)), budget_ledger)

    assert budget_ledger.spent(TOKENS) > 500


def test_states_say_what_a_budget_is_at() -> None:
    budget_ledger = BudgetLedger(
        [Budget(calls=4, per="1h").part(0.5), Budget(usd=2, per="30m", metric="m")], clock=Clock()
    )
    budget_ledger.factors = lambda: [0.4, 1.0]
    budget_ledger.reserve("m", Spent(0.5, 100, 1))

    assert budget_ledger.states() == [
        BudgetState("calls", "1h", None, 2.0, 1.0, 0.4),
        BudgetState("usd", "30m", "m", 2.0, 0.5, 1.0),
    ]


def test_what_is_turned_away_by_one_budget_is_spent_of_none() -> None:
    budget_ledger = BudgetLedger([TOKENS, CALLS], clock=Clock())
    for _ in range(3):
        budget_ledger.reserve("m", Spent(tokens=1, calls=1))

    with pytest.raises(JudgeBudgetSpent, match="the budget of 3 calls per 1h is spent"):
        budget_ledger.reserve("m", Spent(tokens=1, calls=1))

    assert budget_ledger.spent(CALLS) == budget_ledger.spent(TOKENS) == 3


async def test_what_was_answered_in_vain_is_paid_for_as_it_was_reported() -> None:
    cut = JudgeError("cut", error_type="cut", input_tokens=100, output_tokens=900)
    budget_ledger = BudgetLedger([TOKENS], clock=Clock())

    await asked(Scripted(cut), budget_ledger)

    assert budget_ledger.spent(TOKENS) == 1_000


async def test_requests_that_a_judge_made_before_the_last_are_paid_for() -> None:
    class Twice(Scripted):
        async def ask(self, prompt: Prompt) -> Reply:
            record(JudgeCall(step=prompt.step, model="m", input_tokens=100, output_tokens=400, error_type="cut"))
            return await super().ask(prompt)

    budget_ledger = BudgetLedger([TOKENS], clock=Clock())

    await asked(Twice(), budget_ledger)

    assert (budget_ledger.spent(TOKENS), budget_ledger.paid()["m"].spent.calls) == (620, 2)


async def test_a_question_that_was_given_up_is_a_call_with_estimated_tokens_and_cost() -> None:
    judge = RateLimited(Priced(Scripted(JudgeTimeout("late")), PRICES), max_attempts=2, jitter=lambda _: 0.0)

    with recorded_calls() as calls, pytest.raises(JudgeTimeout):
        await ask(judge, QUESTION)

    assert [(call.error_type, call.estimated) for call in calls] == [("timeout", True)] * 2
    assert all(call.input_tokens > 50 for call in calls)
    assert [call.cost_usd for call in calls] == [pytest.approx(call.input_tokens * 1e-6) for call in calls]


async def test_a_question_that_was_not_sent_is_no_call() -> None:
    budget_ledger = BudgetLedger([Budget(calls=0.5, per="1h")], clock=Clock())

    with (
        recorded_calls() as calls,
        asked_by(ScoreContext("m", budget_ledger=budget_ledger)),
        pytest.raises(JudgeBudgetSpent),
    ):
        await ask(Scripted(), QUESTION)

    assert calls == []


def test_an_attempt_of_unknown_cost_is_not_refunded() -> None:
    budget_ledger = BudgetLedger([TOKENS], clock=Clock())

    with (
        suppress(RuntimeError),
        paid_from(budget_ledger, "m", Spent(tokens=400.0, calls=1.0)),
        reserve_request(),
    ):
        raise RuntimeError("nobody knows whether it was sent")

    assert budget_ledger.spent(TOKENS) == 400.0


def test_a_changed_limit_counts_what_was_spent_and_what_is_reserved() -> None:
    clock = Clock()
    budget_ledger = BudgetLedger([Budget(calls=10, per="1h")], clock=clock)
    reservation = budget_ledger.reserve("m", Spent(0.0, 0.0, 2.0))

    budget_ledger.change([Budget(calls=4, per="60m"), Budget(tokens=100, per="1h")])
    reservation.settle(Spent(0.0, 50.0, 3.0))

    assert [(state.unit, state.spent, state.limit) for state in budget_ledger.states()] == [
        ("calls", 3.0, 4.0),
        ("tokens", 0.0, 100.0),
    ]
    budget_ledger.reserve("m", Spent(0.0, 0.0, 1.0))
    with pytest.raises(JudgeBudgetSpent):
        budget_ledger.reserve("m", Spent(0.0, 0.0, 1.0))


def test_a_changed_limit_of_a_share_changes_the_accrued_part_with_it() -> None:
    budget_ledger = BudgetLedger([Budget(calls=100, per="1h")], clock=Clock())
    budget_ledger.share(0.5)

    budget_ledger.change([Budget(calls=10, per="1h")])

    assert [state.limit for state in budget_ledger.states()] == [5.0]
