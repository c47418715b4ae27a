"""A scorer with a budget: the budget limits its judges' questions, and unasked ones are counted."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from tests.live import a_line, a_trace, run_rag

from spanscore import ConfigurationError, OnlineScorer, judge
from spanscore.config import Budget, JudgeSettings
from spanscore.core.job import Weights
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import Outcome
from spanscore.judges import embedder
from spanscore.metrics import AspectCritic, ExactMatch, SemanticSimilarity
from spanscore.scorer import pipeline_of

MONTH = "30d"
"""No window ends while a test runs, but once a month."""


class Counting:
    """Approves, and counts; ``dear`` until a price is given."""

    model = "dear"

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, prompt: Prompt) -> Reply:
        self.asked += 1
        return Reply(text='{"reason": "fine", "verdict": 1}', input_tokens=100, output_tokens=10)


def named(model: str) -> Counting:
    spare = Counting()
    spare.model = model
    return spare


def polite(judge: Any, name: str = "polite") -> AspectCritic:
    return AspectCritic(judge, name=name, definition="Is it polite?")


def test_a_unit_that_was_chosen_and_not_asked_is_a_failed_one_with_its_weight() -> None:
    asked = Counting()
    with a_line(polite(asked), budget=[Budget(calls=3, per=MONTH)]) as (scorer, trace):
        for _ in range(5):
            run_rag(scorer)
        outcomes = scorer.status().outcomes
        excluded = pipeline_of(scorer).ledger.excluded()

    assert asked.asked == 3
    assert outcomes == {"polite": {"scored": 3, "budget_exhausted": 2}}
    assert excluded == {("polite", Outcome.BUDGET_EXHAUSTED, None): Weights(2.0, 2.0)}
    assert [root.attributes.get("spanscore.outcome.polite") for root in trace.roots] == [None] * 3 + [
        "budget_exhausted"
    ] * 2


def test_a_share_divides_what_may_be_spent() -> None:
    asked = Counting()
    with a_line(polite(asked), judge=JudgeSettings(budget=[Budget(calls=8, per=MONTH)], replica_share=0.25)) as (
        scorer,
        _,
    ):
        run_rag(scorer, 4)

    assert asked.asked == 2


def test_a_metrics_budget_leaves_the_others_alone() -> None:
    asked = Counting()
    own = Budget(calls=1, per=MONTH, metric="polite")
    with a_line(polite(asked), polite(asked, "kind"), budget=[own]) as (scorer, _):
        run_rag(scorer, 3)
        outcomes = scorer.status().outcomes

    assert outcomes == {"polite": {"scored": 1, "budget_exhausted": 2}, "kind": {"scored": 3}}


REFUSED: dict[str, dict[str, Any]] = {
    r"a budget has exactly one of usd, tokens, calls; this one has usd and tokens": {
        "usd": 1,
        "tokens": 5,
        "per": "1h",
    },
    r"a budget has exactly one of usd, tokens, calls; this one has none": {"per": "1h"},
    r"judge\.budget\.usd: must be greater than 0 \(given: 0\)": {"usd": 0, "per": "1h"},
    r"judge\.budget\.calls: must be greater than 0 \(given: -1\)": {"calls": -1, "per": "1h"},
    r"judge\.budget\.usd: is no finite number \(given: nan\)": {"usd": float("nan"), "per": "1h"},
    r"judge\.budget\.per: '30s'; allowed is 1m to 30d": {"calls": 5, "per": "30s"},
    r"judge\.budget\.per: '31d'; allowed is 1m to 30d": {"calls": 5, "per": "31d"},
    r"judge\.budget\.per: 'often'; allowed is 1m to 30d": {"calls": 5, "per": "often"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_budget_is_refused_with_what_is(message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Budget(**REFUSED[message])


NO_LIST: list[tuple[Any, str]] = [
    (
        Budget(calls=1, per="1h"),
        r"judge\.budget: is no list \(given: Budget\(.*; write budget: \[\{calls: 1\.0, per: 1h\}\]",
    ),
    (5, r"judge\.budget: is no list \(given: 5\); write budget: \[\{usd: 5, per: 1d\}\]"),
    ("1h", r"judge\.budget: is no list \(given: '1h'\); write budget: \[\{usd: 5, per: 1d\}\]"),
    ([5], r"judge\.budget\.0: is a single value \(given: 5\); write keys with values.*Keys are usd, tokens, calls"),
]


@pytest.mark.parametrize(("given", "message"), NO_LIST)
def test_budgets_that_are_no_list_of_them_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        OnlineScorer([ExactMatch()], budget=given, tracer_provider=a_trace().provider)


def test_a_budget_may_be_written_as_in_a_file() -> None:
    with a_line(budget=[{"calls": 1, "per": "1h"}]) as (scorer, _):
        assert [(budget.spent, budget.limit) for budget in scorer.status().budgets] == [(0, 1)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"calls": "a"}, r"judge\.budget\.calls: is no number \(given: 'a'\)"),
        ({"usd": True}, r"judge\.budget\.usd: is no number \(given: True\)"),
        ({"calls": 1, "per": None}, r"judge\.budget\.per: None; allowed is 1m to 30d"),
        ({"calls": 1, "per": [1]}, r"judge\.budget\.per: \[1\]; allowed is 1m to 30d"),
    ],
)
def test_a_budget_of_the_wrong_kind_is_refused_with_what_is_allowed(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Budget(**{"per": "1h", **given})


@pytest.mark.parametrize(
    ("replica_share", "message"),
    [
        (0, r"must be greater than 0 \(given: 0\)"),
        (-0.5, r"must be greater than 0 \(given: -0\.5\)"),
        (1.5, r"must be 1 or less \(given: 1\.5\)"),
        (float("nan"), r"must be greater than 0 \(given: nan\)"),
        ("a", r"is no number \(given: 'a'\)"),
        (None, r"is no number \(given: None\)"),
    ],
)
def test_a_share_that_is_none_is_refused(replica_share: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"judge\.replica_share: {message}"):
        JudgeSettings(replica_share=replica_share)


def test_a_budget_of_no_metric_is_refused_with_those_there_are() -> None:
    budget = [Budget(calls=5, per="1h", metric="polight")]

    with pytest.raises(ConfigurationError, match=r"judge\.budget names 'polight', .* it has polite"):
        OnlineScorer([polite(Counting())], budget=budget, tracer_provider=a_trace().provider)


def test_money_for_a_model_without_a_price_is_refused_with_the_key_to_set() -> None:
    metrics, budget = [ExactMatch(), polite(Counting())], [Budget(usd=5, per="1h")]

    with pytest.raises(ConfigurationError, match=r"'dear', which polite asks, has no price: set judge\.prices"):
        OnlineScorer(metrics, budget=budget, tracer_provider=a_trace().provider)


def test_money_for_embeddings_or_a_stand_in_without_a_price_is_refused_too() -> None:
    vectors = embedder(DeterministicFakeEmbedding(size=4), prices={"other": (1, 0)})
    away = judge(Counting(), prices={"dear": (1, 2)}, fallback=[named("spare")])
    asked = {"DeterministicFakeEmbedding": SemanticSimilarity(vectors), "spare": polite(away)}

    for model, metric in asked.items():
        with pytest.raises(ConfigurationError, match=f"'{model}', which {metric.name} asks, has no price"):
            OnlineScorer([metric], budget=[Budget(usd=5, per="1h")], tracer_provider=a_trace().provider)


def test_money_for_what_is_free_or_has_a_price_is_fine() -> None:
    metrics = [ExactMatch(), polite("lexical", "free"), polite(judge(Counting(), prices={"de*": (1, 2)}))]

    with OnlineScorer(metrics, budget=[Budget(usd=5, per="1h")], tracer_provider=a_trace().provider) as scorer:
        assert [state.limit for state in pipeline_of(scorer).budget_ledger.states()] == [5.0]  # type: ignore[union-attr]
