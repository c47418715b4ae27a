"""Rules: units that are scored at a rate of their own, where that is larger than the metric's. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from spanscore.codec.text import jsonable
from spanscore.errors import ConfigurationError
from spanscore.model.span import Facts

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

    Raises:
        ConfigurationError: ``min_duration_s``, as ``slower_than`` was called.
    """

    rate: float
    name: str
    status: str | None = None
    workflow: str | None = None
    slower_than: float | None = None
    metadata: Mapping[str, Any] | None = None

    def __new__(cls, *_: Any, **settings: Any) -> Self:
        """Refuse an old name and say the new one; the rest is for ``__init__``."""
        if "min_duration_s" in settings:
            raise ConfigurationError("Rule(min_duration_s=…) is called slower_than: Rule(slower_than=2.0, …)")
        return object.__new__(cls)

    def matches(self, facts: Facts) -> bool:
        """Whether it applies; a fact that is not known yet counts as a match, so that nothing is ruled out too early."""
        if self.workflow is not None and facts.name != self.workflow:
            return False
        failed = facts.status == "error"
        if self.status is not None and facts.status is not None and failed != (self.status == "error"):
            return False
        least_s = self.slower_than
        if least_s is not None and facts.duration_ns is not None and facts.duration_ns < least_s * 1e9:
            return False
        return all(_equal(facts.metadata.get(key), value) for key, value in (self.metadata or {}).items())


def _equal(value: Any, expected: Any) -> bool:
    """Compare a value of an application's metadata, which may be anything, as JSON has it: its own ``==`` may hang."""
    return value is expected or jsonable(value) == jsonable(expected)
