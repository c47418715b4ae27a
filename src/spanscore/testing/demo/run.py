"""Run the demo: make requests from a seed, answer them with a scored application, and export the telemetry."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langsmith import tracing_context
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from spanscore import semconv
from spanscore.config import Capture, Outputs, Rule, RuleCondition, Sampling
from spanscore.core.codecs.sdk import fields_of
from spanscore.core.context import references, set_inside
from spanscore.core.score import Score
from spanscore.core.span import Unit
from spanscore.core.threads import start_daemon
from spanscore.errors import ConfigurationError
from spanscore.judges import judge
from spanscore.judges.langchain.models import named_model
from spanscore.metrics.catalog.registry import create
from spanscore.outputs.exporters import SIGNALS, quiet_otlp_exporter, sdk_disabled
from spanscore.scorer import OnlineScorer
from spanscore.testing.demo.application import Handbook, OfflineModel, handbook_chain
from spanscore.testing.demo.langchain_langgraph_agent import AGENT_NAME, TOPICS, ferry_agent
from spanscore.wiring.status import Status

Stretch = Literal["before", "during", "after"]
"""A part of the demo, by the time at which retrieval is broken."""
STRETCHES: tuple[Stretch, ...] = ("before", "during", "after")
LEAST_REQUESTS = 12
_BREAKS_AT, _MENDED_AT = 0.4, 0.65
"""Shares of all requests between which retrieval is broken."""
_CHAIN_RUNS = 4
"""Number of chain runs between two conversations with the agent, which have two turns each."""

QUESTIONS = (
    "What does a single adult ticket cost?",
    "How long is a return ticket valid?",
    "What does the season ticket cost?",
    "What does a bicycle cost per crossing?",
    "How many places for bicycles does each ferry have?",
    "Where do dogs travel?",
    "On which day are horses taken on the Marigold?",
    "What does a car up to five metres cost?",
    "How many cars does the car deck of the Marigold hold?",
    "When does the first ferry from Port Maddern to Skerrow leave?",
    "When does the last ferry to Skerrow leave?",
    "How long does the crossing to Tarn Holm take?",
    "When are crossings cancelled because of wind?",
    "When is a cancelled ticket refunded in full?",
    "How many suitcases may each passenger bring?",
    "For how many days is lost property kept?",
    "What do lockers at Port Maddern cost?",
    "Who travels with wheelchair users for the price of a child?",
    "How many hours ahead is help with boarding booked?",
    "Where was the Marigold built?",
    "Who is the captain of the Marigold?",
    "What does the fish soup cost in the galley?",
    "Until when are hot meals served?",
    "What does the car park at Port Maddern cost per day?",
    "For how many minutes is parking free?",
    "What discount do groups of twelve or more get?",
    "What do school classes pay per pupil?",
)
OFF_SUBJECT = (
    "Which shares should I buy?",
    "Who won the football cup?",
    "What is the best pancake recipe?",
    "Who will win the election?",
)
_OFF_SUBJECT_SHARE = 0.4
"""Share of second turns that leave the agent's subject."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        number: position, from 1.
        stretch: the part of the demo in which it is made.
        question: the user's question.
        thread: id of the conversation with the agent; None for a run of the chain.
    """

    number: int
    stretch: Stretch
    question: str
    thread: str | None = None


def requests(count: int, seed: int) -> Iterator[Request]:
    """Yield the requests of a demo in order; the requests are equal for equal count and seed."""
    rng = random.Random(seed)
    cycle = _CHAIN_RUNS + 2
    for number in range(1, count + 1):
        position = (number - 1) % cycle
        is_off_subject = position == cycle - 1 and rng.random() < _OFF_SUBJECT_SHARE
        question = rng.choice(OFF_SUBJECT if is_off_subject else QUESTIONS)
        thread = None if position < _CHAIN_RUNS else f"conversation-{(number - 1) // cycle + 1}"
        share = (number - 1) / count
        stretch: Stretch = "before" if share < _BREAKS_AT else "during" if share < _MENDED_AT else "after"
        yield Request(number, stretch, question, thread)


# The speed of a demo differs from run to run, and so would reports by real time. Therefore the number of a request decides its
# time. Each trace is moved as a whole, so the order, gaps and durations of its spans stay as measured.

MINUTES = 100
"""Duration of the demo's moved times, in minutes. Retrieval is broken from minute 40 to minute 65, after 40 % and 65 % of the
requests. These are borders of the five-minute steps of a report with that many scores."""
_MINUTE_NS = 60_000_000_000
_FIVE_MINUTES_NS = 5 * _MINUTE_NS


def spread(spans: Sequence[ReadableSpan], requests: int, now_ns: int) -> list[ReadableSpan]:
    """Return the spans in their order, each trace moved to the time of its request.

    Args:
        spans: spans of one demo, including evaluation spans.
        requests: planned number of requests; fewer traces (after an interruption) leave the end empty.
        now_ns: the present time, in nanoseconds since the epoch. The 100 minutes end with the last full five minutes before it.
    """
    begin = now_ns // _FIVE_MINUTES_NS * _FIVE_MINUTES_NS - MINUTES * _MINUTE_NS
    roots = sorted((span for span in spans if span.parent is None), key=_start_of)
    moved = {
        _trace_id(root): begin + number * MINUTES * _MINUTE_NS // requests - _start_of(root)
        for number, root in enumerate(roots)
    }
    return [_move(span, moved.get(_trace_id(span), 0)) for span in spans]


def _start_of(span: ReadableSpan) -> int:
    return span.start_time or 0


def _trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return context.trace_id if context is not None else 0


def _move(span: ReadableSpan, by_ns: int) -> ReadableSpan:
    moved = {
        name: time_ns + by_ns for name in ("start_time", "end_time") if (time_ns := getattr(span, name)) is not None
    }
    events = [Event(event.name, event.attributes, event.timestamp + by_ns) for event in span.events]
    return ReadableSpan(**fields_of(span) | moved | {"events": events})


SERVICE = "spanscore-demo"
_WAIT_S = 8.0
"""Longest wait for each signal of a backend, in seconds."""

_stretch: ContextVar[str | None] = ContextVar("spanscore_demo_stretch", default=None)
"""Stretch of the roots that start now. It is an attribute of these roots, like an application's release."""


class Tracing:
    """The three providers of the demo, as an application would set them up.

    Args:
        seed: seed of the trace and span ids; the same seed gives the same ids and sampling decisions.
        otlp: base URL of an OTLP/HTTP backend; None = no export.

    Raises:
        ConfigurationError: ``otlp`` is not a URL, or ``OTEL_SDK_DISABLED`` switches tracing off.
    """

    def __init__(self, seed: int, otlp: str | None = None) -> None:
        if sdk_disabled():
            raise ConfigurationError("OTEL_SDK_DISABLED is true, which switches all tracing off; unset it for the demo")
        self._memory = InMemorySpanExporter()
        self.exporters: dict[str, Any] = {}
        if otlp is not None:
            parts = urlsplit(otlp)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise ConfigurationError(
                    f"--otlp is {otlp!r}; it is the base URL of an OTLP/HTTP backend: http://localhost:4318"
                )
            for what in SIGNALS:
                where = f"{otlp.rstrip('/')}/v1/{what}"
                self.exporters[what] = quiet_otlp_exporter(what, where, endpoint=where, timeout=5)
        resource = Resource.create({"service.name": SERVICE})
        self.tracer_provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=SeededIds(seed), shutdown_on_exit=False
        )
        self.tracer_provider.add_span_processor(_MarkStretch())
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._memory))
        readers, logs = [], LoggerProvider(resource=resource, shutdown_on_exit=False)
        if self.exporters:
            self.tracer_provider.add_span_processor(BatchSpanProcessor(self.exporters["traces"]))
            readers = [PeriodicExportingMetricReader(self.exporters["metrics"], export_interval_millis=5_000)]
            logs.add_log_record_processor(BatchLogRecordProcessor(self.exporters["logs"]))
        self.meter_provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self.logger_provider = logs

    def spans(self) -> list[ReadableSpan]:
        """Return the exported spans in the order of their ends."""
        return list(self._memory.get_finished_spans())

    def flush(self) -> None:
        """Export waiting telemetry; waits a limited time for a slow backend."""
        if self.exporters:
            _run_all([provider.force_flush for provider in self._providers()])

    def list_undelivered(self) -> list[str]:
        """Return the signals that are incomplete in the backend; a backend may refuse metrics or events, as Jaeger does."""
        needed = (what for what in self.exporters if what == "traces" or not self.exporters[what].unsupported)
        return [what for what in needed if not self.exporters[what].has_delivered_since(0)]

    def close(self) -> None:
        """Export all waiting items and end, without waiting for a backend that has failed."""
        for exporter in self.exporters.values():
            if exporter.last_ok is False:
                exporter.shutdown()
        _run_all([provider.shutdown for provider in self._providers()])

    def _providers(self) -> tuple[Any, ...]:
        return self.tracer_provider, self.meter_provider, self.logger_provider


class SeededIds(IdGenerator):
    """Generates trace and span ids from a seed.

    Roots start on the application's thread, all other spans on another. A root's span id is drawn from the generator of the
    trace ids, so that the order of the threads makes no difference.
    """

    def __init__(self, seed: int) -> None:
        self._traces, self._spans = random.Random(f"traces/{seed}"), random.Random(f"spans/{seed}")
        self._root = threading.local()

    def generate_trace_id(self) -> int:
        """Return the next trace id."""
        self._root.starts = True
        return self._traces.getrandbits(128) or 1

    def generate_span_id(self) -> int:
        """Return the next span id: a root's if this thread has just drawn a trace id, else a child's."""
        starts, self._root.starts = getattr(self._root, "starts", False), False
        return (self._traces if starts else self._spans).getrandbits(64) or 1


class _MarkStretch(SpanProcessor):
    """Sets the stretch as an attribute of each root."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        stretch = _stretch.get()
        if stretch is not None and span.parent is None:
            span.set_attribute(semconv.DEMO_STRETCH, stretch)


def _run_all(calls: Sequence[Callable[[], object]]) -> None:
    """Run the calls concurrently, and wait for a limited time, because a call to a dead backend takes half a minute."""
    for thread in [start_daemon(_suppress_errors, "spanscore-demo-end", call) for call in calls]:
        if thread is not None:
            thread.join(_WAIT_S)


def _suppress_errors(call: Callable[[], object]) -> None:
    with suppress(Exception):  # the SDK raises on a reader's timeout; the exporter has the reason
        call()


METRICS: Mapping[str, Mapping[str, Any]] = {
    "faithfulness": {"pass_at": 0.7},  # an answer with one unsupported statement of two fails
    "context_relevance": {},
    "response_relevancy": {},
    "topic_adherence": {},
}
"""Metric → its parameters."""
_AGENT_RULE = Rule(rate=1.0, name="every agent turn", when=RuleCondition(workflow=AGENT_NAME))
_ERROR_RULE = Rule(rate=1.0, name="errors", when=RuleCondition(any_error=True))
_REQUESTS_PER_FLUSH = 40
"""Number of requests between two waits for scores. Without these waits the queue would be full, and reject units."""
_FLUSH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of a demo.

    Attributes:
        requests: number of requests, at least 12.
        seed: seed of everything random. The same seed gives the same requests, answers, ids, sampling decisions and scores
            (with the offline model).
        seconds: time over which requests are spread; None = as fast as possible. Then shown and written times are those of live
            traffic (see ``spread``); a backend always gets the real times.
        model: ``provider:name`` of a real model that answers and judges; None = offline.
        rate: share of the chain's runs that is scored, [0, 1]; a rule scores every turn of the agent.
        otlp: base URL of an OTLP/HTTP backend; None = no export.
    """

    requests: int = 240
    seed: int = 7
    seconds: float | None = None
    model: str | None = None
    rate: float = 0.5
    otlp: str | None = None


@dataclass(slots=True)
class Tally:
    """The counts for the progress line. As a sink it counts scores; the demo sets the other fields.

    Attributes:
        asked: number of requests so far.
        stretch: stretch of the present request.
        scored: number of scores with a value so far.
        failing: number of scores that do not pass.
    """

    asked: int = 0
    stretch: str = ""
    scored: int = 0
    failing: int = 0

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Count the scores."""
        self.scored += sum(score.value is not None for score in scores)
        self.failing += sum(score.label == "fail" for score in scores)

    def shutdown(self) -> None:
        """Do nothing: the sink has no resource to release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The results of a demo.

    Attributes:
        asked: number of requests; fewer than planned after an interruption.
        interrupted: whether Ctrl-C ended it.
        spans: all exported spans in the order of their ends; without ``seconds`` their times are moved.
        status: status of the scorer at the end.
        model: display name of the model that answered and judged.
        deliveries: signal → result of the last export to the backend; empty without a backend.
        undelivered: signals that are incomplete in the backend.
    """

    options: DemoOptions
    asked: int
    interrupted: bool
    spans: Sequence[ReadableSpan]
    status: Status
    model: str
    deliveries: dict[str, str]
    undelivered: Sequence[str]


class Demo:
    """The application with its scorer, from set-up to end; a context manager that ends the scorer.

    Raises:
        ConfigurationError: an option is invalid; the message names it.
        MissingExtraError: langchain, or the library of the model, is not installed.
    """

    def __init__(self, options: DemoOptions) -> None:
        _check(options)
        self._options, self._tally = options, Tally()
        # A key in the environment is not permission to spend money; only ``--model`` is.
        name = options.model
        model: BaseChatModel = OfflineModel(seed=options.seed) if name is None else named_model(name)
        self._handbook = Handbook(seed=options.seed)
        self._chain = handbook_chain(model, self._handbook)
        self._agent = ferry_agent(model, self._handbook)
        shared_judge = judge("lexical" if name is None else model)
        metrics = [
            create(metric, judge=shared_judge, embeddings="lexical", **params) for metric, params in METRICS.items()
        ]
        self._tracing = Tracing(options.seed, options.otlp)
        self.scorer = OnlineScorer(
            metrics,
            sampling=Sampling(rate=options.rate, rules=[_AGENT_RULE, _ERROR_RULE]),
            tracer_provider=self._tracing.tracer_provider,
            meter_provider=self._tracing.meter_provider,
            logger_provider=self._tracing.logger_provider,
            capture=Capture(content=True),  # the handbook is not private, and traces without content show little
            outputs=Outputs(sinks=[self._tally]),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.scorer.shutdown()
        self._tracing.close()

    def play(self, watch: Callable[[Tally], None] = lambda _: None) -> Played:
        """Make the requests and wait for their scores. Blocks; Ctrl-C ends it with partial results.

        Args:
            watch: called after each request, on this thread.
        """
        # A demo's traffic must not reach a LangSmith project, whatever the environment is.
        with tracing_context(enabled=False):
            interrupted = self._ask_all(watch)
        self.scorer.flush(_FLUSH_S)
        self._tracing.flush()
        spans = self._tracing.spans()
        return Played(
            options=self._options,
            asked=self._tally.asked,
            interrupted=interrupted,
            spans=spans if self._options.seconds else spread(spans, self._options.requests, time.time_ns()),
            status=self.scorer.status(),
            model=self._options.model or "offline",
            deliveries={signal: exporter.last() for signal, exporter in self._tracing.exporters.items()},
            undelivered=self._tracing.list_undelivered(),
        )

    def _ask_all(self, watch: Callable[[Tally], None]) -> bool:
        """Make the requests. Return whether Ctrl-C ended them."""
        options, tally, started = self._options, self._tally, time.monotonic()
        try:
            for request in requests(options.requests, options.seed):
                tally.stretch = request.stretch
                if options.seconds:
                    due = started + (request.number - 1) * options.seconds / options.requests
                    time.sleep(max(0.0, due - time.monotonic()))
                self._ask(request, {"callbacks": [self.scorer.handler]})
                tally.asked = request.number
                if request.number % _REQUESTS_PER_FLUSH == 0:
                    self.scorer.flush(_FLUSH_S)
                watch(tally)
        except KeyboardInterrupt:
            return True
        return False

    def _ask(self, request: Request, config: RunnableConfig) -> None:
        self._handbook.broken = request.stretch == "during"
        with set_inside(_stretch, request.stretch):
            if request.thread is None:
                self._chain.invoke(request.question, config)
                return
            with references(reference_topics=TOPICS):
                inputs: Any = {"messages": [{"role": "user", "content": request.question}]}
                self._agent.invoke(inputs, {**config, "configurable": {"thread_id": request.thread}})


def _check(options: DemoOptions) -> None:
    if options.requests < LEAST_REQUESTS:
        raise ConfigurationError(f"--requests is {options.requests}; at least {LEAST_REQUESTS} make three stretches")
    if not 0.0 < options.rate <= 1.0:
        raise ConfigurationError(f"--rate is {options.rate:g}; it is above 0 and at most 1")
    if options.seconds is not None and options.seconds <= 0:
        raise ConfigurationError(f"--seconds is {options.seconds:g}; it is above 0")
