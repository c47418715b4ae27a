"""ToolCallF1 and ToolCallAccuracy: did the assistant make the tool calls that it should have made?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from itertools import chain
from math import isclose
from typing import Any, TypeAlias

from spanscore.core.sample import AIMessage, MultiTurnSample, SingleTurnSample, ToolCall
from spanscore.core.threads import run_interruptibly
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.registry import create
from spanscore.metrics.kit.averages import best_pairing
from spanscore.metrics.kit.base import BaseMetric, Finding
from spanscore.metrics.kit.judged import NamedMetric
from spanscore.samples.tool_calls import calls_in


class ToolCallF1(NamedMetric):
    """Did the assistant make the calls it should have made, and no other calls? The order does not matter.

    Formula: a made call is right when a reference call, each used once, has the same name and the same arguments.
    precision = right / made, recall = right / reference, F1 = their harmonic mean. Range [0, 1], higher is better. Nothing to
    call and nothing called is 1, but 0 if the conversation has no message of the assistant.

    Arguments are compared deeply and by type: the order of keys does not matter, that of lists does; whole numbers are equal or
    not; a float may differ by a millionth of a millionth, so that 1 equals 1.0; ``True`` is not 1 and ``"7"`` is not 7. An
    argument more or less is another call.

    Fields: ``user_input`` (messages), ``reference_tool_calls``. Judge calls: none.

    Blind spot: a call that is right in other words ("Paris, FR" for "Paris") is wrong, and so is a detour that helped.

    Source: ragas 0.4.3's ``ToolCallF1``. Deviations: repeated calls count each (ragas compares sets); nothing expected and
    nothing called is 1 (ragas: 0); booleans are no numbers; the value is not rounded; a missing reference is a missing field.

    Args:
        name: name of the metric in its scores.
        pass_at: lowest quality that passes.
    """

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"multi_turn": ("user_input", "reference_tool_calls")}
    name = "tool_call_f1"

    async def measure(self, sample: MultiTurnSample) -> Finding:
        """Pair the calls off."""
        reference = sample.reference_tool_calls or []
        made = [*chain.from_iterable(map(calls_in, sample.user_input))]
        if not made and not reference:
            spoke = any(isinstance(message, AIMessage) for message in sample.user_input)
            return Finding(value=float(spoke), explanation="No call was expected and none was made.")
        right = _count_right(made, reference)
        return Finding(
            value=2 * right / (len(made) + len(reference)),
            explanation=f"{right} of {len(made)} calls were right; {len(reference)} were expected.",
        )


def _count_right(made: Sequence[ToolCall], reference: Sequence[ToolCall]) -> int:
    """Return the number of made calls that are in the reference; each reference call is used once."""
    left = list(reference)
    for call in made:
        place = next(
            (i for i, other in enumerate(left) if call.name == other.name and are_equal(call.args, other.args)), None
        )
        if place is not None:
            del left[place]
    return len(reference) - len(left)


def _is_close(one: float, other: float) -> bool:
    try:
        return isclose(one, other, rel_tol=1e-12)
    except OverflowError:  # an integer beyond every float
        return False


def are_equal(one: Any, other: Any) -> bool:
    """Whether two argument values are equal, deeply and by type. A float may differ from a number by a relative 1e-12."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if _all_are(int, one, other):  # exactly, because neighbouring ids of 13 digits differ by less than a relative 1e-12
        return bool(one == other)
    if _all_are(int | float, one, other):
        return one == other or _is_close(one, other)
    if _all_are(Mapping, one, other):
        return one.keys() == other.keys() and all(are_equal(value, other[key]) for key, value in one.items())
    if _all_are(list | tuple, one, other):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return type(one) is type(other) and bool(one == other)


def _all_are(kind: Any, *values: Any) -> bool:
    return all(isinstance(value, kind) for value in values)


ValueComparison: TypeAlias = Callable[[Any, Any], float]
Table: TypeAlias = list[list[float]]


class ToolCallAccuracy(NamedMetric):
    """Did the assistant make the right tool calls, with the right arguments, in the right order?

    Formula: a made call and a reference call of the same name get the share of all their argument names with values that agree
    (1 without arguments). As many calls as expected, with the names in the same order: the mean over the
    pairs; another order or another name: 0. A call too many or too few: the best pairing in order, each call used once, divided
    by the longer list. With ``strict_order=False`` the order does not count, and calls of one name are paired as well as can
    be. Range [0, 1], higher is better. Nothing to call and nothing called is 1; if only one of the lists is empty, 0.

    Fields: ``user_input`` (messages), ``reference_tool_calls``. Judge calls: none.

    Blind spot: a call that is right in other words is wrong; a call that was repeated after a failure counts against the
    assistant; the results of the tools are ignored. One wrong name among as many calls costs everything.

    Source: ragas 0.4.3's ``ToolCallAccuracy``. Deviations: arguments that the reference does not have count as wrong (ragas
    ignores them); values are compared by type and deeply, floats with tolerance (ragas compares their texts); repeated tools
    are paired by the best matching (ragas: after sorting); a missing or an extra call is partial credit (ragas: 0).

    Args:
        name: name of the metric in its scores.
        strict_order: whether the order counts.
        arg_comparison: comparison of unequal values: the name of a metric over ``response`` and ``reference``
            (``"non_llm_string_similarity"``), which gets their texts, or a function (made, reference) → 0…1.
            None = unequal values count 0.
        pass_at: lowest quality that passes.

    Raises:
        ConfigurationError: ``arg_comparison`` is no function and no metric of two texts without a judge.
    """

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"multi_turn": ("user_input", "reference_tool_calls")}

    def __init__(
        self,
        *,
        name: str = "tool_call_accuracy",
        strict_order: bool = True,
        arg_comparison: str | ValueComparison | None = None,
        pass_at: float | None = None,
    ) -> None:
        if not (arg_comparison is None or isinstance(arg_comparison, str) or callable(arg_comparison)):
            raise ConfigurationError(
                f"{name}: arg_comparison is {arg_comparison!r}; it is a metric's name or a function"
            )
        super().__init__(name=name, pass_at=pass_at)
        self.strict_order = strict_order
        self.arg_comparison = arg_comparison
        self._compare = _comparison_by(arg_comparison) if isinstance(arg_comparison, str) else arg_comparison

    async def measure(self, sample: MultiTurnSample) -> Finding:
        """Pair the calls, then look at their arguments."""
        reference = sample.reference_tool_calls or []
        made = [*chain.from_iterable(map(calls_in, sample.user_input))]
        if not made and not reference:
            return Finding(value=1.0, explanation="No call was expected and none was made.")
        expected = f"{len(made)} calls were made, {len(reference)} were expected."
        names, expected_names = [call.name for call in made], [call.name for call in reference]
        is_as_expected = names == expected_names or (not self.strict_order and sorted(names) == sorted(expected_names))
        if len(made) == len(reference) and not is_as_expected:
            return Finding(value=0.0, explanation=f"{expected} The names differ, or their order.")
        table = [[await self._call_agreement(call, other) for other in reference] for call in made]
        # The best pairing of hundreds of calls takes seconds, so it does not run on the loop of all judges.
        right = await run_interruptibly(None, self._count_pairs, table)
        return Finding(value=right / max(len(made), len(reference)), explanation=f"{expected} {right:.2f} were right.")

    def _count_pairs(self, table: Table) -> float:
        if not self.strict_order:
            return sum(table[row][column] for row, column in best_pairing(table))
        if table and len(table) == len(table[0]):
            return sum(row[place] for place, row in enumerate(table))
        # The highest sum of values of pairs that keep the order: a weighted longest common subsequence.
        above = [0.0] * (len(table[0]) + 1) if table else [0.0]
        for row in table:
            best = [0.0]
            for column, value in enumerate(row):
                best.append(max(above[column] + value, above[column + 1], best[column]))
            above = best
        return above[-1]

    async def _call_agreement(self, call: ToolCall, other: ToolCall) -> float:
        """Return the share of arguments that agree, 0…1; 0 for another tool."""
        if call.name != other.name:
            return 0.0
        shared = sorted(call.args.keys() & other.args.keys())
        agreements = [await self._value_agreement(call.args[name], other.args[name]) for name in shared]
        names = call.args.keys() | other.args.keys()
        return sum(agreements) / len(names) if names else 1.0

    async def _value_agreement(self, value: Any, other: Any) -> float:
        if are_equal(value, other):
            return 1.0
        if self._compare is None:
            return 0.0
        result: Any = self._compare(value, other)
        return float(await result if isawaitable(result) else result)


def _comparison_by(metric: str) -> Callable[[Any, Any], Any]:
    """Return a function that compares two values by a metric of two texts; 0 if the metric has no quality."""
    created: Any = create(metric)
    if not isinstance(created, BaseMetric) or created.steps:
        raise ConfigurationError(f"arg_comparison: {metric} does not compare two texts without a judge")

    async def compare(made: Any, reference: Any) -> float:
        score = await created.score(SingleTurnSample(response=str(made), reference=str(reference)))
        return score.quality or 0.0

    return compare
