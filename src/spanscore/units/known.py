"""KnownUnits: which units of a trace this process has seen, and which has a key of the application's own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from spanscore import semconv
from spanscore.core.log import plain_text
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.units.recent import RecentUnits

__all__ = ["KnownUnits", "feedback_key_of"]

K = TypeVar("K")
V = TypeVar("V")
_KEPT: Final = 10_000
"""Units that are remembered: 0.2 kB each, and as much for a key."""


def feedback_key_of(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the application's own key of a unit; None where its metadata hold none."""
    return plain_text(metadata.get(semconv.FEEDBACK_METADATA)) or None if metadata else None


class KnownUnits:
    """The last units that have closed. Any thread: each step is one of a dict's, and no lock is held.

    Args:
        recent: the last of them, with what is known of each.
        kept: units that are remembered.
    """

    def __init__(self, recent: RecentUnits | None = None, kept: int = _KEPT) -> None:
        self.recent = recent or RecentUnits()
        self._kept = kept
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._units: OrderedDict[UnitKey, None] = OrderedDict()
        self._keys: OrderedDict[str, UnitKey] = OrderedDict()
        self.recent.reset()

    def closed(self, facts: SamplingContext) -> None:
        """Remember a unit, and its key where its metadata hold one. O(1)."""
        _keep(self._units, facts.key, None, self._kept)
        if key := feedback_key_of(facts.metadata):
            _keep(self._keys, key, facts.key, self._kept)

    def of_trace(self, trace_id: int) -> list[UnitKey]:
        """Return the units of a trace, in the order in which they closed."""
        return [key for key in list(self._units) if key.trace_id == trace_id]

    def of_key(self, key: str) -> UnitKey | None:
        """Return the unit that was the last with this key; None where none is known."""
        return self._keys.get(key)


def _keep(of: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    of[key] = value
    if len(of) > most:
        try:
            of.popitem(last=False)
        except KeyError:  # another thread was faster
            return
