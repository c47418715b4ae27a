"""One limiter for each account of the process, for as long as somebody asks it."""

from __future__ import annotations

import gc
from weakref import ref

import pytest
from tests.judges.models import Answers, PlainModel

from spanscore.errors import ConfigurationError
from spanscore.judges import RateLimited, judge
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.limited import limiters_of


def answers(key: str) -> Answers:
    made = Answers("x")
    made.account = Account("openai", "m", key=key)  # type: ignore[attr-defined]
    made.notes = ("Its retries cannot be switched off.",)  # type: ignore[attr-defined]
    return made


def test_every_account_has_one_state_that_says_what_must_be_known_of_it() -> None:
    made = [RateLimited(answers("a"), max_concurrency=number) for number in (8, 3, 8)]

    (limiter,) = {one.limiter for one in made}
    found = limiter.state

    assert found.ceiling == 3
    assert found.notes == (
        "Its retries cannot be switched off.",
        "max_concurrency: judges of this account have different limits; the lowest, 3, applies",
    )


def test_an_account_that_nobody_asks_is_forgotten() -> None:
    made = RateLimited(answers("b"))
    limiter = ref(made.limiter)
    del made
    gc.collect()

    assert limiter() is None


def test_two_objects_without_an_account_are_two_accounts() -> None:
    one, other = Answers("x"), Answers("x")

    assert RateLimited(one).limiter is not RateLimited(other).limiter
    assert RateLimited(one).limiter.account != RateLimited(other).limiter.account


def test_the_limiters_behind_a_judge_are_found_through_its_effects() -> None:
    made = judge(PlainModel(), cache="memory", prices={"plain-1": (1, 10)})

    (limiter,) = limiters_of(made)

    assert limiter.account.model == "plain-1"
    assert limiters_of(Answers("x")) == ()


@pytest.mark.parametrize("limit", ["max_concurrency", "requests_per_minute", "tokens_per_minute"])
def test_a_limit_of_nothing_is_refused(limit: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{limit} is 0; it must be"):
        RateLimited(Answers("x"), **{limit: 0})
