"""OnlineScorer: what a user holds. Everything behind it is made by ``line/build.py`` and runs on two threads of our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import finalize

from spanscore.by_id import UnitsById
from spanscore.dialects.extract import Extract
from spanscore.doors import Doors
from spanscore.errors import ConfigurationError
from spanscore.line.build import Line
from spanscore.line.drain import export_held_spans
from spanscore.line.exit import EXIT_TIMEOUT_S
from spanscore.line.life import Holder, Life
from spanscore.line.options import Options
from spanscore.line.spans_file import spans_file_of
from spanscore.model.sample import Sample
from spanscore.model.span import UNIT_KINDS, UnitKind
from spanscore.otel.providers import Providers
from spanscore.protocols import Filter, Metric, Queue, Redactor, SampleExtractor, Sink, SpanNormalizer
from spanscore.receivers.callback.neighbours import neighbours
from spanscore.runs_taken import RunsTaken
from spanscore.runtime.fork import reset_in_child
from spanscore.runtime.plugins import Entry
from spanscore.sampling.rules import Rule
from spanscore.settings.budget import Budget
from spanscore.settings.collect import Collect
from spanscore.settings.compare import Compare
from spanscore.settings.feedback import FeedbackSampling
from spanscore.settings.judge_check import JudgeCheck
from spanscore.settings.remote_scoring import RemoteScoring
from spanscore.settings.sessions import Sessions
from spanscore.settings.spool import Spool

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from spanscore.line.status import Status
    from spanscore.monitoring.openmetrics import ScrapeEndpoint

__all__ = ["OnlineScorer"]


class OnlineScorer(RunsTaken, UnitsById):
    """Scores a sampled fraction of live runs, off the request path, and puts the scores onto their spans.

    Attach ``scorer.handler`` per call (``config={"callbacks": [scorer.handler]}``) or per chain (``with_config``), or call
    ``scorer.install()`` once per process.

    Args:
        metrics: what scores units; at least one, and no two with the same name.
        sample_rate: share of units that each metric scores, [0, 1].
        rates: metric name → a share of its own.
        rules: raise the share for matching units; the largest matching rate wins.
        sampling_key: of the sampling hash, at most 64 bytes; None = a published one, so that replicas agree.
        head_sampling_rate: share of the traffic that comes here at all, (0, 1], for traces whose head sampler does not write
            it on them (``ot=th``): a scored unit stands for the dropped ones, too. Or shares by ``service.name`` of the
            unit's resource, and of every other service: ``{by_service: {search: 0.1}, default: 1}``, a dict.
        feedback_sampling: ``FeedbackSampling(rate=0.5)``: that share of units is kept for a while, and a unit is judged where
            ``feedback()`` says that it was no good. These scores are a source of their own, ``feedback``, and in no mean.
        budget: what judges may be paid, ``[Budget(usd=2, per="1h")]``, several at once: the rates are lowered so that it lasts.
        replica_share: of every budget, this process's, (0, 1]: 0.25 for one of four replicas.
        trace_judges: whether each call of a judge is a span of the scope ``spanscore.judge``: in a trace of its score, whose id
            is ``spanscore.score.id``, linked to the evaluation span; with prompt and answer only by ``capture_content``.
        shadows: metrics of the same names with another judge or prompt. Each scores the units of its namesake, beside it, on
            evaluation spans of its own and in the source ``shadow``, which is in no mean, alert or unit's span; ``status()``
            compares them. Only ``flush`` and ``shutdown`` wait for it.
        shadow_budget: what their judges may be paid, counted apart; None = as much again as ``budget``.
        judge_check: labelled samples that the judges are asked about on a schedule: whether they have changed; None = none.
        session_metrics: metrics that score whole conversations, once each, when they have ended: those that take a
            ``MultiTurnSample``. Their rates are shares of conversations, which no rule raises: all turns of one are gathered,
            or none. A conversation is the runs of one ``spanscore.session``, or whose metadata name one ``thread_id``,
            ``session_id`` or ``conversation_id``. With them, ``metrics`` may be empty.
        sessions: when a conversation ends, and how much of those that go on is kept; None = the defaults.
        service_name: the service, on our own providers, where the application has none; None = ``OTEL_SERVICE_NAME``.
        tracer_provider: used instead of the global one. None = the global one if it is an SDK provider when the first root
            starts, else a private one that exports OTLP by the ``OTEL_*`` variables. Never replaced, never set globally.
        meter_provider: likewise for metrics.
        logger_provider: likewise for events.
        capture: whether runs are recorded. False, for an application that another instrumentation traces already:
            ``handler`` and ``install()`` then do nothing, ``submit()`` still scores.
        capture_content: whether prompts, answers and documents are exported; None = by
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, and so not by default. Scoring works either way.
        capture_metadata: keys of a root run's metadata that are exported on its span, as ``spanscore.metadata.<key>``; texts,
            numbers and booleans, texts redacted. By them whoever reads the spans again (``spanscore serve``, ``replay``)
            decides by rules on metadata, and tells dimensions apart, as here. What others trace has its metadata on it.
        capture_metrics: whether tokens and durations of the application's model runs are emitted as histograms
            (``gen_ai.client.token.usage``, ``gen_ai.client.operation.duration``). They are of runs and not of scores, so
            ``outputs`` has no say in it; without ``capture`` there are none. Off where another instrumentation emits them, and
            under a head sampler that drops runs, which would be missing: decided when the first run starts; ``status()`` tells.
        capture_context: whether the span of a tool is OpenTelemetry's current one while the tool runs: spans that the tool
            makes (a database, HTTP) become its children. Attributes that it sets on the current span are lost.
        all_runs: whether prompts, parsers and lambdas get spans too.
        score_abandoned: whether the partial answer of a stream that its reader left is scored; else it is ``no_sample``.
        score_failed: whether a run that failed is scored where its model had answered; else it is ``no_sample``.
        extract: where question, answer and contexts are found, when the usual places do not have them.
        redactor: applied to every text before the judge and before export, and to the conversation's id; fails closed. Names
            (of runs, tools, models and error classes) and the ids of tool calls are exported as they are. Called from
            several threads. A configuration file names one: ``my_pkg.privacy:redact``, a function, or a class with parameters.
        sample_filter: samples for which it is false are not scored (``filtered``).
        outputs: the places where scores land, each switchable: ``span``, ``evaluation_span``, ``event``, ``instruments``.
        sinks: sinks of your own, beside those of ``outputs``; called on spanscore's span thread. Each is a ``Sink``, its name
            (``"my_pkg:MySink"``), or the name with parameters (``{"my_pkg:MySink": {"path": "scores.jsonl"}}``). One that takes
            ``content`` is told whether explanations, which quote prompts and answers, may leave.
        dialects: dialects of your own, likewise: they are asked before the built-in ones whether they read a unit, which is
            by its root. One that takes ``extract`` is given it.
        queue: where units wait for their scores, likewise; of this scorer alone. ``"memory"`` is the built-in one.
        remote_scoring: a ``spanscore serve`` that scores what is taken here: its spans go there with their content, redacted,
            and end here as ``delegated``; no judge is asked in this process. None = units are scored here.
        spool: a file in which units wait for their scores instead: they outlive the process, and others may score them.
        collect: units whose scores fail become cases of a data set, with their content, redacted, in a file of this machine.
            None = content is written to no file.
        spans_to: a file that gets the spans of scored applications with their scores, as OTLP-JSON lines, as well as the
            tracer provider: ``spanscore report``, ``compare``, ``preview`` and ``collect`` read it. It holds prompts and
            answers only with ``capture_content``; its owner alone may read it. At 50 MB it becomes ``<name>.1``, in the place
            of the one before. A span that cannot be written is counted in ``status()``. None = no file.
        hold: seconds for which a unit's spans wait for their scores after its end; None = 10 for a trace's root, else 4.
        timeout: seconds of work for one metric on one sample. It stands still while all its questions wait to be sent.
        hook_timeout: seconds for one call of ``redactor``, ``sample_filter``, a function of ``extract`` or one of ``dialects``.
            A unit for which one does not return is ``redaction_error``, ``metric_error`` or ``no_sample``, and holds up no
            other; while four calls of one hang, those after them fail at once. With ``capture_content``, where spans wait for
            the redactor, one that hangs costs them its deadline, at most once a minute: until it returns they leave without
            any.
        workers: units at once of which something computes; and scores at once of a metric that awaits a service of its own.
        queue_size: units waiting or being scored; more are ``queue_full``. One judge among others holds three quarters at most.
        queue_bytes: of their content, roughly; more are ``queue_full`` too.
        event_queue_size: events waiting; past it new units are ``event_queue_full``; past four times it events are lost, units
            ``incomplete``.
        event_queue_bytes: of their content, roughly, likewise.
        feedback_scales: name → the words that ``feedback()`` takes under it, worst first
            (``{"user_feedback": ["bad", "ok", "good"]}``). Under a name without a scale it takes True, False and numbers from 0
            to 1.
        compare: what tells two releases apart (``Compare(by="service.version")``): the sums are kept per value, and
            ``spanscore compare`` says whether one is worse; None = nothing is compared.
        dimensions: metadata or attribute key → the values that the sums tell apart (``{"user_tier": ["gold", "free"]}``); every
            other value is ``other``. Listed values only: a label must never hold what users type.
        scopes: beginnings of further instrumentation scopes whose spans a ``ScoringSpanProcessor`` claims. Of other scopes it
            claims the spans that have GenAI attributes.
        ignore_scopes: beginnings of scopes whose spans it leaves alone, whatever their attributes are.
        kinds: kinds of units that are scored: ``workflow``, ``agent``, and ``chat``, which is a model called alone, also by
            a tool in a thread of its own. Units of other kinds are ``filtered``.
        translations: of your own, which put spans of a library that nobody knows into GenAI names; likewise. They are asked
            before the built-in ones, on spanscore's span thread.

    Raises:
        ConfigurationError: a metric is none, two share a name, or a rate is outside [0, 1].
    """

    def __init__(
        self,
        metrics: Sequence[Metric] = (),
        *,
        sample_rate: float = 1.0,
        rates: Mapping[str, float] | None = None,
        rules: Sequence[Rule] = (),
        sampling_key: bytes | None = None,
        head_sampling_rate: float | Mapping[str, Any] = 1.0,
        feedback_sampling: FeedbackSampling | None = None,
        budget: Sequence[Budget] = (),
        replica_share: float = 1.0,
        trace_judges: bool = False,
        shadows: Sequence[Metric] = (),
        shadow_budget: Sequence[Budget] | None = None,
        judge_check: JudgeCheck | None = None,
        session_metrics: Sequence[Metric] = (),
        sessions: Sessions | None = None,
        service_name: str | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        capture: bool = True,
        capture_content: bool | None = None,
        capture_metadata: Sequence[str] = (),
        capture_metrics: bool = True,
        capture_context: bool = False,
        all_runs: bool = False,
        score_abandoned: bool = False,
        score_failed: bool = False,
        extract: Extract | None = None,
        redactor: Redactor | None = None,
        sample_filter: Filter | None = None,
        outputs: Sequence[str] = ("span", "evaluation_span", "event", "instruments"),
        sinks: Sequence[Sink | Entry] = (),
        dialects: Sequence[SampleExtractor | Entry] = (),
        queue: Queue | Entry = "memory",
        remote_scoring: RemoteScoring | None = None,
        spool: Spool | None = None,
        collect: Collect | None = None,
        spans_to: str | Path | None = None,
        hold: float | None = None,
        timeout: float = 180.0,
        hook_timeout: float = 1.0,
        workers: int = 32,
        queue_size: int = 1_000,
        queue_bytes: int = 256_000_000,
        event_queue_size: int = 10_000,
        event_queue_bytes: int = 64_000_000,
        feedback_scales: Mapping[str, Sequence[str]] | None = None,
        compare: Compare | None = None,
        dimensions: Mapping[str, Sequence[str]] | None = None,
        scopes: Sequence[str] = (),
        ignore_scopes: Sequence[str] = (),
        kinds: Sequence[UnitKind] = UNIT_KINDS,
        translations: Sequence[SpanNormalizer | Entry] = (),
    ) -> None:
        options = Options.of(locals())  # the parameters: nothing else has a name yet
        self._providers = Providers(
            tracer_provider, meter_provider, logger_provider, service_name, spans_file_of(options)
        )
        self._line = Line(metrics, options, self._providers)
        self._life = Life(self._line, self._providers)
        self._closing, self._page, self._ready = self._life.closing, self._life.page, self._life.ready
        self._holder = Holder()
        finalize(self._holder, self._life.end_when_idle).atexit = False
        self._doors = Doors(self._line, ready=self._life.ready, end=self._life.end_when_idle, holder=self._holder)
        reset_in_child(self._doors, Doors.reset)
        self._providers.warm_up()

    @classmethod
    def from_config(cls, path: str | Path, **overrides: Any) -> Self:
        """Make a scorer from a YAML file and ``SPANSCORE_*`` variables; keyword arguments override both.

        They are those of the constructor, and what is overridden is in force as if the file said nothing of it:
        ``sample_rate`` also puts the file's ``rates`` and ``rules`` out of force, which would replace or raise it, ``rates``
        the ``rules``, ``extract`` the three places, ``outputs`` all four, and ``metrics`` judge, shadows and the others' rates.
        To have the file's rules beside a rate of your own, give them too.

        Raises:
            ConfigurationError: the file is missing, or a key, a value or an override is wrong; the message names each.
        """
        return cls._from_config(path, overrides)

    @classmethod
    def _from_config(cls, path: str | Path, overrides: Mapping[str, Any], *, unready: str = "") -> Self:
        """As ``from_config``; ``/readyz`` answers 503 with the text of ``unready`` from its first request on."""
        from spanscore.line.configuration import made_from

        scorer, served = made_from(path, overrides, cls)
        scorer._page.unready = unready
        if served is not None:
            try:
                scorer.serve_metrics(served.port, served.host)
            except ConfigurationError:
                scorer.shutdown(0)
                raise
        return scorer

    def serve_metrics(self, port: int = 9464, host: str = "127.0.0.1") -> int:
        """Serve the instruments to a Prometheus, with exemplars that lead to the scored traces, until the scorer is shut down.

        They go to the application's meter provider or by OTLP as well. To be called at the start: counters are whole
        whenever they are first read, histograms count from this call on. A forked child does not serve; it may call this
        again, with a port of its own. Needs the extra ``prometheus``. Blocks for some 100 ms, for imports.

        Args:
            port: 0 = any free one.
            host: the address to listen on; reachable from this machine only by default. In a pod or container ``"0.0.0.0"``.

        Returns:
            The port. The page is ``http://<host>:<port>/metrics``.

        Raises:
            ConfigurationError: nothing can listen there, it serves already, it is shut down, or it has no instruments.
        """
        models = self._doors.models
        return self._page.serve([] if models is None else [models], port=port, host=host)

    @property
    def metrics_endpoint(self) -> ScrapeEndpoint | None:
        """The page that ``serve_metrics`` serves; None where none is served."""
        return self._page.endpoint

    def start_workers(self) -> None:
        """Score what others have handed over, with a spool, without waiting for a unit of this process."""
        if not self._closing.begun:
            self._ready()
            self._line.engine.begin()

    def submit(self, item: Sample, /, *, apply_sampling: bool = False) -> str | None:
        """Score a hand-made sample on the current span, or on a span of its own where there is none. Does not block.

        The sample is taken by value: it may be edited once this has returned. A second sample under the same span gets a span
        of its own, as its child: a span holds one score per metric.

        Args:
            item: the sample.
            apply_sampling: whether the sampling rates apply; else every metric scores it, with probability 1.

        Returns:
            The trace id, 32 hex digits; None when it was turned away (counted as ``event_queue_full`` or
            ``trace_not_sampled``).
        """
        if self._closing.begun:
            return None
        self._ready()
        return self._doors.submitted.submit(item, sampled=apply_sampling)

    def status(self) -> Status:
        """Return what is going on; ``print`` it for a small table."""
        from spanscore.line.taking_stock import status_of  # not for those who never look

        return status_of(
            self._line,
            units=self._doors.units,
            providers=[row.served(self._page.url) for row in self._providers.describe()],
            closed=self._closing.begun,
            neighbours=neighbours(),
            overflowed=0 if self._doors.models is None else self._doors.models.overflowed,
            received=None if self._doors.otlp is None else self._doors.otlp.received(),
            replay=self._doors.replayed(),
            notes=[*self._doors.notes(), *self._providers.notes(self._page.endpoint)],
        )

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until every unit whose root has ended is scored and its spans are out; later ones do not delay it. Blocks.

        Returns:
            True only if that is so; with a provider of our own: and they were exported. The default endpoint, which nobody
            chose, need not be there if ``spans_to`` has the spans, or for metrics that are scraped.
        """
        return self._life.flush(timeout)

    def shutdown(self, timeout: float = EXIT_TIMEOUT_S) -> bool:
        """Release the held spans, finish what is being scored, settle the rest as ``shutdown``. Blocks for at most ``timeout``.

        Runs that go on are ended here, as ``abandoned`` and not scored: a later end might never be told, and would find an
        exporter of our own closed. Only providers of our own are shut down. Called again, also from another thread, it waits
        for the first call and returns the same.

        Threads that stay, all daemons that hold up no exit: ``spanscore-loop``, one for all scorers of the process, and
        ``spanscore-judge-…``, each until it had nothing to do for 30 seconds. A metric or a hook that hangs keeps its thread.

        Returns:
            Whether every unit that had ended was scored and is out.
        """
        self.uninstall()
        return self._life.shutdown(timeout)

    def export_held_spans(self, timeout: float = 2.0) -> None:
        """Let the spans that wait for their scores leave now, as ``pending``. Blocks for ``timeout`` at most."""
        if not self._closing.begun:
            export_held_spans(self._line, self._external_spans.finish_ended, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.flush()
        self.shutdown()

    def reset(self) -> None:
        """Be as new: in a forked child, where this is done by itself. What was shut down before the fork stays so."""
        self._doors.reset()
        self._life.reset()
