"""AnnotationWriter: what people say of units, from the thread that tells it to the sinks; the receiver of ``feedback()``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from spanscore import semconv
from spanscore.core.codecs.text import safe_text
from spanscore.core.event_queue import EventQueue
from spanscore.core.sample import Annotation
from spanscore.core.span import UnitKey
from spanscore.core.timebox import Timebox
from spanscore.outputs.sinks import CompositeSink
from spanscore.pipeline.annotations import AnnotationBook, FeedbackScales
from spanscore.pipeline.decisions import KnownUnits
from spanscore.pipeline.span_buffer import SpanBuffer
from spanscore.protocols import Receiver, Redactor
from spanscore.samples.redaction import redacted

if TYPE_CHECKING:
    from spanscore.line.build import Line
    from spanscore.line.feedback import FeedbackJudging

__all__ = ["AnnotationWriter", "annotation_writer_of"]

_LABEL_BYTES: Final = 1_000
_CLOSES_NS: Final = 1_000_000_000
"""How long the unit of a key is waited for: what has just answered closes half a second later at the latest."""
_PERSONAL: Final = ("annotator", "comment", "key")
"""What may name a person, or quote one."""


def annotation_writer_of(line: Line, feedback: FeedbackJudging | None) -> AnnotationWriter:
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
        known_units: KnownUnits,
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
