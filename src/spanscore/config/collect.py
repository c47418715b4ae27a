"""The section of collected units: conditions such as ``faithfulness<0.5``, and the data set."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Protocol

from pydantic import AfterValidator, Field

from spanscore.config.kinds import AnyPath, Items, SettingsPart, Size
from spanscore.errors import ConfigurationError

__all__ = ["CaseCondition", "Collect", "condition_of"]

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


class ScoreLike(Protocol):
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

    def holds(self, scores: Mapping[str, ScoreLike]) -> bool:
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


LEAST_BYTES: Final = 10_000
"""Half of it holds a case of some size."""


def _check_condition(text: str) -> str:
    try:
        condition_of(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


class Collect(SettingsPart):
    """Units of which a condition holds become cases of a data set, appended to a file of this machine. It holds what users
    wrote, as the redactor leaves it; only its owner may read it, whatever its mode was.

    Attributes:
        when: conditions, any of which will do: ``faithfulness<0.5``, on the metric's own scale, or ``harmless=fail``.
        out: file, JSON lines as ``spanscore collect`` writes them, seen from the working directory; made where it is not there,
            in a folder that is. Equal questions are one case, as far as this process has written them.
        max_bytes: size of it and the one before, which ends in ``.1``: at half of this the one becomes the other.
    """

    section: ClassVar[str] = "collect"
    when: Annotated[Items[Annotated[str, AfterValidator(_check_condition)]], Field(min_length=1)]
    out: AnyPath
    max_bytes: Annotated[Size, Field(ge=LEAST_BYTES)] = 100_000_000

    @property
    def conditions(self) -> tuple[CaseCondition, ...]:
        """The conditions as they are read."""
        return tuple(condition_of(text) for text in self.when)

    @property
    def path(self) -> Path:
        """The file, wherever the process goes."""
        return Path(self.out).expanduser().resolve()
