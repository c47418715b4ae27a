"""The limiter of an account: one queue, with limits and retries, for the requests of all judges of a process to the account."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import floor, inf
from threading import Lock
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from spanscore.core.log import log_once
from spanscore.core.prompt import Prompt
from spanscore.core.threads import call_in_child, renew_lock_in_child
from spanscore.errors import (
    JudgeBudgetSpent,
    JudgeError,
    JudgeOutOfQuota,
    JudgeOverloaded,
    JudgeRateLimited,
    JudgeTimeout,
    JudgeUnavailable,
)
from spanscore.judges.effects.account import PERSON_NEEDED, Account, AccountState, Breaker, RequestSlot
from spanscore.judges.effects.middleware import unwrapped
from spanscore.judges.effects.rate_limits import AdaptiveConcurrency, Buckets, Kind
from spanscore.judges.rendering import question_tokens
from spanscore.judges.score_context import current_score
from spanscore.protocols import Judge

_ERROR_TYPE = re.compile(r"[a-z]\w{0,60}")
"""An error type that may be logged; a judge of the user may have any text there."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A question that waits to be sent.

    Attributes:
        held_until_s: time until which its unit's spans wait for the answer; the loop's clock.
        since_s: time at which it was added; the loop's clock.
        tokens: estimated tokens of question and answer; 0 if no limit counts tokens.
        slot: future of the slot in which the question may be sent.
    """

    metric: str
    held_until_s: float
    since_s: float
    tokens: float
    slot: asyncio.Future[RequestSlot]


class FairQueue:
    """The questions that wait for one account. Metrics take turns (round robin).

    A metric with 20 questions per score thus does not starve a metric with a single question. Questions of units with held
    spans come before questions of units with exported spans. Within a metric the order is that of arrival; a refused
    question returns to the front.
    """

    def __init__(self) -> None:
        self._held: dict[str, deque[Waiter]] = {}
        self._late: dict[str, deque[Waiter]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values())) + sum(map(len, self._late.values()))

    def __iter__(self) -> Iterator[Waiter]:
        for queue in (*self._held.values(), *self._late.values()):
            yield from queue

    def put(self, waiter: Waiter, *, again: bool = False) -> None:
        """Add a question at the end of its metric's queue, or at the front if it was refused (``again``)."""
        queues = self._late if again and waiter.held_until_s <= waiter.since_s else self._held
        queue = queues.setdefault(waiter.metric, deque())
        if again:
            queue.appendleft(waiter)
        else:
            queue.append(waiter)

    def next(self, now_s: float) -> Waiter | None:
        """Return the next question without removing it; None if the queue is empty."""
        while queues := self._held or self._late:
            waiter = next(iter(queues.values()))[0]
            is_over = waiter.slot.done()
            if not is_over and (queues is self._late or waiter.held_until_s > now_s):
                return waiter
            self._remove_first(queues)
            if not is_over:
                self._late.setdefault(waiter.metric, deque()).append(waiter)
        return None

    def pop(self) -> None:
        """Remove the next question, and move its metric to the end of the round."""
        self._remove_first(self._held or self._late, rotate=True)

    @staticmethod
    def _remove_first(queues: dict[str, deque[Waiter]], *, rotate: bool = False) -> None:
        metric, queue = next(iter(queues.items()))
        queue.popleft()
        if not queue or rotate:
            del queues[metric]
        if queue and rotate:
            queues[metric] = queue


T = TypeVar("T")

_MOST_BEYOND = 16
"""Most open requests beyond the number of places, if abandoned requests that have not ended occupy all places."""
_RETRIES_PER_ANSWER = 0.5
_MOST_RETRIES = 20.0


class AccountLimiter:
    """Limits the requests of all judges of this process to one account: a fair queue, places, buckets, a breaker and retries.

    ``admit`` waits for the slot of a question, and ``start`` sends the question. The place of a request is freed when the
    request has ended, even if its caller left before. Call on the loop thread.

    Args:
        ceiling: most concurrent questions, if no judge sets a limit.

    Attributes:
        ceiling: most concurrent questions of all processes; the lowest limit of the account's judges.
        cached: number of questions that were answered from a cache.
    """

    def __init__(self, account: Account, ceiling: int) -> None:
        self.account = account
        self.ceiling = ceiling
        self._notes: tuple[str, ...] = ()
        self._listeners: set[Callable[[str, str, float], None]] = set()
        self._per_minute: dict[Kind, float] = {}
        self._max_concurrencies: set[int] = set()
        self._share = 1.0
        self._make_parts()
        call_in_child(self, AccountLimiter._make_parts)

    def _make_parts(self) -> None:
        """Create the parts with a state, also in a forked child: open and waiting questions belong to the parent."""
        self.breaker, self.retries = Breaker(), RetryBudget()
        self._places, self._buckets = AdaptiveConcurrency(self._ceiling), Buckets(time.time)
        for kind, per_minute in self._per_minute.items():
            self._buckets.allow(kind, per_minute)
        self._buckets.share(self._share, 0.0)
        self._sent = self._repeated = self._throttled = self.cached = self.largest_answer = 0
        self._last_throttled_s = -inf
        self._use_loop(None)
        self._elsewhere: WeakKeyDictionary[asyncio.AbstractEventLoop, AccountLimiter] = WeakKeyDictionary()

    def here(self) -> AccountLimiter:
        """Return the limiter of the account for the running loop: this one for the first loop, its own for every other loop."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return self
        if self._loop is None or not self._loop.is_running():
            self._use_loop(loop)
            return self
        if loop not in self._elsewhere:
            self._elsewhere[loop] = AccountLimiter(self.account, self.ceiling)
            self._elsewhere[loop].restrict(min(self._max_concurrencies, default=None), self._per_minute)
        other = self._elsewhere[loop]
        if other._share != self._share:
            other._divide(self._share)
        return other.here()

    def restrict(self, max_concurrency: int | None, per_minute: Mapping[Kind, float | None]) -> None:
        """Add a judge's limits; None = no limit. The strictest limit of the account's judges applies."""
        if max_concurrency is not None:
            self._max_concurrencies.add(max_concurrency)
            self.ceiling = min(self._max_concurrencies)
            self._places.bound(self._ceiling)
        for kind, limit in per_minute.items():
            if limit is not None:
                self._per_minute[kind] = min(limit, self._per_minute.get(kind, inf))
                self._buckets.allow(kind, limit)

    def share(self, fraction: float) -> None:
        """Use a fraction of the user's limits, (0, 1], from now on; other processes have the other fractions. Thread-safe.

        Two limits are not divided: the default of 64 places, which is per process, and the provider's own limits.
        """
        loop = self._loop
        if loop is None or not loop.is_running():
            self._divide(fraction)
        else:
            loop.call_soon_threadsafe(self._divide, fraction)

    def add_wait_listener(self, listener: Callable[[str, str, float], None]) -> None:
        """Call a listener with provider, model and waited seconds for each question; each listener is added once."""
        self._listeners.add(listener)

    def note(self, text: str) -> None:
        """Add a note about the account to its state."""
        if text not in self._notes:
            self._notes = (*self._notes, text)

    def tokens_of(self, prompt: Prompt, model: str) -> int:
        """Return the estimated tokens of a question and of its answers, by the longest so far; 0 if no limit counts tokens."""
        return question_tokens(prompt, model) + prompt.n * self.largest_answer if self._buckets.count_tokens else 0

    async def admit(self, step: str, until_s: float, tokens: float = 0.0, *, again: bool = False) -> RequestSlot:
        """Wait until a question may be sent.

        Args:
            step: name of the prompt, for messages.
            until_s: time at which the wait fails; the loop's clock.
            tokens: estimated tokens of question and answer.
            again: whether it was refused before; then it precedes the other questions.

        Raises:
            JudgeRateLimited: the wait lasted until ``until_s``; the error type names the cause.
            JudgeError: the breaker is open for a failure that a person must correct.
        """
        assert self._loop is not None  # ``here`` has set it
        began_s = self._loop.time()
        try:
            return await self._wait_for_slot(step, until_s, tokens, again=again)
        finally:
            waited_s = self._loop.time() - began_s
            for listener in (*self._listeners,):
                listener(self.account.provider, self.account.model, waited_s)

    async def _wait_for_slot(self, step: str, until_s: float, tokens: float, *, again: bool) -> RequestSlot:
        assert self._loop is not None
        now_s = self._loop.time()
        if not self._queue and self._wait_s(tokens, now_s) <= 0:
            return self._make_slot(tokens, now_s)
        if self.breaker.refusal and self.breaker.wait_s(now_s) > 0:
            raise self.breaker.refusal.without_request()
        score = current_score()
        waiter = Waiter(score.metric, score.held_until_s, now_s, tokens, self._loop.create_future())
        self._queue.put(waiter, again=again)
        self._make_slots()
        timer = self._loop.call_at(until_s, self._give_up, waiter, step)
        try:
            with score.waits():
                return await waiter.slot
        except asyncio.CancelledError:
            if waiter.slot.done() and not waiter.slot.cancelled() and not waiter.slot.exception():
                slot = waiter.slot.result()  # no request was sent with it
                self._in_flight.discard(slot)
                self._places.count_end(slot)
                self._sent -= 1
                self.abandon(slot, None)
            raise
        finally:
            timer.cancel()

    def start(self, slot: RequestSlot, call: Awaitable[T]) -> asyncio.Future[T]:
        """Start the call of a slot. The call occupies a place until it has ended, even if the caller abandons it."""
        future = asyncio.ensure_future(call)
        future.add_done_callback(partial(self._end_call, slot))
        return future

    def abandon(self, slot: RequestSlot, error: JudgeError | None) -> None:
        """Abandon a call for which the caller does not wait any more.

        Args:
            error: the error of a late call; None if its caller was cancelled, which is no fault of the judge.
        """
        slot.abandoned = True
        if error is not None:
            self._count_failure(slot, error)
        elif slot.probe:
            self.breaker.drop_probe()
        self._make_slots()

    def may_repeat(self, *, excused: bool = False) -> bool:
        """Return whether a failed question may be asked again, and count the retry. An ``excused`` retry is always allowed."""
        is_allowed = excused or self.retries.take()
        self._repeated += is_allowed
        return is_allowed

    @property
    def state(self) -> AccountState:
        """The state of the account."""
        now_s = self._loop.time() if self._loop is not None else 0.0
        waiting = [waiter for waiter in self._queue if not waiter.slot.done()]
        notes = [*self._notes]
        if len(self._max_concurrencies) > 1:
            lowest = min(self._max_concurrencies)
            notes.append(
                f"max_concurrency: judges of this account have different limits; the lowest, {lowest}, applies"
            )
        return AccountState(
            account=self.account,
            places=min(self._places.level, self._places.ceiling),
            ceiling=max(1, floor(self._ceiling)),
            share=self._share,
            inflight=len(self._in_flight),
            waiting=len(waiting),
            longest_wait_s=max((now_s - waiter.since_s for waiter in waiting), default=0.0),
            breaker=self.breaker.state,
            because=str(self.breaker.error or ""),
            throttled=self._throttled,
            last_throttled_s=now_s - self._last_throttled_s if self._throttled else None,
            calls=self._sent,
            retries=self._repeated,
            cached=self.cached,
            notes=tuple(notes),
        )

    @property
    def _ceiling(self) -> float:
        return self.ceiling * self._share if self._max_concurrencies else self.ceiling

    def _divide(self, fraction: float) -> None:
        self._share = fraction
        self._places.bound(self._ceiling)
        if self._loop is None:
            self._buckets.share(fraction, 0.0)
            return
        self._buckets.share(fraction, self._loop.time())
        if self._loop.is_running():
            self._make_slots()

    def _use_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._queue = FairQueue()
        self._in_flight: set[RequestSlot] = set()
        self._wake: asyncio.TimerHandle | None = None

    def _wait_s(self, tokens: float, now_s: float) -> float:
        """Return the seconds until one more question may be sent; infinite until a request ends."""
        in_flight = len(self._in_flight)
        is_bounded = in_flight < self._places.level + _MOST_BEYOND
        if self.breaker.state != "closed":  # the breaker alone decides on its probe
            place_s = 0.0 if is_bounded else inf
        else:
            place_s = self._places.wait_s(in_flight, now_s)
            all_abandoned = place_s == inf and all(slot.abandoned for slot in self._in_flight)
            if all_abandoned and is_bounded and in_flight < self.ceiling:  # one more call at a time
                place_s = 0.0
        return max(place_s, self.breaker.wait_s(now_s), self._buckets.wait_s(tokens, now_s))

    def _make_slot(self, tokens: float, now_s: float) -> RequestSlot:
        serial, probe = self._buckets.count_request(tokens, now_s), self.breaker.count_request(now_s)
        slot = RequestSlot(serial, now_s, len(self._in_flight) + 1, probe)
        self._places.count_request(slot, now_s)
        self._in_flight.add(slot)
        self._sent += 1
        return slot

    def _make_slots(self) -> None:
        """Give slots to the waiting questions that may be sent, in their order, and schedule the next run."""
        assert self._loop is not None
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        now_s = self._loop.time()
        while waiter := self._queue.next(now_s):
            wait_s = self._wait_s(waiter.tokens, now_s)
            if wait_s > 0:
                if wait_s < inf:
                    self._wake = self._loop.call_later(wait_s, self._make_slots)
                return
            self._queue.pop()
            waiter.slot.set_result(self._make_slot(waiter.tokens, now_s))

    def _end_call(self, slot: RequestSlot, call: asyncio.Future[T]) -> None:
        if not slot.abandoned:
            if call.cancelled() or isinstance(call.exception(), JudgeBudgetSpent):  # no request was sent
                self.abandon(slot, None)
            else:
                self._count_outcome(slot, call)
        elif not call.cancelled():
            call.exception()  # fetched: otherwise asyncio logs that it was never retrieved
        self._in_flight.discard(slot)
        self._places.count_end(slot)
        self._make_slots()

    def _count_outcome(self, slot: RequestSlot, call: asyncio.Future[T]) -> None:
        assert self._loop is not None
        now_s, error = self._loop.time(), call.exception()
        headers = getattr(call.result() if error is None else error, "headers", None)
        if headers:
            self._buckets.update(headers, slot.serial, slot.sent_s, now_s)
        if isinstance(error, JudgeOverloaded):
            self._throttled += 1
            self._last_throttled_s = now_s
            self._places.count_refusal(slot, now_s, self._in_flight)
            if error.retry_after_s:
                self._buckets.stop(error.retry_after_s, now_s)
                self._places.pace(self._buckets.stopped_until_s)
        elif isinstance(error, JudgeError) and _is_away(error):
            self._count_failure(slot, error)
            return
        elif error is None:
            self.largest_answer = max(self.largest_answer, getattr(call.result(), "output_tokens", 0))
            self.retries.count_answer()
            self._places.count_answer(slot, now_s, in_use=bool(self._queue))
        if self.breaker.count_answer(probe=slot.probe):
            self._places.halve()
            self._places.pace(now_s)

    def _count_failure(self, slot: RequestSlot, error: JudgeError) -> None:
        assert self._loop is not None
        opened = self.breaker.count_failure(error, self._loop.time(), probe=slot.probe)
        if opened and self.breaker.refusal is not None:
            for waiter in self._queue:
                if not waiter.slot.done():
                    waiter.slot.set_exception(self.breaker.refusal.without_request())
        elif opened:
            self._log_outage(error.error_type)

    def _log_outage(self, error_type: str) -> None:
        """Log that questions wait, because their units have no outcome, and so no line, before ``judge.queue_timeout``."""
        name = error_type if _ERROR_TYPE.fullmatch(error_type) else "judge_error"
        remedy = "; check base_url" if name == "connection" else ""
        log_once(
            f"outage of {self.account} {name}",
            f"the judge {self.account} fails ({name}): its questions wait, for at most judge.queue_timeout, see "
            f"scorer.status(){remedy}",
        )

    def _give_up(self, waiter: Waiter, step: str) -> None:
        if waiter.slot.done():
            return
        error_type, what = "rate_limit", "a place within the provider's limits"
        if self.breaker.is_out_of_quota:
            error_type, what = "quota", "the account to have money again (quota)"
        elif self.breaker.state != "closed":
            error_type, what = "breaker_open", "the judge to answer again (its breaker is open)"
        waiter.slot.set_exception(
            JudgeRateLimited(
                f"{step}: not asked: {self.account} let it wait too long for {what}", error_type=error_type
            )
        )
        self._make_slots()


def _is_away(error: JudgeError) -> bool:
    """Whether an error means that the judge answers no question; other errors concern one question."""
    return isinstance(error, JudgeUnavailable | JudgeTimeout | JudgeOutOfQuota) or error.error_type in PERSON_NEEDED


class RetryBudget:
    """Retry budget: each answered question adds half a retry, up to 20. A new budget is full.

    If a judge fails for some questions, these are asked again. If the judge fails for all questions, its load does not double.
    Source: the retry budget of Google's book "Site Reliability Engineering", chapter 21.
    """

    def __init__(self) -> None:
        self._retries = _MOST_RETRIES

    def count_answer(self) -> None:
        """Add half a retry for an answered question."""
        self._retries = min(_MOST_RETRIES, self._retries + _RETRIES_PER_ANSWER)

    def take(self) -> bool:
        """Spend one retry. Returns False if no retry is left."""
        if self._retries < 1:
            return False
        self._retries -= 1
        return True


_PROVIDER_CEILING, _LOCAL_CEILING = 64, 1
"""Most concurrent questions of a provider's account, and of a model in this process, if no judge sets a limit."""


class _LimiterRegistry:
    """Account → its limiter, for as long as a judge uses it. Thread-safe."""

    def __init__(self) -> None:
        self._limiters: WeakValueDictionary[Account, AccountLimiter] = WeakValueDictionary()
        self._lock = Lock()
        renew_lock_in_child(self)

    def limiter(self, account: Account, ceiling: int) -> AccountLimiter:
        """Return the limiter of an account; created if it is missing."""
        with self._lock:
            limiter = self._limiters.get(account)
            if limiter is None:
                limiter = self._limiters[account] = AccountLimiter(account, ceiling)
            return limiter


_registry = _LimiterRegistry()


def limiter_of(judge: Judge) -> AccountLimiter:
    """Return the limiter of a judge's account, which all judges of the account share."""
    inner = unwrapped(judge)
    account = getattr(inner, "account", None)
    if not isinstance(account, Account):
        account = Account(type(inner).__name__, inner.model, key=f"object {id(inner)}")
    limiter = _registry.limiter(
        account, _LOCAL_CEILING if getattr(inner, "in_process", False) is True else _PROVIDER_CEILING
    )
    for note in getattr(inner, "notes", ()):
        limiter.note(note)
    return limiter
