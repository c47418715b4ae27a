"""Jobs, and judges in virtual time, for engines on a loop of the test."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from spanscore.core.job import Decision, Job, SampledUnit
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import Sample, Samples, SingleTurnSample
from spanscore.core.score import Score
from spanscore.core.span import Unit, UnitKey
from spanscore.judges.score_context import current_score
from spanscore.metrics import AspectCritic, BaseMetric, Finding
from spanscore.pipeline.evaluation import Evaluation

SAMPLES = Samples(single_turn=SingleTurnSample(user_input="q", response="a"))


def decisions(*names: str) -> dict[str, Decision]:
    return dict.fromkeys(names, Decision(take=True, probability=1.0, threshold=0, rule="base"))


def a_job(*names: str) -> Job:
    return Job(Unit(UnitKey(1, 2), ()), SAMPLES, decisions(*names))


def a_sampled_unit(number: int, *names: str) -> SampledUnit:
    return SampledUnit(Unit(UnitKey(number, number), ()), decisions(*names), SAMPLES)


async def scores_of(evaluation: Evaluation, job: Job) -> list[Score]:
    """Return one score per metric of a job, in that order."""
    scores = {score.metric: score async for score in evaluation.each(job)}
    return [scores[name] for name in job.decisions]


class Answers:
    """A judge that answers yes, after this much working time, and before it this much waiting time."""

    model = "answers"

    def __init__(self, after_s: float = 0.0, *, waits_s: float = 0.0) -> None:
        self.after_s, self.waits_s, self.asked = after_s, waits_s, 0

    async def ask(self, prompt: Prompt) -> Reply:
        self.asked += 1
        if self.waits_s:
            with current_score().waits():
                await asyncio.sleep(self.waits_s)
        await asyncio.sleep(self.after_s)
        return Reply(text=json.dumps({"reason": "so it is", "verdict": 1}), model=self.model)


class Critic(AspectCritic):
    """Asks its judge on whatever loop it is awaited."""

    def __init__(self, judge: Any, name: str = "critic", **more: Any) -> None:
        super().__init__(judge, name=name, definition="Is it right?", **more)

    async def score(self, sample: Sample) -> Score:
        return await self._score_here(sample)


class Computes(BaseMetric):
    """Computes for this many seconds, without a known judge."""

    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self, name: str = "computes", for_s: float = 0.0) -> None:
        self.name, self.for_s, self.begun = name, for_s, 0

    async def score(self, sample: Sample) -> Score:
        return await self._score_here(sample)

    async def measure(self, sample: Any) -> Finding:
        self.begun += 1
        await asyncio.sleep(self.for_s)
        return Finding(value=1.0)
