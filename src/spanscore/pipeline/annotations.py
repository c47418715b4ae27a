"""``FeedbackScales`` checks the names and values of human labels; ``LatestAnnotations`` detects repeated and changed ones."""

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
_ALLOWED_SCALES: Final = "allowed are two words or more, worst first, each once: {user_feedback: [bad, ok, good]}"
_MAX_NAMES: Final = 100
"""Maximum number of label names in one process, because each name is a separate series in a metrics store."""
_MAX_LABELS: Final = 10_000
"""Maximum number of remembered labels, 0.5 kB each. A forgotten label counts as new if it is repeated."""
_MAX_RATINGS: Final = 100
"""Maximum number of remembered ratings of one label."""


class FeedbackScales:
    """Checks labels by the declared scales, and computes their quality. Pure, except for the set of label names so far.

    Args:
        declared: name → its words, worst first.
        metrics: names of the metrics, which no label may have.

    Raises:
        ConfigurationError: a name is invalid, or the name of a metric; or a scale has fewer than two words, or a word twice.
    """

    def __init__(self, declared: Mapping[str, Sequence[Any]], metrics: Collection[str] = ()) -> None:
        if not isinstance(declared, Mapping):
            raise ConfigurationError(f"feedback_scales is {declared!r}; {_ALLOWED_SCALES}")
        self._metrics = frozenset(metrics)
        self._names = set(declared)
        self._words: dict[str, tuple[str, ...]] = {}
        for name, declared_words in declared.items():
            if isinstance(declared_words, str):  # iterating over a text would give its letters
                raise ConfigurationError(f"feedback_scales.{name} is {declared_words!r}; {_ALLOWED_SCALES}")
            words = self._words[name] = tuple(map(str, declared_words))
            if len(words) < 2 or len(set(words)) < len(words) or not all(words):  # noqa: PLR2004  (worst and best)
                raise ConfigurationError(f"feedback_scales.{name} is {list(words)}; {_ALLOWED_SCALES}")
            if problem := self._wrong_name(name):
                raise ConfigurationError(f"feedback_scales: {problem}")

    def check(self, human_label: Annotation) -> Annotation:
        """Return a human label with its quality, and with its value in the scale's spelling.

        Raises:
            ValueError: the label's name or value is not allowed.
        """
        name = human_label.name
        if name not in self._names:
            if problem := self._wrong_name(name):
                raise ValueError(problem)
            if len(self._names) >= _MAX_NAMES:
                raise ValueError(
                    f"there are {_MAX_NAMES} names of labels already: a name is a question, not the name of a person"
                )
        words = self._words.get(name)
        value, quality = (
            _number_of(name, human_label.value) if words is None else _word_of(name, human_label.value, words)
        )
        self._names.add(name)  # a refused label takes none of the allowed names
        return replace(human_label, value=value, quality=quality)

    def _wrong_name(self, name: str) -> str | None:
        if not _NAME.fullmatch(name):
            return f"{name!r} is not a label name; allowed are lower case letters, digits and _, as in user_feedback"
        return f"{name!r} is a metric of this scorer; give the label another name" if name in self._metrics else None


def _number_of(name: str, value: HumanValue) -> tuple[HumanValue, float]:
    if isinstance(value, bool):
        return value, float(value)
    if isinstance(value, int | float) and 0 <= value <= 1:
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


_Rating: TypeAlias = tuple[HumanValue, int | None]
"""A value of a label, and its time as given, ns since 1970."""


@dataclass(slots=True)
class _LabelHistory:
    """The ratings of one label.

    Attributes:
        value: the valid value: the latest by time.
        since_ns: time of the first rating with that value since the last change.
        until_ns: time of the latest rating with that value.
        revision: number of changes.
        ratings: the ratings that were counted as new.
    """

    value: HumanValue
    since_ns: int
    until_ns: int
    revision: int = 0
    ratings: set[_Rating] = field(default_factory=set)

    def record(self, rating: _Rating, at_ns: int) -> bool:
        """Record a rating; return whether it changes the label.

        A rating has no effect if it has the valid value, or if its time is between two ratings with the valid value. An earlier
        rating changes the label, but does not become valid.
        """
        if rating[0] == self.value:
            self.until_ns = max(self.until_ns, at_ns)
            return False
        if self.since_ns < at_ns < self.until_ns:
            return False
        self.revision += 1
        if at_ns >= self.until_ns:
            self.value, self.since_ns, self.until_ns = rating[0], at_ns, at_ns
        if len(self.ratings) < _MAX_RATINGS:
            self.ratings.add(rating)
        return True


@dataclass(eq=False, repr=False)
class LatestAnnotations:
    """Keeps the latest value by time of each label, so that equal calls are recognized. Owned by one thread.

    ``clock`` returns nanoseconds since 1970: the time of ratings without a time.
    """

    _: KW_ONLY
    clock: Callable[[], int] = time_ns

    def __post_init__(self) -> None:
        self._histories: OrderedDict[tuple[UnitKey | str | None, str, str], _LabelHistory] = OrderedDict()

    def note(self, label: Annotation) -> Annotation | None:
        """Return a label with its revision; None if it changes nothing."""
        key, rating = (label.unit or label.key, label.name, label.annotator), (label.value, label.when_ns)
        history = self._histories.get(key)
        at_ns = self.clock() if label.when_ns is None else label.when_ns
        if history is None:
            self._histories[key] = _LabelHistory(label.value, at_ns, at_ns, ratings={rating})
            if len(self._histories) > _MAX_LABELS:
                self._histories.popitem(last=False)
            return label
        self._histories.move_to_end(key)
        if label.when_ns is None:
            at_ns = max(at_ns, history.until_ns)
        elif rating in history.ratings:
            return None
        if not history.record(rating, at_ns):
            return None
        return replace(label, revision=history.revision)
