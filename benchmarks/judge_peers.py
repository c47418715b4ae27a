"""Clients of a judge for comparison: spanscore now and earlier, and other libraries' limits and retries, in virtual time.

Today's spanscore is the real code. The others need a network, so their limits and retries are modelled from their source:
openai 3.54 ``_base_client.py`` (two retries, 0.5 s doubling to 8 s, less up to a quarter; ``Retry-After`` up to 2 min),
ragas 0.4.3 ``executor.py`` and ``run_config.py`` (16 workers; ten attempts by tenacity's ``wait_random_exponential`` up to 60
s, by tenacity itself, around a client with its two retries), litellm 1.109 ``router`` (``calculate_retry_after``: no limit of
its own; two retries, after 0.5 s, doubling, plus up to 0.75 s, and a last wait before it raises; ``Retry-After`` up to 60 s; a
single deployment is never cooled down; the client's own retries are off).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tenacity

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeUnavailable
from spanscore.judges import RateLimited
from spanscore.judges.effects.middleware import JudgeMiddleware
from spanscore.protocols import Judge

AT_ONCE = 16


@dataclass(slots=True, weakref_slot=True)
class Client(JudgeMiddleware):
    """OpenAI's client."""

    judge: Judge
    rng: random.Random
    retries: int = 2

    async def ask(self, prompt: Prompt) -> Reply:
        for retry in range(self.retries):
            try:
                return await self.judge.ask(prompt)
            except JudgeUnavailable as error:
                after_s = error.retry_after_s or 0.0
                if after_s > 120:
                    raise
                backoff_s = min(0.5 * 2**retry, 8.0) * (1 - 0.25 * self.rng.random())
                await asyncio.sleep(after_s if after_s > 0 else backoff_s)
        return await self.judge.ask(prompt)


@dataclass(slots=True, weakref_slot=True)
class Router(JudgeMiddleware):
    """litellm's router with one deployment."""

    judge: Judge
    rng: random.Random

    async def ask(self, prompt: Prompt) -> Reply:
        for attempt in range(3):
            try:
                return await self.judge.ask(prompt)
            except JudgeUnavailable as error:
                after_s, jitter_s = error.retry_after_s or 0.0, 0.75 * self.rng.random()
                await asyncio.sleep((after_s if 0 < after_s <= 60 else 0.5 * 2**attempt) + jitter_s)
                last = error  # it also sleeps after the last one
        raise last


@dataclass(slots=True, weakref_slot=True)
class Ragas(JudgeMiddleware):
    """ragas's executor around a LangChain chat model."""

    judge: Judge

    async def ask(self, prompt: Prompt) -> Reply:
        retrying = tenacity.AsyncRetrying(
            wait=tenacity.wait_random_exponential(multiplier=1, max=60),
            stop=tenacity.stop_after_attempt(10),
            sleep=asyncio.sleep,
            reraise=True,
        )

        async def attempt() -> Reply:
            return await self.judge.ask(prompt)

        reply: Reply = await retrying(attempt)
        return reply


@dataclass(slots=True, weakref_slot=True)
class Earlier(JudgeMiddleware):
    """The first spanscore: three attempts of 30 s, a random fraction of 0.5 s and of 1 s apart, after any ``Retry-After``."""

    judge: Judge
    rng: random.Random

    async def ask(self, prompt: Prompt) -> Reply:
        for longest_s in (0.5, 1.0):
            try:
                async with asyncio.timeout(30.0):
                    return await self.judge.ask(prompt)
            except (JudgeUnavailable, TimeoutError) as error:
                after_s = getattr(error, "retry_after_s", None) or 0.0
                if after_s > 60:
                    raise
                await asyncio.sleep(after_s + self.rng.uniform(0.0, longest_s))
        async with asyncio.timeout(30.0):
            return await self.judge.ask(prompt)


@dataclass(slots=True, weakref_slot=True)
class AtOnce(JudgeMiddleware):
    """At most 16 questions at once."""

    judge: Judge
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def ask(self, prompt: Prompt) -> Reply:
        async with self.places:
            return await self.judge.ask(prompt)


def ours(server: Judge, rng: random.Random) -> Judge:
    return RateLimited(server, jitter=lambda longest: rng.uniform(0.0, longest))


def before(server: Judge, rng: random.Random) -> Judge:
    return Earlier(AtOnce(Client(server, rng)), rng)


def ragas(server: Judge, rng: random.Random) -> Judge:
    return AtOnce(Ragas(Client(server, rng)))


def litellm(server: Judge, rng: random.Random) -> Judge:
    return Router(server, rng)


def openai_client(server: Judge, rng: random.Random) -> Judge:
    return AtOnce(Client(server, rng))


ASKERS: dict[str, Callable[[Any, random.Random], Judge]] = {
    "spanscore": ours,
    "spanscore before": before,
    "ragas": ragas,
    "litellm": litellm,
    "openai, 16 at once": openai_client,
}
