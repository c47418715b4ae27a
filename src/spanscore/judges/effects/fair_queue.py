"""FairQueue: questions that wait for one account → which of them goes next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from spanscore.judges.effects.ticket import Ticket

__all__ = ["FairQueue", "Waiter"]


@dataclass(slots=True, eq=False)
class Waiter:
    """A question that waits to be sent.

    Attributes:
        metric: whose question it is.
        held_until_s: until when its unit's spans wait for it.
        since_s: when it came.
        tokens: what it may come to; 0 where nobody counts them.
        comes: the ticket with which it may be sent.
    """

    metric: str
    held_until_s: float
    since_s: float
    tokens: float
    comes: asyncio.Future[Ticket]


class FairQueue:
    """Round robin by metric, so that one with 20 questions per score does not starve one with a single question; a unit whose
    spans still wait goes before one whose spans have left.

    First come, first served within a metric; who was there before and was sent away goes to the front again.
    """

    def __init__(self) -> None:
        self._held: dict[str, deque[Waiter]] = {}
        self._late: dict[str, deque[Waiter]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values())) + sum(map(len, self._late.values()))

    def __iter__(self) -> Iterator[Waiter]:
        for lane in (*self._held.values(), *self._late.values()):
            yield from lane

    def put(self, waiter: Waiter, *, again: bool = False) -> None:
        """Have a question wait; at the front of its metric's if it comes ``again``."""
        lane = self._held.setdefault(waiter.metric, deque())
        if again:
            lane.appendleft(waiter)
        else:
            lane.append(waiter)

    def next(self, now_s: float) -> Waiter | None:
        """Return who goes next, and leave it where it is; None where nobody waits."""
        while self._held:
            waiter = next(iter(self._held.values()))[0]
            if not waiter.comes.done() and waiter.held_until_s > now_s:
                return waiter
            self._leave(self._held)
            if not waiter.comes.done():
                self._late.setdefault(waiter.metric, deque()).append(waiter)
        while self._late:
            waiter = next(iter(self._late.values()))[0]
            if not waiter.comes.done():
                return waiter
            self._leave(self._late)
        return None

    def pop(self) -> None:
        """Take out who goes next; the next metric's turn comes behind it."""
        self._leave(self._held or self._late, rotate=True)

    @staticmethod
    def _leave(lanes: dict[str, deque[Waiter]], *, rotate: bool = False) -> None:
        metric, lane = next(iter(lanes.items()))
        lane.popleft()
        if not lane or rotate:
            del lanes[metric]
        if lane and rotate:
            lanes[metric] = lane
