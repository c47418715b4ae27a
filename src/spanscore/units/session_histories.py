"""Histories: which applications bring the whole conversation along with each turn, learned from the turns that come.

Where turns go to any of several processes, what one of them sees of a conversation is all of it only if the application brings
it along. A history cannot tell that it was cut, nor a first turn that it is one: this is told by other conversations.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Histories"]

_NAMES: Final = 1_000


class Histories:
    """Remembers, by name of a root, whether turns bring all or once brought a part, and whether conversations begin empty."""

    def __init__(self) -> None:
        self._whole: dict[str, bool] = {}
        self._empty: set[str] = set()

    def learn(self, name: str, *, whole: bool) -> None:
        """Note that a turn brought all that was said before it, or a part."""
        if name in self._whole or len(self._whole) < _NAMES:
            self._whole[name] = self._whole.get(name, True) and whole

    def learn_begin(self, name: str) -> None:
        """Note that a conversation began without a history: no example or greeting stands before the first question."""
        if len(self._empty) < _NAMES:
            self._empty.add(name)

    def begin_empty(self, name: str) -> bool:
        """Whether conversations of that name begin without a history, so that one with a history has begun before."""
        return name in self._empty

    def are_whole(self, name: str) -> bool:
        """Whether turns of that name bring along all that was said; False while that is not known."""
        return self._whole.get(name, False)
