"""What every answer cost, and what a question may cost that is not answered yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from spanscore.config.judging import Spent
from spanscore.core.log import log_once
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall, known_sum
from spanscore.errors import JudgeBudgetSpent, JudgeError, JudgeOutOfQuota, JudgeOverloaded, JudgeRateLimited
from spanscore.judges.effects.effect import Effect
from spanscore.judges.effects.purse import Purse, Reservation, attempt
from spanscore.judges.lexical.judge import is_offline
from spanscore.judges.prices import Price, cost_usd, dearest, price_of, prices_of
from spanscore.judges.record import TOLD, failed_call, given_up, is_our_cancellation, record, recorded_calls
from spanscore.judges.tokens import question_tokens
from spanscore.protocols import Judge

__all__ = ["Priced", "asked_models", "estimated", "table_of", "with_cost"]


R = TypeVar("R", Reply, JudgeCall)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Priced(Effect):
    """A judge whose replies carry their cost, and whose requests are paid from the scorer's budgets, where it has some.

    A reply of a model without a price, or without a count of tokens, has no cost: unknown is not free. What a judge tells of
    its own cost stays as it is. Innermost, around one request: each attempt of a question is one.

    Args:
        prices: model as its provider names it in the answer, or a pattern (``gpt-4o*``) → USD per million tokens (input,
            output, cached input, share in batches). ``gpt-4o-mini`` is also the price of the dated
            ``gpt-4o-mini-2024-07-18``, unless that has one of its own; the longest match wins.

    Raises:
        ConfigurationError: a price is not two to four numbers, 0 or more.
    """

    judge: Judge
    prices: Mapping[str, Sequence[float]]
    table: Mapping[str, Price] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", prices_of(self.prices))  # frozen

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask, and say what it cost."""
        began_s = time.perf_counter()
        try:
            with attempt() as reservation:
                if reservation is None:
                    return await self._answer(prompt)
                return await self._paid(prompt, reservation)
        except asyncio.CancelledError as cancelled:
            if is_our_cancellation(cancelled) and cancelled.args != (TOLD,):
                record(given_up(prompt, self.model, time.perf_counter() - began_s))
            raise

    async def _paid(self, prompt: Prompt, reservation: Reservation) -> Reply:
        with recorded_calls() as calls:  # requests before the last, for the same answer
            try:
                reply = await self._answer(prompt)
            except BaseException as error:
                last = failed_call(prompt, self.model, error, 0.0)
                reservation.settle(self._spent([*calls, last] if _is_billed(error) else calls, reservation.estimate))
                raise
            reservation.purse.note_answer(reply.output_tokens)
            reservation.settle(self._spent([*calls, _as_one(reply)], reservation.estimate))
        return reply

    async def _answer(self, prompt: Prompt) -> Reply:
        began_s = time.perf_counter()
        reply = _with_cost(await self.judge.ask(prompt), self.model, self.table)
        if reply.duration_s is None:  # the asker's clock would count earlier attempts, and the waits between
            reply = replace(reply, duration_s=time.perf_counter() - began_s)
        other_completions = tuple(_with_cost(one, self.model, self.table) for one in reply.other_completions)
        return replace(reply, other_completions=other_completions) if other_completions else reply

    def _spent(self, requests: Sequence[Reply | JudgeCall], estimate: Spent) -> Spent:
        """Return what requests came to; those of which nobody tells how much, what was reserved for one."""
        spent = Spent()
        for one in requests:
            told = (one.input_tokens or one.output_tokens) and not getattr(one, "estimated", False)
            spent = spent.plus(self._of(one) if told else estimate)
        return spent

    def _of(self, used: Reply | JudgeCall) -> Spent:
        usd = used.cost_usd
        if usd is None and self.table:
            usd = _cost_of(used, self._price(used.model or self.model))
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
    """Return the prices that a judge's answers have, and those of the judges that stand in for it."""
    if isinstance(judge, Effect):
        tables = [table_of(one) for one in judge.judges]
        return {model: price for table in reversed(tables) for model, price in table.items()} | dict(_own_table(judge))
    return {}


def _own_table(judge: Any) -> Mapping[str, Price]:
    return judge.table if isinstance(judge, Priced) else {}


def asked_models(judge: Judge, table: Mapping[str, Price] = MappingProxyType({})) -> dict[str, Price | None]:
    """Return the models that a judge may ask, those that stand in for it too, and their prices; None where one has none.

    A lexical one is free.
    """
    if isinstance(judge, Effect):
        table = _own_table(judge) or table
        return {model: price for one in judge.judges for model, price in asked_models(one, table).items()}
    return {judge.model: Price(0.0, 0.0) if is_offline(judge) else price_of(judge.model, table)}


def with_cost(judge: Judge, call: JudgeCall) -> JudgeCall:
    """Return a call of a judge with what it cost, where that is not known yet and its model has a price."""
    return _with_cost(call, "", table_of(judge)) if call.cost_usd is None else call


def _with_cost(used: R, model: str, table: Mapping[str, Price]) -> R:
    if used.cost_usd is not None or not (used.input_tokens or used.output_tokens):
        return used
    price = price_of(used.model or model, table)
    at_batch_price = getattr(used, "at_batch_price", False)  # of a reply
    return used if price is None else replace(used, cost_usd=_cost_of(used, price, at_batch_price=at_batch_price))


def _cost_of(used: Reply | JudgeCall, price: Price, *, at_batch_price: bool = False) -> float:
    read, written, cached = used.input_tokens, used.output_tokens, used.cached_input_tokens
    return cost_usd(price, read, written, cached=cached, at_batch_price=at_batch_price)


def _as_one(reply: Reply) -> Reply:
    """Return all answers to a request as one: they are billed together."""
    answers = (reply, *reply.other_completions)
    return replace(
        reply,
        output_tokens=sum(one.output_tokens for one in answers),
        cost_usd=known_sum(one.cost_usd for one in answers),
        other_completions=(),
    )


def _is_billed(error: BaseException) -> bool:
    """Whether a failed request may be billed: nobody bills for a refusal. What is not known may be."""
    if not isinstance(error, JudgeError) or error.input_tokens or error.output_tokens:
        return True
    refused = isinstance(error, _REFUSALS) or error.error_type in _REFUSED or error.error_type.startswith("http_")
    return not refused


_REFUSALS = (JudgeOverloaded, JudgeOutOfQuota, JudgeRateLimited, JudgeBudgetSpent)
_REFUSED = frozenset({"no_such_model", "not_allowed", "too_long"})


def estimated(judge: Judge, prompt: Prompt, purse: Purse) -> Spent:
    """Return what a question will cost at most, as far as can be told before it is sent."""
    if not purse.in_tokens:
        return Spent(calls=1.0)
    read, written = question_tokens(prompt, judge.model), prompt.n * purse.longest_answer
    table = table_of(judge)
    price = price_of(judge.model, table) or dearest(table)
    return Spent(cost_usd(price, read, written), read + written, 1.0)
