"""A scorer with a budget: what it may pay is what its judges are asked, and what it could not ask is counted."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from tests.live import QUESTION, a_line, a_trace, rag

from spanscore import ConfigurationError, OnlineScorer, judge
from spanscore.config import Budget, JudgeSettings
from spanscore.judges import embedder
from spanscore.metrics import AspectCritic, ExactMatch, SemanticSimilarity
from spanscore.model.counted import Weights
from spanscore.model.prompt import Prompt, Reply
from spanscore.model.score import Outcome

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
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
            assert scorer.flush(5)
        outcomes = scorer.status().outcomes
        excluded = scorer._line.ledger.excluded()

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
        for _ in range(4):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)

    assert asked.asked == 2


def test_a_metrics_budget_leaves_the_others_alone() -> None:
    asked = Counting()
    own = Budget(calls=1, per=MONTH, metric="polite")
    with a_line(polite(asked), polite(asked, "kind"), budget=[own]) as (scorer, _):
        for _ in range(3):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)
        outcomes = scorer.status().outcomes

    assert outcomes == {"polite": {"scored": 1, "budget_exhausted": 2}, "kind": {"scored": 3}}


REFUSED: dict[str, dict[str, Any]] = {
    r"a budget has exactly one of usd, tokens, calls; this one has usd and tokens": {
        "usd": 1,
        "tokens": 5,
        "per": "1h",
    },
    r"a budget has exactly one of usd, tokens, calls; this one has none": {"per": "1h"},
    r"a budget's usd is 0; allowed is any number above 0": {"usd": 0, "per": "1h"},
    r"a budget's calls is -1; allowed": {"calls": -1, "per": "1h"},
    r"a budget's usd is nan; allowed": {"usd": float("nan"), "per": "1h"},
    r"a budget's per is '30s'; allowed is 1m to 30d": {"calls": 5, "per": "30s"},
    r"a budget's per is '31d'; allowed is 1m to 30d": {"calls": 5, "per": "31d"},
    r"a budget's per is 'often'; allowed is 1m to 30d": {"calls": 5, "per": "often"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_budget_is_refused_with_what_is(message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Budget(**REFUSED[message])


@pytest.mark.parametrize("given", [Budget(calls=1, per="1h"), 5, "1h", [5], [{"calls": 1, "per": "1h"}]], ids=str)
def test_budgets_that_are_no_list_of_them_are_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"budget is .*; allowed is a list of them, such as \[Budget\("):
        OnlineScorer([ExactMatch()], budget=given, tracer_provider=a_trace().provider)


@pytest.mark.parametrize(
    "given", [{"calls": "a"}, {"usd": True}, {"calls": 1, "per": None}, {"calls": 1, "per": [1]}], ids=str
)
def test_a_budget_of_the_wrong_kind_is_refused_with_what_is_allowed(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"a budget's (calls|usd|per) is .*; allowed is"):
        Budget(**{"per": "1h", **given})


@pytest.mark.parametrize("replica_share", [0, -0.5, 1.5, float("nan"), "a", None])
def test_a_share_that_is_none_is_refused(replica_share: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"judge\.replica_share is .*; allowed is above 0, up to 1"):
        OnlineScorer(
            [ExactMatch()], judge=JudgeSettings(replica_share=replica_share), tracer_provider=a_trace().provider
        )


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
        assert [state.limit for state in scorer._line.purse.states()] == [5.0]  # type: ignore[union-attr]
