"""Two ratings of one thing, by two differently worded questions → their mean. What NVIDIA's three metrics share.

A rating that cannot be read is asked for again, up to five times: one number is cheaper asked again than repaired. Where both
questions are about the same texts, a chat model is asked both at once: the texts are most of what is paid for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, field_validator

from spanscore.core.score import Votes
from spanscore.errors import JudgeUnparseable
from spanscore.judges.effects.middleware import reads_instructions
from spanscore.judges.rendering import render
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.step import Step
from spanscore.metrics.kit.votes import cast_ballots

__all__ = ["Rating012", "Rating024", "TwoRatings"]

_ATTEMPTS = 5
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_AROUND = " \t\r\n.*_`'\""
"""What may stand around a number that is a whole answer."""


class _Rated(BaseModel):
    """Whole numbers out of a few."""

    allowed: ClassVar[tuple[int, ...]]

    @field_validator("*")
    @classmethod
    def _is_allowed(cls, value: int) -> int:
        if value not in cls.allowed:
            raise ValueError(f"a rating is one of {cls.allowed}")
        return value


class _Rating(_Rated):
    """A whole number out of a few."""

    rating: int

    @classmethod
    def from_plain_text(cls, text: str, _: Mapping[str, Any]) -> Self | None:
        """Read a text that is an allowed rating and nothing else: "2", "2.0" and "**2**", not "The text says 2."."""
        number = _NUMBER.fullmatch(text.strip(_AROUND))
        rating = float(number.group()) if number else None
        return cls(rating=int(rating)) if rating is not None and rating in cls.allowed else None


class Rating024(_Rating):
    """How far two answers agree."""

    allowed = (0, 2, 4)


class Rating012(_Rating):
    """Not at all, in part, fully."""

    allowed = (0, 1, 2)


class Both012(_Rated):
    """Two of them, of one thing."""

    allowed = (0, 1, 2)

    first: int
    second: int


class TwoRatings(JudgedMetric):
    """The mixin of a metric that is the mean of two ratings, each divided by the highest.

    Attributes:
        questions: the two steps; their outputs are of one class.
        both: name of the step that asks both questions at once, where they are about the same texts.
    """

    votes = 2
    both: ClassVar[str | None] = None

    async def _rated(self, *evidence: Mapping[str, Any]) -> Finding:
        """Ask both questions side by side, each with its evidence, and return the mean of the ratings that came back."""
        both = self._joined() if reads_instructions(self._judge) else None
        found = await self._at_once(both, evidence[0]) if both else []
        if not found:
            asked = list(zip(self.steps.values(), evidence, strict=True))
            tried = 1 if both else 0
            found = await cast_ballots(lambda place: self._rating(*asked[place], tried), len(asked))
        top = self.questions[0].output.allowed[-1]
        told = " and ".join(map(str, found))
        lost = "" if len(found) == self.votes else "; the other rating could not be had"
        return Finding(
            value=sum(found) / top / len(found),
            explanation=f"Rated {told} on a scale of 0 to {top}{lost}.",
            votes=Votes(requested=self.votes, received=len(found)),
        )

    async def _at_once(self, both: Step[Both012], evidence: Mapping[str, Any]) -> list[int]:
        """Return the two ratings of one answer; none when they cannot be read."""
        try:
            answer = await both.ask(self._judge, evidence, repair=False)
        except JudgeUnparseable:
            return []
        return [answer.first, answer.second]

    async def _rating(self, step: Step[Any], evidence: Mapping[str, Any], tried: int) -> int:
        """Ask until a rating can be read; ``tried`` attempts are gone."""
        unread = JudgeUnparseable(f"{step.name}: no attempt was made")
        for attempt in range(tried, _ATTEMPTS):
            try:
                answer: _Rating = await step.ask(self._judge, evidence, vote_index=attempt, repair=False)
            except JudgeUnparseable as error:
                unread = error
            else:
                return answer.rating
        raise unread

    def _identity(self) -> dict[str, Any]:
        """Return what the version is a hash of: the question of both, too."""
        both, known = self._joined(), super()._identity()
        joined = {} if both is None else {both.name: render(both.prompt({}))}
        return {**known, "prompts": {**known["prompts"], **joined}}

    def _joined(self) -> Step[Both012] | None:
        """Return both questions as one; None where a user gave one of them examples, which are of that one's form."""
        if self.both is None or any(question.examples for question in self.steps.values()):
            return None
        first, second = (question.instruction for question in self.steps.values())
        instruction = f"Give two ratings, each on its own.\nFirst: {first}\nSecond: {second}"
        return Step(name=self.both, instruction=instruction, output=Both012)
