"""What follows from the names of a span's attributes alone, found once: a service sends few sets of names, again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["ByNames"]

T = TypeVar("T")
_SETS: Final = 512
_CHARS: Final = 2_000
"""How many sets of names are remembered, and of how many characters at most each: who sends more may send others each time."""


class ByNames(dict[tuple[str, ...], T]):
    """Names, in their order, → what follows from them; to be asked as ``known[(*attributes,)]``. Any thread.

    Args:
        find: pure.
    """

    def __init__(self, find: Callable[[tuple[str, ...]], T]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, names: tuple[str, ...]) -> T:
        """Find it, and remember it where that is not too much."""
        found = self._find(names)
        if sum(map(len, names)) <= _CHARS:
            if len(self) >= _SETS:
                self.clear()
            self[names] = found
        return found
