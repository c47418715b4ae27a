"""Ballots, really cast, and what their majority says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from spanscore.errors import ConfigurationError, JudgeError
from spanscore.metrics.kit.condition import NotApplicableError

__all__ = ["ballots_wanted", "cast_ballots", "majority", "odd"]

T = TypeVar("T")
Number = TypeVar("Number", int, float)


def ballots_wanted(strictness: int) -> int:
    """Return a strictness as a number of ballots.

    Raises:
        ConfigurationError: it is not a positive whole number.
    """
    if isinstance(strictness, bool) or not isinstance(strictness, int) or strictness < 1:
        raise ConfigurationError(f"strictness is {strictness!r}; it is a number of votes, 1 or more")
    return strictness


def odd(strictness: int) -> int:
    """Return the number of ballots of a vote: the strictness, or the next odd number, for an even jury can tie.

    Raises:
        ConfigurationError: it is not a positive whole number.
    """
    return ballots_wanted(strictness) | 1


async def cast_ballots(ballot: Callable[[int], Coroutine[Any, Any, T]], number: int) -> list[T]:
    """Cast ballots 0 … number−1 side by side and return those that came back with an answer, in their order.

    Raises:
        JudgeError: none came back; the first ballot's error.
        NotApplicableError: most of those that came back say that the step's condition does not hold.
    """
    if number == 1:  # most critics: neither a task nor a turn of the loop
        return [await ballot(0)]
    results = await asyncio.gather(*(ballot(i) for i in range(number)), return_exceptions=True)
    return _answers(results)


def _answers(results: Sequence[T | BaseException]) -> list[T]:
    answers = [result for result in results if not isinstance(result, BaseException)]
    rest = [result for result in results if isinstance(result, BaseException)]
    for error in rest:
        if not isinstance(error, JudgeError | NotApplicableError):  # a fault of ours, or a cancellation: no lost vote
            raise error
    nothing = [error for error in rest if isinstance(error, NotApplicableError)]
    if len(nothing) > len(answers) or not answers:
        raise (nothing or rest)[0]
    return answers


def majority(votes: Sequence[Number], *, tie: Number) -> Number:
    """Return the most frequent vote; ``tie`` when several are equally frequent.

    Ties happen although juries are odd: a ballot can be lost.
    """
    if len(votes) == 1:
        return votes[0]
    (first, most), *others = Counter(votes).most_common()
    return tie if any(count == most for _, count in others) else first
