"""``ReceiverSet`` makes the receivers of one scorer: callback, span processor, OTLP, stored units, submitted samples.

A receiver turns its input into units for the scorer's ``Pipeline``. Each receiver is made on first use, because it may need an
optional library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from spanscore import semconv
from spanscore.capture.callback.model_metrics import ModelMetrics, log_other_tracers, other_tracers
from spanscore.capture.other_scorers import ScorerIdentity, recorded_by_others
from spanscore.capture.whole_units import StoredUnits, SubmittedSamples
from spanscore.core.job import ReplayState
from spanscore.core.log import log_once
from spanscore.core.span import UnitKey
from spanscore.core.threads import call_in_child
from spanscore.wiring.build import Pipeline
from spanscore.wiring.feedback import id_of, only_unit
from spanscore.wiring.lifecycle import Lifecycle

if TYPE_CHECKING:
    from spanscore.capture.callback.handler import SpanCallbackHandler
    from spanscore.capture.callback.installation import Installation
    from spanscore.capture.callback.recorder import Recorder
    from spanscore.capture.callback.runs import RunTable
    from spanscore.capture.otlp.external_scores import ExternalScores
    from spanscore.capture.otlp.spans import OtlpSpans
    from spanscore.capture.otlp.streams import TableCounts
    from spanscore.capture.processor.external_spans import ExternalSpans
    from spanscore.config.units import Units

R = TypeVar("R")


class ReceiverSet:
    """The receivers of a scorer.

    Args:
        pipeline: pipeline that scores the units of all receivers.
        lifecycle: starts the scorer before the first unit of a receiver, and ends it if another scorer is installed.
        lifetime: an object that the scorer and the callback reference; when it is collected, no further unit is possible.

    Attributes:
        models: counts the application's model runs; None if ``capture.metrics`` is off.
        submitted: receiver of submitted samples.
        installation: the callback's handler, and its installation on every chain; None before its first use.
        external: receiver of other instrumentations' spans; None before its first use.
        otlp: receiver of spans over OTLP; None before its first use.
        stored: receiver of whole units from a store; None before its first use.
    """

    def __init__(self, pipeline: Pipeline, lifecycle: Lifecycle, lifetime: object) -> None:
        self._pipeline = pipeline
        self._lifecycle = lifecycle
        self._lifetime = lifetime
        self._identity = ScorerIdentity(
            pipeline.name, {name: metric.version for name, metric in pipeline.metrics.items()}
        )
        self.installation: Installation | None = None
        self.external: ExternalSpans | None = None
        self.otlp: OtlpSpans | None = None
        self.stored: StoredUnits | None = None
        capture = pipeline.settings.capture.enabled and pipeline.settings.capture.metrics
        self.models = ModelMetrics() if capture else None
        if self.models is not None:
            pipeline.run_first.append(partial(_start_model_metrics, pipeline, self.models))
        self.submitted = SubmittedSamples(pipeline.intake, tracer=pipeline.tracer)
        pipeline.add_receiver(self.submitted)
        if pipeline.telemetry is not None:
            pipeline.telemetry.gauges[semconv.CAPTURE_UNITS] = partial(pipeline.sum_of, "units")
            pipeline.telemetry.gauges[semconv.CAPTURE_ABANDONED] = partial(pipeline.sum_of, "abandoned")
        self._lock = threading.RLock()  # a signal handler may interrupt its holder
        call_in_child(self, ReceiverSet._connect)

    def _connect(self) -> None:
        """Connect the receivers to the new parts of a forked child.

        The callback's handler registers its own call, because it may outlive this object.
        """
        self._lock = threading.RLock()
        for receiver in (self.submitted, self.external, self.otlp, self.stored):
            if receiver is not None:
                receiver.connect(self._pipeline.intake)
                self._pipeline.add_receiver(receiver, yields_cpu=receiver is self.external)

    def use_metrics(self) -> None:
        """Have the receivers record the data of the metrics in force, after a reload. Call on the span thread."""
        pipeline, reads_tools = self._pipeline, "tools" in self._pipeline.on_demand
        self._identity.versions = {name: metric.version for name, metric in pipeline.metrics.items()}
        if self.installation is not None:
            self.installation.handler.forget_drawn_ids()
            recorder: Any = self.installation.handler.receiver
            recorder.scores, recorder.tools = pipeline.max_score_attributes, reads_tools
        for receiver in (self.external, self.otlp):
            if receiver is not None:
                receiver.translator.keeps_tools = reads_tools
        if self.otlp is not None:
            self.otlp.use_metrics(
                pipeline.of_units, [(name, metric.evaluator_version) for name, metric in pipeline.metrics.items()]
            )

    def callback(self) -> Installation:
        """Return the callback."""
        return self._make_once("installation", self._make_callback) if self.installation is None else self.installation

    def spans(self) -> ExternalSpans:
        """Return the receiver of other instrumentations' spans."""
        return self._make_once("external", self._make_external) if self.external is None else self.external

    def otlp_spans(self, units: Units) -> OtlpSpans:
        """Return the receiver of spans over OTLP; it uses ``units`` of the first call."""
        return self._make_once("otlp", partial(self._make_otlp, units)) if self.otlp is None else self.otlp

    def stored_units(self) -> StoredUnits:
        """Return the receiver of whole units from a store."""
        return self._make_once("stored", self._make_stored) if self.stored is None else self.stored

    def _make_once(self, name: str, make: Callable[[], R]) -> R:
        """Return an attribute of this object; the first call makes its value, on one thread only."""
        with self._lock:
            receiver: R | None = getattr(self, name)
            if receiver is None:
                receiver = make()
                setattr(self, name, receiver)
            return receiver

    def replay_state(self) -> ReplayState | None:
        """Return the progress of a replay; None if no replay runs."""
        return None if self.stored is None or self.stored.replayed is None else self.stored.replayed()

    def unit_of(self, trace_id: Any, span_id: Any, key: str | None) -> UnitKey | None:
        """Return the unit with these ids; None if there is only a key.

        Raises:
            ValueError: an id is invalid, or without a span id the trace has no known unit, or several.
        """
        if trace_id is None and span_id is None and key is not None:
            return None
        trace = id_of("trace_id", trace_id, 128)
        if span_id is not None:
            return UnitKey(trace, id_of("span_id", span_id, 64))
        running = [] if self.installation is None else self.installation.handler.memory.units_of(trace)
        return only_unit(trace, dict.fromkeys([*self._pipeline.recent_units.of_trace(trace), *running]))

    def notes(self) -> list[str]:
        """Return remarks on receivers, for ``status()``."""
        return [
            *([] if self.installation is None else self.installation.notes()),
            *self._identity.notes(),
            *([] if self.models is None else self.models.notes(self._pipeline.ledger.outcomes())),
            *([] if self._pipeline.dispatcher is None else self._pipeline.dispatcher.notes()),
            *self._pipeline.annotation_writer.notes(),
            *(note for receiver in (self.external, self.otlp) if receiver is not None for note in receiver.notes()),
        ]

    def _make_callback(self) -> Installation:
        from spanscore.capture.callback.handler import SpanCallbackHandler
        from spanscore.capture.callback.installation import Installation
        from spanscore.capture.callback.recorder import Recorder

        pipeline, capture = self._pipeline, self._pipeline.settings.capture
        ready, replaced, captures = self._lifecycle.ready, self._on_replaced(), capture.enabled

        def begin() -> None:
            ready()
            if captures:
                log_other_tracers(other_tracers())

        handler = SpanCallbackHandler(
            pipeline.intake, tracer=pipeline.tracer, ready=begin, content=pipeline.content, steps=capture.all_runs
        )
        handler.attaches_tools = capture.context
        handler.holder, handler.identity = self._lifetime, self._identity
        handler.memory.closed = not captures
        make_recorder = partial(
            Recorder,
            redactor=pipeline.hooks.redactor,
            box=pipeline.box,
            models=self.models,
            scores=pipeline.max_score_attributes,
            metadata=capture.metadata,
            tools="tools" in pipeline.on_demand,
        )
        pipeline.add_receiver(make_recorder(handler, pipeline.units), yields_cpu=True)
        call_in_child(handler, partial(_connect_handler, pipeline, make_recorder))
        return Installation(handler, self._identity.name, lambda successor: replaced(successor, handler.memory))

    def _make_external(self) -> ExternalSpans:
        from spanscore.capture.processor.external_spans import ExternalSpans
        from spanscore.capture.scopes import Scopes
        from spanscore.samples.normalizers.registry import SpanNormalizers

        pipeline, units = self._pipeline, self._pipeline.settings.units
        translator = SpanNormalizers(units.translations, tools="tools" in pipeline.on_demand)
        external = ExternalSpans(
            pipeline.intake,
            scopes=Scopes(
                translator.names_scope,
                listed=units.scopes,
                ignored=units.ignore_scopes,
                records_langchain=self._is_recording(),
            ),
            translator=translator,
            ready=self._lifecycle.ready,
            identity=self._identity,
            spans_file=pipeline.providers.spans_file,
        )
        pipeline.add_receiver(external, yields_cpu=True)
        return external

    def _make_otlp(self, units: Units) -> OtlpSpans:
        from spanscore.capture.otlp.claims import WireClaims
        from spanscore.capture.otlp.spans import OtlpSpans
        from spanscore.capture.otlp.streams import trace_bounds
        from spanscore.samples.normalizers.registry import SpanNormalizers

        pipeline, own = self._pipeline, self._pipeline.settings.units
        translator = SpanNormalizers(own.translations, tools="tools" in pipeline.on_demand)
        otlp = OtlpSpans(
            pipeline.intake,
            bounds=trace_bounds(units),
            claims=WireClaims(translator, listed=own.scopes, ignored=own.ignore_scopes),
            translator=translator,
            metrics=pipeline.of_units,
            make_external=partial(_external_scores, pipeline) if units.external_scores else None,
            ready=self._lifecycle.ready,
        )
        if pipeline.telemetry is not None:
            pipeline.telemetry.gauges.update(_otlp_gauges(otlp))
        pipeline.add_receiver(otlp)
        return otlp

    def _make_stored(self) -> StoredUnits:
        pipeline = self._pipeline

        def open_units() -> int:
            ledgers = [pipeline.ledger, *pipeline.inner_ledgers().values()]
            return sum(len(ledger.open_units()) for ledger in ledgers) + len(pipeline.revisions.open_units())

        stored = StoredUnits(
            pipeline.intake,
            metrics=list(pipeline.of_units.values()),
            open_units=open_units,
            ready=self._lifecycle.ready,
        )
        pipeline.add_receiver(stored)
        return stored

    def _on_replaced(self) -> Callable[[str, RunTable], None]:
        """Return the function that is called when another scorer is installed.

        It ends this scorer, unless a span processor still sends it spans.
        """
        receivers, pipeline, end = ref(self), self._pipeline, self._lifecycle.end_when_idle

        def replaced(successor: str, memory: RunTable) -> None:
            memory.why_closed = (
                f"install() of {successor} has taken over from {pipeline.name}, which records no further run and ends when its"
                " units are scored. Make one scorer per process: a script, a cell or a page that runs again makes another"
            )
            log_once("second installation", memory.why_closed)
            memory.closed = True
            own = receivers()
            if own is None or own.external is None:
                end(lambda: memory.roots)

        return replaced

    def _is_recording(self) -> Callable[[], bool]:
        """Return a function that returns whether a callback, of any scorer, records LangChain's runs now.

        It has no strong reference to this object.
        """
        receivers, identity = ref(self), self._identity

        def is_recording() -> bool:
            installation = None if (own := receivers()) is None else own.installation
            is_ours = installation is not None and installation.handler.is_recording
            return is_ours or identity.is_among(recorded_by_others(identity))

        return is_recording


def _connect_handler(pipeline: Pipeline, make_recorder: Callable[..., Recorder], handler: SpanCallbackHandler) -> None:
    handler.connect(pipeline.intake)
    pipeline.add_receiver(make_recorder(handler, pipeline.units), yields_cpu=True)


def _start_model_metrics(pipeline: Pipeline, models: ModelMetrics) -> None:
    if not pipeline.is_shutting_down:
        models.start(pipeline.tracer(), pipeline.providers)


def _external_scores(pipeline: Pipeline) -> ExternalScores:
    from spanscore.capture.otlp.external_scores import ExternalScores

    own = [(name, metric.evaluator_version) for name, metric in pipeline.metrics.items()]
    return ExternalScores((lambda *_: None) if pipeline.telemetry is None else pipeline.telemetry.count, own)


def _otlp_gauges(spans: OtlpSpans) -> dict[str, Callable[[], float | Mapping[str, float]]]:
    from spanscore.capture.otlp.requests import OVERLOADS

    def total_counts() -> TableCounts:
        return spans.streams.total_counts(spans.table)

    return {
        semconv.RECEIVE_REQUESTS: lambda: spans.counts.requests,
        semconv.RECEIVE_SPANS: lambda: spans.counts.spans,
        semconv.RECEIVE_BYTES: lambda: spans.counts.bytes,
        semconv.RECEIVE_REFUSED: lambda: dict.fromkeys(OVERLOADS, 0) | spans.counts.refused.copy(),
        semconv.RECEIVE_REJECTED: lambda: sum(spans.counts.rejected.copy().values()),
        semconv.RECEIVE_UNREAD: lambda: sum(spans.counts.unread.copy().values()),
        semconv.UNITS_OPEN: lambda: total_counts().open,
        semconv.UNITS_ORPHANS: lambda: total_counts().orphans,
        semconv.UNITS_LATE: lambda: total_counts().late,
    }
