"""ToolCallF1: did the assistant call the tools it should have, and no others?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isclose
from typing import Any

from spanscore.core.sample import AIMessage, Message, MultiTurnSample, ToolCall
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import NamedMetric

__all__ = ["ToolCallF1", "alike", "calls_in"]


class ToolCallF1(NamedMetric):
    """Did the assistant make the calls it should have made, and no others? The order does not matter.

    Formula: a made call is right when a reference call, each used once, has the same name and the same arguments.
    precision = right / made, recall = right / reference, F1 = their harmonic mean. Range [0, 1], higher is better. Nothing to
    call and nothing called is 1; an assistant that said nothing at all has 0.

    Arguments are compared deeply and by type: the order of keys does not matter, that of lists does; whole numbers are equal or
    not; a float may differ by a millionth of a millionth, so that 1 equals 1.0; ``True`` is not 1 and ``"7"`` is not 7. An
    argument more or less is another call.

    Fields: ``user_input`` (messages), ``reference_tool_calls``. Judge calls: none.

    Blind spot: a call that is right in other words ("Paris, FR" for "Paris") is wrong, and so is a detour that helped.

    Source: ragas 0.4.3's ``ToolCallF1``. Deviations: repeated calls count each (ragas compares sets); nothing expected and
    nothing called is 1 (ragas: 0); booleans are no numbers; the value is not rounded; a missing reference is a missing field.

    Args:
        name: under which its scores appear.
        pass_at: lowest quality that passes.
    """

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"multi_turn": ("user_input", "reference_tool_calls")}
    name = "tool_call_f1"

    async def measure(self, sample: MultiTurnSample) -> Finding:
        """Pair the calls off."""
        reference = sample.reference_tool_calls or []
        made = calls_in(sample.user_input)
        if not made and not reference:
            spoke = any(isinstance(message, AIMessage) for message in sample.user_input)
            return Finding(value=float(spoke), explanation="No call was expected and none was made.")
        right = _right(made, reference)
        return Finding(
            value=2 * right / (len(made) + len(reference)),
            explanation=f"{right} of {len(made)} calls were right; {len(reference)} were expected.",
        )


def calls_in(messages: Iterable[Message]) -> list[ToolCall]:
    """Return the calls that the assistant made, in order."""
    spoken = [message for message in messages if isinstance(message, AIMessage)]
    return [call for message in spoken for call in message.tool_calls or ()]


def _right(made: Sequence[ToolCall], reference: Sequence[ToolCall]) -> int:
    """Count the made calls that are in the reference, each reference call used once."""
    left = list(reference)
    for call in made:
        place = next(
            (i for i, other in enumerate(left) if call.name == other.name and alike(call.args, other.args)), None
        )
        if place is not None:
            del left[place]
    return len(reference) - len(left)


def _close(one: float, other: float) -> bool:
    try:
        return isclose(one, other, rel_tol=1e-12)
    except OverflowError:  # an integer beyond every float
        return False


def alike(one: Any, other: Any) -> bool:
    """Whether two argument values are equal: deeply and by type; a float and a number within a millionth of a millionth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if _are(int, one, other):  # ids: each of 13 digits is within a millionth of a millionth of its neighbour
        return bool(one == other)
    if _are(int | float, one, other):
        return one == other or _close(one, other)
    if _are(Mapping, one, other):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    if _are(list | tuple, one, other):
        return len(one) == len(other) and all(map(alike, one, other))
    return type(one) is type(other) and bool(one == other)


def _are(kind: Any, *values: Any) -> bool:
    return all(isinstance(value, kind) for value in values)
