"""Marking: a metric and lessons → which of them it gets right, many at once; with what that cost so far."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from spanscore.core.score import JudgeCall, Outcome, Score, known_sum
from spanscore.errors import JudgeBudgetSpent, JudgeError
from spanscore.fitting.teachable import Lesson, Teachable
from spanscore.judges.effects.cache import MemoryAnswers, answers_kept
from spanscore.judges.records import recorded_by
from spanscore.judges.score_context import Asker, asked_by, asker

__all__ = ["FittingProgress", "Marking", "OnProgress", "answers_in", "refuse_silence"]

_AT_ONCE = 32
"""Samples at once, as of ``evaluate``; the judge keeps to its own limit."""
_KEPT_S = 86_400.0


class FittingProgress(NamedTuple):
    """How far a fit is.

    Attributes:
        done: samples judged.
        total: the most that there will be.
        judge_calls: that were sent; what was answered before is not counted.
        cost_usd: of those with a known price; None where none is known.
    """

    done: int = 0
    total: int = 0
    judge_calls: int = 0
    cost_usd: float | None = None


OnProgress: TypeAlias = Callable[[FittingProgress], None]
"""Called after each judged sample, on the loop's thread; must not block."""


class Marking:
    """Has metrics judge lessons. Loop thread.

    Args:
        total: samples that it will have judged, at most.
        on_progress: told after each; None = nobody is.

    Attributes:
        at: how far it is.
        silent: samples without a verdict so far, or with that of a fallback.
    """

    def __init__(self, total: int, on_progress: OnProgress | None = None) -> None:
        self.at = FittingProgress(total=total)
        self.silent = 0
        self._why = ""
        self._on_progress = on_progress
        self._room = asyncio.Semaphore(_AT_ONCE)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what judges are asked inside the block, and ask equal questions once."""
        with answers_kept(MemoryAnswers(max_age_s=_KEPT_S)), recorded_by(self._pay):
            yield

    async def mark(self, metric: Teachable, lessons: Sequence[Lesson]) -> list[Score]:
        """Return the metric's scores of the lessons, in order.

        Raises:
            JudgeBudgetSpent: the budget of the context's asker is spent: a candidate would be held to answer for it.
        """
        scores = await asyncio.gather(*(self._score(metric, lesson) for lesson in lessons))
        if unpaid := [score for score in scores if score.outcome is Outcome.BUDGET_EXHAUSTED]:
            raise JudgeBudgetSpent(_why(unpaid[0]))
        return scores

    async def _score(self, metric: Teachable, lesson: Lesson) -> Score:
        async with self._room:
            with asked_by(Asker(metric.name, purse=asker().purse)):
                score = await metric.score(lesson.sample)
        self.at = self.at._replace(done=self.at.done + 1)
        if not _says(score):
            self.silent, self._why = self.silent + 1, _why(score)
        if self._on_progress is not None:
            self._on_progress(self.at)
        return score

    def notes(self) -> list[str]:
        """Return what must be known of what was not judged."""
        if not self.silent:
            return []
        return [
            f"{self.silent:,} of {self.at.done:,} times that a sample was to be judged there was no verdict, which counts "
            f"against a candidate: {self._why}"
        ]

    def _pay(self, call: JudgeCall) -> None:
        if not call.cached:
            cost_usd = known_sum([self.at.cost_usd, call.cost_usd])
            self.at = self.at._replace(judge_calls=self.at.judge_calls + 1, cost_usd=cost_usd)


def answers_in(scores: Sequence[Score], lessons: Sequence[Lesson]) -> list[bool | None]:
    """Return lesson by lesson whether the verdict is the human's; None where there is none, or another judge stood in."""
    pairs = zip(scores, lessons, strict=True)
    return [score.value == lesson.verdict if _says(score) else None for score, lesson in pairs]


def refuse_silence(scores: Sequence[Score]) -> None:
    """Refuse scores of which none has a verdict: they tell nothing of any judge.

    Raises:
        JudgeError: there is none.
    """
    if not any(map(_says, scores)):
        why, error_type = _why(scores[0]), scores[0].error_type
        raise JudgeError(f"none of {len(scores)} labelled samples could be judged: {why}", error_type=error_type)


def _says(score: Score) -> bool:
    return score.value is not None and not score.source


def _why(score: Score) -> str:
    return score.reason or "a fallback judged in its place"
