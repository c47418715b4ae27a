"""Rules: units that are scored at a rate of their own, where that is larger than the metric's. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from spanscore.codec.text import jsonable
from spanscore.errors import ConfigurationError
from spanscore.model.span import SamplingContext

__all__ = ["Rule"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Scores matching units at a rate of their own, where that is larger than the metric's.

    Attributes:
        rate: probability in [0, 1].
        name: stands on the score as ``spanscore.sampling.rule``.
        status: ``error`` or ``ok`` (everything that is no error); None = any.
        workflow: the name of the root run; None = any.
        slower_than: seconds; units that took at least as long; None = any.
        metadata: key → value that the root run's metadata must have, all of them; empty = any.
        any_error: True: some span or step of the unit ended in error, also one that was handled; the run may have answered.
        min_tool_calls: tools that it called, at least; None = any number.
        model: ``gen_ai.request.model`` of some span of the unit; None = any.
        score: ``{"metric": name, "below": quality}``: units to which that metric, which asks no judge, gave a lower one; a unit
            without its score is none of them. The other metrics wait for that score. None = any.

    Raises:
        ConfigurationError: ``min_duration_s``, as ``slower_than`` was called; or ``score`` is not as above.
    """

    rate: float
    name: str
    status: str | None = None
    workflow: str | None = None
    slower_than: float | None = None
    metadata: Mapping[str, Any] | None = None
    any_error: bool = False
    min_tool_calls: int | None = None
    model: str | None = None
    score: Mapping[str, Any] | None = None

    def __new__(cls, *_: Any, **settings: Any) -> Self:
        """Refuse an old name and say the new one; the rest is for ``__init__``."""
        if "min_duration_s" in settings:
            raise ConfigurationError("Rule(min_duration_s=…) is called slower_than: Rule(slower_than=2.0, …)")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.score is not None and not _is_low_score(self.score):
            told = "write score={'metric': …, 'below': …}, above 0, up to 1"
            raise ConfigurationError(f"the rule {self.name} has score={dict(self.score)}; {told}")

    def matches(self, facts: SamplingContext) -> bool:
        """Whether it applies; a fact that is not known yet counts as a match, so that nothing is ruled out too early."""
        if self.workflow is not None and facts.name is not None and facts.name != self.workflow:
            return False
        failed = facts.status == "error"
        if self.status is not None and facts.status is not None and failed != (self.status == "error"):
            return False
        least_s = self.slower_than
        if least_s is not None and facts.duration_ns is not None and facts.duration_ns < least_s * 1e9:
            return False
        return self._matches_metadata(facts.metadata) and self._matches_inside(facts)

    def _matches_metadata(self, known: Mapping[str, Any] | None) -> bool:
        if known is None or not self.metadata:
            return True
        return all(_equal(known.get(key), value) for key, value in self.metadata.items())

    def _matches_inside(self, facts: SamplingContext) -> bool:
        if self.any_error and facts.any_error is False:
            return False
        if self.min_tool_calls is not None and facts.tool_calls is not None and facts.tool_calls < self.min_tool_calls:
            return False
        if self.model is not None and facts.models is not None and self.model not in facts.models:
            return False
        if self.score is None or facts.scores is None:
            return True
        quality = facts.scores.get(self.score["metric"])
        return quality is not None and quality < self.score["below"]


def _is_low_score(score: Mapping[str, Any]) -> bool:
    below = score.get("below")
    is_number = isinstance(below, int | float) and 0 < below <= 1
    return score.keys() == {"metric", "below"} and isinstance(score["metric"], str) and is_number


def _equal(value: Any, expected: Any) -> bool:
    """Compare a value of an application's metadata, which may be anything, as JSON has it: its own ``==`` may hang."""
    return value is expected or jsonable(value) == jsonable(expected)
