"""Unit → the value by which releases are compared (``Compare.by``), of few: it stands on sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import RLock
from typing import Any, Final

from spanscore import semconv
from spanscore.model.foreign import plain_text
from spanscore.model.score import Score
from spanscore.model.span import Unit
from spanscore.otel.sums import OTHER
from spanscore.runtime.fork import reset_in_child

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
        series: metric → its present series, for the units that are lost: their scores would have been of it.
    """

    def __init__(
        self,
        by: str,
        resource: Callable[[], Mapping[str, Any]] = dict,
        series: Mapping[str, str] | None = None,
    ) -> None:
        self.by = by
        self._resource = resource
        self._series = dict(series or {})
        self._is_series = by == semconv.SERIES
        self._known: dict[str, dict[str, None]] = {}
        self.reset()
        reset_in_child(self, ComparedValues.reset)

    def reset(self) -> None:
        """Have a lock that nobody holds: in a forked child."""
        self._lock = RLock()  # a signal handler may interrupt its holder, and begin a unit

    def of_score(self, unit: Unit | None, score: Score) -> str:
        """Return the value of a score."""
        if self._is_series:
            return self._admitted(score.series or UNTOLD, score.metric)
        return self._admitted(self.of_unit(unit))

    def of_loss(self, metric: str, told: str) -> str:
        """Return the value of a unit that a metric lost; ``told``: as ``of_unit`` returned it."""
        if self._is_series:
            return self._admitted(self._series.get(metric, UNTOLD), metric)
        return self._admitted(told)

    def of_unit(self, unit: Unit | None) -> str:
        """Return what a unit says, ``unknown`` where it says nothing; None = one of this process of which nothing is left."""
        for told in self._tellers(unit):
            if (value := plain_text(told.get(self.by))) is not None and value.strip():
                return value
        return UNTOLD

    def known(self, metric: str) -> Sequence[str]:
        """Return the values of a metric's sums so far, in the order in which they came, ``unknown`` and ``other`` included."""
        with self._lock:
            return tuple(self._known.get(metric if self._is_series else "", ()))

    def _tellers(self, unit: Unit | None) -> Iterator[Mapping[str, Any]]:
        """Yield what may tell of a unit that is about to be emitted as well as of one that has just closed."""
        root = None if unit is None else unit.root
        if self.by == semconv.REQUEST_MODEL and unit is not None:
            yield {self.by: unit.request_model}
        elif root is not None and unit is not None:
            yield root.metadata
            yield root.attributes
            if (asked := unit.names_model) is not None:
                yield asked.attributes
        yield self._resource() if root is None or root.resource is None else root.resource

    def _admitted(self, value: str, metric: str = "") -> str:
        """Return a value, or ``other`` where it is one too many: of series, of those of one metric."""
        with self._lock:
            known = self._known.setdefault(metric, {})
            if value in known:
                return value
            own = known.keys() - {UNTOLD, OTHER}
            if value != UNTOLD and (len(own) >= MOST_VALUES or len(value) > _LONGEST):
                value = OTHER
            known[value] = None
            return value
