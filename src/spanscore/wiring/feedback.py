"""Feedback: checks the arguments of ``feedback()``, exports human labels, and lets judges score units with bad labels."""

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
_LISTED: Final = 10


def id_of(name: str, value: Any, bits: int) -> int:
    """Return an id as a number; ``value`` is the number, or all of its hex digits. Raises ``ValueError`` for other values."""
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
    listed = [f"{unit.span_id:016x}" for unit in units[:_LISTED]] + ["…"] * (len(units) > _LISTED)
    raise ValueError(
        f"the trace {trace_id:032x} has {len(units)} units: choose one by span_id; they are {', '.join(listed)}"
    )


def text_of(name: str, value: Any) -> str:
    """Return a text that is not empty as a plain ``str``. Raises ``ValueError`` for other values."""
    if is_a(value, str) and value.strip():
        return str.__str__(value)
    raise ValueError(f"{name} is {value!r}; allowed is a non-empty text")


def value_of(value: Any) -> HumanValue:
    """Return a label's value as a plain Python value; the scale is checked later. Raises ``ValueError`` for other types."""
    if is_a(value, bool):
        return value
    if is_a(value, str):
        return str.__str__(value)
    if is_a(value, int, float) and isfinite(value):
        return float(value)
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


_MOST: Final = 10_000
"""Maximum number of remembered judged units, and of units with a label before their scores."""
FEEDBACK_RESULTS = JUDGED, TOO_LATE, NOT_KEPT = "judged", "too_late", "not_kept"
"""Results of a unit with a bad label.

- ``judged``: the unit has its scores of the source, or judges are asked for them.
- ``too_late``: the unit's samples were dropped for age or size.
- ``not_kept``: the unit's samples were not kept, or the scorer ended before the unit's own scores arrived.
"""


class FeedbackJudging:
    """Lets judges score units with a bad label, each once, as scores of the source ``feedback``. Call on the span thread.

    Scores that the unit already has are published again under the source, and judges are asked for the other metrics only.
    People who complain are not a random sample, and would lower every mean of sampled traffic. The source shows the judge's
    view of such units. The weight of each is 1/probability of keeping it: ``sampling.feedback.rate``, and head sampling.

    Attributes:
        source: scores the metrics separately from sampled traffic.
        kept: the samples of units that may be judged.
    """

    def __init__(self, line: Pipeline, settings: FeedbackSampling, source: ScoreSource) -> None:
        self._line = line
        self._below = settings.below
        self.source = source
        self.kept = SampleCache(
            line.sampler.for_feedback,
            within_ns=int(settings.max_age * 1e9),
            on_kept=self.judge_waiting,
        )
        line.keeping.observers.append(self.kept)
        self._early: OrderedDict[UnitKey, None] = OrderedDict()
        self._done: OrderedDict[UnitKey, None] = OrderedDict()

    def judge_unit_of(self, human_label: Annotation) -> None:
        """Have the unit of a label judged, if the label is low enough; after the unit's own scores, if these are pending."""
        key = human_label.unit
        if key is None or human_label.quality is None or human_label.quality >= self._below or key in self._done:
            return
        if self._is_under_way(key):
            keep_latest(self._early, key, None, _MOST)
        else:
            self._judge(key)

    def judge_waiting(self, key: UnitKey) -> None:
        """Let judges score a unit whose label came early. Call it when samples were made, or the unit's scores have arrived."""
        if key in self._early and not self._is_under_way(key):
            del self._early[key]
            self._judge(key)

    def settle(self, result: JobResult) -> None:
        """Keep the scores of sampled traffic of a unit."""
        key = result.unit.key
        self.kept.add_scores(key, [score for score in result.scores if score.source is None])
        if result.over:
            self.judge_waiting(key)

    def look(self) -> None:
        """Drop samples that are too old, and judge units that got no scores."""
        self.kept.make_room()
        for key in list(self._early):
            self.judge_waiting(key)

    def give_up(self) -> None:
        """Count the units that were not judged, at the end of the scorer."""
        while self._early:
            self._early.popitem()
            self._count(NOT_KEPT)

    def _is_under_way(self, key: UnitKey) -> bool:
        return self._line.ledger.is_open(key) or key in self._line.keeping.making()

    def _judge(self, key: UnitKey) -> None:
        keep_latest(self._done, key, None, _MOST)
        kept = self.kept.take(key)
        if kept is None:
            self._count(TOO_LATE if self.kept.was_dropped(key) else NOT_KEPT)
            return
        self._count(JUDGED)
        metrics = tuple(self._line.of_units)
        self.source.enter(key, dict.fromkeys(metrics, kept.decision))
        by = kept.decision
        scores = [
            replace(score, probability=by.probability, threshold=by.threshold, rule=by.rule)
            for score in kept.scores.values()
        ]
        self.source.publish(kept.unit, [change_score(score, kept.unit, source=self.source.name) for score in scores])
        if rest := dict.fromkeys([name for name in metrics if name not in kept.scores], by):
            loop.call_soon(self.source.ask, Job(kept.unit, kept.samples, rest, kept.size_bytes))

    def _count(self, result: str) -> None:
        if self._line.telemetry is not None:
            self._line.telemetry.count(semconv.FEEDBACK, ((semconv.RESULT, result),))


_LABEL_BYTES: Final = 1_000
_WAIT_NS: Final = 1_000_000_000
"""Time in nanoseconds for which a label waits for the unit of its key, if no unit is open."""
_LONG_WAIT_NS: Final = GRACE_NS + _WAIT_NS
"""The same if a unit is open: the unit of the label may wait for open spans."""


class AnnotationWriter(ImmediateReceiver):
    """Passes labels from the thread that calls ``feedback()`` to the sinks.

    ``take``, ``notes`` and ``close`` may be called on any thread, the other methods on the span thread.

    Without ``capture.content`` no comment is exported. The redactor is applied to comments, keys and annotators. A text on
    which it fails is left out; an annotator becomes ``HUMAN``.

    Attributes:
        scales: checks names and values of labels.
        unplaced: number of labels whose key belongs to no known unit.
        labelled: name of a label → number of first labels, one per unit and annotator.
    """

    def __init__(self, line: Pipeline) -> None:
        self._line = line
        self.scales = FeedbackScales(line.settings.feedback_scales, line.metrics)
        self._latest = LatestAnnotations()
        self._inside: set[UnitKey] = set()
        self._keyed: list[tuple[int, UnitKey, Annotation]] = []
        self._taken = 0
        self.unplaced = 0
        self.labelled: Counter[str] = Counter()

    def take(self, human_label: Annotation) -> bool:
        """Accept a human label. Returns False if the event queue is full, or the scorer has ended. Does not block. Thread-safe.

        Raises:
            ValueError: the label's name or value is not allowed.
        """
        checked = self.scales.check(human_label if self._line.content else human_label.without_comment())
        size = _LABEL_BYTES + len(checked.comment or "")
        return not self._closed and self._line.event_queue.put(self, checked, size)

    def notes(self) -> list[str]:
        """Return remarks on labels, for ``status()``."""
        reason = "this process has no unit with: they were exported as events with spanscore.feedback_key"
        return [f"{self.unplaced:,} labels have a key that {reason}"] if self.unplaced else []

    def handle(self, event: Annotation, now_ns: int) -> None:
        """Export a label, if it is new."""
        self._taken += 1
        serial = UnitKey(0, self._taken)  # a flush waits for it, as for a unit
        self._inside.add(serial)
        if event.unit is not None:
            self._record_label(serial, event)
        else:
            is_open = any(receiver.open_keys() for receiver in self._line.receivers)
            self._keyed.append((now_ns + (_LONG_WAIT_NS if is_open else _WAIT_NS), serial, event))

    def tick(self, now_ns: int) -> None:
        """Export labels after the close of their unit, and labels that have waited for it long enough."""
        waiting, self._keyed = self._keyed, []
        for until_ns, serial, label in waiting:
            unit = self._line.known.of_key(label.key or "")
            if unit is None and now_ns < until_ns:
                self._keyed.append((until_ns, serial, label))
                continue
            self.unplaced += unit is None
            self._record_label(serial, replace(label, unit=unit))
        if self._line.feedback is not None:
            self._line.feedback.look()

    def next_due_ns(self) -> int | None:
        """Return the time at which the first label has waited long enough; None if none waits."""
        return min((until_ns for until_ns, _, _ in self._keyed), default=None)

    def in_flight(self) -> set[UnitKey]:
        """Return a number for each label that is not exported."""
        return {*self._inside}

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Export every label; return an empty list, because this receiver has no units."""
        self.tick(now_ns + _LONG_WAIT_NS)
        return []

    def unread_count(self) -> int:
        """Return 0, because this receiver has no units."""
        return 0

    def _record_label(self, serial: UnitKey, annotation: Annotation) -> None:
        label = self._latest.note(annotation)
        if label is None:
            self._inside.discard(serial)
            return
        self.labelled[label.name] += not label.revision
        if self._line.feedback is not None:
            self._line.feedback.judge_unit_of(label)
        self._line.hold.enqueue(_Leaving(self._line.sinks, self._clean(label), lambda: self._inside.discard(serial)))

    def _clean(self, human_label: Annotation) -> Annotation:
        """Return a label with its personal texts redacted, if there is a redactor; fails closed."""
        if self._line.hooks.redactor is None:
            return human_label
        redact, unnamed = self._line.redact, semconv.ANNOTATOR_HUMAN
        annotator, comment, key = human_label.annotator, human_label.comment, human_label.key
        return replace(
            human_label,
            annotator=unnamed if annotator == unnamed else redact(annotator) or unnamed,
            comment=None if comment is None else redact(comment),
            key=None if key is None else redact(key),
        )


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A label on its way to the sinks, exported at the pace of the spans."""

    sinks: CompositeSink
    label: Annotation
    left: Callable[[], None]

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return _LABEL_BYTES + len(self.label.comment or "")

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Publish the label."""
        self.sinks.label(self.label)
        self.left()
