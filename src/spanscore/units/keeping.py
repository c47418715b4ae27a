"""Keeping: units whose samples have an observer, from their close until the samples are made."""

from __future__ import annotations

from collections.abc import Callable

from spanscore.core.job import SampledUnit
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, Unit, UnitKey
from spanscore.protocols import Queue, SampleObserver
from spanscore.units.content_size import size_bytes_of

__all__ = ["Keeping"]


class Keeping:
    """Gives the samples of each unit to the observers that are interested in it. Span thread.

    Args:
        queue: the scorer's: to make a sample takes a place.

    Attributes:
        observers: put here before the first unit comes.
        noticed: called with what is known of each unit that has closed, or cannot be taken; likewise.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.observers: list[SampleObserver] = []
        self.noticed: list[Callable[[SamplingContext], None]] = []
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._making: dict[UnitKey, SamplingContext] = {}

    def closed(self, facts: SamplingContext) -> None:
        """Tell of a unit, once, whatever comes of it."""
        for notice in self.noticed:
            notice(facts)

    def is_interested(self, facts: SamplingContext) -> bool:
        """Whether an observer is interested in a unit that has closed."""
        return any(observer.is_interested(facts) for observer in self.observers)

    def delegated(self, facts: SamplingContext) -> bool:
        """Note that the samples of a unit will be made; return whether an observer is interested in them."""
        if wanted := self.is_interested(facts):
            self._making[facts.key] = facts
        return wanted

    def to_make(self, unit: Unit, facts: SamplingContext, samples: Samples | None, now_s: float) -> list[SampledUnit]:
        """Return what the engine shall do of a unit that no metric takes: nothing, or make its samples."""
        if not self.is_interested(facts):
            return []
        held = size_bytes_of(unit, samples)
        if not self._queue.reserve(held):
            self._tell(facts, unit.without_content(), _none(Outcome.QUEUE_FULL))
            return []
        self.delegated(facts)
        return [SampledUnit(unit, {}, samples, held, now_s, wanted=True)]

    def making(self, conversation_id: str | None = None) -> list[UnitKey]:
        """Return the units whose samples are being made: a flush waits for them; of a conversation, its turns alone."""
        return [
            key
            for key, facts in self._making.items()
            if conversation_id is None or facts.conversation_id == conversation_id
        ]

    def on_samples(self, unit: Unit, samples: Samples) -> None:
        """Give samples to the interested observers, once; samples of a unit that was not handed over are ignored."""
        facts = self._making.pop(unit.key, None)
        if facts is not None:
            self._tell(facts, unit, samples)

    def missed(self, facts: SamplingContext, unit: Unit, outcome: Outcome) -> None:
        """Report to the interested observers that a unit has no samples, and why."""
        if self.is_interested(facts):
            self._tell(facts, unit.without_content(), _none(outcome))

    def give_up(self) -> None:
        """Tell of all that are being made that they will not be."""
        for facts in [*self._making.values()]:
            self.on_samples(Unit(facts.key, ()), _none(Outcome.SHUTDOWN))

    def _tell(self, facts: SamplingContext, unit: Unit, samples: Samples) -> None:
        for observer in self.observers:
            if observer.is_interested(facts):
                observer.on_samples(facts, unit, samples)


def _none(outcome: Outcome) -> Samples:
    return Samples(outcome=outcome, reason=f"no sample was made of it: {outcome}")
