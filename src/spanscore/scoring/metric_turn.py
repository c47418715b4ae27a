"""MetricTurn: one of so many places at once, given back when its score is settled: a metric may never end."""

from __future__ import annotations

from asyncio import Semaphore
from dataclasses import dataclass

from spanscore.judges.asker import asker

__all__ = ["MetricTurn"]


@dataclass(slots=True)
class MetricTurn:
    """The turn of one score. Loop thread."""

    _places: Semaphore
    _is_taken: bool = False

    async def take(self) -> None:
        """Wait for a place; no time of the score's."""
        if self._places.locked():
            with asker().asks(), asker().waits():
                await self._places.acquire()
        else:
            await self._places.acquire()
        self._is_taken = True

    def give_back(self) -> None:
        """Let the next one have the place, if it was taken."""
        if self._is_taken:
            self._is_taken = False
            self._places.release()
