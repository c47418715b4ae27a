"""Simulated servers of judges in virtual time: their limits, refusals and faults, and the best rate that an oracle could reach.

A question takes some 0.5 s (log-normal), a refusal 0.05 s. A limit per second is a token bucket for one second.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeOverloaded, JudgeUnavailable

SECONDS = 200.0
TOKENS_PER_QUESTION = 500.0
ANSWER_TOKENS = 50
_SPREAD = 0.3
_REFUSAL_S = 0.05
_CHARACTERS_PER_TOKEN = 3.5

Between = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits and faults of a server.

    Attributes:
        at_once: number of concurrent questions.
        queue: number of questions that may wait for that.
        per_second: allowed requests per second, by time.
        tokens_per_second: allowed tokens of questions and answers per second.
        latency_s: mean time of an answer.
        lag_s: time after its answer for which a question still counts.
        headers: whether its answers have the remaining limits.
        retry_after_s: ``Retry-After`` of its refusals.
        storm: time in which it refuses everything.
        down: time in which connections fail.
    """

    at_once: float = inf
    queue: int = 0
    per_second: Sequence[tuple[float, float]] = ((0.0, inf),)
    tokens_per_second: float = inf
    latency_s: float = 0.5
    lag_s: float = 0.0
    headers: bool = False
    retry_after_s: float | None = None
    storm: Between = (inf, inf)
    down: Between = (inf, inf)

    def rate(self, now_s: float) -> float:
        """Return the allowed requests per second at a time."""
        return [rate for since_s, rate in self.per_second if since_s <= now_s][-1]

    @property
    def fault(self) -> Between | None:
        """The time of its fault; None without a fault."""
        return next((between for between in (self.storm, self.down) if between[0] < inf), None)

    def oracle(self, from_s: float = 0.0, until_s: float = SECONDS, askers: int = 64) -> float:
        """Return the number of answers in a time for a client configured with all limits."""
        steps = 1000
        width_s = (until_s - from_s) / steps
        moments = [from_s + (step + 0.5) * width_s for step in range(steps)]
        return sum(width_s * self._answers_per_s(moment_s, askers) for moment_s in moments)

    def _answers_per_s(self, now_s: float, askers: int) -> float:
        if self.fault is not None and self.fault[0] <= now_s < self.fault[1]:
            return 0.0
        by_tokens = self.tokens_per_second / (TOKENS_PER_QUESTION + ANSWER_TOKENS)
        return min(self.rate(now_s), by_tokens, min(self.at_once, askers) / (self.latency_s + self.lag_s))


class Meter:
    """A limit per second: a token bucket for one second, which refuses larger requests."""

    def __init__(self) -> None:
        self.most = self._level = 0.0
        self._rate = self._at_s = 0.0

    def level(self, rate: float, now_s: float) -> float:
        """Return the level of the bucket, at the present rate."""
        self.most = max(1.0, rate)
        if self._rate == 0.0:
            self._level = self.most
        self._level = min(self.most, self._level + rate * (now_s - self._at_s))
        self._rate, self._at_s = rate, now_s
        return self._level

    def take(self, amount: float) -> None:
        self._level -= amount


@dataclass(slots=True)
class Server:
    """A judge in virtual time that counts its questions.

    Attributes:
        calls: number of requests.
        answered_s: times of its answers.
    """

    limits: Limits
    rng: random.Random
    calls: int = 0
    answered_s: list[float] = field(default_factory=list)
    model: str = "virtual"
    _began_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    _working: int = 0
    _waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    _requests: Meter = field(default_factory=Meter)
    _tokens: Meter = field(default_factory=Meter)

    @property
    def at_work(self) -> int:
        """Number of questions that it answers or lets wait."""
        return self._working + len(self._waiters)

    @property
    def now_s(self) -> float:
        """Seconds since it was made; a loop in real time does not start at 0."""
        return asyncio.get_running_loop().time() - self._began_s

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer, refuse or fail."""
        self.calls += 1
        tokens = len(prompt.evidence["response"]) / _CHARACTERS_PER_TOKEN + ANSWER_TOKENS
        if self.limits.down[0] <= self.now_s < self.limits.down[1]:
            await asyncio.sleep(_REFUSAL_S)
            raise JudgeUnavailable("down", error_type="connection")
        if not self._admits(tokens, self.now_s):
            headers = self._headers(self.now_s)
            await asyncio.sleep(_REFUSAL_S)
            raise JudgeOverloaded("limit", retry_after_s=self.limits.retry_after_s, headers=headers)
        headers = self._headers(self.now_s)
        await self._work()
        if self.limits.down[0] <= self.now_s < self.limits.down[1]:
            raise JudgeUnavailable("gone", error_type="connection")
        self.answered_s.append(self.now_s)
        return Reply(
            text='{"verdict": 1}',
            input_tokens=round(tokens) - ANSWER_TOKENS,
            output_tokens=ANSWER_TOKENS,
            headers=headers,
        )

    def _admits(self, tokens: float, now_s: float) -> bool:
        if self.limits.storm[0] <= now_s < self.limits.storm[1]:
            return False
        if self._working >= self.limits.at_once and len(self._waiters) >= self.limits.queue:
            return False
        rate, tokens_rate = self.limits.rate(now_s), self.limits.tokens_per_second
        if rate < inf and self._requests.level(rate, now_s) < 1:
            return False
        if tokens_rate < inf and self._tokens.level(tokens_rate, now_s) < tokens:
            return False
        self._requests.take(1.0)
        self._tokens.take(tokens)
        return True

    def _headers(self, now_s: float) -> dict[str, str]:
        headers = {
            "requests": (self._requests, self.limits.rate(now_s)),
            "tokens": (self._tokens, self.limits.tokens_per_second),
        }
        if not self.limits.headers:
            return {}
        return {
            f"x-ratelimit-{name}-{kind}": value
            for kind, (meter, rate) in headers.items()
            if rate < inf
            for name, value in _rate_headers(meter, rate, now_s)
        }

    async def _work(self) -> None:
        if self._working < self.limits.at_once:
            self._working += 1
        else:
            self._waiters.append(asyncio.get_running_loop().create_future())
            await self._waiters[-1]  # then takes the place of a question that has ended
        await asyncio.sleep(self.limits.latency_s * self.rng.lognormvariate(-(_SPREAD**2) / 2, _SPREAD))
        if self.limits.lag_s:
            asyncio.get_running_loop().call_later(self.limits.lag_s, self._end)
        else:
            self._end()

    def _end(self) -> None:
        if self._waiters:
            self._waiters.popleft().set_result(None)
        else:
            self._working -= 1


def _rate_headers(meter: Meter, rate: float, now_s: float) -> list[tuple[str, str]]:
    left = meter.level(rate, now_s)
    reset_s = (meter.most - left) / rate
    return [("limit", f"{meter.most:.0f}"), ("remaining", f"{int(left)}"), ("reset", f"{reset_s:.3f}s")]
