"""A judge on a hand-moved clock that is unavailable by a script, behind the limiter of a real judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.judges.models import QUESTION

from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall
from spanscore.errors import JudgeError
from spanscore.judges.effects.limited import RateLimited
from spanscore.judges.records import recorded_calls
from spanscore.judges.score_context import ScoreContext, asked_by

TIMEOUT_S = 10.0
_LATENCY_S = 0.2
_REFUSAL_S = 0.01

Script = Callable[[float, Random], "JudgeError | str | None"]
"""Seconds and random numbers → the result of a request: an error, ``hang``, or None for an answer."""


@dataclass
class Away:
    """Answers after a fifth of a second, unless its script has another result."""

    script: Script
    model: str = "away"
    rng: Random = field(default_factory=lambda: Random(0))
    asked_s: list[float] = field(default_factory=list)
    out: int = 0
    most_out: int = 0

    async def ask(self, prompt: Prompt) -> Reply:
        now_s = asyncio.get_running_loop().time()
        self.asked_s.append(now_s)
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        try:
            return await self._answer(self.script(now_s, self.rng))
        finally:
            self.out -= 1

    async def _answer(self, said: JudgeError | str | None) -> Reply:
        if said == "hang":
            await asyncio.sleep(TIMEOUT_S + 1)  # its connection ends with the client's own deadline
        if isinstance(said, JudgeError):
            await asyncio.sleep(_REFUSAL_S)
            raise said
        await asyncio.sleep(_LATENCY_S)
        return Reply(text='{"reason": "fine", "verdict": 1}', model=self.model)


@dataclass
class Came:
    """The results of the questions.

    Attributes:
        scored_s: when each was answered.
        errors: errors of the failed questions.
        waited_s: from each question to its end.
        calls: that were recorded, but for the last of each question, which ``judges/ask.py`` records.
    """

    scored_s: list[float] = field(default_factory=list)
    errors: list[JudgeError] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)
    calls: list[JudgeCall] = field(default_factory=list)

    def first_after(self, moment_s: float) -> float:
        return min(at_s for at_s in self.scored_s if at_s > moment_s) - moment_s


async def asked(judge: Away, units: int, per_s: float = 5.0, **effects: Any) -> Came:
    """Ask so many questions at a pace, and wait for all of them."""
    limited, came = (
        RateLimited(judge, timeout=TIMEOUT_S, jitter=lambda most: judge.rng.uniform(0, most), **effects),
        Came(),
    )
    loop = asyncio.get_running_loop()

    async def ask() -> None:
        began_s = loop.time()
        with asked_by(ScoreContext("harmless", taken_s=began_s)), recorded_calls() as calls:
            try:
                await limited.ask(QUESTION)
                came.scored_s.append(loop.time())
            except JudgeError as error:
                came.errors.append(error)
        came.waited_s.append(loop.time() - began_s)
        came.calls.extend(calls)

    async with asyncio.TaskGroup() as asking:
        for _ in range(units):
            asking.create_task(ask())
            await asyncio.sleep(1 / per_s)
    return came
