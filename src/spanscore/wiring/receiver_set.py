"""``ReceiverSet`` holds the receivers of one scorer: callback, span processor, OTLP, stored units, submitted samples.

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
        line: pipeline that scores the units of all receivers.
        lifecycle: starts the scorer before the first unit of a receiver, and ends it if another scorer is installed.
        holder: an object that the application references as long as units are possible; the callback references it, too.

    Attributes:
        models: counts the application's model runs; None = they are not counted.
        submitted: receiver of submitted samples.
        installation: the callback's handler, and its installation on every chain; None before its first use.
        external: receiver of other instrumentations' spans; None before its first use.
        otlp: receiver of spans over OTLP; None before its first use.
        stored: receiver of whole units from a store; None before its first use.
    """

    def __init__(self, line: Pipeline, lifecycle: Lifecycle, holder: object) -> None:
        self._line = line
        self._life = lifecycle
        self._holder = holder
        self._identity = ScorerIdentity(line.name, {name: metric.version for name, metric in line.metrics.items()})
        self.installation: Installation | None = None
        self.external: ExternalSpans | None = None
        self.otlp: OtlpSpans | None = None
        self.stored: StoredUnits | None = None
        capture = line.settings.capture.enabled and line.settings.capture.metrics
        self.models = ModelMetrics() if capture else None
        if self.models is not None:
            line.prepared.append(partial(_start_model_metrics, line, self.models))
        self.submitted = SubmittedSamples(line.intake, tracer=line.tracer)
        line.let_in(self.submitted)
        if line.telemetry is not None:
            line.telemetry.gauges[semconv.CAPTURE_UNITS] = partial(line.sum_of, "units")
            line.telemetry.gauges[semconv.CAPTURE_ABANDONED] = partial(line.sum_of, "abandoned")
        self._lock = threading.RLock()  # a signal handler may interrupt its holder
        call_in_child(self, ReceiverSet._connect)

    def _connect(self) -> None:
        """Connect the receivers to the new parts of a forked child.

        The callback's handler registers its own call, because it may outlive this object.
        """
        self._lock = threading.RLock()
        for receiver in (self.submitted, self.external, self.otlp, self.stored):
            if receiver is not None:
                receiver.connect(self._line.intake)
                self._line.let_in(receiver, yields_cpu=receiver is self.external)

    def use_metrics(self) -> None:
        """Have the receivers read units for the metrics in force, after a reload. Call on the span thread."""
        line, reads_tools = self._line, "tools" in self._line.on_demand
        self._identity.versions = {name: metric.version for name, metric in line.metrics.items()}
        if self.installation is not None:
            self.installation.handler.forget_previews()
            recorder: Any = self.installation.handler.receiver
            recorder.scores, recorder.tools = line.most_scores, reads_tools
        for receiver in (self.external, self.otlp):
            if receiver is not None:
                receiver.translator.keeps_tools = reads_tools
        if self.otlp is not None:
            self.otlp.use_metrics(
                line.of_units, [(name, metric.evaluator_version) for name, metric in line.metrics.items()]
            )

    def callback(self) -> Installation:
        """Return the callback."""
        return self._make_once("installation", self._make_callback) if self.installation is None else self.installation

    def spans(self) -> ExternalSpans:
        """Return the receiver of other instrumentations' spans."""
        return self._make_once("external", self._make_external) if self.external is None else self.external

    def otlp_spans(self, units: Units) -> OtlpSpans:
        """Return the receiver of spans over OTLP; ``units`` of the first call applies."""
        return self._make_once("otlp", partial(self._make_otlp, units)) if self.otlp is None else self.otlp

    def stored_units(self) -> StoredUnits:
        """Return the receiver of whole units from a store."""
        return self._make_once("stored", self._make_stored) if self.stored is None else self.stored

    def _make_once(self, name: str, make: Callable[[], R]) -> R:
        """Return an attribute, and make it on first use; only one thread makes it."""
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
        """Return the unit with these ids; None if only the key is given.

        Raises:
            ValueError: an id is invalid, or without a span id the trace has no known unit, or several.
        """
        if trace_id is None and span_id is None and key is not None:
            return None
        trace = id_of("trace_id", trace_id, 128)
        if span_id is not None:
            return UnitKey(trace, id_of("span_id", span_id, 64))
        running = [] if self.installation is None else self.installation.handler.memory.units_of(trace)
        return only_unit(trace, dict.fromkeys([*self._line.known.of_trace(trace), *running]))

    def notes(self) -> list[str]:
        """Return remarks on receivers, for ``status()``."""
        return [
            *([] if self.installation is None else self.installation.notes()),
            *self._identity.notes(),
            *([] if self.models is None else self.models.notes(self._line.ledger.outcomes())),
            *([] if self._line.handover is None else self._line.handover.notes()),
            *self._line.annotation_writer.notes(),
            *(note for receiver in (self.external, self.otlp) if receiver is not None for note in receiver.notes()),
        ]

    def _make_callback(self) -> Installation:
        from spanscore.capture.callback.handler import SpanCallbackHandler
        from spanscore.capture.callback.installation import Installation
        from spanscore.capture.callback.recorder import Recorder

        line, capture = self._line, self._line.settings.capture
        ready, replaced, captures = self._life.ready, self._on_replaced(), capture.enabled

        def begin() -> None:
            ready()
            if captures:
                log_other_tracers(other_tracers())

        handler = SpanCallbackHandler(
            line.intake, tracer=line.tracer, ready=begin, content=line.content, steps=capture.all_runs
        )
        handler.attaches_tools = capture.context
        handler.holder, handler.identity = self._holder, self._identity
        handler.memory.closed = not captures
        make_recorder = partial(
            Recorder,
            redactor=line.hooks.redactor,
            box=line.box,
            models=self.models,
            scores=line.most_scores,
            metadata=capture.metadata,
            tools="tools" in line.on_demand,
        )
        line.let_in(make_recorder(handler, line.units), yields_cpu=True)
        call_in_child(handler, partial(_connect_handler, line, make_recorder))
        return Installation(handler, self._identity.name, lambda successor: replaced(successor, handler.memory))

    def _make_external(self) -> ExternalSpans:
        from spanscore.capture.processor.external_spans import ExternalSpans
        from spanscore.capture.scopes import Scopes
        from spanscore.samples.normalizers.registry import SpanNormalizers

        line, units = self._line, self._line.settings.units
        translator = SpanNormalizers(units.translations, tools="tools" in line.on_demand)
        external = ExternalSpans(
            line.intake,
            scopes=Scopes(
                translator.names_scope,
                listed=units.scopes,
                ignored=units.ignore_scopes,
                records_langchain=self._is_recording(),
            ),
            translator=translator,
            ready=self._life.ready,
            identity=self._identity,
            spans_file=line.providers.spans_file,
        )
        line.let_in(external, yields_cpu=True)
        return external

    def _make_otlp(self, units: Units) -> OtlpSpans:
        from spanscore.capture.otlp.claims import WireClaims
        from spanscore.capture.otlp.spans import OtlpSpans
        from spanscore.capture.otlp.streams import trace_bounds
        from spanscore.samples.normalizers.registry import SpanNormalizers

        line, own = self._line, self._line.settings.units
        translator = SpanNormalizers(own.translations, tools="tools" in line.on_demand)
        otlp = OtlpSpans(
            line.intake,
            bounds=trace_bounds(units),
            claims=WireClaims(translator, listed=own.scopes, ignored=own.ignore_scopes),
            translator=translator,
            metrics=line.of_units,
            make_external=partial(_external_scores, line) if units.external_scores else None,
            ready=self._life.ready,
        )
        if line.telemetry is not None:
            line.telemetry.gauges.update(_otlp_gauges(otlp))
        line.let_in(otlp)
        return otlp

    def _make_stored(self) -> StoredUnits:
        line = self._line

        def open_units() -> int:
            ledgers = [line.ledger, *line.inner_ledgers().values()]
            return sum(len(ledger.open_units()) for ledger in ledgers) + len(line.revisions.open_units())

        stored = StoredUnits(
            line.intake,
            metrics=list(line.of_units.values()),
            open_units=open_units,
            ready=self._life.ready,
        )
        line.let_in(stored)
        return stored

    def _on_replaced(self) -> Callable[[str, RunTable], None]:
        """Return the function that is called when another scorer was installed.

        The function ends this scorer, unless a span processor still sends it spans.
        """
        receivers, line, end = ref(self), self._line, self._life.end_when_idle

        def replaced(successor: str, memory: RunTable) -> None:
            memory.why_closed = (
                f"install() of {successor} has taken over from {line.name}, which records no further run and ends when its"
                " units are scored. Make one scorer per process: a script, a cell or a page that runs again makes another"
            )
            log_once("second installation", memory.why_closed)
            memory.closed = True
            own = receivers()
            if own is None or own.external is None:
                end(lambda: memory.roots)

        return replaced

    def _is_recording(self) -> Callable[[], bool]:
        """Return a function that returns whether a callback records LangChain's runs now.

        The function has no strong reference to this object.
        """
        receivers, identity = ref(self), self._identity

        def is_recording() -> bool:
            installation = None if (own := receivers()) is None else own.installation
            is_ours = installation is not None and installation.handler.is_recording
            return is_ours or identity.is_among(recorded_by_others(identity))

        return is_recording


def _connect_handler(line: Pipeline, make_recorder: Callable[..., Recorder], handler: SpanCallbackHandler) -> None:
    handler.connect(line.intake)
    line.let_in(make_recorder(handler, line.units), yields_cpu=True)


def _start_model_metrics(line: Pipeline, models: ModelMetrics) -> None:
    if not line.over:
        models.start(line.tracer(), line.providers)


def _external_scores(line: Pipeline) -> ExternalScores:
    from spanscore.capture.otlp.external_scores import ExternalScores

    own = [(name, metric.evaluator_version) for name, metric in line.metrics.items()]
    return ExternalScores((lambda *_: None) if line.telemetry is None else line.telemetry.count, own)


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
