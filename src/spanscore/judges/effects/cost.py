"""What every answer cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from spanscore.judges.effects.effect import Effect
from spanscore.judges.prices import Price, price_of, prices_of
from spanscore.model.prompt import Prompt, Reply
from spanscore.protocols import Judge

__all__ = ["Priced"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Priced(Effect):
    """A judge whose replies carry their cost. What a judge tells of its own cost stays as it is.

    A reply of a model without a price, or without a count of tokens, has no cost: unknown is not free. Tokens that a provider
    bills at a discount (cached input, batches) are counted at their full price.

    Args:
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

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask, and say what it cost."""
        reply = await self.judge.ask(prompt)
        price = price_of(reply.model or self.model, self._checked)
        if price is None or reply.cost_usd is not None or not (reply.input_tokens or reply.output_tokens):
            return reply
        cost = (reply.input_tokens * price.input + reply.output_tokens * price.output) / 1_000_000
        return replace(reply, cost_usd=cost)
