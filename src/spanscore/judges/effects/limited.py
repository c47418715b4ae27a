"""Limits around one judge: concurrency, timeout, context window, retries, account limits, batched votes, and fallbacks."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from spanscore import semconv
from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import (
    ConfigurationError,
    JudgeOutOfQuota,
    JudgeOverloaded,
    JudgeTimeout,
    JudgeUnavailable,
)
from spanscore.judges.effects.account import RequestSlot, checked_positive
from spanscore.judges.effects.account_limiter import AccountLimiter, gate_of
from spanscore.judges.effects.middleware import (
    JudgeMiddleware,
    account_of,
    is_batched,
    layers,
    reads_instructions,
    unwrapped,
)
from spanscore.judges.records import TOLD, failed_call, given_up, record
from spanscore.judges.rendering import question_tokens, render
from spanscore.judges.score_context import SharedRequest, asked_by, asker
from spanscore.protocols import Judge


@dataclass(slots=True, weakref_slot=True)
class Limited(JudgeMiddleware):
    """A judge that is asked at most ``max_concurrency`` questions at once; the others wait their turn."""

    judge: Judge
    max_concurrency: int = 16
    _places: asyncio.Semaphore | None = field(default=None, init=False, repr=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.max_concurrency < 1:
            raise ConfigurationError(f"max_concurrency is {self.max_concurrency}; it must be 1 or more")

    async def ask(self, prompt: Prompt) -> Reply:
        """Wait for a place, then ask."""
        # The semaphore is created anew on another loop: a forked child inherits the places that its parent's questions hold,
        # and a contended semaphore raises on a loop that is not its own.
        loop = asyncio.get_running_loop()
        if self._places is None or self._loop is not loop:
            self._places, self._loop = asyncio.Semaphore(self.max_concurrency), loop
        places = self._places
        if places.locked():
            with asker().waits():
                await places.acquire()
        else:
            await places.acquire()
        try:
            return await self.judge.ask(prompt)
        finally:
            places.release()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Timed(JudgeMiddleware):
    """A judge that answers within ``timeout_s`` seconds or raises JudgeTimeout.

    The late question is cancelled and abandoned: ``asyncio.wait_for`` would wait for a call that swallows its
    cancellation, and hang with it.
    """

    judge: Judge
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise ConfigurationError(f"timeout is {self.timeout_s}; it must be a positive number of seconds")

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask in a separate task, and abandon it at the deadline."""
        question = asyncio.ensure_future(self.judge.ask(prompt))
        try:
            done, _ = await asyncio.wait({question}, timeout=self.timeout_s)
        except asyncio.CancelledError:
            _abandon(question)
            raise
        if not done:
            _abandon(question, TOLD)
            raise JudgeTimeout(f"{prompt.step}: no answer from {self.model} within {self.timeout_s:g} s")
        return question.result()


def _abandon(question: asyncio.Future[Reply], why: str | None = None) -> None:
    question.cancel(why)
    # The exception is fetched: otherwise asyncio logs that it was never retrieved.
    question.add_done_callback(lambda late: late.cancelled() or late.exception())


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Windowed(JudgeMiddleware):
    """A judge with a maximum of tokens per question. A longer one is cut before it is asked (``judges/rendering.py``)."""

    judge: Judge
    most: int

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ConfigurationError(f"max_input_tokens is {self.most}; it must be 1 or more")

    @property
    def max_input_tokens(self) -> int:
        """The maximum number of tokens of a question."""
        return self.most

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask the wrapped judge."""
        return await self.judge.ask(prompt)


_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0
"""Longest wait between attempts, in seconds; a longer ``Retry-After`` fails the question."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Retrying(JudgeMiddleware):
    """A judge that is asked again after an error that may pass: it was unavailable, or late.

    Other errors (a wrong key, an unreadable answer) are raised at once. Waits double from half a second, with full jitter.
    A longer ``Retry-After`` is honoured, and one of more than a minute ends the attempts.

    Attributes:
        max_attempts: most attempts, the first one included.
        sleep: seconds → wait; for tests.
    """

    judge: Judge
    max_attempts: int = 3
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ConfigurationError(f"max_attempts is {self.max_attempts}; it must be 1 or more")

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask up to ``max_attempts`` times; failed attempts before the last are recorded as calls of their own."""
        attempt = 0
        while True:
            attempt += 1
            began_s = time.perf_counter()
            try:
                return await self.judge.ask(prompt)
            except (JudgeUnavailable, JudgeTimeout) as error:
                asked_s = error.retry_after_s or 0.0
                if attempt >= self.max_attempts or asked_s > _LONGEST_WAIT_S:
                    raise
                record(failed_call(prompt, self.model, error, time.perf_counter() - began_s))
                await self.sleep(asked_s + random.uniform(0.0, _longest_wait_s(attempt)))


def _longest_wait_s(failed: int) -> float:
    """Return the longest wait in seconds after ``failed`` attempts. Callers wait a random fraction, so as not to coincide."""
    return min(_FIRST_WAIT_S * 2.0 ** max(0, failed - 1), _LONGEST_WAIT_S)


class RateLimited(JudgeMiddleware):
    """A judge whose questions wait for their account's limits, and are asked again after errors that may pass.

    If the judge was unavailable (no connection, a 5xx, a timeout), the attempt is repeated, up to ``max_attempts``, after a
    random fraction of 0.5, 1, 2 … s. It is not counted if the judge is away for other questions too. A refusal for load costs
    no attempt: the question waits. Attempts before the last are recorded as calls.

    Args:
        max_attempts: most attempts, the first one included; None: 4.
        max_concurrency: most concurrent questions of the account, from all its judges; None: 64, and 1 for a model that runs
            in this process.
        timeout: seconds for one attempt, waiting not counted; None: 30.
        queue_timeout: longest wait of a question, in seconds since this process received the unit; None: 600.
        requests_per_minute: limit of the account; None: only the provider's rate-limit headers, if any.
        tokens_per_minute: limit of the account, input and output tokens; None: only the provider's rate-limit headers, if any.
        dice: seconds → a random fraction of them; for tests.

    Raises:
        ConfigurationError: a setting is not positive.
    """

    __slots__ = ("__weakref__", "_dice", "gate", "judge", "max_attempts", "queue_timeout", "timeout")

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
        dice: Callable[[float], float] = lambda longest: random.uniform(0.0, longest),
    ) -> None:
        self.judge = judge
        own_attempts: int = getattr(unwrapped(judge), "own_attempts", 1)
        self.max_attempts = max(
            1, int(checked_positive("max_attempts", 4 if max_attempts is None else max_attempts)) // own_attempts
        )
        self.timeout = checked_positive("timeout", 30.0 if timeout is None else timeout)
        self.queue_timeout = checked_positive("queue_timeout", 600.0 if queue_timeout is None else queue_timeout)
        limits = {
            "max_concurrency": max_concurrency,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        for keyword, limit in limits.items():
            if limit is not None:
                checked_positive(keyword, limit)
        self.gate = gate_of(judge)
        self.gate.restrict(max_concurrency, {"requests": requests_per_minute, "tokens": tokens_per_minute})
        self._dice = dice

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
        gate, since_s, clock = self.gate.here(), asker().taken_s, asyncio.get_running_loop().time
        until_s = self.queue_timeout + (clock() if since_s is None else since_s)
        failed, again = 0, False
        while True:
            tokens = question_tokens(prompt, self.model) + prompt.n * gate.largest_answer if gate.counts_tokens else 0
            ticket = await gate.admitted(prompt.step, until_s, tokens, again=again)
            began_s = time.perf_counter()
            try:
                return await self._attempt(gate, ticket, prompt, began_s)
            except (JudgeOverloaded, JudgeOutOfQuota) as error:
                again = True
                record(failed_call(prompt, self.model, error, time.perf_counter() - began_s))
            except (JudgeUnavailable, JudgeTimeout) as error:
                excused = gate.breaker.excuses(failed + 1) and clock() < until_s  # else it may be the probe for ever
                failed += not excused
                if failed >= self.max_attempts or not gate.may_repeat(excused=excused):
                    raise
                record(failed_call(prompt, self.model, error, time.perf_counter() - began_s))
                with asker().waits():
                    await asyncio.sleep(self._dice(_longest_wait_s(failed)))

    async def _ask_by_batch(self, prompt: Prompt) -> Reply:
        """Ask without places, rates and deadlines, which batches do not have. A repeated question goes into a later batch."""
        with asker().waits():
            for _ in range(self.max_attempts - 1):
                began_s = time.perf_counter()
                try:
                    return await self.judge.ask(prompt)
                except (JudgeUnavailable, JudgeTimeout) as error:
                    if error.request_sent:
                        record(failed_call(prompt, self.model, error, time.perf_counter() - began_s))
            return await self.judge.ask(prompt)

    async def _attempt(self, gate: AccountLimiter, ticket: RequestSlot, prompt: Prompt, began_s: float) -> Reply:
        """Ask once. ``asyncio.wait_for`` would wait for a call that swallows its cancellation, and hang with it."""
        call = gate.sent(ticket, self.judge.ask(prompt))
        try:
            done, _ = await asyncio.wait({call}, timeout=self.timeout)
        except asyncio.CancelledError:
            call.cancel(TOLD)
            gate.left_behind(ticket, None)
            record(given_up(prompt, self.model, time.perf_counter() - began_s))
            raise
        if done:
            return call.result()
        call.cancel(TOLD)
        late = JudgeTimeout(f"{prompt.step}: no answer from {self.model} within {self.timeout:g} s")
        gate.left_behind(ticket, late)
        raise late


def gates_of(judge: Judge) -> tuple[AccountLimiter, ...]:
    """Return the account limiters that a judge's questions pass; empty if it has none."""
    inside = judge.judges if isinstance(judge, JudgeMiddleware) else ()
    own = [judge.gate] if isinstance(judge, RateLimited) else []
    return (*own, *(gate for inner in inside for gate in gates_of(inner)))


def gathered(judge: Judge) -> Judge:
    """Return a judge that sends a vote as one question; the judge itself, if it does so or never gives several answers."""
    inside = [*layers(judge)]
    is_so = any(isinstance(layer, BatchedVotes) for layer in inside)
    return judge if is_so or not hasattr(inside[-1], "answers_several") else BatchedVotes(judge)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BatchedVotes(JudgeMiddleware):
    """A judge that is asked once for all ballots of a vote, if it gives several answers to one question (OpenAI's ``n``).

    A vote, or the guesses of ResponseRelevancy, is one question asked k times in one turn of the loop. It gets k answers,
    drawn independently by the model. This layer is outside of budget and limiter: the vote waits for one place, is paid for
    once, and is repeated as a whole. Missing answers are asked for one by one. Loop thread.
    """

    judge: Judge
    _open: dict[Hashable, _Vote] = field(default_factory=dict, init=False, repr=False)

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer a question, together with its other ballots of this turn of the loop.

        If it is cancelled, the other ballots still get their answers. The last one cancels the request, and waits for its end.
        """
        if not getattr(unwrapped(self.judge), "answers_several", False):
            return await self.judge.ask(prompt)
        reply = await self._vote(prompt).reply(prompt.vote_index)
        return await self.judge.ask(prompt) if reply is None else reply

    def _vote(self, prompt: Prompt) -> _Vote:
        """Return the vote of a ballot; a new one if the open vote has this ballot already, as equal samples do."""
        loop, score = asyncio.get_running_loop(), asker()
        # Ballots of one vote send identical texts to the model.
        key = (id(loop), score.metric, id(score.purse), prompt.step, *render(prompt))
        vote = self._open.get(key)
        if vote is None or prompt.vote_index in vote.waits:
            vote = self._open[key] = _Vote(prompt, self.judge.ask)
            loop.call_soon(self._send, key, vote)
        return vote

    def _send(self, key: Hashable, vote: _Vote) -> None:
        if self._open.get(key) is vote:
            del self._open[key]
        vote.send()


class _Vote(SharedRequest[int, Reply | None]):
    """The waiting ballots of one question, by number. An answer of None: the caller asks alone."""

    def __init__(self, prompt: Prompt, ask: Callable[[Prompt], Awaitable[Reply]]) -> None:
        super().__init__()
        self._prompt = prompt
        self._ask = ask

    async def reply(self, number: int) -> Reply | None:
        """Wait for the answer to a ballot; None if too few answers came."""
        wait = self.join(number)
        try:
            return await wait.answer
        finally:
            await self.leave(number)

    def send(self) -> None:
        """Ask once for all waiting ballots."""
        waiting = self.pending()
        if len(waiting) == 1:
            waiting[0].answer.set_result(None)
        elif waiting:
            self.begin(waiting[0], self._answer(len(waiting)))

    async def _answer(self, number: int) -> None:
        try:
            with asked_by(self.asker), self.asker.asks():
                reply = await self._ask(replace(self._prompt, n=number))
        except BaseException as error:  # noqa: BLE001  (SystemExit out of a task ends the loop; the waiting callers get it)
            self.fail(error)
        else:
            replies, waiting = [replace(reply, other_completions=()), *reply.other_completions], self.pending()
            for wait, each in zip_longest(waiting, replies[: len(waiting)]):
                wait.answer.set_result(each)


def _is_away(judge: Judge) -> bool:
    """Whether a judge's breaker sends no question: it is open, or its probe is out."""
    now_s = asyncio.get_running_loop().time()
    return any(gate.here().breaker.wait_s(now_s) > 0 for gate in gates_of(judge))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FallingBack(JudgeMiddleware):
    """A judge with fallbacks, which are asked while its breaker is open.

    All questions of a score are asked of one judge, chosen at its first question. A score of a fallback has the fallback's
    evaluator version and the source ``fallback``. A change of judge is thus no drop of quality, and in no mean of the first
    judge.

    Args:
        judge: the first judge.
        fallbacks: further judges; the first one that is not away is asked. If all are away, questions wait for ``judge``.
        is_away: whether a judge cannot be asked; by default, whether its breaker refuses calls.

    Raises:
        ConfigurationError: two of the judges are the same, or one is a jury.
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

    @property
    def reads_instructions(self) -> bool:
        """Whether all of the judges follow the prompt's instruction."""
        return all(map(reads_instructions, self.judges))

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask the judge of this score."""
        score = asker()
        chosen: Judge | None = score.chosen.get(id(self))
        if chosen is None:
            there = (judge for judge in self.judges if not self.is_away(judge))
            chosen = score.chosen[id(self)] = next(there, self.judge)
            if chosen is not self.judge:
                score.source = semconv.SOURCE_FALLBACK
        return await chosen.ask(prompt)


def judge_in_force(judge: Judge) -> Judge:
    """Return the judge that is asked for the present score: this one, or a fallback in its place."""
    fallback = next((layer for layer in layers(judge) if isinstance(layer, FallingBack)), None)
    if fallback is None:
        return judge
    chosen: Judge | None = asker().chosen.get(id(fallback))
    return judge if chosen is None or chosen is fallback.judge else chosen
