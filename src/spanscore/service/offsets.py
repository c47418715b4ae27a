"""PartitionOffsets: messages read from one partition, in their order → up to where all of them are settled.

A message is settled when no trace of it is open any more. What is committed is the oldest that is not: a process that dies
loses nothing, and the next one reads again what came after it. Where a partition is handed on in good order, the commit's
metadata say which of those are settled all the same, as in Confluent's Parallel Consumer, and they are not scored twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Final

__all__ = ["PartitionOffsets", "ranges_in", "ranges_of"]

_LONGEST: Final = 3_000
"""Characters of ranges: the broker takes 4,096 bytes of metadata. What does not fit is read again."""
_MOST: Final = 1_000_000
"""Offsets that ranges may tell: anybody of the group may have written them."""


class PartitionOffsets:
    """The messages of one partition that were read and are not known to be settled. Owned by one thread.

    Attributes:
        position: the offset after the last message that was read; None = none was.
    """

    def __init__(self) -> None:
        self._open: deque[tuple[int, Collection[bytes], int]] = deque()
        self.position: int | None = None

    def __len__(self) -> int:
        """Messages that are not known to be settled."""
        return len(self._open)

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest that is not known to be settled was written; None = all are. Any thread."""
        waiting = self._open
        try:
            return waiting[0][2]
        except IndexError:
            return None

    def read(self, offset: int, traces: Collection[bytes], log_ns: int) -> None:
        """Note a message; offsets come in their order, and may leave some out.

        Args:
            offset: its own.
            traces: of which it has spans; none = it is settled with those before it.
            log_ns: when it was written.
        """
        self._open.append((offset, traces, log_ns))
        self.position = offset + 1

    def advance(self, is_open: Callable[[bytes], bool]) -> int | None:
        """Forget what is settled at the front, and return the offset that may be committed; None = nothing was read.

        Each message is forgotten once, and only the first that stays is looked at again: O(1) for each that is read.

        Args:
            is_open: whether something of a trace is to come.
        """
        waiting = self._open
        while waiting and not any(map(is_open, waiting[0][1])):
            waiting.popleft()
        return waiting[0][0] if waiting else self.position

    def settled_beyond(self, is_open: Callable[[bytes], bool]) -> list[int]:
        """Return the offsets of settled messages that a commit would not tell, in their order."""
        return [offset for offset, traces, _ in self._open if not any(map(is_open, traces))]

    def traces(self) -> set[bytes]:
        """Return the traces of all messages that are not settled."""
        return {trace for _, traces, _ in self._open for trace in traces}


def ranges_of(offsets: Collection[int], base: int) -> str:
    """Return ascending offsets as ``0-4,7``, from a base; of too many, the first."""
    told = ",".join(
        f"{first - base}-{last - base}" if first < last else f"{first - base}" for first, last in _runs(offsets)
    )
    return told if len(told) <= _LONGEST else told[:_LONGEST].rpartition(",")[0]


def ranges_in(text: str, base: int) -> set[int]:
    """Return the offsets that such a text tells; none of one that is none."""
    found = set[int]()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last.isdigit() or not last)):
            return set()
        if len(found) + int(last or first) - int(first) >= _MOST:
            return set()
        found.update(range(base + int(first), base + int(last or first) + 1))
    return found


def _runs(offsets: Collection[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for offset in offsets:
        if first is None or last is None:
            first = last = offset
        elif offset == last + 1:
            last = offset
        else:
            yield first, last
            first = last = offset
    if first is not None and last is not None:
        yield first, last
