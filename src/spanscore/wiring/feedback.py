"""Feedback: arguments checked, annotations written to sinks, and units judged because of a bad one."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from spanscore import semconv
from spanscore.core import loop
from spanscore.core.codecs.text import safe_text
from spanscore.core.event_queue import EventQueue
from spanscore.core.job import Decision, Job, JobResult
from spanscore.core.log import is_a
from spanscore.core.sample import Annotation, HumanValue
from spanscore.core.score import Outcome, Score, from_source
from spanscore.core.span import Unit, UnitKey
from spanscore.core.timebox import Timebox
from spanscore.outputs.sinks import CompositeSink
from spanscore.pipeline.annotations import AnnotationBook, FeedbackScales
from spanscore.pipeline.decisions import ClosedUnitIndex
from spanscore.pipeline.engine import ShadowScoring
from spanscore.pipeline.ledger import Ledger, ShadowBatch, has_span
from spanscore.pipeline.queues import MemoryQueue
from spanscore.pipeline.sizes import KeptUnit, SampleCache
from spanscore.pipeline.span_buffer import SpanBuffer
from spanscore.protocols import Receiver, Redactor
from spanscore.samples.redaction import redacted

if TYPE_CHECKING:
    from spanscore.config.sampling import FeedbackSampling
    from spanscore.wiring.build import Pipeline

__all__ = [
    "AnnotationWriter",
    "FeedbackJudging",
    "annotation_writer_of",
    "feedback_of",
    "id_of",
    "only_unit",
    "seconds_since_1970_ns",
    "text_of",
    "uuid_of",
    "value_of",
]

# --- given ----------------------------------------------------------------------------------------------------------

# What a caller gives ``feedback()`` → plain values, or a ValueError that says what is allowed.

_HEX_BITS: Final = 4
_LATEST_S: Final = 2**33
"""In the year 2242: what is later were milliseconds."""
_LISTED: Final = 10


def id_of(name: str, value: Any, bits: int) -> int:
    """Return an id as the number that it is; ``given``: that, or its hex digits, all of them."""
    digits = bits // _HEX_BITS
    try:
        number = int(value, 16) if is_a(value, str) and len(value) == digits and value.isalnum() else value
    except ValueError:
        number = 0
    if is_a(number, int) and not is_a(number, bool) and 0 < number < 1 << bits:
        return number
    raise ValueError(f"{name} is {value!r}; allowed are {digits} hex digits, not all 0, or the number")


def only_unit(trace_id: int, keys: Iterable[UnitKey]) -> UnitKey:
    """Return the one unit of a trace that is known.

    Raises:
        ValueError: there is none, or there are several; the message lists them.
    """
    units = list(keys)
    if len(units) == 1:
        return units[0]
    if not units:
        raise ValueError(
            f"this process knows no unit of the trace {trace_id:032x}: give span_id, too, as unit_id() told it where it ran"
        )
    listed = [f"{unit.span_id:016x}" for unit in units[:_LISTED]] + ["…"] * (len(units) > _LISTED)
    raise ValueError(
        f"the trace {trace_id:032x} has {len(units)} units: say which by span_id; they are {', '.join(listed)}"
    )


def text_of(name: str, value: Any) -> str:
    """Return a text that says something."""
    if is_a(value, str) and value.strip():
        return str.__str__(value)
    raise ValueError(f"{name} is {value!r}; allowed is a text that is not empty")


def value_of(value: Any) -> HumanValue:
    """Return what a person said, of which the scale is yet to be looked at."""
    if is_a(value, bool):
        return value
    if is_a(value, str):
        return str.__str__(value)
    if is_a(value, int, float) and isfinite(value):
        return float(value)
    raise ValueError(f"the value is {value!r}; allowed are True, False, a number, or a word of a declared scale")


def seconds_since_1970_ns(when: Any) -> int:
    """Return a time as nanoseconds."""
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
    """Return an id as LangChain has it. Raises ValueError: it is none."""
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"{name} is {value!r}; allowed is a UUID") from None


# --- feedback -------------------------------------------------------------------------------------------------------

# FeedbackJudging: a unit that somebody was not content with → its scores in a source of their own.
#
# Whoever complains is no random draw: beside the scores of the population theirs would pull every mean down. What the
# source says is how the judge sees those units, each standing for 1/rate of its like.

_MOST: Final = 10_000
"""Units that are remembered as judged, and that were spoken of before they were done."""
JUDGED, TOO_LATE, NOT_KEPT = "judged", "too_late", "not_kept"


def feedback_of(line: Pipeline) -> FeedbackJudging | None:
    """Return what judges the units that labels are about; None where none is kept."""
    settings = line.settings.sampling.feedback
    if settings is None:
        return None
    made = FeedbackJudging(line, settings)
    line.keeping.observers.append(made.kept)
    line.engine.beside.append(made.asked)
    if line.telemetry is not None:
        line.telemetry.declare(line.of_units.values(), semconv.SOURCE_FEEDBACK)
        for result in (JUDGED, TOO_LATE, NOT_KEPT):
            line.telemetry.count(semconv.FEEDBACK, ((semconv.RESULT, result),), 0)
    return made


class FeedbackJudging:
    """Has units judged of which a label says that they were no good, each once. Span thread.

    Attributes:
        ledger: of the source.
        kept: the samples.
        asked: the metrics, beside their other work.
    """

    def __init__(self, line: Pipeline, settings: FeedbackSampling) -> None:
        limits = line.settings.limits
        self._line = line
        self._metrics = tuple(line.of_units)
        self._below = settings.below
        self.ledger = Ledger(self._metrics)
        self.kept = SampleCache(
            line.sampler.for_feedback,
            within_ns=int(settings.max_age * 1e9),
            on_kept=self.judge_waiting,
        )
        self.asked = ShadowScoring(
            self._metrics,
            line.evaluation,
            ledger=self.ledger,
            room=MemoryQueue(limits.queue_size, limits.queue_bytes),
            post=lambda settled: line.span_thread.leave(lambda: self.settled_beside(settled)),
            source=semconv.SOURCE_FEEDBACK,
        )
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self.ledger.reset()
        self.kept.reset()
        self._early: OrderedDict[UnitKey, None] = OrderedDict()
        self._done: OrderedDict[UnitKey, None] = OrderedDict()

    def judge_unit_of(self, label: Annotation) -> None:
        """Have the unit of a label judged, where that is low enough; one whose scores are to come, when they are there."""
        key = label.unit
        if key is None or label.quality is None or label.quality >= self._below or key in self._done:
            return
        if self._is_under_way(key):
            _keep(self._early, key)
        else:
            self._judge(key)

    def judge_waiting(self, key: UnitKey) -> None:
        """Have a unit judged that was spoken of too early: its samples were made, or its own scores are in."""
        if key in self._early and not self._is_under_way(key):
            del self._early[key]
            self._judge(key)

    def settled(self, result: JobResult) -> None:
        """Note the population's scores of a unit."""
        key = result.unit.key
        self.kept.scored(key, [score for score in result.scores if score.source is None])
        if result.over:
            self.judge_waiting(key)

    def settled_beside(self, result: JobResult) -> None:
        """Let scores of the source leave: each is counted when it is out."""
        self._line.units.notes.costs(result.scores)
        self._publish(result.unit, result.scores)

    def look(self) -> None:
        """Let go of what is too old, and of what was waited for in vain."""
        self.kept.make_room()
        for key in list(self._early):
            self.judge_waiting(key)

    def give_up(self) -> None:
        """End what is open: at the end of the scorer."""
        while self._early:
            self._early.popitem()
            self._count(NOT_KEPT)
        for key in self.ledger.open_units():
            self.ledger.settle_all(key, Outcome.SHUTDOWN)

    def _is_under_way(self, key: UnitKey) -> bool:
        return self._line.ledger.is_open(key) or key in self._line.keeping.making()

    def _judge(self, key: UnitKey) -> None:
        _keep(self._done, key)
        kept = self.kept.take(key)
        if kept is None:
            self._count(TOO_LATE if self.kept.was_kept(key) else NOT_KEPT)
            return
        self._count(JUDGED)
        decisions = dict.fromkeys(self._metrics, kept.decision)
        self.ledger.enter(key, self._metrics)
        self.ledger.choose(key, decisions)
        self._publish(
            kept.unit,
            [
                from_source(_with_decision(score, kept.decision), kept.unit, semconv.SOURCE_FEEDBACK)
                for score in kept.scores.values()
            ],
        )
        self._ask(kept, {name: decision for name, decision in decisions.items() if name not in kept.scores})

    def _ask(self, kept: KeptUnit, decisions: Mapping[str, Decision]) -> None:
        if decisions:
            job = Job(kept.unit, kept.samples, decisions, kept.size_bytes)
            loop.call_soon(self.asked.ask, job)

    def _publish(self, unit: Unit, scores: Sequence[Score]) -> None:
        for score in scores:
            beside = ShadowBatch(self._line.sinks, unit, [score], self.ledger)
            if has_span(score):
                self._line.hold.enqueue(beside, beside.spans)
            else:
                beside.count()

    def _count(self, result: str) -> None:
        if self._line.telemetry is not None:
            self._line.telemetry.count(semconv.FEEDBACK, ((semconv.RESULT, result),))


def _with_decision(score: Score, decision: Decision) -> Score:
    return replace(score, probability=decision.probability, threshold=decision.threshold, rule=decision.rule)


def _keep(of: OrderedDict[UnitKey, None], key: UnitKey) -> None:
    of[key] = None
    if len(of) > _MOST:
        of.popitem(last=False)


# --- annotation writer ----------------------------------------------------------------------------------------------

# AnnotationWriter: what people say of units, from the thread that tells it to the sinks; the receiver of ``feedback()``.

_LABEL_BYTES: Final = 1_000
_CLOSES_NS: Final = 1_000_000_000
"""How long the unit of a key is waited for: what has just answered closes half a second later at the latest."""
_PERSONAL: Final = ("annotator", "comment", "key")
"""What may name a person, or quote one."""


def annotation_writer_of(line: Pipeline, feedback: FeedbackJudging | None) -> AnnotationWriter:
    """Return the desk of a line; ``feedback``: has units judged that labels are about."""
    return AnnotationWriter(
        line.event_queue,
        scales=FeedbackScales(line.settings.feedback_scales, line.metrics),
        known_units=line.known,
        hold=line.hold,
        sinks=line.sinks,
        content=line.content,
        redactor=line.hooks.redactor,
        box=line.box,
        feedback=feedback,
    )


class AnnotationWriter:
    """Takes labels on any thread; the rest is the span thread's. No unit comes in by it.

    Args:
        event_queue: the way to the span thread.
        scales: what may be said.
        known_units: the units of which a key is known.
        hold: labels leave at its pace.
        content: whether comments, which are content, may leave.
        redactor: applied to comments, keys and annotators; what it fails on is left out.
        box: where it runs.
        feedback: has the units judged that labels are about; None = nobody does.

    Attributes:
        unplaced: labels that came for a key of no known unit.
        labelled: name of a label → units that have it.
    """

    def __init__(
        self,
        event_queue: EventQueue[Receiver],
        *,
        scales: FeedbackScales,
        known_units: ClosedUnitIndex,
        hold: SpanBuffer,
        sinks: CompositeSink,
        content: bool = False,
        redactor: Redactor | None = None,
        box: Timebox | None = None,
        feedback: FeedbackJudging | None = None,
    ) -> None:
        self._event_queue = event_queue
        self._scales = scales
        self._known = known_units
        self._hold = hold
        self._sinks = sinks
        self._content = content
        self._redactor = redactor
        self._box = box or Timebox()
        self._feedback = feedback
        self._closed = False
        self._book = AnnotationBook()
        self.reset()

    def reset(self) -> None:
        """Forget what was said: in a forked child."""
        self._book.reset()
        self._inside: set[UnitKey] = set()
        self._keyed: list[tuple[int, UnitKey, Annotation]] = []
        self._taken = 0
        self.unplaced = 0
        self.labelled: Counter[str] = Counter()
        if self._feedback is not None:
            self._feedback.reset()

    def take(self, label: Annotation) -> bool:
        """Take a label; False: there is no room for it. Does not block. Any thread.

        Raises:
            ValueError: its name or its value is none.
        """
        checked = self._scales.checked(label if self._content else label.without_comment())
        size = _LABEL_BYTES + len(checked.comment or "")
        return not self._closed and self._event_queue.put(self, checked, size)

    def notes(self) -> list[str]:
        """Return what must be known of labels, for ``status()``."""
        reason = "their unit is none that this process knows: they left as events with spanscore.feedback_key"
        return [f"{self.unplaced:,} labels came by a key, and {reason}"] if self.unplaced else []

    # --- Receiver ----------------------------------------------------------------------------------------------

    def handle(self, event: Annotation, now_ns: int) -> None:
        """Let a label leave that says something new."""
        self._taken += 1
        serial = UnitKey(0, self._taken)  # a flush waits for it, as for a unit
        self._inside.add(serial)
        if event.unit is not None:
            self._let_go(serial, event)
        else:
            self._keyed.append((now_ns + _CLOSES_NS, serial, event))

    def tick(self, now_ns: int) -> None:
        """Let labels go of which the unit has closed meanwhile, and those that have waited for that."""
        waiting, self._keyed = self._keyed, []
        for until_ns, serial, label in waiting:
            unit = self._known.of_key(label.key or "")
            if unit is None and now_ns < until_ns:
                self._keyed.append((until_ns, serial, label))
                continue
            self.unplaced += unit is None
            self._let_go(serial, replace(label, unit=unit))
        if self._feedback is not None:
            self._feedback.look()

    def next_due_ns(self) -> int | None:
        """Return when the first of these waits is over."""
        return self._keyed[0][0] if self._keyed else None

    def in_flight(self) -> set[UnitKey]:
        """Return a number for each label that has not left, and the units that are judged because of one."""
        judged = [] if self._feedback is None else self._feedback.ledger.open_units()
        return {*self._inside, *judged}

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Let every label go; return nothing, as no unit is this one's."""
        self.tick(now_ns + _CLOSES_NS)
        return []

    def unread_count(self) -> int:
        """Return 0, likewise."""
        return 0

    def close(self) -> None:
        """Take no further label."""
        self._closed = True

    def _let_go(self, serial: UnitKey, annotation: Annotation) -> None:
        label = self._book.note(annotation)
        if label is None:
            self._inside.discard(serial)
            return
        self.labelled[label.name] += not label.revision
        if self._feedback is not None:
            self._feedback.judge_unit_of(label)
        self._hold.enqueue(_Leaving(self._sinks, self._clean(label), lambda: self._inside.discard(serial)))

    def _clean(self, label: Annotation) -> Annotation:
        """Return a label of which nothing names a person, where there is a redactor; fails closed."""
        redactor = self._redactor
        if redactor is None:
            return label
        clean: dict[str, Any] = dict.fromkeys(_PERSONAL)
        clean["annotator"] = semconv.ANNOTATOR_HUMAN
        for name, text in _personal(label).items():
            with suppress(BaseException):  # SystemExit, too: what the redactor did not give back does not leave
                clean[name] = safe_text(self._box.run(lambda text=text: redacted(text, redactor)))  # type: ignore[misc]
        return replace(label, **clean)


def _personal(label: Annotation) -> Mapping[str, str]:
    fields = {name: getattr(label, name) for name in _PERSONAL}
    return {name: text for name, text in fields.items() if text is not None and text != semconv.ANNOTATOR_HUMAN}


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A label on its way to the sinks, behind the same pace as the spans."""

    sinks: CompositeSink
    label: Annotation
    left: Callable[[], None]

    @property
    def size(self) -> int:
        """Approximate bytes held."""
        return _LABEL_BYTES + len(self.label.comment or "")

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Publish the label."""
        self.sinks.label(self.label)
        self.left()
