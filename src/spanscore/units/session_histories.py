"""Histories: which applications bring the whole conversation along with each turn, learned from the turns that come.

Where turns go to any of several processes, what one of them sees of a conversation is all of it only if the application brings
it along. A history cannot tell that it was cut, nor a first turn that it is one: this is told by other conversations.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Histories"]

_NAMES: Final = 1_000


class Histories:
    """Remembers of each name of a root whether its turns bring all, or once brought a part."""

    def __init__(self) -> None:
        self._whole: dict[str, bool] = {}

    def learn(self, name: str, *, whole: bool) -> None:
        """Note that a turn brought all that was said before it, or a part."""
        if name in self._whole or len(self._whole) < _NAMES:
            self._whole[name] = self._whole.get(name, True) and whole

    def are_whole(self, name: str) -> bool:
        """Whether turns of that name bring along all that was said; False while that is not known."""
        return self._whole.get(name, False)
