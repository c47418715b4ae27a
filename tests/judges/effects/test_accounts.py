"""One gate for each account of the process, for as long as somebody asks it."""

from __future__ import annotations

import gc

import pytest
from tests.judges.models import Answers, PlainModel

from spanscore.errors import ConfigurationError
from spanscore.judges import RateLimited, judge
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.account_limiter import _registry
from spanscore.judges.effects.limited import gates_of


def answers(key: str) -> Answers:
    made = Answers("x")
    made.account = Account("openai", "m", key=key)  # type: ignore[attr-defined]
    made.notes = ("Its retries cannot be switched off.",)  # type: ignore[attr-defined]
    return made


def test_every_account_has_one_state_that_says_what_must_be_known_of_it() -> None:
    made = [RateLimited(answers("a"), max_concurrency=number) for number in (8, 3, 8)]

    (gate,) = {one.gate for one in made}
    found = gate.state

    assert found.ceiling == 3
    assert found.notes == (
        "Its retries cannot be switched off.",
        "max_concurrency: judges of this account ask for different ones; the lowest, 3, holds",
    )


def test_an_account_that_nobody_asks_is_forgotten() -> None:
    made = RateLimited(answers("b"))
    account = made.gate.account
    del made
    gc.collect()

    assert account not in _registry._gates


def test_two_objects_without_an_account_are_two_accounts() -> None:
    one, other = Answers("x"), Answers("x")

    assert RateLimited(one).gate is not RateLimited(other).gate
    assert RateLimited(one).gate.account != RateLimited(other).gate.account


def test_the_gates_behind_a_judge_are_found_through_its_effects() -> None:
    made = judge(PlainModel(), cache="memory", prices={"plain-1": (1, 10)})

    (gate,) = gates_of(made)

    assert gate.account.model == "plain-1"
    assert gates_of(Answers("x")) == ()


@pytest.mark.parametrize("limit", ["max_concurrency", "requests_per_minute", "tokens_per_minute"])
def test_a_limit_of_nothing_is_refused(limit: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{limit} is 0; it must be"):
        RateLimited(Answers("x"), **{limit: 0})
