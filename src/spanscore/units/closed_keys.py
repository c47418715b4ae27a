"""ClosedKeys: which units are over, told from a hash of their ids, and forgotten in the order in which they ended."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

__all__ = ["ClosedKeys"]

_BITS: Final = (1 << 60) - 1
"""An int of 60 bits takes 32 bytes, one of 64 takes 48."""
_NONE: Final = -1
_SLACK: Final = 8
"""An eighth is forgotten at a time: to take the first of a dict walks over all that were taken before."""


class ClosedKeys:
    """Remembers units by 110 to 160 bytes each: the hash of their trace → that of the root which ended last in it.

    Further roots of that trace have an entry of their own. Python's hash of bytes is keyed per process: ids cannot be made
    to collide, and do so by chance once in 10¹² look-ups.

    Args:
        most: entries that are remembered at least; an eighth more at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._roots: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, trace_id: bytes, root_id: bytes) -> None:
        """Remember a unit."""
        self.add_all([(trace_id, root_id)])

    def add_all(self, ids: Iterable[tuple[bytes, bytes]]) -> None:
        """Remember units, each by its trace and its root."""
        roots = self._roots
        for trace_id, root_id in ids:
            trace, root = hash(trace_id) & _BITS, hash(root_id) & _BITS
            before = roots.pop(trace, None)
            if before is not None and before != root:
                roots[hash(trace_id + root_id) & _BITS] = 0
                root = before
            roots[trace] = root
        if len(roots) > self._most + self._most // _SLACK:
            for key in [*islice(roots, len(roots) - self._most)]:
                del roots[key]

    def discard(self, trace_id: bytes, root_id: bytes) -> None:
        """Remember a unit no longer, if it is; its trace is."""
        roots, trace = self._roots, hash(trace_id) & _BITS
        if roots.get(trace) == hash(root_id) & _BITS:
            roots[trace] = _NONE
        else:
            roots.pop(hash(trace_id + root_id) & _BITS, None)

    def knows(self, trace_id: bytes) -> bool:
        """Whether a unit of that trace is remembered."""
        return hash(trace_id) & _BITS in self._roots

    def has(self, trace_id: bytes, root_id: bytes) -> bool:
        """Whether that unit is remembered."""
        roots = self._roots
        root = roots.get(hash(trace_id) & _BITS)
        if root is None:
            return False
        return root == hash(root_id) & _BITS or hash(trace_id + root_id) & _BITS in roots
