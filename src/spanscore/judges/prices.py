"""Model → what its tokens cost, by prices that the user gives. ``effects/cost.py`` puts it on every reply.

There is no table of prices in here: one would age, and a wrong cost is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from spanscore.errors import ConfigurationError

__all__ = ["Price", "price_of", "prices_of"]

_DATED = re.compile(r"[-@:](?:\d{3,}(?:-\d\d){0,2}|latest)(?:-v\d+(?::\d+)?)?")
"""What providers append to a model's name: -2024-07-18, -20250514, @20240620, -0613, -002, -latest, -20240620-v1:0. Not -mini,
nor -1 of a next version, nor -1106-preview: those are other models, at other prices."""


class Price(NamedTuple):
    """What a model costs: USD per million tokens, read and written."""

    input: float
    output: float


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
