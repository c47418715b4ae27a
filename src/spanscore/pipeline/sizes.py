"""Estimates the memory of units and samples, keeps samples up to a bound, and passes samples to observers."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import islice
from types import FunctionType
from typing import Any, Final

from spanscore.core.event_queue import steady_ns
from spanscore.core.job import Decision, SampledUnit
from spanscore.core.sample import (
    AIMessage,
    HumanMessage,
    Image,
    MultiTurnSample,
    Samples,
    SingleTurnSample,
    TokenUsage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
)
from spanscore.core.score import Outcome, Score, Usage
from spanscore.core.span import Attributes, SamplingContext, Unit, UnitKey
from spanscore.pipeline.decisions import keep_latest
from spanscore.protocols import Queue, SampleObserver

_ENTRY_BYTES: Final = 80
"""Approximate bytes of a container's entry."""
_MAX_OBJECTS: Final = 20_000
"""Maximum number of objects that are read for one estimate, 10 ms at worst."""
_FIRST: Final = slice(_MAX_OBJECTS)
_LONG: Final = 1_000
"""A text of more characters is counted once, even if it occurs several times."""
_SMALL: Final = frozenset({type(None), bool, int, float, FunctionType})
"""Types without entries; their own size is not counted."""
_MODELS: Final = frozenset(
    [
        SingleTurnSample,
        MultiTurnSample,
        HumanMessage,
        AIMessage,
        ToolMessage,
        ToolCall,
        ToolDefinition,
        TokenUsage,
        Image,
    ]
)


def size_bytes_of(unit: Unit, samples: Samples | None = None) -> int:
    """Return the approximate bytes of a unit's content: of ``samples`` if given, otherwise of its spans' attributes.

    A long text counts once, even if it occurs several times. Lists, tuples, dicts and samples are read without running their
    code. After 20,000 objects the size so far is returned, which is a lower bound.
    """
    if samples is not None:
        return _size_bytes([samples.single_turn, samples.multi_turn])
    # A span's content is in the objects from which it is rendered later (``held``), or in plain attribute values.
    attributes = (span.attributes for span in unit.spans)
    return _size_bytes([each.content_owner if isinstance(each, Attributes) else dict(each) for each in attributes])


def _size_bytes(objects: list[Any]) -> int:
    seen: set[int] = set()
    total, unread = 0, objects
    for _ in range(_MAX_OBJECTS):
        if not unread:
            break
        value = unread.pop()
        kind = type(value)
        if kind is str or kind is bytes:
            if len(value) <= _LONG:
                total += len(value)
            elif id(value) not in seen:
                seen.add(id(value))
                total += len(value)
        elif kind not in _SMALL:
            entries = _entries(value, kind)
            total += _ENTRY_BYTES * len(entries)
            unread += entries
    return total


def _entries(value: Any, kind: type) -> Collection[Any]:
    """Return the first entries of a container; empty for every other object."""
    if kind is dict:
        return value.values() if len(value) <= _MAX_OBJECTS else list(islice(value.values(), _MAX_OBJECTS))
    if kind is partial:
        return value.args  # type: ignore[no-any-return]
    if kind is list:
        return value if len(value) <= _MAX_OBJECTS else value[:_MAX_OBJECTS]  # type: ignore[no-any-return]
    if issubclass(kind, tuple):
        return tuple.__getitem__(value, _FIRST)
    return list(vars(value).values()) if kind in _MODELS else ()


_UNIT_BYTES: Final = 2_500
"""Measured bytes of a kept unit without content and attributes."""
_SCORE_BYTES: Final = 1_000
"""Approximate bytes of a kept score without its explanation."""
_MAX_DROPPED: Final = 10_000
"""Maximum number of remembered keys of dropped units."""


@dataclass(slots=True)
class KeptUnit:
    """A kept unit with its samples.

    Attributes:
        unit: the unit without content.
        until_ns: time at which the unit is dropped, by the cache's clock.
        size_bytes: approximate size of the unit with its samples and scores.
        scores: metric → score, without usage.
    """

    unit: Unit
    decision: Decision
    until_ns: int
    size_bytes: int
    _samples: bytes = field(repr=False)
    scores: dict[str, Score] = field(default_factory=dict)

    @property
    def samples(self) -> Samples:
        """The redacted samples, as metrics read them."""
        samples: Samples = pickle.loads(self._samples)
        return samples


@dataclass(eq=False, repr=False)
class SampleCache:
    """A ``SampleObserver`` that keeps samples until they are taken, are too old, or exceed ``max_bytes``.

    Call on the span thread. Samples are kept pickled, because the size is then exact, and most samples are never read again.

    Attributes:
        decide: returns whether a unit is kept, and with which probability; pure.
        within_ns: time for which samples are kept, in nanoseconds.
        max_bytes: maximum size of all kept samples; the oldest is dropped first.
        on_kept: called with the key of each unit after it was added.
        clock: returns the present time in nanoseconds; never decreases.
    """

    decide: Callable[[SamplingContext], Decision]
    _: KW_ONLY
    within_ns: int
    max_bytes: int = 64_000_000
    on_kept: Callable[[UnitKey], None] = lambda _: None
    clock: Callable[[], int] = steady_ns

    def __post_init__(self) -> None:
        self.bytes = 0
        self._kept: OrderedDict[UnitKey, KeptUnit] = OrderedDict()
        self._dropped: OrderedDict[UnitKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def is_interested(self, facts: SamplingContext) -> bool:
        """Whether a unit is sampled for keeping."""
        return self.decide(facts).take

    def on_samples(self, facts: SamplingContext, unit: Unit, samples: Samples) -> None:
        """Keep the samples of a unit, if there are any."""
        if samples.outcome is not None or facts.key in self._kept:
            return
        pickled = pickle.dumps(samples, protocol=pickle.HIGHEST_PROTOCOL)
        texts = (value for span in unit.spans for value in span.metadata.values() if isinstance(value, str))
        size = len(pickled) + _UNIT_BYTES + size_bytes_of(unit) + sum(map(len, texts))
        self._kept[facts.key] = KeptUnit(unit, self.decide(facts), self.clock() + self.within_ns, size, pickled)
        self.bytes += size
        self.make_room()
        self.on_kept(facts.key)

    def add_scores(self, key: UnitKey, scores: Sequence[Score]) -> None:
        """Keep the scores of a kept unit, so that its metrics are not scored again."""
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
        """Remove and return a unit; None if it is not kept, or no longer."""
        self.make_room()
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.bytes -= kept.size_bytes
        return kept

    def was_dropped(self, key: UnitKey) -> bool:
        """Return whether a unit was dropped for age or size; false if it was not among the last 10,000 dropped units."""
        return key in self._dropped

    def make_room(self) -> None:
        """Drop units that are too old, and then the oldest until the others are within the bound."""
        now_ns = self.clock()
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if self.bytes <= self.max_bytes and now_ns < oldest.until_ns:
                return
            self.bytes -= oldest.size_bytes
            del self._kept[oldest.unit.key]
            keep_latest(self._dropped, oldest.unit.key, None, _MAX_DROPPED)


class SampleObservers:
    """Passes the samples of each unit to the observers that are interested in the unit. Call on the span thread.

    Args:
        queue: the scorer's queue, in which each sample that is being made takes a place.

    Attributes:
        observers: the observers; added before the first unit.
        unit_listeners: functions called with the facts of each unit that has closed or that sampling excluded; added before
            the first unit.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.observers: list[SampleObserver] = []
        self.unit_listeners: list[Callable[[SamplingContext], None]] = []
        self._making: dict[UnitKey, SamplingContext] = {}

    def notify_closed(self, facts: SamplingContext) -> None:
        """Call each function of ``unit_listeners`` with the facts of a unit."""
        for listener in self.unit_listeners:
            listener(facts)

    def is_interested(self, facts: SamplingContext) -> bool:
        """Whether an observer is interested in a unit that has closed. No observer gets samples of inner units."""
        return facts.inner is None and any(observer.is_interested(facts) for observer in self.observers)

    def begin_making(self, facts: SamplingContext) -> bool:
        """Return whether an observer is interested in a unit; if so, the unit is in ``making()`` from now on."""
        if wanted := self.is_interested(facts):
            self._making[facts.key] = facts
        return wanted

    def request(self, unit: Unit, facts: SamplingContext, samples: Samples | None, now_s: float) -> list[SampledUnit]:
        """Return an unsampled unit, to make its samples; [] if no observer is interested, or if the queue is full.

        A full queue is reported to the observers.
        """
        if not self.is_interested(facts):
            return []
        size_bytes = size_bytes_of(unit, samples)
        if not self._queue.reserve(size_bytes):
            self._report(facts, unit.without_content(), _none(Outcome.QUEUE_FULL))
            return []
        self.begin_making(facts)
        return [SampledUnit(unit, {}, samples, size_bytes, now_s, wanted=True)]

    def making(self, conversation_id: str | None = None) -> list[UnitKey]:
        """Return the units whose samples are being made, of one conversation or of all. A flush waits for these units."""
        making = self._making.items()
        return [key for key, facts in making if conversation_id in (None, facts.conversation_id)]

    def on_samples(self, unit: Unit, samples: Samples) -> None:
        """Pass samples to the interested observers; samples of a unit that is not in ``making()`` are ignored."""
        facts = self._making.pop(unit.key, None)
        if facts is not None:
            self._report(facts, unit, samples)

    def report_missing(self, facts: SamplingContext, unit: Unit, outcome: Outcome) -> None:
        """Report to the interested observers why a unit has no samples."""
        if self.is_interested(facts):
            self._report(facts, unit.without_content(), _none(outcome))

    def give_up(self) -> None:
        """Report the outcome ``shutdown`` for samples that are being made."""
        for facts in [*self._making.values()]:
            self.on_samples(Unit(facts.key, ()), _none(Outcome.SHUTDOWN))

    def _report(self, facts: SamplingContext, unit: Unit, samples: Samples) -> None:
        for observer in self.observers:
            if observer.is_interested(facts):
                observer.on_samples(facts, unit, samples)


def _none(outcome: Outcome) -> Samples:
    return Samples(outcome=outcome, reason=f"no sample was made of the unit: {outcome}")
