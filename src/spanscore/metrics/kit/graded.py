"""What the metrics share that let a judge give a grade: what it is shown, the grade's range, and the vote."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, WithJsonSchema, create_model

from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.votes import cast_ballots, majority
from spanscore.model.sample import MultiTurnSample, Sample
from spanscore.model.score import Ballots, Direction, Scale

__all__ = [
    "Bounds",
    "Grade",
    "GradedMetric",
    "bounded",
    "bounds_of",
    "bounds_wanted",
    "direction_wanted",
    "evidence_of",
    "ordinal",
    "voted",
]

FIELDS = ("user_input", "response", "retrieved_contexts", "reference_contexts", "reference")
"""What a judge is shown of a single turn, where it is there."""

Bounds = tuple[int, int] | None
"""Lowest and highest grade; None = any whole number."""

_GRADE = re.compile(r"-?\d+")
_TWO = 2


class Grade(Protocol):
    """An answer with a grade and the judge's words for it."""

    score: int

    @property
    def why(self) -> str:
        """The judge's words."""


T = TypeVar("T", bound=BaseModel)


class GradedMetric(JudgedMetric):
    """The mixin of a metric that shows the judge whatever a sample has; a conversation as messages, in ragas it is one text."""

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": (), "multi_turn": ("user_input",)}

    def missing(self, sample: Sample) -> str | None:
        """Single turn: any one field will do."""
        if isinstance(sample, MultiTurnSample) or any(getattr(sample, field, None) is not None for field in FIELDS):
            return super().missing(sample)
        return f"{self.name} needs at least one of {', '.join(FIELDS)}, and the sample has none"

    async def measure(self, sample: Sample) -> Finding:
        """Cast the ballots on the one question, then count."""
        evidence, (question,) = evidence_of(sample), self.questions
        return await voted(lambda ballot: self.ask(question, evidence, ballot=ballot), self.votes)


def evidence_of(sample: Sample) -> dict[str, Any]:
    """Return what a judge is shown of a sample."""
    if isinstance(sample, MultiTurnSample):
        return {"user_input": sample.messages(), "reference": sample.reference}
    fields = {field: getattr(sample, field, None) for field in FIELDS}
    return {field: value for field, value in fields.items() if value is not None}


@lru_cache(maxsize=64)
def bounded(shape: type[T], bounds: Bounds, *, told: bool = True) -> type[T]:
    """Return a shape whose score lies inside the bounds; the same one every time, so that its schema is built once.

    Args:
        shape: feedback or reason, and a score.
        bounds: lowest and highest score.
        told: whether the form says so to the judge; False where the instruction does.
    """
    # The schema says the bounds in words: half of the providers' structured modes refuse them as numbers.
    if bounds is None:
        return shape
    low, high = bounds

    def inside(score: int) -> int:
        if not low <= score <= high:
            raise ValueError(f"a score lies from {low} to {high}")
        return score

    said = {"description": f"{low} to {high}"} if told else {}
    score = Annotated[int, AfterValidator(inside), WithJsonSchema({"type": "integer", **said})]
    return create_model(shape.__name__, __base__=shape, __doc__=shape.__doc__, score=(score, ...))


def bounds_of(keys: Iterable[str]) -> Bounds:
    """Return the range of a rubric from its keys (``score1_description`` …); None where one has no number."""
    found = [_GRADE.search(key) for key in keys]
    grades = [int(match.group()) for match in found if match is not None]
    return (min(grades), max(grades)) if len(grades) == len(found) and len(set(grades)) > 1 else None


def bounds_wanted(name: str, given: Sequence[int] | None) -> Bounds:
    """Return the range a user gave.

    Raises:
        ConfigurationError: it is not two whole numbers, the lower first.
    """
    if given is None:
        return None
    whole = [bound for bound in given if isinstance(bound, int) and not isinstance(bound, bool)]
    if len(whole) != _TWO or len(given) != _TWO or whole[0] >= whole[1]:
        raise ConfigurationError(f"{name}: range is {given!r}; it is two whole numbers, lowest first, such as [1, 5]")
    return whole[0], whole[1]


def direction_wanted(name: str, given: Direction) -> Direction:
    """Return a direction.

    Raises:
        ConfigurationError: it is none.
    """
    if given not in ("higher", "lower"):
        raise ConfigurationError(f"{name}: direction is {given!r}; it is 'higher' or 'lower'")
    return given


def ordinal(bounds: Bounds, direction: Direction = "higher") -> Scale:
    """Return the scale of grades. Without bounds its values have no quality, and nothing passes or fails."""
    return Scale(
        kind="ordinal", range=None if bounds is None else (float(bounds[0]), float(bounds[1])), direction=direction
    )


async def voted(ballot: Callable[[int], Coroutine[Any, Any, Grade]], number: int) -> Finding:
    """Cast ballots and return the most frequent grade; the lower median of all where several are equally frequent."""
    ballots = await cast_ballots(ballot, number)
    grades = [one.score for one in ballots]
    grade = majority(grades, tie=sorted(grades)[(len(grades) - 1) // 2])
    winner = next(one for one in ballots if one.score == grade)
    split = f"{grades.count(grade)} of {len(grades)} votes for {grade}: " if len(grades) > 1 else ""
    return Finding(value=float(grade), explanation=split + winner.why, ballots=Ballots(number, len(ballots)))
