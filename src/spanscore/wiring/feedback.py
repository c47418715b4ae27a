"""Feedback: checks the arguments of ``feedback()``, exports human labels, and has judges score units with bad labels."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from spanscore import semconv
from spanscore.capture.whole_units import ImmediateReceiver
from spanscore.core import loop
from spanscore.core.codecs.text import plain_number
from spanscore.core.job import Job, JobResult
from spanscore.core.log import is_a
from spanscore.core.sample import Annotation, HumanValue
from spanscore.core.score import change_score
from spanscore.core.span import UnitKey
from spanscore.outputs.sinks import CompositeSink
from spanscore.pipeline.annotations import FeedbackScales, LatestAnnotations
from spanscore.pipeline.assembly import GRACE_NS
from spanscore.pipeline.decisions import keep_latest
from spanscore.pipeline.population import ScoreSource
from spanscore.pipeline.sizes import SampleCache

if TYPE_CHECKING:
    from spanscore.config.sampling import FeedbackSampling
    from spanscore.wiring.build import Pipeline

_HEX_BITS: Final = 4
_LATEST_S: Final = 2**33
"""Seconds since 1970 in the year 2242. A later time is refused, because it is probably in milliseconds."""
_MAX_LISTED: Final = 10


def id_of(name: str, value: Any, bits: int) -> int:
    """Return an id as a number; ``value`` is the number, or its hex digits, all of them. Raises ``ValueError`` otherwise."""
    digits = bits // _HEX_BITS
    try:
        number = int(value, 16) if is_a(value, str) and len(value) == digits and value.isalnum() else value
    except ValueError:
        number = 0
    if is_a(number, int) and not is_a(number, bool) and 0 < number < 1 << bits:
        return number
    raise ValueError(f"{name} is {value!r}; allowed are {digits} hex digits, not all 0, or the number")


def only_unit(trace_id: int, keys: Iterable[UnitKey]) -> UnitKey:
    """Return the only known unit of a trace.

    Raises:
        ValueError: no unit is known, or several are; the message lists them.
    """
    units = list(keys)
    if len(units) == 1:
        return units[0]
    if not units:
        raise ValueError(
            f"this process has no unit of the trace {trace_id:032x}: give span_id, too, from unit_id() in the unit's process"
        )
    listed = [f"{unit.span_id:016x}" for unit in units[:_MAX_LISTED]] + ["…"] * (len(units) > _MAX_LISTED)
    raise ValueError(
        f"the trace {trace_id:032x} has {len(units)} units: choose one by span_id; they are {', '.join(listed)}"
    )


def text_of(name: str, value: Any) -> str:
    """Return a non-empty text as a plain ``str``. Raises ``ValueError`` for other values."""
    if is_a(value, str) and value.strip():
        return str.__str__(value)
    raise ValueError(f"{name} is {value!r}; allowed is a non-empty text")


def value_of(value: Any) -> HumanValue:
    """Return a label's value as a plain Python value; the scale is checked later. Raises ``ValueError`` for other types."""
    if is_a(value, bool):
        return value
    if is_a(value, str):
        return str.__str__(value)
    number = plain_number(value)
    if number is not None and isfinite(number):
        return float(number)
    raise ValueError(f"the value is {value!r}; allowed are True, False, a number, or a word of a declared scale")


def ns_since_1970(when: Any) -> int:
    """Return a time in nanoseconds since 1970.

    Raises:
        ValueError: ``when`` is neither a datetime with a time zone nor seconds since 1970.
    """
    if is_a(when, datetime):
        if when.tzinfo is None:
            raise ValueError(
                f"when is {when.isoformat()}, which has no time zone; allowed is datetime.now(timezone.utc)"
            )
        when = when.timestamp()
    if is_a(when, int, float) and not is_a(when, bool) and 0 < when < _LATEST_S:
        return round(when * 1e9)
    raise ValueError(f"when is {when!r}; allowed are a datetime with a time zone, and seconds since 1970")


def uuid_of(name: str, value: UUID | str) -> UUID:
    """Return an id in LangChain's form. Raises ``ValueError`` if the value is not a UUID."""
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"{name} is {value!r}; allowed is a UUID") from None


_MAX_UNITS: Final = 10_000
"""Maximum number of remembered judged units, and of units with a label that waits for their scores."""
FEEDBACK_RESULTS = JUDGED, TOO_LATE, NOT_KEPT = "judged", "too_late", "not_kept"
"""Results of a unit with a bad label.

- ``judged``: the unit's scores were published under the source ``feedback``, or its judges are asked.
- ``too_late``: the unit's samples were dropped because of age or size.
- ``not_kept``: the unit's samples were not kept, or the scorer ended before the unit's own scores arrived.
"""


class FeedbackJudging:
    """Has judges score each unit with a bad label once, as scores of the source ``feedback``. Call on the span thread.

    The source shows the judge's view of such units. It is separate, because units with complaints are no random sample and
    would lower the means of sampled traffic. Scores that a unit already has are published again under the source; judges are
    asked for its other metrics. A unit's weight is 1 / the probability with which it was kept: ``sampling.feedback.rate`` times
    the share of head sampling.

    Attributes:
        source: publishes and counts the scores.
        kept: the samples of units that may be judged.
    """

    def __init__(self, pipeline: Pipeline, settings: FeedbackSampling, source: ScoreSource) -> None:
        self._pipeline = pipeline
        self._below = settings.below
        self.source = source
        self.kept = SampleCache(
            pipeline.sampler.for_feedback, within_ns=int(settings.max_age * 1e9), on_kept=self.judge_waiting
        )
        pipeline.sample_observers.observers.append(self.kept)
        self._waiting: OrderedDict[UnitKey, None] = OrderedDict()
        self._judged: OrderedDict[UnitKey, None] = OrderedDict()

    def judge_unit_of(self, human_label: Annotation) -> None:
        """Have the unit of a bad label judged, after its own scores if these are pending."""
        key = human_label.unit
        if key is None or human_label.quality is None or human_label.quality >= self._below or key in self._judged:
            return
        if self._is_under_way(key):
            keep_latest(self._waiting, key, None, _MAX_UNITS)
        else:
            self._judge(key)

    def judge_waiting(self, key: UnitKey) -> None:
        """Have a unit with a waiting label judged. Call it when its samples were made, or its scores have arrived."""
        if key in self._waiting and not self._is_under_way(key):
            del self._waiting[key]
            self._judge(key)

    def settle(self, result: JobResult) -> None:
        """Keep the scores of a unit that has kept samples, so that its metrics are not judged again."""
        key = result.unit.key
        self.kept.add_scores(key, [score for score in result.scores if score.source is None])
        if result.over:
            self.judge_waiting(key)

    def tick(self) -> None:
        """Drop samples that are too old, and judge waiting units that ended without scores."""
        self.kept.make_room()
        for key in list(self._waiting):
            self.judge_waiting(key)

    def give_up(self) -> None:
        """Count the units that were not judged, at the end of the scorer."""
        while self._waiting:
            self._waiting.popitem()
            self._count(NOT_KEPT)

    def _is_under_way(self, key: UnitKey) -> bool:
        return self._pipeline.ledger.is_open(key) or key in self._pipeline.sample_observers.making()

    def _judge(self, key: UnitKey) -> None:
        keep_latest(self._judged, key, None, _MAX_UNITS)
        kept = self.kept.take(key)
        if kept is None:
            self._count(TOO_LATE if self.kept.was_dropped(key) else NOT_KEPT)
            return
        self._count(JUDGED)
        decisions = dict.fromkeys(self._pipeline.of_units, kept.decision)
        self.source.enter(key, decisions)
        by = kept.decision
        scores = [
            replace(score, probability=by.probability, threshold=by.threshold, rule=by.rule)
            for score in kept.scores.values()
        ]
        self.source.publish(kept.unit, [change_score(score, kept.unit, source=self.source.name) for score in scores])
        if rest := {name: decision for name, decision in decisions.items() if name not in kept.scores}:
            loop.call_soon(self.source.ask, Job(kept.unit, kept.samples, rest, kept.size_bytes))

    def _count(self, result: str) -> None:
        if self._pipeline.telemetry is not None:
            self._pipeline.telemetry.count(semconv.FEEDBACK, ((semconv.RESULT, result),))


_LABEL_BYTES: Final = 1_000
"""Approximate bytes of a label without its comment."""
_WAIT_NS: Final = 1_000_000_000
"""Time in nanoseconds for which a label waits for the unit of its key, if no unit is open."""
_LONG_WAIT_NS: Final = GRACE_NS + _WAIT_NS
"""Time in nanoseconds for which a label waits if a unit is open, because that unit may be the label's, and wait for spans."""


class AnnotationWriter(ImmediateReceiver):
    """Passes labels from the thread that calls ``feedback()`` to the sinks.

    ``take``, ``notes`` and ``close`` may be called on any thread, the other methods on the span thread.

    Without ``capture.content`` no comment is exported. The redactor is applied to comments, keys and annotators. If it fails,
    the comment or the key is left out, and the annotator becomes ``HUMAN``.

    Attributes:
        scales: checks names and values of labels.
        unplaced: number of labels with a key that no unit of this process has.
        labelled: name of a label → number of units and annotators with such a label.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.scales = FeedbackScales(pipeline.settings.feedback_scales, pipeline.metrics)
        self._latest = LatestAnnotations()
        self._unexported: set[UnitKey] = set()
        self._without_unit: list[tuple[int, UnitKey, Annotation]] = []
        self._accepted = 0
        self.unplaced = 0
        self.labelled: Counter[str] = Counter()

    def take(self, human_label: Annotation) -> bool:
        """Accept a human label. Returns False if the event queue is full, or the scorer is closed. Does not block. Thread-safe.

        Raises:
            ValueError: the label's name or value is not allowed.
        """
        checked = self.scales.check(human_label if self._pipeline.content else human_label.without_comment())
        size = _LABEL_BYTES + len(checked.comment or "")
        return not self._closed and self._pipeline.event_queue.put(self, checked, size)

    def notes(self) -> list[str]:
        """Return remarks on labels, for ``status()``."""
        reason = "this process has no unit with: they were exported as events with spanscore.feedback_key"
        return [f"{self.unplaced:,} labels have a key that {reason}"] if self.unplaced else []

    def handle(self, event: Annotation, now_ns: int) -> None:
        """Export a label, if it is new; a label with only a key waits for the close of its unit."""
        self._accepted += 1
        flight_key = UnitKey(0, self._accepted)  # `in_flight` returns it, so that a flush waits for the label
        self._unexported.add(flight_key)
        if event.unit is not None:
            self._record_label(flight_key, event)
        else:
            is_open = any(receiver.open_keys() for receiver in self._pipeline.receivers)
            self._without_unit.append((now_ns + (_LONG_WAIT_NS if is_open else _WAIT_NS), flight_key, event))

    def tick(self, now_ns: int) -> None:
        """Export labels whose unit has closed, and labels that have waited long enough for it."""
        waiting, self._without_unit = self._without_unit, []
        for until_ns, flight_key, label in waiting:
            unit = self._pipeline.recent_units.of_key(label.key or "")
            if unit is None and now_ns < until_ns:
                self._without_unit.append((until_ns, flight_key, label))
                continue
            self.unplaced += unit is None
            self._record_label(flight_key, replace(label, unit=unit))
        if self._pipeline.feedback is not None:
            self._pipeline.feedback.tick()

    def next_due_ns(self) -> int | None:
        """Return the time at which a label has waited long enough; None if no label waits."""
        return min((until_ns for until_ns, _, _ in self._without_unit), default=None)

    def in_flight(self) -> set[UnitKey]:
        """Return a key for each label that is not exported."""
        return {*self._unexported}

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Export every label; return an empty list, because this receiver has no units."""
        self.tick(now_ns + _LONG_WAIT_NS)
        return []

    def unread_count(self) -> int:
        """Return 0, because this receiver has no units."""
        return 0

    def _record_label(self, flight_key: UnitKey, annotation: Annotation) -> None:
        label = self._latest.note(annotation)
        if label is None:
            self._unexported.discard(flight_key)
            return
        self.labelled[label.name] += not label.revision
        if self._pipeline.feedback is not None:
            self._pipeline.feedback.judge_unit_of(label)
        exported = self._pipeline.hooks.redact_label(label, self._pipeline.box)
        self._pipeline.hold.enqueue(
            _QueuedLabel(self._pipeline.sinks, exported, lambda: self._unexported.discard(flight_key))
        )


@dataclass(frozen=True, slots=True)
class _QueuedLabel:
    """A label in the export queue of the span buffer; sinks get it at the pace of the spans."""

    sinks: CompositeSink
    label: Annotation
    on_end: Callable[[], None]

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return _LABEL_BYTES + len(self.label.comment or "")

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Publish the label."""
        self.sinks.label(self.label)
        self.on_end()
