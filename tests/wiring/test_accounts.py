"""The accounts that a scorer's metrics ask, as ``status()`` and its instruments show them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from langchain_core.embeddings import DeterministicFakeEmbedding
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.judges.models import QUESTION as PROMPT
from tests.judges.models import Answers
from tests.live import a_line, run_rag

from spanscore.config import Budget
from spanscore.judges import embedder, judge
from spanscore.judges.effects.account import Account, AccountState
from spanscore.judges.effects.budget_ledger import BudgetState
from spanscore.metrics import AspectCritic, ResponseRelevancy
from spanscore.protocols import Judge
from spanscore.scorer import pipeline_of
from spanscore.wiring.accounts import account_rows

GOOD = '{"reason": "r", "verdict": 1}'
KEY = "sk-Judge0123456789"
BUSY = AccountState(
    account=Account("openai", "gpt-4o-mini", "https://api.openai.com/v1", KEY),
    places=11.3,
    ceiling=64,
    inflight=7,
    waiting=12,
    longest_wait_s=4.2,
    throttled=31,
    last_throttled_s=2.4,
    calls=412,
    cached=38,
)


def test_a_row_tells_all_that_an_account_is_at() -> None:
    budget = BudgetState("usd", "1h", None, limit=2.0, spent=1.934, factor=0.41)

    assert [*account_rows([BUSY], [budget])] == [
        "openai gpt-4o-mini · 7 of 11 places (ceiling 64) · 12 waiting, longest 4 s · breaker closed"
        " · limited 31 times, last 2 s ago · 412 calls, 1.93 of 2.00 USD this hour, factor 0.41 · 38 from cache"
    ]


def test_a_row_tells_why_nothing_is_sent() -> None:
    [row] = account_rows([replace(BUSY, breaker="open", because="step: the judge failed (ConnectionError)")], [])

    assert "breaker open: no question is sent (step: the judge failed (ConnectionError))" in row


def test_budgets_beside_several_accounts_have_a_row_of_their_own() -> None:
    budgets = [
        BudgetState("tokens", "6h", None, limit=1e6, spent=1234.0, factor=1.0),
        BudgetState("calls", "1m", "faithfulness", limit=500, spent=0, factor=0.004),
        BudgetState("usd", "1d", None, limit=0.5, spent=0.0012, factor=1.0),
    ]

    *_, row = account_rows([BUSY, BUSY], budgets)

    assert row == (
        "budget · 1,234 of 1,000,000 tokens in this window of 6h, factor 1"
        " · faithfulness: 0 of 500 calls this minute, factor 0.004 · 0.0012 of 0.50 USD this day, factor 1"
    )


def test_a_row_of_one_that_is_away_says_so_with_its_notes_and_never_its_key() -> None:
    away = replace(
        BUSY, places=0.25, breaker="open", waiting=1, longest_wait_s=240, throttled=1, cached=0, notes=("mind the gap",)
    )

    (row,) = account_rows([away], [])

    assert row == (
        "openai gpt-4o-mini · 7 of 0.25 places (ceiling 64) · 1 waiting, longest 4 min · breaker open: no question is sent"
        " · limited once, last 2 s ago · 412 calls\n  mind the gap"
    )
    assert "Judge" not in row


def test_an_account_that_was_never_asked_is_there() -> None:
    new = AccountState(account=Account("anthropic", "claude"), places=4, ceiling=64)

    assert [*account_rows([new], [])] == [
        "anthropic claude · 0 of 4 places (ceiling 64) · none waiting · breaker closed · 0 calls"
    ]


def gated(**limits: float) -> Judge:
    return judge(Answers(GOOD), queue_timeout=60.0, **limits)


def test_a_line_has_the_part_of_its_limits_that_it_is_given_and_says_so() -> None:
    limits = {"max_concurrency": 8, "requests_per_minute": 600.0}
    with a_line(critic(gated(**limits), "a"), budget=[Budget(calls=1_000, per="30d")]) as (scorer, _):
        pipeline_of(scorer).accounts.share(0.25)
        fourth = scorer.status()
        pipeline_of(scorer).accounts.share(0)
        none = scorer.status()

    assert (fourth.accounts[0].ceiling, fourth.accounts[0].share) == (2, 0.25)
    assert 0 < fourth.budgets[0].limit <= 250
    assert "(ceiling 2) · 25 % of its limits" in " ".join(str(fourth).split())
    assert (none.accounts[0].share, none.accounts[0].places) == (0.01, 0.08)


def critic(asked: Judge, name: str) -> AspectCritic:
    return AspectCritic(asked, name=name, definition="Is it harmless?")


def budgets(reader: InMemoryMetricReader) -> dict[str, float]:
    return instruments(reader, "spanscore.budget.window")


def instruments(reader: InMemoryMetricReader, attribute: str = "gen_ai.provider.name") -> dict[str, float]:
    data = reader.get_metrics_data()
    points = [
        (metric.name, point)
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if attribute in (point.attributes or {})
    ]
    return {name: getattr(point, "value", getattr(point, "count", 0)) for name, point in points}


def test_metrics_that_ask_one_account_have_one_row_and_one_point_from_the_start() -> None:
    reader, asked = InMemoryMetricReader(), gated()
    with a_line(critic(asked, "a"), critic(asked, "b"), meter_provider=MeterProvider([reader])) as (scorer, _):
        pipeline_of(scorer).span_thread.ensure()
        assert scorer.flush(5)
        before = instruments(reader)
        run_rag(scorer)

        (row,) = scorer.status().accounts
        text = " ".join(str(scorer.status()).split())
        after = instruments(reader)

    assert (row.calls, row.inflight, row.waiting, row.breaker) == (2, 0, 0, "closed")
    assert f"Answers answers · 0 of {row.places:.0f} places" in text
    assert {name: before[name] for name in before if "concurrency" not in name} == dict.fromkeys(
        (
            "spanscore.judge." + name
            for name in ("active_calls", "queue.size", "circuit_breaker.state", "throttled", "retries", "cache.hits")
        ),
        0,
    )
    assert (after["spanscore.judge.queue.duration"], after["spanscore.judge.concurrency.limit"]) == (2, row.places)


def test_a_budget_is_reported_from_the_start_and_as_it_is_spent() -> None:
    reader, budget = InMemoryMetricReader(), Budget(calls=5, per="1h")
    with a_line(critic(gated(), "a"), meter_provider=MeterProvider([reader]), budget=[budget]) as (scorer, _):
        pipeline_of(scorer).span_thread.ensure()
        assert scorer.flush(5)
        before = budgets(reader)
        run_rag(scorer)

        text = " ".join(str(scorer.status()).split())
        after = budgets(reader)

    assert (before["spanscore.judge.budget.spent"], before["spanscore.judge.budget.limit"]) == (0, 5)
    assert after["spanscore.judge.budget.spent"] == 1
    assert 0 < after["spanscore.judge.budget.factor"] <= 1
    assert "1 call, 1 of 5 calls this hour, factor" in text


def test_an_account_that_no_metric_asks_is_another_scorers() -> None:
    with a_line(critic(gated(), "a")) as (scorer, _), a_line(critic(asked := gated(), "b")):
        asyncio.run(asked.ask(PROMPT))

        assert [state.calls for state in scorer.status().accounts] == [0]


def test_the_account_of_embeddings_is_there_too() -> None:
    vectors = embedder(DeterministicFakeEmbedding(size=4))
    with a_line(ResponseRelevancy(gated(), vectors)) as (scorer, _):
        models = {state.account.model for state in scorer.status().accounts}

    assert models == {"answers", "DeterministicFakeEmbedding"}


def test_a_judge_that_declines_is_reported_with_its_share() -> None:
    answers = Answers(GOOD)
    with a_line(critic(answers, "a")) as (scorer, _):
        status = replace(
            scorer.status(), declined={"a": 3}, outcomes={"a": {"scored": 9, "judge_error": 3, "not_sampled": 88}}
        )

    assert "a: the judge declined 3 of 12 units (25 %)" in str(status)
    assert "declined" not in str(replace(status, declined={"a": 0}))


def test_what_judges_and_embeddings_are_paid_is_there_from_the_first_collection() -> None:
    reader = InMemoryMetricReader()
    vectors = embedder(DeterministicFakeEmbedding(size=4), prices={"DeterministicFakeEmbedding": (1, 1)})
    polite = critic(judge(Answers(GOOD)), "polite")
    relevancy = ResponseRelevancy(judge(Answers(GOOD), prices={"answers": (1, 2)}), vectors)

    with a_line(polite, relevancy, meter_provider=MeterProvider([reader])) as (scorer, _):
        pipeline_of(scorer).span_thread.ensure()
        assert scorer.flush(5)
        sums = {name: _points(reader, f"spanscore.judge.{name}") for name in ("calls", "tokens", "cost")}

    asked = [
        ("polite", "answers"),
        ("response_relevancy", "DeterministicFakeEmbedding"),
        ("response_relevancy", "answers"),
    ]
    kinds = ["cache_write", "cached_input", "input", "output"]
    assert sums["calls"] == dict.fromkeys(asked, 0)
    assert sums["tokens"] == {(*one, kind): 0 for one in asked for kind in kinds}
    assert sums["cost"] == dict.fromkeys(asked[1:], 0)  # the cost of the first is unknown, which differs from zero


def _points(reader: InMemoryMetricReader, name: str) -> dict[tuple[str, ...], float]:
    """Return an instrument's points by the values of their attributes, in the order of the attributes' names."""
    data = reader.get_metrics_data()
    metrics = (
        [one for found in data.resource_metrics for scope in found.scope_metrics for one in scope.metrics]
        if data
        else []
    )
    points = [point for one in metrics if one.name == name for point in one.data.data_points]
    return {tuple(str(value) for _, value in sorted(point.attributes.items())): point.value for point in points}
