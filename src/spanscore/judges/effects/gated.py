"""Gated: a judge behind the gate of its account, asked again when that may help."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeOutOfQuota, JudgeOverloaded, JudgeTimeout, JudgeUnavailable
from spanscore.judges.asker import asker
from spanscore.judges.effects.account import AccountLimits, checked_positive
from spanscore.judges.effects.accounts import gate_of
from spanscore.judges.effects.effect import Effect, unwrapped
from spanscore.judges.effects.gate import Gate
from spanscore.judges.effects.ticket import Ticket
from spanscore.judges.record import TOLD, failed_call, given_up, record
from spanscore.judges.tokens import question_tokens
from spanscore.protocols import Judge

__all__ = ["Gated", "gates_of"]

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0


class Gated(Effect):
    """A judge whose questions wait until its account may be asked, and are asked again when that may help.

    An attempt that failed for want of the judge (no connection, a 5xx, its deadline) is repeated, up to ``max_attempts``, after
    a random share of 0.5, 1, 2 … s; but not counted, where the judge proves to be away for others too. A refusal for load costs
    no attempt: the question waits. Attempts that are not the last are recorded as calls.

    Args:
        max_attempts: the first one included.
        max_concurrency: the most questions at once of the account, whoever asks it; None: 64, and 1 for a model that runs in
            this process.
        timeout: seconds for one attempt, waiting not counted.
        queue_timeout: seconds from when this process took the unit, after which a question waits no longer.
        requests_per_minute: of the account, where the provider does not tell what is left.
        tokens_per_minute: likewise, of questions and answers.
        dice: seconds → a random share of them; for tests.

    Raises:
        ConfigurationError: one of them is not positive.
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
        self.gate = gate_of(judge, AccountLimits(max_concurrency, requests_per_minute, tokens_per_minute))
        self._dice = dice

    def __repr__(self) -> str:
        return f"Gated({self.judge!r})"

    async def ask(self, prompt: Prompt) -> Reply:
        """Wait until the account may be asked, and ask.

        Raises:
            JudgeRateLimited: it waited for longer than ``queue_timeout``.
            JudgeError: the last attempt's.
        """
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
                excused = gate.breaker.excuses(failed + 1) and clock() < until_s  # else it might be the probe for ever
                failed += not excused
                if failed >= self.max_attempts or not gate.may_repeat(excused=excused):
                    raise
                record(failed_call(prompt, self.model, error, time.perf_counter() - began_s))
                await self._back_off(failed)

    async def _attempt(self, gate: Gate, ticket: Ticket, prompt: Prompt, began_s: float) -> Reply:
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

    async def _back_off(self, failed: int) -> None:
        longest_s = min(_FIRST_WAIT_S * 2 ** max(0, failed - 1), _LONGEST_WAIT_S)
        with asker().waits():
            await asyncio.sleep(self._dice(longest_s))


def gates_of(judge: Judge) -> tuple[Gate, ...]:
    """Return the gates that a judge's questions go through; none of one that has none."""
    inner = judge.judges if isinstance(judge, Effect) else ()
    own = [judge.gate] if isinstance(judge, Gated) else []
    return (*own, *(gate for one in inner for gate in gates_of(one)))
