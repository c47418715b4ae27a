"""What every answer cost, and what a question may cost that is not answered yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spanscore.judges.effects.effect import Effect, layers
from spanscore.judges.effects.purse import Purse, attempt
from spanscore.judges.prices import Price, cost_usd, dearest, price_of, prices_of
from spanscore.judges.record import recorded_calls
from spanscore.judges.tokens import question_tokens
from spanscore.model.prompt import Prompt, Reply
from spanscore.model.score import JudgeCall
from spanscore.protocols import Judge
from spanscore.runtime.log import log_once
from spanscore.settings.budget import Spent

__all__ = ["Priced", "estimated", "table_of"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Priced(Effect):
    """A judge whose replies carry their cost, and whose requests are paid from the scorer's budgets, where it has some.

    A reply of a model without a price, or without a count of tokens, has no cost: unknown is not free. What a judge tells of
    its own cost stays as it is. Innermost, around one request: each attempt of a question is one.

    Args:
        prices: model as its provider names it in the answer, or a pattern (``gpt-4o*``) → USD per million tokens (input,
            output, and cached input where that is cheaper). ``gpt-4o-mini`` is also the price of the dated
            ``gpt-4o-mini-2024-07-18``, unless that has one of its own; the longest match wins.

    Raises:
        ConfigurationError: a price is not two or three numbers, 0 or more.
    """

    judge: Judge
    prices: Mapping[str, Sequence[float]]
    table: Mapping[str, Price] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", prices_of(self.prices))  # frozen

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask, and say what it cost."""
        with attempt() as reservation, recorded_calls() as more:
            reply = self._with_cost(await self.judge.ask(prompt))
            if reservation is not None:
                reservation.purse.longest_answer = max(reservation.purse.longest_answer, reply.output_tokens)
                reservation.settle(self._spent(reply, more, reservation.estimate))
        return reply

    def _with_cost(self, reply: Reply) -> Reply:
        price = price_of(reply.model or self.model, self.table)
        if price is None or reply.cost_usd is not None or not (reply.input_tokens or reply.output_tokens):
            return reply
        return replace(reply, cost_usd=cost_usd(price, reply))

    def _spent(self, reply: Reply, more: Sequence[JudgeCall], estimate: Spent) -> Spent:
        """Return what a request came to, and those before it that the judge made for the same answer."""
        spent = estimate if not (reply.input_tokens or reply.output_tokens) else self._of(reply)
        for call in more:
            spent = spent.plus(self._of(call) if call.input_tokens or call.output_tokens else estimate)
        return spent

    def _of(self, used: Reply | JudgeCall) -> Spent:
        usd = used.cost_usd
        if usd is None and self.table:
            usd = cost_usd(self._price(used.model or self.model), used)
        return Spent(usd or 0.0, used.input_tokens + used.output_tokens, 1.0)

    def _price(self, model: str) -> Price:
        """Return a model's price; the dearest of the table for one that first shows in an answer."""
        price = price_of(model, self.table)
        if price is None:
            log_once(
                f"no price of {model}",
                f"judge.prices has no price of {model}, which answered: budgets take the dearest of the table for it",
            )
        return price or dearest(self.table)


def table_of(judge: Judge) -> Mapping[str, Price]:
    """Return the prices that a judge's answers have; empty where none were given."""
    priced: Iterator[Any] = (layer for layer in layers(judge) if isinstance(layer, Priced))
    return next((layer.table for layer in priced), {})


def estimated(judge: Judge, prompt: Prompt, purse: Purse) -> Spent:
    """Return what a question will cost at most, as far as can be told before it is sent."""
    if not purse.in_tokens:
        return Spent(calls=1.0)
    read, written = question_tokens(prompt, judge.model), purse.longest_answer
    table = table_of(judge)
    price = price_of(judge.model, table) or dearest(table)
    return Spent((read * price.input + written * price.output) / 1_000_000, read + written, 1.0)
