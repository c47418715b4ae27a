"""SideBySide: a judge that answers once all questions of a round are open; a metric that asks one by one waits in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from spanscore.core.prompt import Prompt, Reply
from spanscore.testing import ScriptedJudge

DEADLINE_S = 10.0


class SideBySide(ScriptedJudge):
    """A scripted judge with rounds: ``rounds=(2, 5)`` waits for two questions, answers, then waits for five."""

    def __init__(self, answers: Iterable[Mapping[str, Any]], *, rounds: Iterable[int]) -> None:
        super().__init__(answers)
        barriers = [asyncio.Barrier(size) for size in rounds]
        self._places = [barrier for barrier in barriers for _ in range(barrier.parties)]

    async def ask(self, prompt: Prompt) -> Reply:
        barrier = self._places.pop(0)
        try:
            return await super().ask(prompt)  # answers are given in the order of the questions, and held back
        finally:
            async with asyncio.timeout(DEADLINE_S):
                await barrier.wait()
