"""Model → what its tokens cost, by prices that the user gives. ``effects/cost.py`` puts it on every reply.

There is no table of prices in here: one would age, and a wrong cost is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import isfinite
from typing import NamedTuple

from spanscore.errors import ConfigurationError

__all__ = ["Price", "cost_usd", "dearest", "price_of", "prices_of"]

_DATED = re.compile(r"[-@:](?:\d{3,}(?:-\d\d){0,2}|latest)(?:-v\d+(?::\d+)?)?")
"""What providers append to a model's name: -2024-07-18, -20250514, @20240620, -0613, -002, -latest, -20240620-v1:0. Not -mini,
nor -1 of a next version, nor -1106-preview: those are other models, at other prices."""
_MILLION = 1_000_000


class Price(NamedTuple):
    """What a model costs, in USD per million tokens.

    Attributes:
        input: tokens that it reads.
        output: tokens that it writes, those of its reasoning included.
        cached_input: tokens that its provider reads from its own cache; None = as ``input``.
        batch: share of all these that is billed for answers at the price of batches, [0, 1].
    """

    input: float
    output: float
    cached_input: float | None = None
    batch: float = 0.5


def cost_usd(price: Price, read: int, written: int, *, cached: int = 0, at_batch_price: bool = False) -> float:
    """Return what a request is billed.

    Args:
        read: tokens sent.
        written: tokens received.
        cached: of those sent, what the provider read from its cache.
    """
    cached = min(cached, read)
    cached_price = price.input if price.cached_input is None else price.cached_input
    usd = (read - cached) * price.input + cached * cached_price + written * price.output
    return usd * (price.batch if at_batch_price else 1.0) / _MILLION


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """Return the price of a model: of its own name, else of the longest name or pattern that stands for it; else None.

    ``gpt-4o-mini`` stands for its dated versions, ``gpt-4o*`` for all that begin so.
    """
    if model in prices:
        return prices[model]
    return prices[max(named, key=len)] if (named := [name for name in prices if _stands_for(name, model)]) else None


def dearest(prices: Mapping[str, Price]) -> Price:
    """Return a price that no price of a table exceeds; 0 for an empty one."""
    return Price(_most(price.input for price in prices.values()), _most(price.output for price in prices.values()))


def prices_of(given: Mapping[str, Sequence[float]]) -> dict[str, Price]:
    """Return what a user gave as prices.

    Raises:
        ConfigurationError: a price is not two to four numbers, 0 or more.
    """
    return {model: _price(model, numbers) for model, numbers in given.items()}


def _stands_for(name: str, model: str) -> bool:
    if "*" in name:
        return fnmatchcase(model, name)
    return model.startswith(name) and _DATED.fullmatch(model[len(name) :]) is not None


def _most(numbers: Iterable[float]) -> float:
    return max(numbers, default=0.0)


def _price(model: str, numbers: Sequence[float]) -> Price:
    try:
        price = Price(*(None if number is None else float(number) for number in numbers))
    except (TypeError, ValueError):
        price = Price(-1, -1)
    if not _can_be(price):
        raise ConfigurationError(
            f"the price of {model!r} is {numbers!r}; it is USD per million tokens (input, output), such as (0.15, 0.60), or "
            "(input, output, cached input, share in batches), cached input no more than input, the share 0 to 1"
        )
    return price


def _can_be(price: Price) -> bool:
    numbers = price._replace(cached_input=price.input if price.cached_input is None else price.cached_input)
    known = all(isinstance(number, float) and isfinite(number) and number >= 0 for number in numbers)
    return known and numbers.cached_input <= price.input and price.batch <= 1  # type: ignore[operator]  # a number by now
