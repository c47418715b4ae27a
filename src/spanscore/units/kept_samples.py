"""KeptSamples: samples of units of which somebody may yet say something, for a while and in bounded room."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from spanscore.core.event_queue import steady_ns
from spanscore.core.job import Decision
from spanscore.core.sample import Samples
from spanscore.core.score import Score, Usage
from spanscore.core.span import SamplingContext, Unit, UnitKey
from spanscore.units.content_size import size_bytes_of

__all__ = ["KeptSamples", "KeptUnit"]

_UNIT_BYTES: Final = 2_500
"""A unit without content and what it is kept by, its attributes left out: measured."""
_SCORE_BYTES: Final = 1_000
_GONE: Final = 10_000
"""Units of which it is known that they were kept once."""


@dataclass(slots=True)
class KeptUnit:
    """A unit that is kept.

    Attributes:
        unit: without content.
        decision: by which it is kept.
        scores: metric → what it gave the unit, without what that cost.
    """

    unit: Unit
    decision: Decision
    until_ns: int
    size_bytes: int
    _samples: bytes = field(repr=False)
    scores: dict[str, Score] = field(default_factory=dict)

    @property
    def samples(self) -> Samples:
        """What a metric judges: redacted."""
        held: Samples = pickle.loads(self._samples)
        return held


@dataclass(eq=False, repr=False)
class KeptSamples:
    """Keeps samples until they are asked for, are too old, or have to make room; a ``SampleObserver``. Span thread.

    They are kept as bytes: of objects nobody could say how much they hold, and most are never looked at again.

    Attributes:
        decide: whether a unit is kept, and with which probability; pure.
        within_ns: how long.
        max_bytes: of all together.
        on_kept: told of a unit that is now kept.
    """

    decide: Callable[[SamplingContext], Decision]
    _: KW_ONLY
    within_ns: int
    max_bytes: int
    on_kept: Callable[[UnitKey], None] = lambda _: None
    clock: Callable[[], int] = steady_ns

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self.bytes = 0
        self._kept: OrderedDict[UnitKey, KeptUnit] = OrderedDict()
        self._gone: OrderedDict[UnitKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def is_interested(self, facts: SamplingContext) -> bool:
        """Whether the dice keep a unit."""
        return self.decide(facts).take

    def on_samples(self, facts: SamplingContext, unit: Unit, samples: Samples) -> None:
        """Keep the samples of a unit, where there are some."""
        if samples.outcome is not None or facts.key in self._kept:
            return
        held = pickle.dumps(samples, protocol=pickle.HIGHEST_PROTOCOL)
        size = len(held) + _UNIT_BYTES + size_bytes_of(unit) + _metadata_bytes(unit)
        self._kept[facts.key] = KeptUnit(unit, self.decide(facts), self.clock() + self.within_ns, size, held)
        self.bytes += size
        self.make_room()
        self.on_kept(facts.key)

    def scored(self, key: UnitKey, scores: Sequence[Score]) -> None:
        """Note what the metrics gave a unit, if it is kept: nobody is asked about it again."""
        kept = self._kept.get(key)
        if kept is None:
            return
        for score in scores:
            kept.scores[score.metric] = replace(score, usage=Usage())
            size = _SCORE_BYTES + len(score.explanation or "")
            kept.size_bytes += size
            self.bytes += size
        self.make_room()

    def take(self, key: UnitKey) -> KeptUnit | None:
        """Return a unit that is kept, and keep it no longer; None where it is not (any more)."""
        self.make_room()
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.bytes -= kept.size_bytes
        return kept

    def was_kept(self, key: UnitKey) -> bool:
        """Whether a unit was kept, and had to go."""
        return key in self._gone

    def make_room(self) -> None:
        """Let units go that are too old, and the oldest of those that are too many."""
        now_ns = self.clock()
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if self.bytes <= self.max_bytes and now_ns < oldest.until_ns:
                return
            self.bytes -= oldest.size_bytes
            del self._kept[oldest.unit.key]
            self._gone[oldest.unit.key] = None
            if len(self._gone) > _GONE:
                self._gone.popitem(last=False)


def _metadata_bytes(unit: Unit) -> int:
    return sum(len(value) for span in unit.spans for value in span.metadata.values() if isinstance(value, str))
