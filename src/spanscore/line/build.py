"""Options → parts: the one place where the parts of a scorer are put together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import Tracer

from spanscore import semconv
from spanscore.dialects.extract import Extract
from spanscore.dialects.genai import GenAIDialect
from spanscore.errors import ConfigurationError
from spanscore.judges.suppress import suppressed_context
from spanscore.line.span_thread import SpanThread
from spanscore.metrics.catalog.registry import by_name
from spanscore.model.score import Outcome, refuse_taken_name
from spanscore.model.span import UnitKey
from spanscore.otel.instruments import Telemetry
from spanscore.otel.providers import Providers
from spanscore.protocols import Filter, Metric, Redactor, Sink
from spanscore.receivers.callback.handler import SpanCallbackHandler
from spanscore.receivers.callback.model_metrics import ModelMetrics, why_not
from spanscore.receivers.callback.recorder import Recorder
from spanscore.receivers.callback.runs import Event
from spanscore.runtime.fork import Forkable
from spanscore.runtime.inbox import Inbox
from spanscore.runtime.log import log_internal_error
from spanscore.runtime.timebox import Timebox
from spanscore.sampling.rates import DEFAULT_KEY, RateSampler
from spanscore.sampling.rules import Rule
from spanscore.scoring.evaluation import Evaluation
from spanscore.scoring.hooks import Hooks
from spanscore.scoring.jobs import Pipeline
from spanscore.scoring.memory_queue import MemoryQueue
from spanscore.scoring.workers import Engine
from spanscore.units.assembly import Assembler
from spanscore.units.ledger import Ledger
from spanscore.units.span_buffer import RELEASE_REASONS, Pace, SpanBuffer
from spanscore.units.tracker import Units

if TYPE_CHECKING:
    from spanscore.monitoring.running_mean import RunningMean

__all__ = ["Line", "Options", "rules_of"]

_REMEMBERED = 250
"""Closed units remembered: the recorder lets no span of ours come late, so they are few."""
_PER_METRIC = 3
"""Attributes of a score on a unit's span: value, label and probability."""
_SOME_MISSING = "runs below spans that were sampled away are missing in the metrics of model runs"
_CLAIMS = 4_096
"""Spans remembered as taken by a submitted sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that can be chosen about a scorer, as plain values.

    Attributes:
        rate: share of units scored by each metric, [0, 1].
        rates: metric → its own share.
        key: of the sampling hash; None = the published one.
        capture: whether the handler records anything.
        content: whether prompts, answers and documents are exported; None = by
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, and so not by default.
        model_metrics: whether the application's model runs are counted, where nobody else does and none would be missing.
        score_abandoned: whether what was said of a stream that its reader left is scored; else it is ``no_sample``.
        hooks_s: deadline of one call of a redactor, a filter or a function of ``extract``.
        hold_s: how long a unit's spans wait for scores after its end; None = 10 s for a trace's root, else 4 s.
    """

    rate: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    key: bytes | None = None
    capture: bool = True
    content: bool | None = None
    steps: bool = False
    score_abandoned: bool = False
    model_metrics: bool = True
    extract: Extract | None = None
    redactor: Redactor | None = None
    keep: Filter | None = None
    span: bool = True
    evaluation_span: bool = True
    event: bool = True
    instruments: bool = True
    hold_s: float | None = None
    inbox: int = 10_000
    inbox_bytes: int = 64_000_000
    queue: int = 1_000
    queue_bytes: int = 256_000_000
    workers: int = 32
    timeout_s: float = 60.0
    hooks_s: float = 1.0
    sinks: Sequence[Sink] = ()
    segments: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Line:
    """The parts of one scorer, from the inbox to the sinks.

    Args:
        ready: called on the application's thread before each root.

    Attributes:
        over: the scorer is being shut down: there is no meter to be had any more.
    """

    def __init__(
        self, metrics: Sequence[Metric], options: Options, providers: Providers, *, ready: Callable[[], None]
    ) -> None:
        self.metrics = {metric.name: metric for metric in _checked(metrics, options)}
        self.options = options
        self.providers = providers
        self.content = _exports_content() if options.content is None else options.content
        self._tracer: Tracer | None = None
        self._open = False
        self.over = False
        self._sinks: list[Sink] = []
        self._claimed: dict[UnitKey, None] = {}
        self._make_parts(ready)

    def _make_parts(self, ready: Callable[[], None]) -> None:
        options = self.options
        self.ledger = Ledger(self.metrics)
        self.telemetry = self._telemetry() if options.instruments else None
        self.models = ModelMetrics() if options.capture and options.model_metrics else None
        self.inbox: Inbox[Event] = Inbox(soft=options.inbox, soft_bytes=options.inbox_bytes)
        self.queue = MemoryQueue(options.queue, options.queue_bytes)
        self.sampler = RateSampler(self._base_rates(), rules=options.rules, key=options.key or DEFAULT_KEY)
        self.hold = SpanBuffer(Pace(self.providers.start_flush_of_spans, on_flushed=self.inbox.nudge))
        self.evaluation = Evaluation(self.metrics, timeout_s=options.timeout_s)
        self.box = Timebox(options.hooks_s, suppressed_context)
        hooks = Hooks(options.redactor, options.keep).within(self.box)
        dialect = GenAIDialect(_within(self.box, options.extract or Extract()), options.score_abandoned)
        pipeline = Pipeline([dialect], hooks, self.box)
        self.engine = Engine(
            self.queue,
            pipeline,
            self.evaluation,
            post=lambda settled: self.span_thread.leave(lambda: self.units.settled(settled)),
            workers=options.workers,
        )
        self.assembler = Assembler(remembered=_REMEMBERED)
        self.units = self._units()
        self.handler = SpanCallbackHandler(
            self.inbox,
            self.sampler,
            self.ledger,
            tracer=self.tracer,
            ready=ready,
            content=self.content,
            steps=options.steps,
        )
        if not options.capture:
            self.handler.close()
        self.recorder = Recorder(
            self.units,
            self.ledger,
            tracer=self.tracer,
            forget=self.handler.forget,
            content=self.content,
            redactor=hooks.redactor,
            box=self.box,
            models=self.models,
            scores=_PER_METRIC * len(self.metrics) if options.span else 0,
        )
        self.span_thread = SpanThread(self.inbox, self.recorder, self.units, self.hold, prepare=self._open_sinks)

    def _base_rates(self) -> dict[str, float]:
        return {name: self.options.rates.get(name, self.options.rate) for name in self.metrics}

    def rates(self) -> dict[str, tuple[float, float]]:
        """Return metric → the least and the most of its sampling rate, for ``status()``: rules only raise it."""
        raised = [rule.rate for rule in self.options.rules]
        return {name: (rate, max(rate, *raised, 0.0)) for name, rate in self._base_rates().items()}

    def means(self) -> dict[str, RunningMean | None]:
        """Return metric → how good its scores are so far; None where there are none, or their scale is open."""
        if self.telemetry is None:
            return dict.fromkeys(self.metrics)
        from spanscore.monitoring.running_mean import running_mean

        return {name: running_mean(name, metric.scale, self.telemetry.sums) for name, metric in self.metrics.items()}

    def _units(self) -> Units:
        hold_s = self.options.hold_s
        return Units(
            list(self.metrics),
            ledger=self.ledger,
            assembler=self.assembler,
            sampler=self.sampler,
            queue=self.queue,
            hold=self.hold,
            sinks=self._sinks,
            handover=self.engine.accept,
            attach=self.options.span,
            hold_root_ns=int((10.0 if hold_s is None else hold_s) * 1e9),
            hold_ns=int((4.0 if hold_s is None else hold_s) * 1e9),
        )

    def _telemetry(self) -> Telemetry:
        telemetry = Telemetry(None, self.ledger, self._gauges(), segments=self.options.segments)
        telemetry.declare(self.metrics.values())
        return telemetry

    def tracer(self) -> Tracer:
        """Return the tracer of the capture scope, one object for good."""
        if self._tracer is None:
            self._tracer = self.providers.tracer(semconv.CAPTURE_SCOPE)
        return self._tracer

    def claim(self, key: UnitKey) -> bool:
        """Whether a submitted sample may ride on this span: the first one may."""
        if key in self._claimed:
            return False
        self._claimed[key] = None
        if len(self._claimed) > _CLAIMS:
            self._claimed.pop(next(iter(self._claimed)), None)
        return True

    def reset(self) -> None:
        """Be as new: in a forked child. The sinks stay, their providers look after themselves."""
        for part in self._resettable():
            part.reset()

    def _resettable(self) -> Sequence[Forkable]:
        stores: list[Forkable] = [self.handler, self.ledger, self.inbox, self.queue, self.hold, self.assembler]
        return [*stores, self.recorder, self.units, self.engine, self.box, self.evaluation, self.span_thread]

    def close_sinks(self) -> None:
        """Let the sinks go. Span thread, as every call of theirs: one that hangs must not hang the exit."""
        for sink in self._sinks:
            try:
                sink.shutdown()
            except BaseException as error:  # noqa: BLE001  (a user's sink)
                log_internal_error("close a sink", error)

    def close(self) -> None:
        """Let the instruments go."""
        if self.telemetry is not None:
            self.telemetry.close()

    def _open_sinks(self) -> None:
        """Make the sinks: on the span thread, as the SDK's metrics and logs cost 170 ms to import."""
        if self._open:
            return
        self._open = True
        from spanscore.sinks.evaluation_span import EvaluationSpans
        from spanscore.sinks.event import Events
        from spanscore.sinks.instruments import Instruments

        if self.options.evaluation_span:
            self._sinks.append(EvaluationSpans(self.providers, self.content))
        if self.options.event:
            self._sinks.append(Events(self.providers, self.content))
        if self.telemetry is not None and not self.over:
            self.telemetry.export_to(self.providers.meter())
            self._sinks.append(Instruments(self.telemetry))
        if self.models is not None and not self.over:
            self._count_models(self.models)
        self._sinks.extend(self.options.sinks)

    def _count_models(self, models: ModelMetrics) -> None:
        models.off = why_not(self.tracer(), self.providers.meter_provider)
        if not models.off:
            models.export_to(self.providers.meter())

    def notes(self) -> list[str]:
        """Return what must be known of the metrics of the application's models, for ``status()``."""
        if self.models is None:
            return []
        if self.models.off:
            return [f"no metrics of model runs ({semconv.CLIENT_TOKEN_USAGE} …), as {self.models.off}"]
        dropped = any(outcome is Outcome.NOT_EXPORTED for _, outcome in self.ledger.outcomes())
        return [_SOME_MISSING] if dropped else []

    def _gauges(self) -> dict[str, Callable[[], float | Mapping[str, float]]]:
        return {
            semconv.QUEUE_SIZE: lambda: len(self.queue),
            semconv.QUEUE_CAPACITY: lambda: self.queue.capacity,
            semconv.HOLD_UNITS: lambda: len(self.hold),
            semconv.HOLD_RELEASED: lambda: {**dict.fromkeys(RELEASE_REASONS, 0), **self.hold.released},
            semconv.HOLD_LOST: lambda: self.hold.lost,
            semconv.CAPTURE_UNITS: lambda: self.handler.units,
            semconv.CAPTURE_REFUSED: lambda: self.handler.refused,
            semconv.CAPTURE_ABANDONED: lambda: self.recorder.abandoned,
        }


def _checked(metrics: Sequence[Metric], options: Options) -> Sequence[Metric]:
    if not metrics:
        raise ConfigurationError("a scorer needs at least one metric: OnlineScorer(metrics=[Faithfulness(llm)])")
    named = by_name(metrics)
    for name in named:
        refuse_taken_name(name)
    unknown = sorted(set(options.rates) - set(named))
    if unknown:
        known = ", ".join(named)
        raise ConfigurationError(
            f"sampling.rates names {unknown[0]!r}, which is no metric of this scorer; it has {known}"
        )
    return metrics


def _within(box: Timebox, extract: Extract) -> Extract:
    """Return the same places, the functions among them with deadlines."""
    places = {place.name: getattr(extract, place.name) for place in fields(extract)}
    hooks: dict[str, Any] = {
        name: box.hook(place, f"Extract({name}=…)", Outcome.NO_SAMPLE)
        for name, place in places.items()
        if callable(place)
    }
    return replace(extract, **hooks)


def _exports_content() -> bool:
    return os.environ.get(semconv.CAPTURE_CONTENT_ENV, "").strip().upper() in {
        "SPAN_ONLY",
        "SPAN_AND_EVENT",
        "TRUE",
        "1",
    }


def rules_of(settings: Any) -> list[Rule]:
    """Return the sampling rules of a configuration."""
    return [
        Rule(
            rate=rule.rate,
            name=rule.name or f"rule_{position}",
            status=rule.when.status,
            workflow=rule.when.workflow,
            min_duration_s=rule.when.slower_than,
            metadata=None if rule.when.metadata is None else {rule.when.metadata: rule.when.equals},
        )
        for position, rule in enumerate(settings.rules, start=1)
    ]
