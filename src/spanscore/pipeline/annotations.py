"""Checks the names and scales of human labels, and whether a label is new, repeated or changed."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from math import isfinite
from time import time_ns
from typing import Any, Final, TypeAlias

from spanscore.core.sample import Annotation, HumanValue
from spanscore.core.span import UnitKey
from spanscore.errors import ConfigurationError

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_SCALES: Final = "allowed are two words or more, worst first, each once: {user_feedback: [bad, ok, good]}"
_MOST_NAMES: Final = 100
"""Maximum number of label names in one process. Each name is an attribute's value, and so a series in a metrics store."""
_KEPT: Final = 10_000
"""Maximum number of labels with a remembered last value: 0.5 kB each. A forgotten label counts as new if it is repeated."""
_VOTES: Final = 100
"""Maximum number of remembered values of one label."""


class FeedbackScales:
    """The declared scales, and the quality of labels on them. Pure, except for the names it has seen.

    Args:
        declared: name → its words, worst first.
        metrics: names of the metrics, which no label may have.

    Raises:
        ConfigurationError: a name is invalid, or the name of a metric; or a scale has fewer than two words, or a word twice.
    """

    def __init__(self, declared: Mapping[str, Sequence[Any]], metrics: Collection[str] = ()) -> None:
        if not isinstance(declared, Mapping):
            raise ConfigurationError(f"feedback_scales is {declared!r}; {_SCALES}")
        for name, words in declared.items():
            if isinstance(words, str):  # iterating over a text would give its letters
                raise ConfigurationError(f"feedback_scales.{name} is {words!r}; {_SCALES}")
        self._metrics = frozenset(metrics)
        self._words = {name: tuple(str(word) for word in words) for name, words in declared.items()}
        self._seen = set(declared)
        for name, words in self._words.items():
            if len(words) < 2 or len(set(words)) < len(words) or not all(words):  # noqa: PLR2004  (worst and best)
                raise ConfigurationError(f"feedback_scales.{name} is {list(words)}; {_SCALES}")
            if problem := self._wrong_name(name):
                raise ConfigurationError(f"feedback_scales: {problem}")

    def check(self, human_label: Annotation) -> Annotation:
        """Return a human label with its quality, and with its value in the scale's spelling.

        Raises:
            ValueError: the label's name or value is not allowed.
        """
        name = human_label.name
        if name not in self._seen:
            if problem := self._wrong_name(name):
                raise ValueError(problem)
            if len(self._seen) >= _MOST_NAMES:
                raise ValueError(
                    f"there are {_MOST_NAMES} names of labels already: a name is a question, not the name of a person"
                )
            self._seen.add(name)
        words = self._words.get(name)
        value, quality = (
            _number_of(name, human_label.value) if words is None else _word_of(name, human_label.value, words)
        )
        return replace(human_label, value=value, quality=quality)

    def _wrong_name(self, name: str) -> str | None:
        if not _NAME.fullmatch(name):
            return f"{name!r} is not a label name; allowed are lower case letters, digits and _, as in user_feedback"
        return f"{name!r} is a metric of this scorer; give the label another name" if name in self._metrics else None


def _number_of(name: str, value: HumanValue) -> tuple[HumanValue, float]:
    if isinstance(value, bool):
        return value, float(value)
    if isinstance(value, int | float) and isfinite(value) and 0 <= value <= 1:
        return float(value), float(value)
    raise ValueError(
        f"{value!r} is not a value of {name}; allowed are True, False, and numbers from 0, worst, to 1. "
        f"Words and stars need a declared scale, worst first: feedback_scales={{{name!r}: ['bad', 'ok', 'good']}}"
    )


def _word_of(name: str, value: HumanValue, words: Sequence[str]) -> tuple[HumanValue, float]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    word = f"{value:g}" if is_number else value
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"{value!r} is not a value of {name}; allowed are {', '.join(words)}")
    return word, words.index(word) / (len(words) - 1)


_Whose: TypeAlias = tuple[UnitKey | str | None, str, str]
_Vote: TypeAlias = tuple[HumanValue, int | None]


@dataclass(slots=True)
class _Known:
    """The values of one label: the valid one, which is the latest by time, and the times of the first and the last."""

    value: HumanValue
    since_ns: int
    until_ns: int
    revision: int = 0
    votes: set[_Vote] = field(default_factory=set)

    def is_said(self, value: HumanValue, at_ns: int) -> bool:
        """Whether a value changes nothing, because it is the valid value, or an earlier value that was already replaced."""
        if value == self.value:
            self.until_ns = max(self.until_ns, at_ns)
            return True
        return self.since_ns < at_ns < self.until_ns

    def change(self, vote: _Vote, at_ns: int) -> None:
        """Record a value; a value with an earlier time does not become the valid one."""
        self.revision += 1
        if at_ns >= self.until_ns:
            self.value, self.since_ns, self.until_ns = vote[0], at_ns, at_ns
        if len(self.votes) < _VOTES:
            self.votes.add(vote)


@dataclass(eq=False, repr=False)
class LatestAnnotations:
    """Keeps the latest value, by time, of each label that this process has seen. Owned by one thread.

    ``clock`` returns nanoseconds since 1970: the time of values that have no time.
    """

    _: KW_ONLY
    clock: Callable[[], int] = time_ns

    def __post_init__(self) -> None:
        self._of: OrderedDict[_Whose, _Known] = OrderedDict()

    def note(self, label: Annotation) -> Annotation | None:
        """Return a label with its revision; None if it repeats a known value."""
        whose, vote = (label.unit or label.key, label.name, label.annotator), (label.value, label.when_ns)
        latest = self._of.get(whose)
        if latest is None:
            at_ns = self.clock() if label.when_ns is None else label.when_ns
            self._of[whose] = _Known(label.value, at_ns, at_ns, votes={vote})
            if len(self._of) > _KEPT:
                self._of.popitem(last=False)
            return label
        self._of.move_to_end(whose)
        at_ns = max(self.clock(), latest.until_ns) if label.when_ns is None else label.when_ns
        if (label.when_ns is not None and vote in latest.votes) or latest.is_said(label.value, at_ns):
            return None
        latest.change(vote, at_ns)
        return replace(label, revision=latest.revision)
