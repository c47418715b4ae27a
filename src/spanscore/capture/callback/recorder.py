"""``Recorder``, the receiver of the callback: turns events of runs into OpenTelemetry spans and SpanData with their true times.

A child's span is created when its end is read, or when a descendant needs its id. An ended root is finished when no recorded
descendant is open, at the latest 0.5 s after its end. This grace period has two reasons: a sync stream that its reader left
ends its root before its model, and LangChain reports no end of a cancelled model or retriever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import lru_cache, partial
from time import time_ns
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from spanscore import semconv
from spanscore.capture.callback.handler import SpanCallbackHandler
from spanscore.capture.callback.model_metrics import ModelMetrics
from spanscore.capture.callback.runs import Event, Root, Run, has_ended, take_each
from spanscore.capture.callback.spans import (
    MODELS,
    RunSpans,
    attributes_of,
    content_renderer,
    facts_of,
    is_stop,
    render_content,
    run_end_of,
    span_data_of,
)
from spanscore.capture.other_scorers import span_elsewhere
from spanscore.core.codecs.langchain import flat_documents
from spanscore.core.codecs.media import without_image_bytes
from spanscore.core.codecs.sdk import encode_attributes
from spanscore.core.codecs.text import safe_text
from spanscore.core.event_queue import yield_gil
from spanscore.core.log import error_text, log_internal_error, type_name
from spanscore.core.score import Outcome
from spanscore.core.span import Attributes, UnitKey
from spanscore.core.timebox import Timebox
from spanscore.outputs.spans import LiveSpan
from spanscore.protocols import Redactor, UnitListener
from spanscore.samples.redaction import redact, redact_content

_RootEnd = tuple[int, Any, str, BaseException | None]
"""The end of a root: time in ns, snapshot of the output, ``spanscore.run.end``, error."""
_GRACE_NS: Final = 500_000_000
"""Longest time for which an ended root waits for its descendants."""
_CHECK_NS: Final = 10_000_000_000
"""Time between two checks of running roots: whether their task is over, or they are too old."""
_MAX_AGE_NS: Final = 3_600_000_000_000
"""Maximum age of a running root. The root is then ended as ``abandoned``, and the unit is incomplete."""
_SPAN_BYTES: Final = 2_000
"""Approximate size of a recorded span with its plain attributes."""
_MAX_ERROR_CHARS: Final = 2_000
_MAY_NAME_SOMEBODY: Final = frozenset({semconv.CONVERSATION_ID, semconv.FEEDBACK_KEY})
_IDS: Final = 1_000
"""Number of conversations and keys whose redacted id is remembered, because a redactor may be as slow as a small model."""
_SPARE_ATTRIBUTES: Final = 32
"""Number of attributes left free on a span for the verdict, and for attributes that the application's processors add."""


@dataclass(eq=False, repr=False)
class Recorder:
    """Turns the handler's events into spans. Call on the span thread, except ``unread_count`` and ``close``.

    Attributes:
        handler: source of the events; the recorder keeps its options and its memory, but not the handler itself.
        port: listener that gets finished spans.
        redactor: applied to exported content, metadata, the conversation's id and the feedback key. If it raises, returns no
            text or hangs, these are not exported.
        box: time limit in which the redactor runs.
        scores: largest number of attributes that the scores add to a root.
        models: counter of model runs; None = model runs are not counted.
        metadata: keys of a root's metadata that are exported, with redacted texts.
        tools: whether the content of a model's span has the definitions of its tools, because a metric reads them.
        abandoned: number of roots without a reported end, and of roots with a stream that its consumer closed early.
    """

    handler: InitVar[SpanCallbackHandler]
    port: UnitListener
    _: KW_ONLY
    redactor: Redactor | None = None
    box: Timebox = field(default_factory=Timebox)
    scores: int = 0
    models: ModelMetrics | None = None
    metadata: Sequence[str] = ()
    tools: bool = False

    def __post_init__(self, handler: SpanCallbackHandler) -> None:
        self._memory = handler.memory
        self._ledger = handler.ledger
        self._content = handler.content
        self._redacted_id = lru_cache(_IDS)(self._redact_id)
        self._may_name_somebody = _MAY_NAME_SOMEBODY.union(semconv.METADATA + key for key in self.metadata)
        handler.receiver = self
        self.abandoned = 0
        self._read = 0
        self._checked_ns = self._scanned_ns = 0
        self._first_seen: dict[Root, int] = {}
        self._open: dict[UnitKey, Root] = {}
        self._ended_roots: dict[UnitKey, tuple[int, _RootEnd]] = {}  # (end of the grace period, end of the root)
        self._over_tasks: set[UnitKey] = set()  # ended roots whose task is over, and whose end event may still come

    def in_flight(self) -> set[UnitKey]:
        """Return the units with an ended root that wait for their descendants."""
        return set(self._ended_roots)

    def open_keys(self) -> set[UnitKey]:
        """Return the units of running roots, and of ended roots that are not finished."""
        return {root.key for root in list(self._memory.roots.values()) if root.key is not None} | self._open.keys()

    @property
    def units(self) -> int:
        """Number of accepted roots."""
        return self._memory.units

    def unread_count(self) -> int:
        """Return the number of roots that the span thread has not read. Thread-safe."""
        return self._memory.units - self._read

    def close(self) -> None:
        """Accept no further root. Thread-safe."""
        self._memory.closed = True

    def handle(self, event: Event, now_ns: int) -> None:
        """Read one event."""
        root = event[0].root
        if not root.is_read and not root.detached:
            self._read_root(root, now_ns)
        self._apply(event, now_ns)

    def _apply(self, event: Event, now_ns: int) -> None:
        run, end_ns, output, error = event
        root = run.root
        if root.key is None or root.ignored:
            if end_ns and run is root:
                self._memory.forget(root)
            return
        if root.detached:
            return
        if run is not root:
            self._end_child(event, now_ns)
        elif end_ns and root.key in self._open:
            root_end = (end_ns, output, run_end_of(root, error), None if is_stop(error) else error)
            self._ended_roots[root.key] = (now_ns + _GRACE_NS, root_end)
            self._over_tasks.discard(root.key)
            self._finish_if_complete(root, now_ns)

    def tick(self, now_ns: int) -> None:
        """Finish the roots whose grace period is over, and abandon roots that are too old.

        A root whose task has ended gets a grace period, too, because LangChain may report the root's end in another, shielded
        task.
        """
        self._checked_ns = now_ns
        self._read_running(now_ns)
        for key, (deadline_ns, root_end) in list(self._ended_roots.items()):
            if now_ns >= deadline_ns:
                self._finish(key, root_end, now_ns)
        for key, root in list(self._open.items()):
            if key in self._ended_roots:
                continue
            if now_ns - root.opened_ns >= _MAX_AGE_NS:
                self._abandon(key, root, now_ns)
            elif root.task is not None and has_ended(root.task):
                self._ended_roots[key] = (now_ns + _GRACE_NS, (_wall_ns(root), None, "cancelled", None))
                self._over_tasks.add(key)

    def next_due_ns(self) -> int | None:
        """Return the time of the end of the next grace period, or of the next check of open roots."""
        checks = [self._checked_ns + _CHECK_NS] if self._open else []
        checks += [self._scanned_ns + _CHECK_NS] if self._memory.roots else []
        return min([*checks, *(deadline_ns for deadline_ns, _ in self._ended_roots.values())], default=None)

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Finish every root. Running roots are abandoned; return their units, because their end might never be reported."""
        for root in self._memory.unread_roots():
            self._read_root(root, now_ns)
        for key, (_, root_end) in list(self._ended_roots.items()):
            self._finish(key, root_end, now_ns)
        running = dict(self._open)
        for key, root in running.items():
            root.detached = True
            self._abandon(key, root, now_ns)
        return list(running)

    # --- children ----------------------------------------------------------------------------------------------

    def _end_child(self, event: Event, now_ns: int) -> None:
        run, end_ns, output, error = event
        root = run.root
        # Not in the handler, because the root must not be finished before this event is read.
        root.open.pop(run.id, None)
        if run.closed:
            return
        attributes = self._attributes_of(run, output, error)
        if is_stop(error):
            attributes[semconv.RUN_END], error = run_end_of(None, error), None
        if root.key not in self._open:  # the root was finished before: the span is exported, but not scored
            run.closed = True
            LiveSpan(self._span_of(run, attributes), end_ns, None, 0).end()
        else:
            self._close_span(run, end_ns, attributes, output, error, now_ns)
        self._count(run, end_ns, attributes)
        if root.key in self._ended_roots and root.key not in self._over_tasks:
            self._finish_if_complete(root, now_ns)

    def _close_span(
        self, run: Run, end_ns: int, attributes: dict[str, Any], output: Any, error: BaseException | None, now_ns: int
    ) -> None:
        """Create or complete a run's span, and hand it on with its content."""
        root, key = run.root, run.root.key
        assert key is not None
        run.closed = True
        exported_attributes, render = attributes, content_renderer(run, output, tools=self.tools)
        if root.shared is not None:  # another scorer creates the spans; here they are only read
            data = span_data_of(run, self._span_of(run), end_ns, Attributes(attributes, render), error)
            self.port.span_ended(key, data, None, now_ns)
            return
        if self._content:
            content = render_content(render)
            room = self._room_for_content(len(attributes) + len(content), is_root=run is root)
            exported_attributes = {**self._prepare_export(content, room), **attributes}
            render = partial(dict, content)
        span = self._span_of(run, exported_attributes)
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, self._error_text(error)))
        # The size counts for the memory of held spans. The spans of a unit that cannot be scored are exported without a hold.
        texts = [text for text in exported_attributes.values() if isinstance(text, str)] if root.may_be_scored else ()
        size = _SPAN_BYTES + sum(map(len, texts)) if root.may_be_scored else 0
        pending = LiveSpan(span, end_ns, exported_attributes if run is root else None, size)
        if root.may_be_scored:
            data = span_data_of(run, span, end_ns, Attributes(attributes, render), error)
            self.port.span_ended(key, data, pending, now_ns)
        elif run is root:
            self.port.unit_not_sampled(facts_of(run.root, end_ns, error), pending, now_ns)
        else:
            pending.end()

    def _attributes_of(self, run: Run, output: Any, error: BaseException | None) -> dict[str, Any]:
        """Return a run's attributes. Ids and metadata are redacted, because applications use names and addresses as ids."""
        attributes = attributes_of(run, output, error, self.metadata)
        for name in () if self.redactor is None else self._may_name_somebody & attributes.keys():
            if isinstance(text := attributes[name], str):
                del attributes[name]
                with suppress(BaseException):  # fails closed, like content
                    attributes[name] = safe_text(self._redacted_id(text))
        return attributes

    def _redact_id(self, text: str) -> str:
        redactor = self.redactor
        return text if redactor is None else self.box.run(lambda: redact(text, redactor))

    def _room_for_content(self, attributes: int, *, is_root: bool) -> int | None:
        """Return how many attributes may be added to a span with this number of attributes; None without a limit."""
        most = self._spans.most_attributes
        return None if most is None else most - attributes - (self.scores if is_root else 0) - _SPARE_ATTRIBUTES

    def _count(self, run: Run, end_ns: int, attributes: Mapping[str, Any]) -> None:
        """Count a model's run that has ended; the duration of a run without an end is unknown."""
        if self.models is None or run.operation not in MODELS or run.span is None or run.root.shared is not None:
            return
        if run is not run.root or not run.root.incomplete:  # not for an abandoned root
            self.models.record(attributes, (end_ns - run.start_ns) / 1e9, run.span)

    def _span_of(self, run: Run, attributes: Mapping[str, Any] | None = None) -> trace.Span:
        """Return the run's span. If the run has no span, start one with the run's true time."""
        if run.span is None:
            parent = run.parent
            assert parent is not None
            if run.root.shared is not None and run.root.key is not None:
                run.span = span_elsewhere(run.root.key.trace_id)
                return run.span
            run.span = self._spans.start_child(run, self._span_of(parent), attributes or {})
        elif attributes and run is not run.root:
            run.span.set_attributes(attributes)
        return run.span

    @property
    def _spans(self) -> RunSpans:
        spans = self._memory.spans
        assert spans is not None  # created before the first root was accepted
        return spans

    # --- roots -------------------------------------------------------------------------------------------------

    def _read_root(self, root: Root, now_ns: int) -> None:
        # The list is removed first, because the handler's ``_keep`` checks that after it has appended an event.
        events, root.kept_events, root.is_read = root.kept_events, None, True
        root.kept_bytes = 0  # otherwise the bytes would be counted again at the root's end
        self._read += 1
        try:
            self._open_root(root, now_ns)
        except BaseException as error:  # noqa: BLE001  (a processor of the application; SystemExit would end the span thread)
            log_internal_error("keep track of a unit", error)
        for event in take_each(events or []):
            try:
                self._apply(event, now_ns)
            except BaseException as error:  # noqa: BLE001  (as above; the other events are read)
                log_internal_error("keep track of a unit", error)
            yield_gil()

    def _read_running(self, now_ns: int) -> None:
        """Read running roots that are 10 s old or whose task is over, so that ``tick`` can end them and counts include them."""
        # Other roots are read with their first event, which may be their end.
        roots = self._memory.unread_roots()
        if now_ns - self._scanned_ns >= _CHECK_NS:
            self._first_seen, self._scanned_ns = {root: self._first_seen.get(root, now_ns) for root in roots}, now_ns
        for root in roots:
            first_seen_ns = self._first_seen.get(root, now_ns)
            if now_ns - first_seen_ns >= _CHECK_NS or (root.task is not None and has_ended(root.task)):
                self._read_root(root, first_seen_ns)

    def _open_root(self, root: Root, now_ns: int) -> None:
        created = False
        try:
            created = self._spans.create_root(root)
        finally:
            if not created:  # also if a processor of the application raised
                root.ignored = True
                self._ledger.record_rejected(Outcome.TRACE_NOT_SAMPLED)
        if created and root.key is not None:
            root.opened_ns = now_ns
            self._open[root.key] = root
            if root.shared:
                self.port.metrics_shared(root.key, root.shared)
            self.port.unit_opened(root.key, now_ns)

    def _finish_if_complete(self, root: Root, now_ns: int) -> None:
        if root.key is not None and not any(list(root.open.values())):
            self._finish(root.key, self._ended_roots[root.key][1], now_ns)

    def _abandon(self, key: UnitKey, root: Root, now_ns: int) -> None:
        root.incomplete = True
        self._finish(key, (_wall_ns(root), None, "abandoned", None), now_ns)

    def _finish(self, key: UnitKey, root_end: _RootEnd, now_ns: int) -> None:
        self._ended_roots.pop(key, None)
        self._over_tasks.discard(key)
        root = self._open[key]
        end_ns, output, run_end, error = root_end
        for child in [child for child in list(root.open.values()) if child is not None]:
            self._cancel_child(child, max(end_ns, child.start_ns), now_ns)
        if run_end == "abandoned":
            self.abandoned += 1
        if root.incomplete:
            self.port.events_lost(key, now_ns)
        attributes = {**self._attributes_of(root, output, error), semconv.RUN_END: run_end}
        self._close_span(root, end_ns, attributes, output, error, now_ns)
        self._count(root, end_ns, attributes)
        del self._open[key]
        self._memory.forget(root)

    def _cancel_child(self, child: Run, end_ns: int, now_ns: int) -> None:
        attributes = {**self._attributes_of(child, None, None), semconv.RUN_END: "cancelled"}
        child.input = None  # a partial conversation is not a sample
        try:
            self._close_span(child, end_ns, attributes, None, None, now_ns)
        except Exception as error:  # noqa: BLE001  (a processor of the application: the root must end in any case)
            log_internal_error("end a span", error)

    def _error_text(self, error: BaseException) -> str | None:
        """Return an error's text, or its class, if content may be exported unredacted; otherwise None."""
        if not self._content or self.redactor is not None:
            return None
        return safe_text(error_text(error) or type_name(error))[:_MAX_ERROR_CHARS]

    def _prepare_export(self, content: Mapping[str, Any], room: int | None) -> dict[str, Any]:
        """Return the content's attributes, redacted and without images; empty if the redactor fails."""
        # OpenInference's flat documents come first, because a full span drops its oldest attributes.
        redactor = self.redactor
        try:
            if redactor is None:
                clean: Mapping[str, Any] = {name: without_image_bytes(value) for name, value in content.items()}
            else:
                clean = self.box.run(partial(redact_content, content, redactor))
        except BaseException:  # noqa: BLE001  (fails closed, also for SystemExit: no content is exported)
            return {}
        return encode_attributes({**flat_documents(clean.get(semconv.RETRIEVAL_DOCUMENTS), room), **clean})


def _wall_ns(root: Root) -> int:
    """Return the end time of a root without a reported end: now by the wall clock, which spans use."""
    return max(time_ns(), root.start_ns)
