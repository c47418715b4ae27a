"""Which units are collected: ``faithfulness<0.5``, ``harmless=fail``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from spanscore.errors import ConfigurationError

__all__ = ["CaseCondition", "condition_of"]

_WRITTEN: Final = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(<=|>=|!=|==|<|>|=)\s*(\S+)\s*")
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_LABELS: Final = ("pass", "fail")


class ToldScore(Protocol):
    """What a condition looks at, of a score that was just given or one that a store has."""

    @property
    def value(self) -> float | None:
        """On the metric's own scale; None where it has none."""

    @property
    def label(self) -> str | None:
        """``pass`` or ``fail``; None likewise."""


class CaseCondition(NamedTuple):
    """What a metric's score of a unit has to be.

    Attributes:
        bound: of its value; or its label, ``pass`` or ``fail``.
    """

    metric: str
    sign: str
    bound: float | str

    def holds(self, scores: Mapping[str, ToldScore]) -> bool:
        """Whether it holds of a unit; what has no score holds nothing."""
        score = scores.get(self.metric)
        told = None if score is None else score.label if isinstance(self.bound, str) else score.value
        return told is not None and _COMPARE[self.sign](told, self.bound)


def condition_of(text: str) -> CaseCondition:
    """Read a condition.

    Raises:
        ConfigurationError: it is none; the message shows two.
    """
    found = _WRITTEN.fullmatch(text)
    bound = None if found is None else _bound(found[3])
    if found is None or bound is None or (isinstance(bound, str) and found[2] not in ("=", "==", "!=")):
        raise ConfigurationError(f"{text!r} is no condition; write for example 'faithfulness<0.5' or 'harmless=fail'")
    return CaseCondition(found[1], found[2], bound)


def _bound(text: str) -> float | str | None:
    if text in _LABELS:
        return text
    try:
        return float(text)
    except ValueError:
        return None
