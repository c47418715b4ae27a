"""Two ratings of one thing, by two differently worded questions → their mean. What NVIDIA's three metrics share.

A rating that cannot be read is asked for again, up to five times: one number is cheaper asked again than repaired.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, field_validator

from spanscore.errors import JudgeUnparseable
from spanscore.metrics.base import Finding
from spanscore.metrics.judged import JudgedMetric
from spanscore.metrics.step import Step
from spanscore.metrics.votes import cast_ballots
from spanscore.model.score import UNIT_INTERVAL, Ballots

__all__ = ["Rating012", "Rating024", "TwoRatings"]

_ATTEMPTS = 5
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class _Rating(BaseModel):
    """A whole number out of a few."""

    allowed: ClassVar[tuple[int, ...]]

    rating: int

    @field_validator("rating")
    @classmethod
    def _is_allowed(cls, value: int) -> int:
        if value not in cls.allowed:
            raise ValueError(f"a rating is one of {cls.allowed}")
        return value

    @classmethod
    def from_plain_text(cls, text: str, _: Mapping[str, Any]) -> Self | None:
        """Read a text with one number in it that is an allowed rating: "The rating is 2." and "2.0", not "1 out of 2"."""
        numbers = {float(found) for found in _NUMBER.findall(text)}
        rating = numbers.pop() if len(numbers) == 1 else None
        return cls(rating=int(rating)) if rating is not None and rating in cls.allowed else None


class Rating024(_Rating):
    """How far two answers agree."""

    allowed = (0, 2, 4)


class Rating012(_Rating):
    """Not at all, in part, fully."""

    allowed = (0, 1, 2)


class TwoRatings(JudgedMetric):
    """The mixin of a metric that is the mean of two ratings, each divided by the highest.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        questions: the two steps; their outputs are of one class.
        name: under which its scores appear.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    votes = 2

    def __init__(
        self,
        judge: Any,
        *,
        questions: Sequence[Step[Any]],
        name: str,
        pass_at: float | None,
        prompts: Mapping[str, Mapping[str, Any]] | None,
    ) -> None:
        super().__init__(judge, steps=questions, name=name, scale=UNIT_INTERVAL, pass_at=pass_at, prompts=prompts)
        self._questions = tuple(questions)

    async def _both(self, *evidence: Mapping[str, Any]) -> Finding:
        """Ask both questions side by side, each with its evidence, and return the mean of the ratings that came back."""
        shown = list(zip(self._questions, evidence, strict=True))
        found = await cast_ballots(lambda place: self._rating(*shown[place]), len(shown))
        shares = [answer.rating / answer.allowed[-1] for answer in found]
        told = " and ".join(f"{answer.rating} of {answer.allowed[-1]}" for answer in found)
        lost = "" if len(found) == len(shown) else "; the other rating could not be had"
        return Finding(
            value=sum(shares) / len(shares),
            explanation=f"Rated {told}{lost}.",
            ballots=Ballots(asked=len(shown), received=len(found)),
        )

    async def _rating(self, step: Step[Any], evidence: Mapping[str, Any]) -> _Rating:
        """Ask until a rating can be read.

        Raises:
            JudgeError: none could, or there was no answer.
        """
        unread: JudgeUnparseable | None = None
        for attempt in range(_ATTEMPTS):
            try:
                rating: _Rating = await self._ask(step, evidence, ballot=attempt, repair=False)
            except JudgeUnparseable as error:
                unread = error
            else:
                return rating
        raise unread or JudgeUnparseable(f"{step.name}: no attempt was made")
