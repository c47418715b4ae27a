"""Clients of a judge for comparison: spanscore now and earlier, and other libraries' limits and retries, in virtual time.

Both versions of spanscore are the real code. The others need a network, so their limits and retries are modelled from their
source: openai 3.54 ``_base_client.py`` (two retries, 0.5 s doubling to 8 s, less up to a quarter; ``Retry-After`` up to 2 min),
ragas 0.4.3 ``executor.py`` and ``run_config.py`` (16 workers; ten attempts by tenacity's ``wait_random_exponential`` up to 60
s, by tenacity itself, around a client with its two retries), litellm 1.109 ``router`` (``calculate_retry_after``: no limit of
its own; two retries, after 0.5 s, doubling, plus up to 0.75 s, and a last wait before it raises; ``Retry-After`` up to 60 s; a
single deployment is never cooled down; the client's own retries are off).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tenacity

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeUnavailable
from spanscore.judges import Limited, RateLimited, Retrying, Timed
from spanscore.protocols import Judge

AT_ONCE = 16


@dataclass(slots=True, weakref_slot=True)
class Client:
    """OpenAI's client."""

    judge: Judge
    dice: random.Random
    retries: int = 2

    @property
    def model(self) -> str:
        return self.judge.model

    async def ask(self, prompt: Prompt) -> Reply:
        for retry in range(self.retries):
            try:
                return await self.judge.ask(prompt)
            except JudgeUnavailable as error:
                after_s = error.retry_after_s or 0.0
                if after_s > 120:
                    raise
                backoff_s = min(0.5 * 2**retry, 8.0) * (1 - 0.25 * self.dice.random())
                await asyncio.sleep(after_s if after_s > 0 else backoff_s)
        return await self.judge.ask(prompt)


@dataclass(slots=True, weakref_slot=True)
class Router:
    """litellm's router with one deployment."""

    judge: Judge
    dice: random.Random

    @property
    def model(self) -> str:
        return self.judge.model

    async def ask(self, prompt: Prompt) -> Reply:
        for attempt in range(3):
            try:
                return await self.judge.ask(prompt)
            except JudgeUnavailable as error:
                after_s, jitter_s = error.retry_after_s or 0.0, 0.75 * self.dice.random()
                await asyncio.sleep((after_s if 0 < after_s <= 60 else 0.5 * 2**attempt) + jitter_s)
                last = error  # it also sleeps after the last one
        raise last


@dataclass(slots=True, weakref_slot=True)
class Ragas:
    """ragas's executor around a LangChain chat model."""

    judge: Judge

    @property
    def model(self) -> str:
        return self.judge.model

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


def ours(server: Judge, dice: random.Random) -> Judge:
    return RateLimited(server, dice=lambda longest: dice.uniform(0.0, longest))


def before(server: Judge, dice: random.Random) -> Judge:
    return Retrying(Limited(Timed(Client(server, dice), 30.0), AT_ONCE), 3)


def ragas(server: Judge, dice: random.Random) -> Judge:
    return Limited(Ragas(Client(server, dice)), AT_ONCE)


def litellm(server: Judge, dice: random.Random) -> Judge:
    return Router(server, dice)


def openai_client(server: Judge, dice: random.Random) -> Judge:
    return Limited(Client(server, dice), AT_ONCE)


ASKERS: dict[str, Callable[[Any, random.Random], Judge]] = {
    "spanscore": ours,
    "spanscore before": before,
    "ragas": ragas,
    "litellm": litellm,
    "openai, 16 at once": openai_client,
}
