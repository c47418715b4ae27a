"""The ``collect`` section: conditions such as ``faithfulness<0.5``, and the file that collects matching units as cases."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Protocol

from pydantic import AfterValidator, Field

from spanscore.config.kinds import AnyPath, Items, SettingsPart, Size
from spanscore.core.score import CATEGORY_WORD
from spanscore.errors import ConfigurationError

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
    """A score that a condition can compare: a new score, or one from a trace store."""

    @property
    def value(self) -> float | str | None:
        """The value on the metric's own scale: a number, or the word of a category; None if the score has no value."""

    @property
    def label(self) -> str | None:
        """The label, ``pass`` or ``fail``; None if the score has no label."""


class CaseCondition(NamedTuple):
    """A condition on the score of one metric.

    Attributes:
        metric: name of the metric.
        sign: comparison, such as ``<`` or ``!=``.
        bound: number or category to compare the value with, or the label ``pass`` or ``fail``.
    """

    metric: str
    sign: str
    bound: float | str

    def holds(self, scores: Mapping[str, ScoreLike]) -> bool:
        """Return whether the unit with these scores meets the condition; without a score of the metric it does not."""
        score = scores.get(self.metric)
        result = None if score is None else score.label if self.is_label else score.value
        if result is None or isinstance(result, str) is not isinstance(self.bound, str):
            return False
        return _COMPARE[self.sign](result, self.bound)

    @property
    def is_label(self) -> bool:
        """Whether the bound is ``pass`` or ``fail``."""
        return self.bound in _LABELS


def condition_of(text: str) -> CaseCondition:
    """Parse a condition such as ``faithfulness<0.5``.

    Raises:
        ConfigurationError: the text is not a condition; the message shows two examples.
    """
    match = _WRITTEN.fullmatch(text)
    bound = None if match is None else _bound(match[3])
    if match is None or bound is None or (isinstance(bound, str) and match[2] not in ("=", "==", "!=")):
        raise ConfigurationError(
            f"{text!r} is no condition; write for example 'faithfulness<0.5', 'harmless=fail' or 'intent=refund'"
        )
    return CaseCondition(match[1], match[2], bound)


def _bound(text: str) -> float | str | None:
    """Return a label or a category as text, and a number as float; None for every other text."""
    if CATEGORY_WORD.fullmatch(text):
        return text
    try:
        return float(text)
    except ValueError:
        return None


LEAST_BYTES: Final = 10_000
"""Smallest ``max_bytes``: half of it holds one large case."""


def _check_condition(text: str) -> str:
    condition_of(text)
    return text


Conditions = Annotated[Items[Annotated[str, AfterValidator(_check_condition)]], Field(min_length=1)]
"""One or more conditions, as texts."""


class Collect(SettingsPart):
    """Units that meet a condition become cases of a data set, appended to a file on this machine.

    The file holds users' texts, as returned by the redactor. Only its owner may read it; an existing file's mode is changed.

    Attributes:
        when: conditions, such as ``faithfulness<0.5`` on the metric's own scale, ``harmless=fail``, or ``intent=refund`` for a
            category. One match is enough.
        out: path of the file, relative to the working directory: JSON lines as ``spanscore collect`` writes them. A missing
            file is created; its folder must exist. Equal questions become one case, among the cases that this process wrote.
        max_bytes: combined size of the file and its predecessor, whose name ends in ``.1``. At half of this size the file
            replaces the predecessor.
    """

    section: ClassVar[str] = "collect"
    when: Conditions
    out: AnyPath
    max_bytes: Annotated[Size, Field(ge=LEAST_BYTES)] = 100_000_000

    @property
    def conditions(self) -> tuple[CaseCondition, ...]:
        """The parsed conditions."""
        return tuple(condition_of(text) for text in self.when)

    @property
    def path(self) -> Path:
        """The absolute path of the file, so that a later change of the working directory has no effect."""
        return Path(self.out).expanduser().resolve()
