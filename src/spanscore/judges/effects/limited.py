"""Middleware that limits a judge: ``Windowed``, ``RateLimited``, ``BatchedVotes`` and ``FallingBack``."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import inf

from spanscore import semconv
from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import (
    ConfigurationError,
    JudgeOutOfQuota,
    JudgeOverloaded,
    JudgeTimeout,
    JudgeUnavailable,
)
from spanscore.judges.effects.account import RequestSlot, check_positive
from spanscore.judges.effects.account_limiter import AccountLimiter, limiter_of
from spanscore.judges.effects.middleware import JudgeMiddleware, account_of, is_batched, layers, unwrapped
from spanscore.judges.records import RECORDED_BY_CANCELLER, abandoned_call, failed_call, record
from spanscore.judges.rendering import render
from spanscore.judges.score_context import SharedRequest, asked_by, current_score
from spanscore.protocols import Judge


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Windowed(JudgeMiddleware):
    """A judge with a maximum of tokens per question. A longer question is cut before it is asked (``judges/rendering.py``)."""

    judge: Judge
    max_input_tokens: int = field()  # without field(), the property of the base class would be its default

    def __post_init__(self) -> None:
        if self.max_input_tokens < 1:
            raise ConfigurationError(f"max_input_tokens is {self.max_input_tokens}; it must be 1 or more")

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask the wrapped judge."""
        return await self.judge.ask(prompt)


_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 60.0
"""Longest back-off, and longest wait by ``Retry-After``, in seconds."""


class RateLimited(JudgeMiddleware):
    """A judge whose questions wait for their account's limits, and are asked again after errors that may pass.

    - The judge is unavailable (no connection, a 5xx, a timeout): the question is asked again, up to ``max_attempts``. It waits
      for ``Retry-After``, and in addition for a random fraction of 0.5, 1, 2 … s. A ``Retry-After`` of more than a minute ends
      the attempts.
    - Other questions fail, too (the breaker is open, or five questions failed in a row): the attempt does not count, and the
      wait by ``Retry-After`` is a minute at most.
    - The judge refuses because of load, or the quota is used up: the attempt does not count, and the question waits for the
      account.

    Attempts before the last are recorded as calls.

    Args:
        max_attempts: most attempts, the first one included; None: 4. The number is divided by the client's ``own_attempts``,
            rounded down, at least 1.
        max_concurrency: most concurrent questions of the account, from all its judges; None: 64, and 1 for a model that runs
            in this process.
        timeout: seconds for one attempt, waiting not counted; infinite: no deadline; None: 30.
        queue_timeout: longest wait of a question, in seconds since this process received the unit; None: 600.
        requests_per_minute: limit of the account; None = only the provider's rate-limit headers, if any.
        tokens_per_minute: limit of the account, input and output tokens; None = only the provider's rate-limit headers, if any.
        jitter: seconds → a random fraction of them; for tests.

    Raises:
        ConfigurationError: a setting is not positive.
    """

    __slots__ = ("__weakref__", "jitter", "judge", "limiter", "max_attempts", "queue_timeout", "timeout")

    def __init__(
        self,
        judge: Judge,
        *,
        max_attempts: int | None = None,
        max_concurrency: int | None = None,
        timeout: float | None = None,
        queue_timeout: float | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        jitter: Callable[[float], float] = lambda longest: random.uniform(0.0, longest),
    ) -> None:
        self.judge = judge
        own_attempts: int = getattr(unwrapped(judge), "own_attempts", 1)
        self.max_attempts = max(
            1, int(check_positive("max_attempts", 4 if max_attempts is None else max_attempts)) // own_attempts
        )
        self.timeout = check_positive("timeout", 30.0 if timeout is None else timeout)
        self.queue_timeout = check_positive("queue_timeout", 600.0 if queue_timeout is None else queue_timeout)
        limits = {
            "max_concurrency": max_concurrency,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        for keyword, limit in limits.items():
            if limit is not None:
                check_positive(keyword, limit)
        self.limiter = limiter_of(judge)
        self.limiter.restrict(max_concurrency, {"requests": requests_per_minute, "tokens": tokens_per_minute})
        self.jitter = jitter

    def __repr__(self) -> str:
        return f"RateLimited({self.judge!r})"

    async def ask(self, prompt: Prompt) -> Reply:
        """Wait until the account may be asked, and ask.

        Raises:
            JudgeRateLimited: the question waited for longer than ``queue_timeout``.
            JudgeError: the error of the last attempt.
        """
        if is_batched(self.judge):
            return await self._ask_by_batch(prompt)
        limiter, since_s, clock = self.limiter.here(), current_score().taken_s, asyncio.get_running_loop().time
        until_s = self.queue_timeout + (clock() if since_s is None else since_s)
        failed, again = 0, False
        while True:
            slot = await limiter.admit(prompt.step, until_s, limiter.tokens_of(prompt, self.model), again=again)
            began_s = time.perf_counter()
            try:
                return await self._attempt(limiter, slot, prompt, began_s)
            except (JudgeOverloaded, JudgeOutOfQuota) as error:
                again = True
                record(failed_call(prompt, self.model, error, time.perf_counter() - began_s))
            except (JudgeUnavailable, JudgeTimeout) as error:
                # After its deadline a question is not excused: as the breaker's probe it could be repeated without end.
                excused = limiter.breaker.excuses(failed + 1) and clock() < until_s
                failed += not excused
                retry_after_s = error.retry_after_s or 0.0
                is_last = failed >= self.max_attempts or (retry_after_s > _LONGEST_BACKOFF_S and not excused)
                if is_last or not limiter.may_repeat(excused=excused):
                    raise
                record(failed_call(prompt, self.model, error, time.perf_counter() - began_s))
                backoff_s = min(_FIRST_BACKOFF_S * 2.0 ** max(0, failed - 1), _LONGEST_BACKOFF_S)
                with current_score().waits():
                    await asyncio.sleep(min(retry_after_s, _LONGEST_BACKOFF_S) + self.jitter(backoff_s))

    async def _ask_by_batch(self, prompt: Prompt) -> Reply:
        """Ask without places, rates and deadlines: batches have none. A repeated question goes into a later batch."""
        with current_score().waits():
            for _ in range(self.max_attempts - 1):
                began_s = time.perf_counter()
                try:
                    return await self.judge.ask(prompt)
                except (JudgeUnavailable, JudgeTimeout) as error:
                    if error.request_sent:
                        record(failed_call(prompt, self.model, error, time.perf_counter() - began_s))
            return await self.judge.ask(prompt)

    async def _attempt(self, limiter: AccountLimiter, slot: RequestSlot, prompt: Prompt, began_s: float) -> Reply:
        """Ask once. ``asyncio.wait_for`` is not used, because it hangs if the call swallows its cancellation."""
        call = limiter.start(slot, self.judge.ask(prompt))
        try:
            done, _ = await asyncio.wait({call}, timeout=None if self.timeout == inf else self.timeout)
        except asyncio.CancelledError:
            call.cancel(RECORDED_BY_CANCELLER)
            limiter.abandon(slot, None)
            record(abandoned_call(prompt, self.model, time.perf_counter() - began_s))
            raise
        if done:
            return call.result()
        call.cancel(RECORDED_BY_CANCELLER)
        late = JudgeTimeout(f"{prompt.step}: no answer from {self.model} within {self.timeout:g} s")
        limiter.abandon(slot, late)
        raise late


def limiters_of(judge: Judge) -> tuple[AccountLimiter, ...]:
    """Return the account limiters that a judge's questions pass; empty if it has none."""
    inside = judge.judges if isinstance(judge, JudgeMiddleware) else ()
    own = [judge.limiter] if isinstance(judge, RateLimited) else []
    return (*own, *(limiter for inner in inside for limiter in limiters_of(inner)))


def with_batched_votes(judge: Judge) -> Judge:
    """Return a judge that requests all votes at once; ``judge`` itself if it does so, or never gives several answers."""
    has_layer = any(isinstance(layer, BatchedVotes) for layer in layers(judge))
    return judge if has_layer or not hasattr(unwrapped(judge), "answers_several") else BatchedVotes(judge)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BatchedVotes(JudgeMiddleware):
    """A judge that is asked once for all votes of a score, if it gives several answers to one question (OpenAI's ``n``).

    A metric asks the same question k times in one turn of the loop, for its votes, or for the guesses of ResponseRelevancy.
    This layer sends one request for k answers, which the model draws independently. It is outside of budget and limiter: the
    votes wait for one place, are paid for once, and are repeated together. A vote without an answer is asked alone. Call on
    the loop thread.
    """

    judge: Judge
    _open: dict[Hashable, _Votes] = field(default_factory=dict, init=False, repr=False)

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer a question, together with its other votes of this turn of the loop.

        If a vote is cancelled, the other votes still get their answers. If the last vote is cancelled, it cancels the request,
        and waits for its end.
        """
        if not getattr(unwrapped(self.judge), "answers_several", False):
            return await self.judge.ask(prompt)
        loop, score = asyncio.get_running_loop(), current_score()
        # The votes of one score have identical texts and images.
        images = prompt.images.values()
        key = (id(loop), score.metric, id(score.budget_ledger), prompt.step, *render(prompt), *images)
        votes = self._open.get(key)
        if votes is None or prompt.vote_index in votes.waits:  # an equal question of another sample has this number
            votes = self._open[key] = _Votes(prompt, self.judge.ask)
            loop.call_soon(self._send, key, votes)
        reply = await votes.reply(prompt.vote_index)
        return await self.judge.ask(prompt) if reply is None else reply

    def _send(self, key: Hashable, votes: _Votes) -> None:
        if self._open.get(key) is votes:
            del self._open[key]
        votes.send()


class _Votes(SharedRequest[int, Reply | None]):
    """The waiting votes of one question, by number. A caller that gets None asks the question alone."""

    def __init__(self, prompt: Prompt, ask: Callable[[Prompt], Awaitable[Reply]]) -> None:
        super().__init__()
        self._prompt = prompt
        self._ask = ask

    async def reply(self, vote_index: int) -> Reply | None:
        """Wait for the answer to a vote; None if there are too few answers."""
        wait = self.join(vote_index)
        try:
            return await wait.answer
        finally:
            await self.leave(vote_index)

    def send(self) -> None:
        """Send one request for all waiting votes; a single vote gets None."""
        waiting = self.pending()
        if len(waiting) == 1:
            waiting[0].answer.set_result(None)
        elif waiting:
            self.begin(waiting[0], self._answer(len(waiting)))

    async def _answer(self, votes: int) -> None:
        try:
            with asked_by(self.score), self.score.asks():
                reply = await self._ask(replace(self._prompt, n=votes))
        except BaseException as error:  # noqa: BLE001  (SystemExit out of a task ends the loop; the waiting callers get it)
            self.fail(error)
        else:
            replies, waiting = [replace(reply, other_completions=()), *reply.other_completions], self.pending()
            for wait, answer in zip_longest(waiting, replies[: len(waiting)]):
                wait.answer.set_result(answer)


def _is_away(judge: Judge) -> bool:
    """Return whether a judge's breaker refuses requests now: it is open, or waits for the answer to its probe."""
    now_s = asyncio.get_running_loop().time()
    return any(limiter.here().breaker.wait_s(now_s) > 0 for limiter in limiters_of(judge))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FallingBack(JudgeMiddleware):
    """A judge with fallbacks, which are asked while its breaker is open.

    One judge answers all questions of a score: it is chosen at the score's first question. A score of a fallback has the
    fallback's evaluator version and the source ``fallback``. So a change of judge is not reported as a drop, and the mean of
    the first judge's scores contains no score of a fallback.

    Args:
        fallbacks: further judges; the first one that is not away is asked. If all are away, questions wait for ``judge``.
        is_away: returns whether a judge cannot be asked; by default, whether its breaker refuses requests.

    Raises:
        ConfigurationError: two of the judges are equal, or a judge is a jury.
    """

    judge: Judge
    fallbacks: Sequence[Judge]
    is_away: Callable[[Judge], bool] = _is_away

    def __post_init__(self) -> None:
        if len(set(map(account_of, self.judges))) < len(self.judges):
            raise ConfigurationError(f"fallback asks {self.model} again: name a judge of another model, address or key")
        if any(hasattr(unwrapped(judge), "jurors") for judge in self.judges):
            raise ConfigurationError("a jury takes no fallback and is not one: give fallback to the jury's own judges")

    @property
    def judges(self) -> tuple[Judge, ...]:
        """The judge and its fallbacks."""
        return (self.judge, *self.fallbacks)

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask the judge of this score."""
        score = current_score()
        chosen: Judge | None = score.chosen.get(id(self))
        if chosen is None:
            available = (judge for judge in self.judges if not self.is_away(judge))
            chosen = score.chosen[id(self)] = next(available, self.judge)
            if chosen is not self.judge:
                score.source = semconv.SOURCE_FALLBACK
        return await chosen.ask(prompt)


def judge_in_force(judge: Judge) -> Judge:
    """Return the judge that answers the questions of the current score: ``judge``, or the fallback that was chosen."""
    fallback = next((layer for layer in layers(judge) if isinstance(layer, FallingBack)), None)
    if fallback is None:
        return judge
    chosen: Judge | None = current_score().chosen.get(id(fallback))
    return judge if chosen is None or chosen is fallback.judge else chosen
