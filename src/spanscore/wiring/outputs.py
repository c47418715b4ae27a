"""Makes the outputs of a scorer from its settings: spans file, case collector, sinks, and `ExportConfirmation`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from spanscore import semconv
from spanscore.config.collect import CaseCondition, Collect
from spanscore.config.tree import ScorerSettings
from spanscore.core import loop
from spanscore.core.job import Job
from spanscore.core.log import log_internal_error
from spanscore.core.printable import did_you_mean, format_count
from spanscore.core.score import Scale, Score
from spanscore.core.span import Unit
from spanscore.errors import ConfigurationError
from spanscore.outputs.collected_cases import FOLDED, LOST, WRITTEN, CaseCollector, CollectState
from spanscore.outputs.http_sink import Destination, MessageOutbox
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.providers import Providers
from spanscore.outputs.spans_file import SpansFile
from spanscore.protocols import DurableQueue, JobSink, Metric, Sink

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from spanscore.durable.sink_outbox import SinkOutbox, SinkOutboxState
    from spanscore.durable.spool import SpoolFile
    from spanscore.pipeline.spool_queue import SpoolQueue


def spans_file_of(settings: ScorerSettings) -> SpansFile | None:
    """Return the file of ``spans_to``, None if it is not configured. It has no users' texts if ``capture.content`` is off."""
    if settings.outputs.spans_to is None:
        return None
    as_line = _line if exports_content(settings.capture.content) else _line_without_texts
    return SpansFile(Path(settings.outputs.spans_to).expanduser().resolve(), as_line)


def _line(spans: Sequence[ReadableSpan]) -> str:
    from spanscore.core.codecs.otlp import json_line  # a second of SDK imports, on the file's thread

    return json_line(spans)


def _line_without_texts(spans: Sequence[ReadableSpan]) -> str:
    from spanscore.core.codecs.sdk import without_texts

    return _line([span if _is_ours(span) else without_texts(span) for span in spans])


def _is_ours(span: ReadableSpan) -> bool:
    """Whether spanscore made a span, so that the content switch was already applied to its texts."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name in semconv.OWN_SCOPES


def collector_of(
    collect: Collect | None, metrics: Mapping[str, Metric], telemetry: Telemetry | None
) -> CaseCollector | None:
    """Return the collector of failing units; None without ``collect``.

    Raises:
        ConfigurationError: a condition names an unknown metric.
    """
    if collect is None:
        return None
    check_conditions(collect.conditions, metrics, "collect.when")
    requires = {name: metric.requires for name, metric in metrics.items()}
    if telemetry is None:
        return CaseCollector(collect, requires)

    def count(result: str, number: int) -> None:
        telemetry.count(semconv.COLLECTED_CASES, ((semconv.RESULT, result),), number)

    for result in (WRITTEN, FOLDED, LOST):
        count(result, 0)
    return CaseCollector(collect, requires, counted=count)


def check_conditions(conditions: Iterable[CaseCondition], metrics: Mapping[str, Metric], key: str) -> None:
    """Check that each condition of a configuration's key names a metric, and one of its categories.

    Raises:
        ConfigurationError: a condition names an unknown metric, or a word that is no category of it.
    """
    for condition in conditions:
        if condition.metric not in metrics:
            meant = did_you_mean(condition.metric, metrics) or f"there are {', '.join(metrics)}"
            raise ConfigurationError(f"{key} names {condition.metric}, which is not a metric here: {meant}")
        if not _can_hold(condition, metrics[condition.metric].scale):
            raise ConfigurationError(f"{key} has {_describe_misfit(condition, metrics[condition.metric].scale)}")


def _can_hold(condition: CaseCondition, scale: Scale) -> bool:
    """Whether a score of a scale can meet a condition on the label, the category or the value."""
    if condition.is_label:
        return scale.has_quality
    return condition.bound in scale.categories if isinstance(condition.bound, str) else not scale.categories


def _describe_misfit(condition: CaseCondition, scale: Scale) -> str:
    labels = ("pass", "fail") if scale.has_quality else ()
    allowed = [f"={word}" for word in (*scale.categories, *labels)] + ([] if scale.categories else ["<0.5"])
    return (
        f"{condition.metric}{condition.sign}{condition.bound}, which no score of it can meet; "
        f"write {', '.join(f'{condition.metric}{suffix}' for suffix in allowed)}"
    )


def collect_rows(state: CollectState) -> Iterator[str]:
    """Yield the lines of ``status()`` about collected cases: counts, and the present error of writing."""
    written, folded, lost = (state.cases.get(result, 0) for result in (WRITTEN, FOLDED, LOST))
    parts = [f"collected: {format_count(written, 'case')} to {state.path}"]
    parts += [f"{folded:,} with a question that the file has already"] if folded else []
    parts += [f"{lost:,} lost"] if lost else []
    yield "; ".join(parts)
    if state.fault:
        yield f"cases cannot be written now ({state.fault}): {state.waiting:,} wait for another attempt"


WEBHOOK_WHEN = "outputs.sinks: webhook.when"
"""Name of a webhook's conditions in error messages."""


@dataclass(slots=True, repr=False)
class SinkOutboxes:
    """The outboxes of a scorer's sinks.

    Attributes:
        spool: file in which messages wait; None = they wait in memory.
    """

    spool: SpoolFile | None
    _outboxes: dict[str, SinkOutbox] = field(default_factory=dict, init=False)

    def open(self, destination: Destination) -> MessageOutbox:
        """Return a new outbox for a destination."""
        from spanscore.durable.sink_outbox import SinkOutbox  # imports SQLite and an HTTP client

        names = (destination.name, *(f"{destination.name}-{number}" for number in range(2, len(self._outboxes) + 2)))
        name = next(name for name in names if name not in self._outboxes)
        outbox = self._outboxes[name] = SinkOutbox(destination, name, self.spool)
        return outbox

    def begin(self) -> None:
        """Send the messages that ended processes have left in the spool."""
        for outbox in self._outboxes.values():
            outbox.begin()

    def states(self) -> list[SinkOutboxState]:
        """Return the counts of each outbox. Thread-safe."""
        return [outbox.state() for outbox in self._outboxes.values()]

    def flush(self, timeout_s: float) -> bool:
        """Wait until all accepted messages were sent, or a request fails; return whether all were sent. Blocks."""
        until_s = monotonic() + timeout_s
        results = [outbox.flush(max(0.0, until_s - monotonic())) for outbox in self._outboxes.values()]
        return all(results)

    def close(self, timeout_s: float) -> None:
        """Send the waiting messages, and end. Blocks for at most the time, which the outboxes share equally."""
        for outbox in self._outboxes.values():
            outbox.close(timeout_s / len(self._outboxes))


def check_sinks(sinks: Sequence[Sink], metrics: Mapping[str, Metric]) -> None:
    """Check the conditions of webhooks.

    Raises:
        ConfigurationError: a condition names an unknown metric, or a word that is no category of it.
    """
    for sink in sinks:
        if isinstance(sink, JobSink):
            check_conditions(getattr(sink, "conditions", ()), metrics, WEBHOOK_WHEN)


def job_listener(
    collector: CaseCollector | None, sinks: Sequence[Sink]
) -> Callable[[Job, Sequence[Score]], None] | None:
    """Return the function that passes an ended job to the collector and to sinks; None if no part needs it. Never raises."""
    calls = [] if collector is None else [collector.collect_case]
    calls += [sink.emit_job for sink in sinks if isinstance(sink, JobSink)]
    if not calls:
        return None

    def pass_on(job: Job, scores: Sequence[Score]) -> None:
        for call in calls:
            try:
                call(job, scores)
            except Exception as error:  # noqa: BLE001  (a user's sink must not end a worker of the loop)
                log_internal_error("pass a finished unit to a sink", error)

    return pass_on


def sink_rows(states: Sequence[SinkOutboxState]) -> Iterator[str]:
    """Yield a line of ``status()`` for each outbox: its counts and its latest failure."""
    for state in states:
        parts = [f"sink {state.name}: {state.sent:,} sent to {state.destination}"]
        parts += [f"{state.waiting:,} waiting{f' ({state.trouble})' if state.trouble else ''}"] if state.waiting else []
        parts += [f"{state.dropped:,} dropped (latest: {state.last_loss})"] if state.dropped else []
        parts += [state.remark] if state.remark else []
        yield "; ".join(parts)


_FLUSH_DELAY_S: Final = 1.0
"""Seconds from the first waiting unit to the flush. A flush for each unit would send batches of one span."""


_MAX_SUMS_S: Final = 300.0
"""Maximum seconds for which rows wait for an export of the sums, so that they do not accumulate while none succeeds."""
_FINAL_SUMS_S: Final = 1.5
"""Maximum seconds of the last export of the sums, at shutdown."""


@dataclass(slots=True, eq=False)
class _EmittedUnit:
    """A unit whose scores have been emitted.

    Attributes:
        unit: the unit, without its spans once its scores are exported.
        is_sent: whether the scores have been exported.
        is_summed: whether sums with the scores have been exported.
    """

    unit: Unit
    is_sent: bool = False
    is_summed: bool = False


@dataclass(eq=False, repr=False)
class ExportConfirmation:
    """Makes a durable queue forget jobs once their scores (spans) and sums are exported. Thread-safe.

    The sums are the OpenTelemetry metrics that count these scores. A flush of spans exports a unit's scores, and a collection
    of a metric reader exports its sums, if it began after the scores were emitted.

    - A row of a spool stays until scores and sums are exported. The first of the two exports is marked on the row: after a
      crash, the process that takes the row makes the other export, with the same ids.
    - In any other queue, or if no export of sums succeeds, a job waits only for the export of its scores.

    Attributes:
        queue: queue with the jobs.
        providers: providers that flush spans and sums.
        spool: queue that marks its rows; None if the queue has no rows to mark.
        later: calls a function after the given seconds.
        clock: returns seconds, monotonic.
    """

    queue: DurableQueue
    providers: Providers
    _: KW_ONLY
    spool: SpoolQueue | None = None
    later: Callable[[float, Callable[[], Any]], None] = loop.later
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._unsent: list[_EmittedUnit] = []
        self._unsummed: list[_EmittedUnit] = []
        self._collected = threading.local()
        self._due = False
        self._began_s = self.clock()
        self._summed_s: float | None = None

    def mark_emitted(self, unit: Unit) -> None:
        """Record that a unit's scores were emitted; its job is forgotten after their export and that of the sums."""
        # A queue without rows to mark, and a conversation, whose row is never remembered, wait only for the spans.
        emitted = _EmittedUnit(unit, is_summed=self.spool is None or unit.session is not None)
        if not emitted.is_summed:
            with self._lock:
                self._unsummed.append(emitted)
        self._await_flush([emitted])

    def finish(self, timeout_s: float) -> None:
        """Export scores and sums within the time, and forget the jobs of exported ones."""
        until_s = self.clock() + timeout_s
        if self._unsent:
            wait([self.begin_flush()], timeout_s)
        if self._unsummed and self.providers.exports_metrics():
            wait([self.providers.start_flush_of_metrics()], min(_FINAL_SUMS_S, max(0.0, until_s - self.clock())))
        else:
            self._forget_sums()

    def begin_flush(self) -> Future[bool]:
        """Begin a flush of spans now, and return its future."""
        with self._lock:
            emitted, self._unsent, self._due = self._unsent, [], False
        flushed = self.providers.start_flush_of_spans()
        flushed.add_done_callback(lambda done: self._on_flush(emitted, done))
        return flushed

    def begin_collection(self) -> None:
        """Record the units whose scores are in a collection of the sums, which begins on this thread."""
        with self._lock:
            self._collected.emitted = [*self._unsummed]

    def confirm_collection(self) -> None:
        """Record that the latest collection on this thread was exported."""
        self._summed_s = self.clock()
        with self._lock:
            summed = [each for each in getattr(self._collected, "emitted", ()) if not each.is_summed]
            for each in summed:
                each.is_summed = True
            self._unsummed = [each for each in self._unsummed if not each.is_summed]
        self.queue.mark_exported([each.unit for each in summed if each.is_sent])
        if self.spool is not None:
            self.spool.mark_counted([each.unit for each in summed if not each.is_sent])

    def _await_flush(self, emitted: list[_EmittedUnit]) -> None:
        with self._lock:
            self._unsent += emitted
            due, self._due = self._due, True
        if not due:
            self.later(_FLUSH_DELAY_S, self.begin_flush)

    def _on_flush(self, emitted: list[_EmittedUnit], done: Future[bool]) -> None:
        if emitted and (done.exception() is not None or not done.result()):
            # The backend is down: a later flush exports the scores. If this process ends before, the process that takes its
            # rows emits them again.
            self._await_flush(emitted)
        elif emitted:
            self._mark_sent(emitted)

    def _mark_sent(self, emitted: list[_EmittedUnit]) -> None:
        with self._lock:
            for each in emitted:
                each.is_sent = True
            over = [each.unit for each in emitted if each.is_summed]
            unsummed = [each for each in emitted if not each.is_summed]
        self.queue.mark_exported(over)
        if self.spool is None or not self._awaits_sums():
            self._forget_sums()
            return
        self.spool.mark_sent([each.unit for each in unsummed])
        for each in unsummed:
            each.unit = replace(each.unit, spans=())

    def _awaits_sums(self) -> bool:
        """Whether exports of the sums succeed, so that rows wait for the next one."""
        since_s = self._began_s if self._summed_s is None and self.providers.exports_metrics() else self._summed_s
        return since_s is not None and self.clock() - since_s < _MAX_SUMS_S

    def _forget_sums(self) -> None:
        """Forget the jobs with exported scores, without waiting for their sums."""
        with self._lock:
            sent = [each for each in self._unsummed if each.is_sent]
            self._unsummed = [each for each in self._unsummed if not each.is_sent]
            for each in sent:
                each.is_summed = True
        self.queue.mark_exported([each.unit for each in sent])


@dataclass(frozen=True, slots=True)
class UnitEndMarker:
    """An entry of the span buffer's export queue, after all entries of a unit; ``end`` of the other entries ends a span."""

    unit: Unit
    confirmation: ExportConfirmation
    size: int = 0

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Record that all scores of the unit have been emitted."""
        self.confirmation.mark_emitted(self.unit)


def exports_content(chosen: bool | None) -> bool:
    """Whether prompts and answers are exported: by ``capture.content``, otherwise by the environment."""
    if chosen is not None:
        return chosen
    setting = os.environ.get(semconv.CAPTURE_CONTENT_ENV, "").strip().upper()
    return setting in {"SPAN_ONLY", "SPAN_AND_EVENT", "TRUE", "1"}
