"""Add the cost to each judge answer by the user's price table, and send no further question once a budget is spent.

``Budgeted``, the outer layer, passes on the score's budget ledger with the estimated cost of the question. ``Priced``, the
innermost layer, reserves this estimate for each attempt, and settles it by the reported usage.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from spanscore.config.judging import Spent
from spanscore.core.log import log_once
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall, known_sum
from spanscore.errors import (
    ConfigurationError,
    JudgeBudgetSpent,
    JudgeError,
    JudgeOutOfQuota,
    JudgeOverloaded,
    JudgeRateLimited,
)
from spanscore.judges.effects.budget_ledger import Reservation, paid_from, reserve_request
from spanscore.judges.effects.middleware import JudgeMiddleware, is_batched, layers
from spanscore.judges.lexical.judge import is_offline
from spanscore.judges.records import (
    RECORDED_BY_CANCELLER,
    abandoned_call,
    failed_call,
    is_our_cancellation,
    record,
    recorded_calls,
)
from spanscore.judges.rendering import question_tokens
from spanscore.judges.score_context import current_score
from spanscore.protocols import Judge

# Prices come from the user: a table in this package would become outdated, and a wrong cost is worse than a missing one.

_DATED = re.compile(r"[-@:](?:\d{3,}(?:-\d\d){0,2}|latest)(?:-v\d+(?::\d+)?)?")
"""Version suffixes of model names: -2024-07-18, -20250514, @20240620, -0613, -002, -latest, -20240620-v1:0. Not matched:
-mini, the -1 of a next version, -1106-preview, which name other models, at other prices.
"""
_MILLION = 1_000_000


class Price(NamedTuple):
    """The prices of a model, in USD per million tokens.

    Attributes:
        input: price of input tokens.
        output: price of output tokens, reasoning tokens included.
        cached_input: price of input tokens that the provider reads from its cache; None = ``input``.
        batch: fraction of these prices that is billed for answers of a batch, [0, 1].
        cache_write: price of input tokens that the provider writes to its cache; None = ``input``.
    """

    input: float
    output: float
    cached_input: float | None = None
    batch: float = 0.5
    cache_write: float | None = None

    @property
    def cached_input_price(self) -> float:
        """Price of input tokens that the provider reads from its cache."""
        return self.input if self.cached_input is None else self.cached_input

    @property
    def cache_write_price(self) -> float:
        """Price of input tokens that the provider writes to its cache."""
        return self.input if self.cache_write is None else self.cache_write


def cost_usd(
    price: Price, read: int, written: int, *, cached: int = 0, cache_write: int = 0, at_batch_price: bool = False
) -> float:
    """Return the bill of a request, in USD.

    Args:
        read: input tokens.
        written: output tokens.
        cached: number of the input tokens that the provider read from its cache.
        cache_write: number of the input tokens that the provider wrote to its cache.
        at_batch_price: whether the fraction ``price.batch`` is billed.
    """
    cached = min(cached, read)
    cache_write = min(cache_write, read - cached)
    usd = (read - cached - cache_write) * price.input + written * price.output
    usd += cached * price.cached_input_price + cache_write * price.cache_write_price
    return usd * (price.batch if at_batch_price else 1.0) / _MILLION


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """Return the price of a model: that of its exact name, or of the longest matching name or pattern; None without a match.

    ``gpt-4o-mini`` matches its dated versions, and ``gpt-4o*`` matches all names that begin with ``gpt-4o``.
    """
    if model in prices:
        return prices[model]
    matches = [
        name
        for name in prices
        if (
            fnmatchcase(model, name) if "*" in name else model.startswith(name) and _DATED.fullmatch(model[len(name) :])
        )
    ]
    return prices[max(matches, key=len)] if matches else None


def dearest(prices: Mapping[str, Price]) -> Price:
    """Return a price with the highest input and the highest output price of a table; 0 for an empty table."""
    inputs = [max(price.input, price.cache_write_price) for price in prices.values()]
    outputs = [price.output for price in prices.values()]
    return Price(max(inputs, default=0.0), max(outputs, default=0.0))


def prices_of(table: Mapping[str, Sequence[float]]) -> dict[str, Price]:
    """Return a user's price table as model → ``Price``.

    Raises:
        ConfigurationError: a price is not two to five numbers, 0 or more; cached input is dearer than input; or ``batch`` is
            above 1.
    """
    return {model: _parse_price(model, numbers) for model, numbers in table.items()}


def _parse_price(model: str, numbers: Sequence[float]) -> Price:
    try:
        price = Price(*(None if number is None else float(number) for number in numbers))
    except (TypeError, ValueError):
        price = Price(-1, -1)
    required = (price.input, price.output, price.cached_input_price, price.batch, price.cache_write_price)
    if not (
        all(isinstance(number, float) and isfinite(number) and number >= 0 for number in required)
        and price.cached_input_price <= price.input
        and price.batch <= 1
    ):
        raise ConfigurationError(
            f"the price of {model!r} is {numbers!r}; it is USD per million tokens (input, output), such as (0.15, 0.60), or "
            "(input, output, cached input, share in batches, cache write), cached input no more than input, the share 0 to 1"
        )
    return price


R = TypeVar("R", Reply, JudgeCall)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Priced(JudgeMiddleware):
    """A judge that adds the cost to its replies, and pays for its requests from the scorer's budgets, if it has any.

    A reply has no cost if its model has no price or its tokens were not counted, because unknown is not free. A cost that the
    judge itself reports is kept. This is the innermost layer, so that each attempt of a question counts as one request.

    Args:
        prices: the model's name in the provider's answers, or a pattern (``gpt-4o*``) → USD per million tokens (input,
            output, cached input, share in batches, cache write). ``gpt-4o-mini`` is also the price of the dated
            ``gpt-4o-mini-2024-07-18``, unless that name has a price, too; the longest match wins.

    Raises:
        ConfigurationError: a price is invalid, see ``prices_of``.
    """

    judge: Judge
    prices: Mapping[str, Sequence[float]]
    table: Mapping[str, Price] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", prices_of(self.prices))  # frozen

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask the judge, and return its reply with the cost."""
        began_s = time.perf_counter()
        try:
            with reserve_request() as reservation:
                if reservation is None:
                    return await self._answer(prompt)
                return await self._answer_and_settle(prompt, reservation)
        except asyncio.CancelledError as cancelled:
            # The call is recorded here, unless the judge itself raised this error, ``RateLimited`` cancelled the request and
            # records it, or a batch has the question: the run that reads the batch's answer records the call.
            if (
                is_our_cancellation(cancelled)
                and cancelled.args != (RECORDED_BY_CANCELLER,)
                and not is_batched(self.judge)
            ):
                record(abandoned_call(prompt, self.model, time.perf_counter() - began_s))
            raise

    async def _answer_and_settle(self, prompt: Prompt, reservation: Reservation) -> Reply:
        # A judge may send several requests for one answer, and records the earlier ones.
        with recorded_calls() as calls:
            try:
                reply = await self._answer(prompt)
            except BaseException as error:
                requests = [*calls, failed_call(prompt, self.model, error, 0.0)] if _is_billed(error) else calls
                reservation.settle(self._sum_costs(requests, reservation.estimate))
                raise
            reservation.ledger.note_answer(reply.output_tokens)
            answers = (reply, *reply.other_completions)  # a provider bills the answers to one request together
            request = replace(
                reply,
                output_tokens=sum(answer.output_tokens for answer in answers),
                cost_usd=known_sum(answer.cost_usd for answer in answers),
                other_completions=(),
            )
            reservation.settle(self._sum_costs([*calls, request], reservation.estimate))
        return reply

    async def _answer(self, prompt: Prompt) -> Reply:
        began_s = time.perf_counter()
        reply = _fill_in_cost(await self.judge.ask(prompt), self.model, self.table)
        if reply.duration_s is None:  # measured here, because a caller's clock would include earlier attempts and waits
            reply = replace(reply, duration_s=time.perf_counter() - began_s)
        other_completions = tuple(_fill_in_cost(other, self.model, self.table) for other in reply.other_completions)
        return replace(reply, other_completions=other_completions) if other_completions else reply

    def _sum_costs(self, requests: Sequence[Reply | JudgeCall], estimate: Spent) -> Spent:
        """Return the cost of requests; a request of unknown usage costs the estimate."""
        spent = Spent()
        for request in requests:
            tokens = request.input_tokens + request.output_tokens
            if not tokens or getattr(request, "estimated", False):
                spent = spent.plus(estimate)
                continue
            usd = request.cost_usd
            if usd is None and self.table:
                model = request.model or self.model
                price = price_of(model, self.table)
                if price is None:
                    log_once(
                        f"no price of {model}",
                        f"judge.prices has no price of {model}, which answered: budgets take the dearest of the table for it",
                    )
                    price = dearest(self.table)
                usd = _request_cost_usd(request, price, at_batch_price=is_batched(self.judge))
            spent = spent.plus(Spent(usd or 0.0, tokens, 1.0))
        return spent


def table_of(judge: Judge) -> Mapping[str, Price]:
    """Return the price table of a judge, merged with the tables of its fallbacks; the judge's own prices win."""
    if isinstance(judge, JudgeMiddleware):
        tables = [table_of(member) for member in judge.judges]
        return {model: price for table in reversed(tables) for model, price in table.items()} | dict(_own_table(judge))
    return {}


def _own_table(judge: Any) -> Mapping[str, Price]:
    return judge.table if isinstance(judge, Priced) else {}


def asked_models(judge: Judge, table: Mapping[str, Price] = MappingProxyType({})) -> dict[str, Price | None]:
    """Return model → price, for a judge and its fallbacks; None for a model without a price, 0 for the offline judge.

    Args:
        table: prices of the layers around the judge.
    """
    if isinstance(judge, JudgeMiddleware):
        table = _own_table(judge) or table
        return {model: price for member in judge.judges for model, price in asked_models(member, table).items()}
    return {judge.model: Price(0.0, 0.0) if is_offline(judge) else price_of(judge.model, table)}


def with_cost(judge: Judge, call: JudgeCall) -> JudgeCall:
    """Return a judge's call with its cost if the cost is missing and the model has a price; otherwise unchanged."""
    return _fill_in_cost(call, "", table_of(judge), at_batch_price=is_batched(judge)) if call.cost_usd is None else call


def _fill_in_cost(request: R, model: str, table: Mapping[str, Price], *, at_batch_price: bool = False) -> R:
    if request.cost_usd is not None or not (request.input_tokens or request.output_tokens):
        return request
    price = price_of(request.model or model, table)
    at_batch_price = at_batch_price or getattr(request, "at_batch_price", False)  # a ``Reply`` has this field
    if price is None:
        return request
    return replace(request, cost_usd=_request_cost_usd(request, price, at_batch_price=at_batch_price))


def _request_cost_usd(request: Reply | JudgeCall, price: Price, *, at_batch_price: bool) -> float:
    return cost_usd(
        price,
        request.input_tokens,
        request.output_tokens,
        cached=request.cached_input_tokens,
        cache_write=request.cache_write_tokens,
        at_batch_price=at_batch_price,
    )


def _is_billed(error: BaseException) -> bool:
    """Whether a failed request may be billed: if the error is foreign or has tokens, or the request was sent and not refused.

    A request was refused if its error is in ``_REFUSALS`` or ``_REFUSED``, or its type begins with ``http_`` (the provider
    answered with an error status) or ``batch_`` (no answer from the batch). Timeouts and broken connections are no refusals.
    """
    if not isinstance(error, JudgeError) or error.input_tokens or error.output_tokens:
        return True
    refused = isinstance(error, _REFUSALS) or error.error_type in _REFUSED
    return error.request_sent and not refused and not error.error_type.startswith(("http_", "batch_"))


_REFUSALS = (JudgeOverloaded, JudgeOutOfQuota, JudgeRateLimited, JudgeBudgetSpent)
_REFUSED = frozenset({"no_such_model", "not_allowed", "too_long"})


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Budgeted(JudgeMiddleware):
    """A ``Priced`` judge that is asked only while the budgets of the score's scorer last.

    Long before a budget is spent, ``pipeline/sampling.py`` lowers the sampling rates.
    """

    judge: Judge

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask the judge, if the budgets have enough left.

        Raises:
            JudgeBudgetSpent: a budget has less left than the estimate; nothing was sent.
        """
        score = current_score()
        ledger = score.budget_ledger
        if ledger is None:
            return await self.judge.ask(prompt)
        estimate = Spent(calls=1.0)
        if ledger.estimates_tokens:  # an answer is taken to be as long as the longest so far
            read, written = question_tokens(prompt, self.model), prompt.n * ledger.longest_answer
            table = table_of(self.judge)
            price = price_of(self.model, table) or dearest(table)
            written_to_cache = read if price.cache_write_price > price.input else 0
            usd = cost_usd(price, read, written, cache_write=written_to_cache, at_batch_price=is_batched(self.judge))
            estimate = Spent(usd, read + written, 1.0)
        with paid_from(ledger, score.metric, estimate):
            return await self.judge.ask(prompt)


def budgeted(judge: Judge) -> Judge:
    """Return a judge with a ``Budgeted`` layer: ``judge`` itself if it has this layer."""
    kinds = {type(layer) for layer in layers(judge)}
    if Budgeted in kinds:
        return judge
    return Budgeted(judge if Priced in kinds else Priced(judge, {}))
