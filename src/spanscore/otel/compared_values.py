"""Unit → the value by which releases are compared (``Compare.by``), of few: it stands on sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import RLock
from typing import Any, Final

from spanscore import semconv
from spanscore.core.log import plain_text
from spanscore.core.score import Score
from spanscore.core.span import Unit
from spanscore.core.threads import reset_in_child
from spanscore.otel.sums import OTHER

__all__ = ["MOST_VALUES", "UNTOLD", "ComparedValues"]

MOST_VALUES: Final = 8
"""Values that are told apart: the first that come, for as long as the process lives, as a counter must not change its name."""
UNTOLD: Final = "unknown"
"""The value of a unit that has none: told, as it is a part of no release's mean."""
_LONGEST: Final = 128
"""Characters; what is longer is no release's name, and ``other``."""


class ComparedValues:
    """Tells the compared value of units and scores. Any thread.

    Args:
        by: as ``Compare.by``.
        resource: gives that of this process, for units that name none of their own.
        evaluator_versions: metric → its present evaluator version, for the units that are lost: their scores would have been of
            it.
        shown: of a value that may hold what a user typed (metadata, attributes), returns what may leave; None = nothing. Called
            once for each that is told apart, on the thread that asks.
        most: values that are told apart; the first that come.
    """

    def __init__(
        self,
        by: str,
        resource: Callable[[], Mapping[str, Any]] = dict,
        evaluator_versions: Mapping[str, str] | None = None,
        shown: Callable[[str], str | None] = lambda value: value,
        most: float = MOST_VALUES,
    ) -> None:
        self.by = by
        self._resource = resource
        self._evaluator_versions = dict(evaluator_versions or {})
        self._is_evaluator_version = by == semconv.EVALUATOR_VERSION
        self._shown = shown
        self._most = most
        self._known: dict[
            str, dict[str, str]
        ] = {}  # metric of an evaluator version, else empty → value → as it is told
        self.reset()
        reset_in_child(self, ComparedValues.reset)

    def reset(self) -> None:
        """Have a lock that nobody holds: in a forked child."""
        self._lock = RLock()  # a signal handler may interrupt its holder, and begin a unit

    def of_score(self, unit: Unit | None, score: Score) -> str:
        """Return the value of a score."""
        return (
            self._admitted(score.evaluator_version or UNTOLD, score.metric)
            if self._is_evaluator_version
            else self.of_unit(unit)
        )

    def of_loss(self, metric: str, told: str) -> str:
        """Return the value of a unit that a metric lost; ``told``: as ``of_unit`` returned it."""
        return (
            self._admitted(self._evaluator_versions.get(metric, UNTOLD), metric) if self._is_evaluator_version else told
        )

    def of_unit(self, unit: Unit | None) -> str:
        """Return what a unit says, ``unknown`` where it says nothing; None = one of this process of which nothing is left."""
        for told, is_safe in self._tellers(unit):
            if (value := plain_text(told.get(self.by))) is not None and value.strip():
                return self._admitted(value, is_safe=is_safe)
        return self._admitted(UNTOLD)

    def known(self, metric: str) -> Sequence[str]:
        """Return the values of a metric's sums so far, in the order in which they came, ``unknown`` and ``other`` included."""
        with self._lock:
            return tuple(dict.fromkeys(self._known.get(metric if self._is_evaluator_version else "", {}).values()))

    def _tellers(self, unit: Unit | None) -> Iterator[tuple[Mapping[str, Any], bool]]:
        """Yield what may tell of a unit that is about to be emitted as well as of one that has just closed, and whether it
        tells what nobody typed.
        """
        root = None if unit is None else unit.root
        if self.by == semconv.REQUEST_MODEL and unit is not None:
            yield {self.by: unit.request_model}, True
        elif root is not None and unit is not None:
            yield root.metadata, False
            yield root.attributes, False
            if (asked := unit.model_span) is not None:
                yield asked.attributes, False
        yield self._resource() if root is None or root.resource is None else root.resource, True

    def _admitted(self, value: str, metric: str = "", *, is_safe: bool = True) -> str:
        """Return a value as it is told, ``other`` where it is one too many: of evaluator versions, of those of one metric."""
        with self._lock:
            known = self._known.setdefault(metric, {})
            if value in known:
                return known[value]
            if value != UNTOLD and (len(known.keys() - {UNTOLD, OTHER}) >= self._most or len(value) > _LONGEST):
                return known.setdefault(OTHER, OTHER)
        told = value if is_safe else (self._shown(value) or OTHER)  # somebody's code: with no lock held
        with self._lock:
            return known.setdefault(value, told)
