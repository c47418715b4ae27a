"""The cost of judges by our count equals the provider's bill, for any answers."""

from __future__ import annotations

import pytest
from tests.servers.faulty_openai import FaultyOpenAI
from tests.servers.openai_faults import Exchange, Fault, says, status, with_usage

pytest.importorskip("langchain_openai")

from contextlib import suppress

from langchain_openai import ChatOpenAI

from spanscore.config.judging import Budget
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import JudgeError
from spanscore.judges import judge
from spanscore.judges.effects.budget_ledger import BudgetLedger
from spanscore.judges.records import recorded_calls
from spanscore.judges.score_context import ScoreContext, asked_by
from spanscore.metrics import AspectCritic
from spanscore.protocols import Judge

PRICES = {"gpt-4o*": (2.5, 10.0, 1.25)}
USD = Budget(usd=100.0, per="30d")
SAMPLE = SingleTurnSample(user_input="Hello?", response="Good morning.")


def asked_of(server: FaultyOpenAI) -> Judge:
    return judge(ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="none"), prices=PRICES, timeout=5.0)


async def counted(asked: Judge, times: int) -> tuple[float, float]:
    """Score this many times; return the cost by the calls, and by the budget ledger."""
    metric, budget_ledger = AspectCritic(asked, name="polite", definition="Is it polite?"), BudgetLedger([USD])
    with recorded_calls() as calls, asked_by(ScoreContext("polite", budget_ledger=budget_ledger)):
        for _ in range(times):
            with suppress(JudgeError):
                await metric.measure(SAMPLE)
    return sum(call.cost_usd or 0.0 for call in calls), budget_ledger.spent(USD)


async def test_cached_input_is_billed_at_its_own_price() -> None:
    details = {"prompt_tokens": 2_000, "prompt_tokens_details": {"cached_tokens": 1_536}}
    with FaultyOpenAI(faults=[Fault(with_usage(**details))]) as server:
        by_call, by_ledger = await counted(asked_of(server), 3)
        bill = sum(464 * 2.5 + 1_536 * 1.25 + one.output_tokens * 10.0 for one in server.asked) / 1e6

    assert by_call == pytest.approx(bill, rel=0.01)
    assert by_ledger == pytest.approx(bill, rel=0.01)


async def test_answers_that_were_cut_refused_or_of_no_use_are_on_the_bill_as_the_provider_has_it() -> None:
    faults = [Fault(says("{", finish="length"), share=0.3), Fault(says("hm"), share=0.3), Fault(status(400), share=0.3)]
    with FaultyOpenAI(faults=faults) as server:
        by_call, by_ledger = await counted(asked_of(server), 12)
        bill = sum(one.input_tokens * 2.5 + one.output_tokens * 10.0 for one in server.asked) / 1e6

    assert len(server.asked) > 12
    assert by_call == pytest.approx(bill, rel=0.01)
    assert by_ledger == pytest.approx(bill, rel=0.01)


async def test_an_answer_of_the_flex_tier_is_billed_as_in_a_batch() -> None:
    async def flex(exchange: Exchange) -> None:
        await exchange.send({**exchange.reply, "service_tier": "flex"})

    with FaultyOpenAI(faults=[Fault(flex)]) as server:
        by_call, by_ledger = await counted(asked_of(server), 2)
        bill = sum(one.input_tokens * 2.5 + one.output_tokens * 10.0 for one in server.asked) / 1e6 / 2

    assert (by_call, by_ledger) == (pytest.approx(bill, rel=0.01), pytest.approx(bill, rel=0.01))
