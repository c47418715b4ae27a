"""The memory of closed units is bounded, and their outcomes are added as they come."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore.config import Rule, RuleCondition
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.pipeline.decisions import UnitDecider
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.sampling import RateSampler

UNIT = UnitKey(1, 2)


def decisions(kept: int = 1_000, **more: Any) -> UnitDecider:
    return UnitDecider(
        ["one", "other"], RateSampler({"one": 1.0, "other": 0.0}, **more), Ledger(["one", "other"]), kept=kept
    )


def closed(of: UnitDecider, unit: UnitKey = UNIT, **known: Any) -> Any:
    """Let a unit enter and close; return its decisions."""
    of.ledger.enter(unit)
    return of.decide_first(SamplingContext(unit, status="ok", **known))


def outcomes(of: UnitDecider, trace_id: int = 1) -> list[dict[str, str]]:
    return [
        {name: explained["outcome"] for name, explained in unit["metrics"].items()} for unit in of.explain(trace_id)
    ]


def test_the_oldest_unit_is_forgotten_when_there_are_more() -> None:
    remembering = decisions(kept=2)

    for trace_id in (1, 2, 3):
        closed(remembering, UnitKey(trace_id, 1))

    assert [len(remembering.explain(trace_id)) for trace_id in (1, 2, 3)] == [0, 1, 1]


def test_units_of_one_trace_are_distinguished_the_oldest_first() -> None:
    remembering = decisions()

    for span_id in (7, 5):
        closed(remembering, UnitKey(1, span_id))

    assert [unit["span_id"] for unit in remembering.explain(1)] == ["0" * 15 + "7", "0" * 15 + "5"]


def test_an_outcome_that_was_counted_is_not_changed_by_a_second_one() -> None:
    remembering = decisions()
    closed(remembering)

    remembering.settle(UNIT, {"other": Outcome.NOT_SAMPLED})
    remembering.settle_rest(UNIT, Outcome.TIMEOUT)
    remembering.settle_rest(UNIT, Outcome.SHUTDOWN)

    assert outcomes(remembering) == [{"one": "timeout", "other": "not_sampled"}]


def test_a_unit_that_was_never_decided_on_has_its_outcome_alone() -> None:
    remembering = decisions()
    remembering.ledger.enter(UNIT)

    remembering.settle_lost(SamplingContext(UNIT), Outcome.INCOMPLETE)

    ((explained, *_),) = [unit["metrics"].values() for unit in remembering.explain(1)]
    assert explained["outcome"] == "incomplete"
    assert {value for name, value in explained.items() if name != "outcome"} == {None}


@pytest.mark.parametrize("rules", [(), (Rule(rate=0.1, name="slow", when=RuleCondition(slower_than=1.0)),)])
def test_a_unit_that_was_skipped_is_explained_by_what_was_known_of_it(rules: tuple[Rule, ...]) -> None:
    remembering = decisions(rules=rules)
    remembering.ledger.enter(UNIT)

    remembering.settle_unsampled(SamplingContext(UNIT, status="ok", duration_ns=2_000_000_000))

    (unit,) = remembering.explain(1)
    assert unit["metrics"]["other"]["rates"] == {"base": 0.0, **{rule.name: rule.rate for rule in rules}}
    assert outcomes(remembering) == [{"one": "not_sampled", "other": "not_sampled"}]
