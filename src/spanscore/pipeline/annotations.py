"""Labels: what may be said of a unit, on which scale it counts, and what is said again, or changed."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from time import time_ns
from typing import Any, Final, TypeAlias

from spanscore.core.sample import Annotation, HumanValue
from spanscore.core.span import UnitKey
from spanscore.errors import ConfigurationError

__all__ = ["AnnotationBook", "FeedbackScales"]

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_SCALES: Final = "allowed are two words or more, worst first, each once: {user_feedback: [bad, ok, good]}"
_MOST_NAMES: Final = 100
"""Names of labels in one process: each is a value of an attribute, and a store of metrics pays for every one."""
_KEPT: Final = 10_000
"""Labels of which the last vote is remembered: some 0.5 kB each."""
_VOTES: Final = 100
"""Votes of one label that are known again."""


class FeedbackScales:
    """The scales that are declared, and how what people say counts on them. Pure, but for the names it has seen.

    Args:
        declared: name → its words, worst first.
        metrics: names that no label may have.

    Raises:
        ConfigurationError: a name is none, or a metric's; or a scale has fewer than two words, or one of them twice.
    """

    def __init__(self, declared: Mapping[str, Sequence[Any]], metrics: Collection[str] = ()) -> None:
        if not isinstance(declared, Mapping):
            raise ConfigurationError(f"feedback_scales is {declared!r}; {_SCALES}")
        for name, words in declared.items():
            if isinstance(words, str):  # else its letters were the scale
                raise ConfigurationError(f"feedback_scales.{name} is {words!r}; {_SCALES}")
        self._metrics = frozenset(metrics)
        self._words = {name: tuple(str(word) for word in words) for name, words in declared.items()}
        self._seen = set(declared)
        for name, words in self._words.items():
            if len(words) < 2 or len(set(words)) < len(words) or not all(words):  # noqa: PLR2004  (worst and best)
                raise ConfigurationError(f"feedback_scales.{name} is {list(words)}; {_SCALES}")
            if told := self._wrong_name(name):
                raise ConfigurationError(f"feedback_scales: {told}")

    @property
    def declared(self) -> Mapping[str, Sequence[str]]:
        """Name → its words, worst first."""
        return self._words

    def checked(self, label: Annotation) -> Annotation:
        """Return a label with its quality, and its value as the scale writes it.

        Raises:
            ValueError: its name or its value is none; the message says what is allowed.
        """
        name = label.name
        if name not in self._seen:
            if told := self._wrong_name(name):
                raise ValueError(told)
            if len(self._seen) >= _MOST_NAMES:
                raise ValueError(
                    f"there are {_MOST_NAMES} names of labels already: a name is a question, not who is asked"
                )
            self._seen.add(name)
        words = self._words.get(name)
        value, quality = _number_of(name, label.value) if words is None else _word_of(name, label.value, words)
        return replace(label, value=value, quality=quality)

    def _wrong_name(self, name: str) -> str | None:
        if not _NAME.fullmatch(name):
            return f"{name!r} is no name of a label; allowed are lower case letters, digits and _, as in user_feedback"
        return f"{name!r} is a metric of this scorer; give the label another name" if name in self._metrics else None


def _number_of(name: str, value: HumanValue) -> tuple[HumanValue, float]:
    if isinstance(value, bool):
        return value, float(value)
    if isinstance(value, int | float) and isfinite(value) and 0 <= value <= 1:
        return float(value), float(value)
    raise ValueError(
        f"{value!r} is no value of {name}; allowed are True, False, and numbers from 0, worst, to 1. "
        f"Words and stars are a declared scale, worst first: feedback_scales={{{name!r}: ['bad', 'ok', 'good']}}"
    )


def _word_of(name: str, value: HumanValue, words: Sequence[str]) -> tuple[HumanValue, float]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    word = f"{value:g}" if is_number else value
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"{value!r} is no value of {name}; allowed are {', '.join(words)}")
    return word, words.index(word) / (len(words) - 1)


_Whose: TypeAlias = tuple[UnitKey | str | None, str, str]
_Vote: TypeAlias = tuple[HumanValue, int | None]


@dataclass(slots=True)
class _Known:
    """The vote that holds, which is the last by time; from when, and when it was last heard."""

    value: HumanValue
    since_ns: int
    until_ns: int
    revision: int = 0
    votes: set[_Vote] = field(default_factory=set)

    def is_said(self, value: HumanValue, at_ns: int) -> bool:
        """Whether a vote changes nothing: it is what holds, or was taken back by what has been heard already."""
        if value == self.value:
            self.until_ns = max(self.until_ns, at_ns)
            return True
        return self.since_ns < at_ns < self.until_ns

    def change(self, vote: _Vote, at_ns: int) -> None:
        """Note a vote that came; one that is late is no more what holds."""
        self.revision += 1
        if at_ns >= self.until_ns:
            self.value, self.since_ns, self.until_ns = vote[0], at_ns, at_ns
        if len(self.votes) < _VOTES:
            self.votes.add(vote)


class AnnotationBook:
    """The last vote, by time, of each label that this process has seen, in bounded room. One thread's.

    Args:
        kept: labels that are remembered; past them the one that was given longest ago is new when it comes again.
        clock: nanoseconds since 1970: the time of votes that have none of their own.
    """

    def __init__(self, kept: int = _KEPT, *, clock: Callable[[], int] = time_ns) -> None:
        self._kept = kept
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget all of them: in a forked child."""
        self._of: OrderedDict[_Whose, _Known] = OrderedDict()

    def note(self, label: Annotation) -> Annotation | None:
        """Return a label with its revision; None: it says nothing new, as after the same call once more."""
        whose, vote = (label.unit or label.key, label.name, label.annotator), (label.value, label.when_ns)
        known = self._of.get(whose)
        if known is None:
            self._begin(whose, vote)
            return label
        self._of.move_to_end(whose)
        at_ns = max(self._clock(), known.until_ns) if label.when_ns is None else label.when_ns
        if (label.when_ns is not None and vote in known.votes) or known.is_said(label.value, at_ns):
            return None
        known.change(vote, at_ns)
        return replace(label, revision=known.revision)

    def _begin(self, whose: _Whose, vote: _Vote) -> None:
        value, when_ns = vote
        at_ns = self._clock() if when_ns is None else when_ns
        self._of[whose] = _Known(value, at_ns, at_ns, votes={vote})
        if len(self._of) > self._kept:
            self._of.popitem(last=False)
