"""Options → spans file, case collector, content switch, and the delivery of emitted scores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spanscore import semconv
from spanscore.config.collect import Collect
from spanscore.config.tree import ScorerSettings
from spanscore.core import loop
from spanscore.core.printable import did_you_mean, format_count
from spanscore.core.span import Unit
from spanscore.errors import ConfigurationError
from spanscore.outputs.collected_cases import FOLDED, LOST, WRITTEN, CaseCollector, CollectState
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.spans_file import SpansFile
from spanscore.protocols import DurableQueue, Metric

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


def spans_file_of(settings: ScorerSettings) -> SpansFile | None:
    """Return the file of ``spans_to``, without texts of users if ``capture.content`` is off; None if there is no such file."""
    if settings.outputs.spans_to is None:
        return None
    as_line = _line if exports_content(settings.capture.content) else _line_without_texts
    return SpansFile(Path(settings.outputs.spans_to).expanduser().resolve(), as_line)


def _line(spans: Sequence[ReadableSpan]) -> str:
    from spanscore.core.codecs.otlp import json_line  # imports a second of the SDK: on the thread of the file

    return json_line(spans)


def _line_without_texts(spans: Sequence[ReadableSpan]) -> str:
    from spanscore.core.codecs.sdk import without_texts

    return _line([span if _is_ours(span) else without_texts(span) for span in spans])


def _is_ours(span: ReadableSpan) -> bool:
    """Whether spanscore made a span, which then has texts by the same switch."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name in semconv.OWN_SCOPES


def collector_of(
    collect: Collect | None, metrics: Mapping[str, Metric], telemetry: Telemetry | None
) -> CaseCollector | None:
    """Return the collector of failing units; None if nothing is collected.

    Raises:
        ConfigurationError: a condition is of no metric.
    """
    if collect is None:
        return None
    check_conditions(collect, metrics)
    requires = {name: metric.requires for name, metric in metrics.items()}
    if telemetry is None:
        return CaseCollector(collect, requires)

    def count(result: str, number: int) -> None:
        telemetry.count(semconv.COLLECTED_CASES, ((semconv.RESULT, result),), number)

    for result in (WRITTEN, FOLDED, LOST):
        count(result, 0)
    return CaseCollector(collect, requires, counted=count)


def check_conditions(collect: Collect, metrics: Mapping[str, Metric]) -> None:
    """Check that each condition names a metric.

    Raises:
        ConfigurationError: one does not.
    """
    for condition in collect.conditions:
        if condition.metric not in metrics:
            meant = did_you_mean(condition.metric, metrics) or f"there are {', '.join(metrics)}"
            raise ConfigurationError(f"collect.when names {condition.metric}, which is no metric here: {meant}")


def read_collect_state(collector: CaseCollector | None) -> CollectState | None:
    """Return the state of a collector; None if nothing is collected."""
    return None if collector is None else collector.state()


def collect_rows(state: CollectState) -> Iterator[str]:
    """Yield the counts of collected cases, and why they cannot be written now."""
    written, folded, lost = (state.cases.get(result, 0) for result in (WRITTEN, FOLDED, LOST))
    parts = [f"collected: {format_count(written, 'case')} to {state.path}"]
    parts += [f"{folded:,} with a question that is in there"] if folded else []
    parts += [f"{lost:,} lost"] if lost else []
    yield "; ".join(parts)
    if state.fault:
        yield f"cases cannot be written now ({state.fault}): {state.waiting:,} wait, and are tried again"


_GATHER_S: Final = 1.0
"""Seconds from the first waiting unit to the flush: a flush per unit would send batches of one span."""


@dataclass(eq=False, repr=False)
class ExportConfirmation:
    """Has a queue forget jobs whose scores are exported. Any thread.

    A job is forgotten after a flush of spans that began when its scores had been emitted. Until then a crash has them emitted
    again, with the same ids. If spans cannot be exported and metrics can, the jobs are marked as counted: the process that
    emits their scores again adds them to no sum.

    Attributes:
        queue: has the jobs.
        flush: begins to export emitted spans; the result is whether they were exported.
        flush_sums: begins to export the sums; the result is whether they were exported.
        counted: called with units whose scores are in exported sums and not exported themselves; None = not called.
        later: runs a call after so many seconds.
    """

    queue: DurableQueue
    flush: Callable[[], Future[bool]]
    _: KW_ONLY
    flush_sums: Callable[[], Future[bool]]
    counted: Callable[[Sequence[Unit]], None] | None = None
    later: Callable[[float, Callable[[], Any]], None] = loop.later

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Unit] = []
        self._marked: set[int] = set()  # by id(), of those that wait
        self._due = False

    def mark_emitted(self, unit: Unit) -> None:
        """Have a unit's job forgotten with the next flush."""
        with self._lock:
            self._waiting.append(unit)
            due, self._due = self._due, True
        if not due:
            self.later(_GATHER_S, self.begin_flush)

    def finish(self, timeout_s: float) -> None:
        """Have the jobs forgotten whose scores can be exported in this time."""
        if self._waiting:
            wait([self.begin_flush()], timeout_s)

    def begin_flush(self) -> Future[bool]:
        """Begin the next flush now, and return its future."""
        with self._lock:
            units, self._waiting, self._due = self._waiting, [], False
        flushed = self.flush()
        flushed.add_done_callback(lambda done: self._on_flush(units, done))
        return flushed

    def _on_flush(self, units: list[Unit], done: Future[bool]) -> None:
        if not units:
            return
        if done.exception() is None and done.result():
            self.queue.mark_exported(units)
            self._marked.difference_update(map(id, units))
            return
        for unit in units:  # the backend is away: they are exported later, or emitted again by another process
            self.mark_emitted(unit)
        self._count([unit for unit in units if id(unit) not in self._marked])

    def _count(self, units: list[Unit]) -> None:
        """Export the sums, and mark the units whose scores are in them."""
        counted = self.counted
        if not units or counted is None:
            return

        def mark(exported: Future[bool]) -> None:
            if not exported.cancelled() and exported.exception() is None and exported.result():
                counted(units)
                self._marked.update(map(id, units))

        self.flush_sums().add_done_callback(mark)


@dataclass(frozen=True, slots=True)
class UnitEndMarker:
    """Stands behind all spans of a unit in the queue of the hold, as a ``PendingSpan``."""

    unit: Unit
    delivery: ExportConfirmation
    size: int = 0

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Mark the unit: all spans before this have been emitted."""
        self.delivery.mark_emitted(self.unit)


def exports_content(chosen: bool | None) -> bool:
    """Whether prompts and answers are exported: by ``capture.content``, else by the environment."""
    if chosen is not None:
        return chosen
    setting = os.environ.get(semconv.CAPTURE_CONTENT_ENV, "").strip().upper()
    return setting in {"SPAN_ONLY", "SPAN_AND_EVENT", "TRUE", "1"}
