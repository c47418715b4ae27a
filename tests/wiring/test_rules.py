"""Rules on events inside a run: handled errors, tools, models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import repeat
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from tests.live import QUESTION, Grounded, a_line, model, rag

from spanscore.config import Capture, Rule, RuleCondition, Sampling


class Named(GenericFakeChatModel):
    """A model that returns its own name."""

    model_name: str = "gpt-4o"


class Broken(GenericFakeChatModel):
    """A model that is away."""

    messages: Any = iter(())

    def _generate(self, *_: Any, **__: Any) -> Any:
        raise ConnectionError("away")


def step_fails(value: Any) -> Any:
    raise ValueError("no")


@tool
def search(query: str) -> str:
    """Find it."""
    return query


def chain(inner: Any) -> Any:
    """A chain that runs something inside, and answers as if it had not."""
    return RunnableLambda(lambda question: (inner.invoke(question), rag().invoke(question))[1])


HANDLED = {
    "a model": Broken().with_fallbacks([model()]),
    "a step without a span": RunnableLambda(step_fails).with_fallbacks([RunnableLambda(str)]),
}


def decided(application: Any, rule: Rule, runs: int = 200, **options: Any) -> Counter[tuple[str, float]]:
    """Return (rule, probability) of the evaluation spans → how many."""
    with a_line(Grounded(), sampling=Sampling(rules=[rule]), **{"sample_rate": 0.05, **options}) as (scorer, trace):
        for _ in range(runs):
            application.invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(20)
    spans = (one.attributes for one in trace.evaluations)
    return Counter((one["spanscore.sampling.rule"], one["spanscore.probability.grounded"]) for one in spans)


@pytest.mark.parametrize("what", HANDLED)
def test_a_run_in_which_something_failed_and_was_handled_is_always_scored(what: str) -> None:
    found = decided(chain(HANDLED[what]), Rule(rate=1.0, name="errors", when=RuleCondition(any_error=True)))

    assert found == {("errors", 1.0): 200}


def test_a_run_in_which_nothing_failed_is_scored_at_the_base_rate() -> None:
    found = decided(chain(model()), Rule(rate=1.0, name="errors", when=RuleCondition(any_error=True)))

    assert [rule for rule, _ in found] == ["base"]
    assert found.total() < 40


def test_a_run_that_failed_is_scored_where_its_model_had_answered_if_asked() -> None:
    applications = {"after it": rag() | RunnableLambda(step_fails), "before": RunnableLambda(step_fails) | rag()}

    ends = {
        (when, asked): _ends_of(one, capture=Capture(score_failed=asked))
        for when, one in applications.items()
        for asked in (True, False)
    }

    assert ends == {
        ("after it", True): {"scored": 1},
        ("after it", False): {"no_sample": 1},
        ("before", True): {"no_sample": 1},
        ("before", False): {"no_sample": 1},
    }


def _ends_of(application: Any, **options: Any) -> Mapping[str, int]:
    with a_line(Grounded(), **options) as (scorer, _):
        with pytest.raises(ValueError, match="no"):
            application.invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)
        return scorer.status().outcomes["grounded"]


@pytest.mark.parametrize(
    ("condition", "scored"),
    [({"min_tool_calls": 2}, 3), ({"min_tool_calls": 3}, 0), ({"model": "gpt-4o"}, 3), ({"model": "gpt-4"}, 0)],
)
def test_the_number_of_tool_calls_and_a_model_inside_are_seen(condition: dict[str, Any], scored: int) -> None:
    twice = RunnableLambda(lambda question: [search.invoke({"query": question}) for _ in range(2)] and question)

    found = decided(
        chain(twice | Named(messages=repeat("yes"))),
        Rule(rate=1.0, name="inside", when=RuleCondition(**condition)),
        3,
        sample_rate=0.0,
    )

    assert found.total() == scored
