"""The cost of a judge, by its user's prices; no cost without a price."""

from __future__ import annotations

import pytest
from tests.judges.models import QUESTION, Answers

from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, JudgeUnparseable
from spanscore.judges import Priced, ask, judge, recorded_calls
from spanscore.judges.effects.cost import Price, price_of, prices_of
from spanscore.metrics import AspectCritic

GOOD = '{"reason": "r", "verdict": 1}'
PRICES = {"answers-1": (0.15, 0.60)}
COST = (10 * 0.15 + 2 * 0.60) / 1_000_000


class Says:
    """Gives one reply."""

    model = "asked"

    def __init__(self, **reply: object) -> None:
        self._reply = Reply(text=GOOD, **reply)  # type: ignore[arg-type]

    async def ask(self, prompt: Prompt) -> Reply:
        return self._reply


async def test_a_call_carries_its_cost() -> None:
    with recorded_calls() as calls:
        await ask(Priced(Answers(GOOD), PRICES), QUESTION)

    assert [call.cost_usd for call in calls] == [pytest.approx(COST)]


async def test_an_answer_that_cannot_be_read_is_paid_for_too() -> None:
    with recorded_calls() as calls, pytest.raises(JudgeUnparseable):
        await ask(Priced(Answers("hm"), PRICES), QUESTION)

    assert [call.cost_usd for call in calls] == [pytest.approx(COST)] * 2


async def test_a_score_carries_the_cost_of_all_its_calls() -> None:
    asked = judge(Answers("hm", f'{{"text": "{GOOD.replace(chr(34), chr(92) + chr(34))}"}}'), prices=PRICES)

    score = await AspectCritic(asked, name="polite", definition="Is it polite?").score(
        SingleTurnSample(user_input="Hello?", response="Good morning.")
    )

    assert (score.value, score.usage.cost_usd, score.usage.unpriced) == (1.0, pytest.approx(2 * COST), frozenset())


UNKNOWN = {
    "another model's price": Says(model="other", input_tokens=10, output_tokens=2),
    "no count of tokens": Says(model="answers-1"),
}


@pytest.mark.parametrize("why", UNKNOWN)
async def test_without_a_price_or_tokens_there_is_no_cost(why: str) -> None:
    assert (await Priced(UNKNOWN[why], PRICES).ask(QUESTION)).cost_usd is None


async def test_a_model_that_does_not_name_itself_has_the_price_of_the_one_that_was_asked() -> None:
    reply = await Priced(Says(input_tokens=1_000_000), {"asked": (3, 15)}).ask(QUESTION)

    assert reply.cost_usd == 3


async def test_what_a_judge_says_of_its_own_cost_stands() -> None:
    reply = await Priced(Says(model="answers-1", input_tokens=10, cost_usd=0.5), PRICES).ask(QUESTION)

    assert reply.cost_usd == 0.5


async def test_a_free_model_costs_nothing_and_is_known_to() -> None:
    reply = await Priced(Says(model="answers-1", input_tokens=10), {"answers-1": (0, 0)}).ask(QUESTION)

    assert reply.cost_usd == 0.0


GIVEN = {
    name: Price(position, position) for position, name in enumerate(("gpt-4", "gpt-4o", "gpt-4o-2024-05-13", "c-3"))
}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("gpt-4-0613", "gpt-4"),
        ("c-3-20240620", "c-3"),
        ("c-3@20240620", "c-3"),
        ("c-3-20240620-v1:0", "c-3"),
        ("c-3-002", "c-3"),
        ("c-3-latest", "c-3"),
    ],
)
def test_a_dated_name_has_the_price_of_its_model(model: str, name: str) -> None:
    assert price_of(model, GIVEN) == GIVEN[name]


@pytest.mark.parametrize(
    "model", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18", "gpt-4-1106-preview", "c-3-5", "c-30", "gpt", ""]
)
def test_another_model_is_not_taken_for_a_date(model: str) -> None:
    assert price_of(model, GIVEN) is None


@pytest.mark.parametrize("price", [(1,), (1, 2, 3), ("a", "b"), (-1, 2), (float("nan"), 1), (1, float("inf")), 3, None])
def test_what_is_no_price_is_refused_with_its_model(price: object) -> None:
    with pytest.raises(ConfigurationError, match=r"'some-model'.*USD per million tokens \(input, output\)"):
        prices_of({"some-model": price})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("gpt-4o-mini", 3.0),
        ("gpt-4o", 2.0),
        ("gpt-4o-2024-08-06", 2.5),
        ("gpt-4.1", 1.0),
        ("o3", None),
        ("gpt-4o-x", 2.5),
    ],
)
def test_the_longest_name_or_pattern_that_stands_for_a_model_wins(model: str, price: float | None) -> None:
    table = prices_of({"gpt-4*": (1.0, 1), "gpt-4o": (2.0, 1), "gpt-4o-*": (2.5, 1), "gpt-4o-mini*": (3.0, 1)})

    found = price_of(model, table)

    assert (found and found.input) == price
