"""The receivers of whole units: the samples of ``submit()``, and the stored units of ``spanscore replay``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from time import time_ns

from opentelemetry.trace import Span, Tracer, get_current_span

from spanscore import semconv
from spanscore.capture.intake import Intake
from spanscore.core import context
from spanscore.core.job import Decision, ReplayState
from spanscore.core.sample import Sample, Samples, by_value
from spanscore.core.score import Outcome
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.outputs.spans import LiveSpan
from spanscore.pipeline.decisions import keep_latest
from spanscore.pipeline.sizes import size_bytes_of
from spanscore.protocols import Metric, PendingSpan

_NAME = "sample"
_ATTRIBUTES = {semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_CHAIN}
_DURATION_NS = 1_000
"""Duration of a sample's own span, in nanoseconds, because a trace store treats a zero-length span as a clock error."""
_SPAN_BYTES = 1_000
_MOST_SPANS = 4_096
"""Number of remembered spans with a sample."""


class ImmediateReceiver:
    """The base class of receivers that hand on each unit as soon as they read it. Subclasses count accepted and read units."""

    _closed = False

    def tick(self, now_ns: int) -> None:
        """Do nothing: units are handed on when they are read."""

    def next_due_ns(self) -> int | None:
        """Return None, because no unit waits."""
        return None

    def in_flight(self) -> set[UnitKey]:
        """Return an empty set, because no unit waits."""
        return set()

    def open_keys(self) -> set[UnitKey]:
        """Return an empty set, because each unit is handed on when it is read."""
        return set()

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Return an empty list, because no unit waits."""
        return []

    def close(self) -> None:
        """Accept no further unit. Thread-safe."""
        self._closed = True


_Submission = tuple[Unit, Samples, PendingSpan | None, bool]
"""A unit, its samples, its pending span (None = the application ends the span), whether the sampling rate applies to it."""


class SubmittedSamples(ImmediateReceiver):
    """The receiver of ``submit()``. A sample is a complete unit, on the current span or on a new span.

    Args:
        intake: the intake to use first; ``connect`` replaces it.
        tracer: function that returns the tracer of the capture scope.

    Attributes:
        unsampled: number of samples that are scored regardless of the sampling rate.
    """

    def __init__(self, intake: Intake, *, tracer: Callable[[], Tracer]) -> None:
        self._tracer = tracer
        self._used_spans: OrderedDict[UnitKey, None] = OrderedDict()
        self.connect(intake)

    def connect(self, intake: Intake) -> None:
        """Use this intake from now on, and count from zero. In a forked child, spans with a sample get no other sample."""
        self._intake, self._event_queue = intake, intake.event_queue
        self._port, self._session_ids = intake.listener, intake.session_ids
        self._submitted = self._read = self.unsampled = 0

    def submit(self, item: Sample, *, sampled: bool) -> str | None:
        """Accept a copy of a sample. Return its trace id, 32 hex digits, or None if it was rejected. Does not block."""
        if self._closed:
            return None
        session = context.current_session()
        if not self._event_queue.admits():
            self._intake.reject(Outcome.EVENT_QUEUE_FULL, session)
            return None
        span, end_ns, pending = self._span()
        ids = span.get_span_context()
        if not ids.trace_flags & 1:
            self._intake.reject(Outcome.TRACE_NOT_SAMPLED, session)
            return None
        unit, samples = _unit_of(span, end_ns, session), Samples.of(by_value(item))
        if session is not None and self._session_ids is not None:
            self._session_ids.record_start(session, unit.spans[0].start_ns)
        self._submitted += 1
        self._event_queue.put(self, (unit, samples, pending, sampled), size_bytes_of(unit, samples), never_drop=True)
        self._event_queue.nudge()
        return f"{ids.trace_id:032x}"

    def handle(self, event: _Submission, now_ns: int) -> None:
        """Hand on one sample."""
        self._read += 1
        unit, samples, pending, sampled = event
        self.unsampled += not sampled
        self._port.sample_submitted(unit, samples, pending, sampled=sampled, now_ns=now_ns)

    def unread_count(self) -> int:
        """Return the number of samples that were never read."""
        return self._submitted - self._read

    def _span(self) -> tuple[Span, int, PendingSpan | None]:
        """Return the sample's span, its end time, and the pending span; None = the application ends the span."""
        now_ns = time_ns()
        span = get_current_span()
        ids = span.get_span_context()
        key = UnitKey(ids.trace_id, ids.span_id)
        if ids.is_valid and key not in self._used_spans:  # one sample per span, because a span has one score per metric
            keep_latest(self._used_spans, key, None, _MOST_SPANS)
            return span, now_ns, None
        span, end_ns = (
            self._tracer().start_span(_NAME, attributes=_ATTRIBUTES, start_time=now_ns),
            now_ns + _DURATION_NS,
        )
        return span, end_ns, LiveSpan(span, end_ns, None, _SPAN_BYTES)


def _unit_of(span: Span, end_ns: int, session: str | None) -> Unit:
    ids, parent = span.get_span_context(), getattr(span, "parent", None)
    began_ns = getattr(span, "start_time", None)  # the SDK's spans only; API spans and remote spans have no start time
    root = SpanData(
        trace_id=ids.trace_id,
        span_id=ids.span_id,
        parent_id=parent.span_id if parent is not None else None,
        name=getattr(span, "name", _NAME),
        start_ns=began_ns if isinstance(began_ns, int) else end_ns - _DURATION_NS,
        end_ns=end_ns,
        trace_flags=int(ids.trace_flags),
        trace_state=ids.trace_state.to_header() if ids.trace_state else "",
        conversation_id=session,
    )
    return Unit(UnitKey(ids.trace_id, ids.span_id), (root,))


@dataclass(eq=False, repr=False)
class StoredUnits(ImmediateReceiver):
    """Hands on complete units that were read from a store. Their spans were exported long ago.

    Attributes:
        intake: the intake to use first; ``connect`` replaces it.
        metrics: the metrics, for ``decisions``.
        open_units: function that returns the number of units that are being scored.
        ready: called before each unit is accepted; the first call chooses providers and starts the span thread.
        replayed: function that returns the progress of the replay; None without a replay.
        units: number of accepted units; each revision counts.
    """

    intake: InitVar[Intake]
    _: KW_ONLY
    metrics: Sequence[Metric]
    open_units: Callable[[], int]
    ready: Callable[[], None]
    replayed: Callable[[], ReplayState] | None = None

    def __post_init__(self, intake: Intake) -> None:
        self.connect(intake)

    def connect(self, intake: Intake) -> None:
        """Use this intake from now on, and count from zero."""
        self._event_queue, self._port, self._sampler = intake.event_queue, intake.listener, intake.sampler
        self.units = self._read = 0

    @property
    def under_way(self) -> int:
        """Number of accepted units that are not settled. The replay waits while there are many."""
        return self.units - self._read + self.open_units()

    def decisions(self, unit: Unit) -> Mapping[str, Decision]:
        """Return the sampling decision of each metric on a unit.

        The scores of a unit are not known here, so a rule that reads a score counts as matching.
        """
        facts = unit.facts()
        return {metric.name: self._sampler.decide(facts, metric.name) for metric in self.metrics}

    def put(self, unit: Unit) -> None:
        """Accept a unit. Thread-safe; only the first call may block."""
        if self._closed:
            return
        self.ready()
        self.units += 1
        self._event_queue.put(self, unit, never_drop=True)
        self._event_queue.nudge()

    def handle(self, event: Unit, now_ns: int) -> None:
        """Hand on one unit."""
        self._port.unit_complete(event, {}, now_ns, lost=Outcome.INCOMPLETE)
        self._read += 1

    def unread_count(self) -> int:
        """Return the number of units that were never read. Thread-safe."""
        return self.units - self._read
