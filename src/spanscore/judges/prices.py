"""Tokens → USD: a judge whose replies carry what they cost, by prices that its user gives.

There is no table of prices in here: one would age, and a wrong cost is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import NamedTuple

from spanscore.errors import ConfigurationError
from spanscore.model.prompt import Prompt, Reply
from spanscore.protocols import Judge

__all__ = ["Price", "Priced", "price_of", "prices_of"]

_PER = 1_000_000
_DATED = re.compile(r"[-@:](?:\d{3,}(?:-\d\d){0,2}|latest)(?:-v\d+(?::\d+)?)?")
"""What providers append to a model's name: -2024-07-18, -20250514, @20240620, -0613, -002, -latest, -20240620-v1:0. Not -mini,
nor -1 of a next version, nor -1106-preview: those are other models, at other prices."""


class Price(NamedTuple):
    """What a model costs: USD per million tokens, read and written."""

    input: float
    output: float


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Priced:
    """A judge whose replies carry their cost. What a judge tells of its own cost stays as it is.

    A reply of a model without a price, or without a count of tokens, has no cost: unknown is not free. Tokens that a provider
    bills at a discount (cached input, batches) are counted at their full price.

    Args:
        judge: who is asked.
        prices: model as its provider names it in the answer → USD per million tokens (input, output). ``gpt-4o-mini`` is also
            the price of the dated ``gpt-4o-mini-2024-07-18``, unless that has one of its own.

    Raises:
        ConfigurationError: a price is not two numbers, 0 or more.
    """

    judge: Judge
    prices: Mapping[str, Sequence[float]]
    _checked: Mapping[str, Price] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_checked", prices_of(self.prices))  # frozen

    @property
    def model(self) -> str:
        """The wrapped judge's model."""
        return self.judge.model

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask, and say what it cost."""
        reply = await self.judge.ask(prompt)
        price = price_of(reply.model or self.model, self._checked)
        if price is None or reply.cost_usd is not None or not (reply.input_tokens or reply.output_tokens):
            return reply
        cost = (reply.input_tokens * price.input + reply.output_tokens * price.output) / _PER
        return replace(reply, cost_usd=cost)


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """Return the price of a model: its own, else that of the name it is a dated version of; None where there is none."""
    if model in prices:
        return prices[model]
    named = [name for name in prices if model.startswith(name) and _DATED.fullmatch(model[len(name) :])]
    return prices[max(named, key=len)] if named else None


def prices_of(given: Mapping[str, Sequence[float]]) -> dict[str, Price]:
    """Return what a user gave as prices.

    Raises:
        ConfigurationError: a price is not two numbers, 0 or more.
    """
    return {model: _price(model, numbers) for model, numbers in given.items()}


def _price(model: str, numbers: Sequence[float]) -> Price:
    try:
        price = Price(*(float(number) for number in numbers))
    except (TypeError, ValueError):
        price = Price(-1, -1)
    if not all(isfinite(number) and number >= 0 for number in price):
        raise ConfigurationError(
            f"the price of {model!r} is {numbers!r}; it is USD per million tokens (input, output), such as (0.15, 0.60)"
        )
    return price
