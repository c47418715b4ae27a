"""A tree of settings without what turned out to be wrong in it."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from spanscore.settings.faults import place_of

__all__ = ["LeftOver"]


class LeftOver:
    """What was given, without what turned out to be wrong.

    Attributes:
        lost_metrics: entries of ``metrics`` were dropped.
        no_metrics: none was left; a built-in stands in for them, as there must be one.
    """

    def __init__(self) -> None:
        self._tree: dict[str, Any] | None = None
        self.lost_metrics = False
        self.no_metrics = False

    def of(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return what is left of it: at first all."""
        if self._tree is None:
            self._tree = deepcopy(merged)
        return self._tree

    def drop(self, entries: Iterable[Any]) -> bool:
        """Drop what pydantic complains of, and what lacks something; whether there was anything to drop."""
        assert self._tree is not None  # validated, and so given
        places = {place_of(entry)[: -1 if entry["type"] == "missing" else None] for entry in entries}
        dropped = [_drop(self._tree, place) for place in sorted(places, key=_order, reverse=True)]
        lost = any(place[:1] in ((), ("metrics",)) for place in places)
        if lost and not self._tree.get("metrics"):
            self._tree["metrics"], self.no_metrics = ["exact_match"], True
        self.lost_metrics |= lost
        return lost or any(dropped)


def _order(place: tuple[int | str, ...]) -> list[tuple[bool, int | str]]:
    """Return a key by which places can be sorted; backwards, a list loses its last element first and the others stay put."""
    return [(isinstance(part, str), part) for part in place]


def _drop(tree: dict[str, Any], place: tuple[int | str, ...]) -> bool:
    holder: Any = None
    key, inner = None, tree
    for part in place:
        try:
            holder, key, inner = inner, part, inner[part]  # type: ignore[index]  # checked by doing
        except (LookupError, TypeError):  # where a place was made of a plain value: serve_metrics: 9464
            break
    if holder is not None:
        del holder[key]
    return holder is not None
