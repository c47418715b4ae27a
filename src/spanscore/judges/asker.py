"""Asker: for which score a question is asked. What a judge's effects need to know of it, and the clock of the score.

The engine opens one around each metric that it begins; a metric that is scored by hand has none.

    asking    a question of the score is out with its judge, or waits to be sent
    waiting   it waits: for a place, a rate, an open breaker. That is no time in which a judge works

The score's time runs while it computes or a judge works for it; it stands still while all its open questions wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import Any

from spanscore.judges.effects.purse import Purse

__all__ = ["Asker", "Follower", "ask_for", "asked_by", "asker"]


@dataclass(slots=True, eq=False)
class Asker:
    """One metric at work on one sample. Loop thread.

    Attributes:
        metric: its name: the places of an account go round by it.
        taken_s: when this process took the unit; the loop's clock, as all times here. ``queue_timeout`` counts from it.
        held_until_s: until when the unit's spans wait for its scores: such a unit goes before one whose spans have left.
        purse: from which its questions are paid; None = no budget is set.
        transcribes: whether its calls are told one by one (``judges/transcribe.py``).
        quotes: and with what was asked and said, which is content.
        on_change: called when ``is_waiting`` has changed.
        asking: questions that are open.
        waiting: of them, those that wait.
        chosen: whom of several judges all questions of the score are asked; by the id of what chose (``effects/fallback.py``).
        contradictions: verdicts of its judge that its own reason speaks against.
        source: of what the score is a part, where it is none of the judge that was configured; None = the population.
    """

    metric: str = ""
    taken_s: float | None = None
    held_until_s: float = -inf
    purse: Purse | None = None
    transcribes: bool = False
    quotes: bool = False
    on_change: Callable[[], None] | None = None
    asking: int = field(default=0, init=False)
    waiting: int = field(default=0, init=False)
    chosen: dict[int, Any] = field(default_factory=dict, init=False)
    source: str | None = field(default=None, init=False)
    contradictions: int = field(default=0, init=False)

    @property
    def is_waiting(self) -> bool:
        """Whether nobody works for it: all its open questions wait."""
        return 0 < self.asking == self.waiting

    @contextmanager
    def asks(self) -> Iterator[None]:
        """Have a question open inside the block."""
        self._count(asking=1)
        try:
            yield
        finally:
            self._count(asking=-1)

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Have the question that is open wait inside the block."""
        self._count(waiting=1)
        try:
            yield
        finally:
            self._count(waiting=-1)

    def _count(self, *, asking: int = 0, waiting: int = 0) -> None:
        before = self.is_waiting
        self.asking += asking
        self.waiting += waiting
        if self.on_change is not None and self.is_waiting != before:
            self.on_change()


_asker: ContextVar[Asker | None] = ContextVar("spanscore_asker", default=None)


def asker() -> Asker:
    """Return for which score a question is asked; one that knows nothing, where a metric is scored by hand."""
    return _asker.get() or Asker()


def ask_for(one: Asker) -> None:
    """Have all questions of this context, which has no end but its task's, asked for this score."""
    _asker.set(one)


@contextmanager
def asked_by(one: Asker) -> Iterator[None]:
    """Have all questions inside the block, and in tasks started there, asked for this score."""
    token = _asker.set(one)
    try:
        yield
    finally:
        _asker.reset(token)


@dataclass(slots=True, eq=False)
class Follower:
    """Who waits for an answer that is asked for in another's name, and whose clock goes as that one's. Loop thread."""

    asker: Asker = field(default_factory=asker)
    _waits: ExitStack = field(default_factory=ExitStack, init=False)
    _is_waiting: bool = field(default=False, init=False)

    def stand(self, waiting: bool) -> None:
        """Have the clock stand still while the request waits to be sent, and run while a judge works."""
        if waiting and not self._is_waiting:
            self._waits.enter_context(self.asker.waits())
        elif not waiting:
            self._waits.close()
        self._is_waiting = waiting
