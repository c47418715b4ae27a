"""Answers that are kept: key → answer, in bounded room. What all such stores can do, and the one in memory."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, runtime_checkable

from spanscore.core.prompt import Reply
from spanscore.judges.effects.single_flight import SingleFlight, as_cached

__all__ = ["AnswerStore", "MemoryAnswers"]


@runtime_checkable
class AnswerStore(Protocol):
    """Where answers are kept. Loop thread; never raises, as a store that fails costs only what it held.

    Attributes:
        flights: the questions that are out and whose answers will be here.
    """

    flights: SingleFlight

    async def find(self, key: bytes) -> Reply | None:
        """Return the answer to a question as a cached one; None where there is none. Must not block."""

    def keep(self, key: bytes, reply: Reply) -> Awaitable[object] | None:
        """Keep an answer; return what to await until it outlives the process, None if it does not. Must not block."""


@dataclass(eq=False, repr=False)
class MemoryAnswers:
    """Answers in memory, the ones least asked for out first.

    Attributes:
        max_answers: kept at once.
        max_bytes: of their texts, about.
        max_age_s: seconds after which an answer is asked for again.
        clock: seconds.
    """

    _: KW_ONLY
    max_answers: int = 10_000
    max_bytes: int = 64_000_000
    max_age_s: float = 3600.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.flights = SingleFlight()
        self._kept: OrderedDict[bytes, tuple[float, Reply]] = OrderedDict()
        self._bytes = 0

    async def find(self, key: bytes) -> Reply | None:
        """Return the answer, if it is not too old."""
        kept_s, reply = self._kept.get(key, (0.0, None))
        if reply is None:
            return None
        if self.clock() - kept_s >= self.max_age_s:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return reply

    def keep(self, key: bytes, reply: Reply) -> None:
        """Keep an answer, and drop those for which there is no room any more."""
        self._drop(key)
        self._kept[key] = self.clock(), as_cached(reply)
        self._bytes += _size(reply)
        while len(self._kept) > self.max_answers or self._bytes > self.max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        _, reply = self._kept.pop(key, (0.0, None))
        self._bytes -= 0 if reply is None else _size(reply)


def _size(reply: Reply) -> int:
    return sys.getsizeof(reply.text)
