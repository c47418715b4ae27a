"""Values that a reload of the configuration replaces: a unit keeps the value that was in force when it began."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Generic, TypeVar

from spanscore.core.span import UnitKey
from spanscore.pipeline.sampling import RateSampler

T = TypeVar("T")
WHOLE_TRACE: Final = 0
"""Span id in the key of an open unit without a certain root yet. Such a key means each unit of the trace."""


class ValueInForce(Generic[T]):
    """A value that a reload replaces. A unit that is open at the reload keeps its earlier value.

    ``change`` and ``join`` run on the span thread, ``of`` on any thread.

    Attributes:
        now: value for units that begin now; never false.
    """

    def __init__(self, now: T) -> None:
        self.now = now
        self._earlier: dict[UnitKey, T] = {}

    @property
    def earlier(self) -> Collection[T]:
        """The earlier values that open units keep, one for each such unit."""
        return self._earlier.values()

    def of(self, key: UnitKey) -> T:
        """Return the value of a unit. O(1)."""
        earlier = self._earlier
        if not earlier:
            return self.now
        return earlier.get(key) or earlier.get(UnitKey(key.trace_id, WHOLE_TRACE)) or self.now

    def change(self, value: T, open_units: Iterable[UnitKey]) -> None:
        """Replace the value for units that begin from now on, and forget the values of units that have ended. O(open units).

        ``value`` may be the present value: then the call only forgets the values of ended units.
        """
        self._earlier = {key: own for key in open_units if (own := self.of(key)) is not value}
        self.now = value

    def join(self, inner: UnitKey, around: UnitKey) -> None:
        """Give an inner unit the value of the unit around it, which is open. O(1)."""
        if (own := self.of(around)) is not self.now:
            self._earlier[inner] = own


class SamplerInForce:
    """The methods of the sampler in force, by which receivers decide on roots that begin.

    While units of an earlier sampler are open, it is uncertain which sampler will decide on a root, so ``could_sample`` is true
    if any of the samplers could sample the unit. At all other times a call costs no more than a call of the sampler itself.
    """

    def __init__(self, sampler: RateSampler) -> None:
        self.use(sampler)

    def use(self, sampler: RateSampler, earlier: Collection[RateSampler] = ()) -> None:
        """Use a sampler from now on; the ``earlier`` samplers still decide on open units. Thread-safe."""
        self.could_sample, self.could_sample_trace, self.decide = (
            sampler.could_sample,
            sampler.could_sample_trace,
            sampler.decide,
        )
        samplers = dict.fromkeys([sampler, *earlier])
        if len(samplers) > 1:
            self.could_sample = lambda facts: any(each.could_sample(facts) for each in samplers)
            self.could_sample_trace = lambda trace_id: _join(each.could_sample_trace(trace_id) for each in samplers)


def _join(previews: Iterable[bool | None]) -> bool | None:
    results = {*previews}
    return True if True in results else None if None in results else False
