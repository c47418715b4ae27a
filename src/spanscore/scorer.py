"""``OnlineScorer``, the object that an application creates: it captures runs, scores a sample of them, and reports on its
units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID
from weakref import finalize, ref

from spanscore import semconv
from spanscore.config.capture import Capture, Extract
from spanscore.config.collect import Collect
from spanscore.config.durable import RemoteScoring, Spool
from spanscore.config.judging import OF_SCORER, Budget, JudgeSettings
from spanscore.config.monitoring import Compare, JudgeCheck, Monitoring
from spanscore.config.outputs import Limits, Outputs
from spanscore.config.sampling import Sampling
from spanscore.config.tree import ScorerSettings
from spanscore.config.units import Sessions, Units
from spanscore.core.context import checked_session
from spanscore.core.log import log_once
from spanscore.core.plugins import Entry
from spanscore.core.sample import Annotation, HumanValue, Sample, UnitId
from spanscore.errors import ConfigurationError
from spanscore.outputs.providers import Providers
from spanscore.protocols import Filter, Metric, Redactor
from spanscore.wiring.build import Pipeline
from spanscore.wiring.feedback import ns_since_1970, text_of, uuid_of, value_of
from spanscore.wiring.lifecycle import EXIT_TIMEOUT_S, Lifecycle, LifetimeToken, export_held_spans
from spanscore.wiring.outputs import spans_file_of
from spanscore.wiring.receiver_set import ReceiverSet

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from spanscore.capture.callback.handler import SpanCallbackHandler
    from spanscore.capture.processor.external_spans import ExternalSpans
    from spanscore.config.sampling import Rule
    from spanscore.monitoring.scrape_endpoint import ScrapeEndpoint
    from spanscore.wiring.from_config import Reload, Reloader
    from spanscore.wiring.preview import Preview
    from spanscore.wiring.status import Status

__all__ = ["OnlineScorer"]


class OnlineScorer:
    """Scores a sampled fraction of live runs, off the request path, and puts the scores onto their spans.

    Attach ``scorer.handler`` per call (``config={"callbacks": [scorer.handler]}``) or per chain (``with_config``), or call
    ``scorer.install()`` once per process.

    The arguments from ``judge`` on are the sections of a configuration file. ``spanscore.config`` has their classes, and
    docs/reference/configuration.md describes each key.

    Args:
        metrics: metrics that score units; at least one, unless ``sessions`` has some. Names are unique.
        sample_rate: share of units that each metric scores, [0, 1]; short for ``Sampling(rate=…)``. None = all units.
        budget: spending limits of judges, ``[Budget(usd=2, per="1h")]``; short for ``JudgeSettings(budget=…)``.
        extract: places of question, answer and contexts, if the usual places do not have them; short for
            ``Capture(extract=…)``.
        redactor: function, or its name (``my_pkg.privacy:redact``), applied to every text before the judge and before export,
            and to the conversation's id. If it fails, the text is not used. Names (of runs, tools, models and error
            classes) and ids of tool calls are exported without it. Called from several threads.
        sample_filter: function of a sample; if it returns false or raises, the unit is not scored (``filtered``).
        feedback_scales: name → the words that ``feedback()`` accepts under it, worst first (``{"user_feedback": ["bad", "ok",
            "good"]}``). A name without a scale accepts True, False and numbers from 0 to 1.
        service_name: service name on spanscore's own providers, if the application has no providers; None =
            ``OTEL_SERVICE_NAME``.
        tracer_provider: tracer provider to use. None = the global provider if it is the SDK's when the first root starts,
            otherwise a private provider that exports OTLP by the ``OTEL_*`` variables. Never replaced, never set globally.
        meter_provider: meter provider to use, with the same default rule as ``tracer_provider``.
        logger_provider: logger provider for events, with the same default rule as ``tracer_provider``.
        judge: budgets, second judges, and whether a call of a judge is a span. Each metric has its own judge model.
        sampling: share of the units that is scored, and rules for units that are scored more often.
        capture: whether and how runs are recorded.
        outputs: destinations of scores, and the time for which spans wait for them.
        limits: limits of queues, concurrency and duration.
        units: instrumentations whose spans are units, and their normalizers.
        sessions: metrics of whole conversations, and the end of a conversation.
        monitoring: attributes by which the sums are divided.
        judge_check: labelled samples that the judges score on a schedule; None = no check.
        compare: attribute that distinguishes releases; sums are kept per value of it. None = no comparison.
        collect: conditions under which units become cases of a data set, with their redacted content, in a file of this
            machine. None = content is written to no file.
        spool: file in which units wait for their scores. Such units outlive the process, and other processes may score them.
        remote_scoring: a ``spanscore serve`` that scores the units sampled here. It gets the units' spans with redacted
            content, and the units end here as ``delegated``; this process calls no judge. None = units are scored here.

    Raises:
        ConfigurationError: an object in ``metrics`` is not a metric, two metrics share a name, or a value is wrong; the message
            names the key.
    """

    def __init__(
        self,
        metrics: Sequence[Metric] = (),
        *,
        sample_rate: float | None = None,
        budget: Sequence[Budget] | None = None,
        extract: Extract | None = None,
        redactor: Redactor | Entry | None = None,
        sample_filter: Filter | None = None,
        feedback_scales: Mapping[str, Sequence[str]] | None = None,
        service_name: str | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        judge: JudgeSettings | None = None,
        sampling: Sampling | None = None,
        capture: Capture | None = None,
        outputs: Outputs | None = None,
        limits: Limits | None = None,
        units: Units | None = None,
        sessions: Sessions | None = None,
        monitoring: Monitoring | None = None,
        judge_check: JudgeCheck | None = None,
        compare: Compare | None = None,
        collect: Collect | None = None,
        spool: Spool | None = None,
        remote_scoring: RemoteScoring | None = None,
    ) -> None:
        settings = ScorerSettings.of(locals())  # ``locals()`` has only the parameters here
        if unread := sorted(settings.judge.model_fields_set - set(OF_SCORER)):
            raise ConfigurationError(
                f"judge.{unread[0]} is for metrics of a file; in Python each metric has its own judge: Faithfulness(judge(…))"
            )
        spans_file = spans_file_of(settings)
        providers = Providers(tracer_provider, meter_provider, logger_provider, service_name, spans_file)
        self._pipeline = Pipeline(metrics, settings, providers)
        self._lifecycle = Lifecycle(self._pipeline)
        self._lifetime = LifetimeToken()
        finalize(self._lifetime, self._lifecycle.end_when_idle).atexit = False
        self._receivers = ReceiverSet(self._pipeline, self._lifecycle, self._lifetime)
        self._reloader: Reloader | None = None
        providers.warm_up()

    @classmethod
    def from_config(cls, path: str | Path, **overrides: Any) -> Self:
        """Make a scorer from a YAML file and ``SPANSCORE_*`` variables; keyword arguments override both.

        The arguments are those of the constructor. A section overrides only the fields that were set in it:
        ``sampling=Sampling(rate=0.2)`` keeps the file's rules. Two short arguments also remove related keys of the file:

        - ``sample_rate`` removes the file's ``rates`` and ``rules``, which would replace or raise the rate.
        - ``metrics`` removes the file's judge, its second judges and the rates of other metrics.

        Args:
            path: the YAML file.
            overrides: arguments of the constructor.

        Raises:
            ConfigurationError: the file is missing, or a key, a value or an override is wrong; the message names each.
        """
        return cls._from_config(path, overrides)

    @classmethod
    def _from_config(cls, path: str | Path, overrides: Mapping[str, Any], *, unready: str = "") -> Self:
        """Make a scorer like ``from_config``. With a text in ``unready``, ``/readyz`` answers 503 with it from the start."""
        from spanscore.wiring.from_config import ConfigFile, Reloader, make_from_file

        file = ConfigFile(path)  # before the file is read: any later change is detected
        scorer, settings = make_from_file(path, overrides, cls)
        scorer._lifecycle.page.unready = unready
        scorer._reloader = Reloader(file, dict(overrides), settings, scorer._pipeline, ref(scorer._receivers))
        if (served := settings.serve_metrics) is not None:
            try:
                scorer.serve_metrics(served.port, served.host)
            except ConfigurationError:
                scorer.shutdown(0)
                raise
        return scorer

    @property
    def handler(self) -> SpanCallbackHandler:
        """The callback to attach, the same instance at every call."""
        return self._receivers.callback().handler

    @property
    def _external_spans(self) -> ExternalSpans:
        """The receiver of every ``ScoringSpanProcessor`` of this scorer."""
        return self._receivers.spans()

    def install(self) -> None:
        """Attach to every chain that starts in the process from now on. Has no effect with ``Capture(enabled=False)``.

        One scorer is installed at a time, and this scorer replaces the previous scorer. The previous scorer records its runs to
        their end and has its units scored. Then it is shut down, unless a ``ScoringSpanProcessor`` also reports to it. A scorer
        that was shut down or replaced cannot be installed again, which is logged.
        """
        installation = self._receivers.installation
        if self._pipeline.closed or (installation is not None and installation.notes()):
            log_once(
                "closed scorer",
                f"install() of {self._pipeline.name} has no effect: the scorer was shut down or replaced",
            )
        elif self._pipeline.settings.capture.enabled:
            self._receivers.callback().install()

    def uninstall(self) -> None:
        """Attach to no further chain."""
        if self._receivers.installation is not None:
            self._receivers.installation.uninstall()

    def trace_id(self, run_id: UUID) -> str | None:
        """Return the trace id (32 hex digits) of a recent root run; None if it is unknown or was not recorded."""
        installation = self._receivers.installation
        trace = None if installation is None else installation.handler.trace_id(run_id)
        return None if trace is None else f"{trace:032x}"

    def unit_id(self, run_id: UUID | str) -> UnitId | None:
        """Return both ids of a run's unit, for the page that shows its answer; None if the unit is unknown.

        The root's run finds its unit while it runs, and then among the last 1,000. A child run finds it until five seconds
        after the unit's end.

        Args:
            run_id: the run's id, from ``collect_runs``, ``astream_events``, a callback or ``config={"run_id": …}``.

        Raises:
            ValueError: the id is not a UUID.
        """
        uuid = uuid_of("run_id", run_id)
        installation = self._receivers.installation
        handler = None if installation is None else installation.handler
        key = None if handler is None else handler.memory.unit_of_run(handler.id_in_context(uuid))
        return None if key is None else UnitId(f"{key.trace_id:032x}", f"{key.span_id:016x}")

    def feedback(
        self,
        trace_id: str | int | None = None,
        value: HumanValue | None = None,
        *,
        name: str = "user_feedback",
        span_id: str | int | None = None,
        annotator: str = semconv.ANNOTATOR_HUMAN,
        comment: str | None = None,
        when: datetime | float | None = None,
        key: str | None = None,
    ) -> bool:
        """Record a person's rating of a unit: as a span under the unit's span, an event, and a count. Does not block. Any
        thread.

        Ids alone are enough: the unit may be unscored, or from another process. An equal call has no effect. Another value
        under the same name by the same annotator is the label's next revision; the latest revision by time is valid.

        Args:
            trace_id: trace id of the unit, 32 hex digits or the number; None with a ``key``.
            value: True, False or a number from 0, worst, to 1; under a name with a scale (``feedback_scales``), one of its
                words.
            name: name of the question that the person answered, in lower snake case, different from every metric's name.
            span_id: id of the unit's span, 16 hex digits or the number; None = the only unit of the trace among the last 10,000
                of this process.
            annotator: name of the person.
            comment: the person's text, which is content and is exported only if content is.
            when: time of the rating, a datetime with a time zone or seconds since 1970; None = now. Pass the time if
                several processes label a unit, to identify equal calls and to order two ratings.
            key: alternative to the ids: the run's ``feedback_key`` in its metadata. If this process has no unit with the key,
                the label is an event with that key.

        Returns:
            Whether the label was accepted. False if the scorer is closed, or if the event queue is full.

        Raises:
            ValueError: an id, the name, the value or the time is invalid, or the unit is unknown without ``span_id``; the
                message lists the allowed values.
        """
        if self._lifecycle.closing.begun:
            return False
        human_label = Annotation(
            name=text_of("name", name),
            value=value_of(value),
            annotator=text_of("annotator", annotator),
            comment=None if comment is None else text_of("comment", comment),
            when_ns=None if when is None else ns_since_1970(when),
            unit=self._receivers.unit_of(trace_id, span_id, key),
            key=None if key is None else text_of("key", key),
        )
        self._lifecycle.ready()
        return self._pipeline.annotation_writer.take(human_label)

    def end_session(self, session_id: str) -> bool:
        """End a conversation. Session metrics score it when its ended turns have arrived. Thread-safe; does not block.

        Its runs that have not ended yet are turns of the next conversation of this id.

        Returns:
            Whether a conversation of this id was open. False if

            - the id is unknown or its conversation has ended; an id of other instrumentations' spans is known a moment after
              their end;
            - the id was forgotten: the oldest ids are, beyond 100,000;
            - the scorer is shut down, or no metric scores conversations.

        Raises:
            TypeError: the id is not a text, or empty.
        """
        session = checked_session(session_id)
        return not self._lifecycle.closing.begun and self._pipeline.sessions.end(session)

    def explain(self, trace_id: str | int) -> list[dict[str, Any]]:
        """Return why a trace was scored or not: an entry for each of its units among the last 1,000 closed, otherwise ``[]``.

        Per metric, an entry has:

        - its own rate (``base``), the rates of the rules that matched, and the rule that applied;
        - R (``randomness``), the T that R was compared with (``threshold_met``), the T of the probability (``threshold``), in
          hex digits, and the head sampler's share (``head_sampling_rate``);
        - the outcome, None until it is known, and the ``reason`` for an outcome without a score, None if there is nothing to
          add.

        Spans of the last 100 units that some metric sampled are kept, 4 MB together. Such a unit also has, when each metric has
        its outcome: its ``spans`` with the normalizer of their scope; ``root``, ``kind``, and ``why`` it is the root; the
        ``parts`` of its sample, each with its span and attribute; and the ``change`` that would alter an outcome.
        `spanscore.explain` returns the same for stored spans. No content. Thread-safe.

        Raises:
            ConfigurationError: ``trace_id`` is neither 32 hex digits nor the number.
        """
        from spanscore.wiring.explained import recent_explained  # imported on first use

        return recent_explained(self._pipeline, trace_id)

    def preview(
        self,
        rules: Sequence[Rule] | None = None,
        *,
        rate: float | None = None,
        rates: Mapping[str, float] | None = None,
    ) -> Preview:
        """Return the number of the last 1,000 closed units that rules and rates would sample; ``print`` it for tables. Calls no
        judge.

        The units keep their random numbers, so the counts are those of a real run. The result has the sampled and the expected
        number by rule and metric, their cost, and ten units by name. A cost is the mean cost per unit of the metric's judge in
        this process; None if the judge was not called. Thread-safe.

        ``unknown`` counts units whose facts for a rule were not kept:

        - rules on scores;
        - rules on metadata that neither ``capture.metadata``, ``monitoring.dimensions`` nor a rule in force names;
        - rules on tools and models, for units that no rate or rule could have sampled, whose child spans were not recorded;
        - all rules, for units of other instrumentations that sampling excluded when they began.

        Units that were submitted for scoring, or came from another process, are not among the 1,000.

        Args:
            rules: rules to preview; None = the rules in force; ``[]`` = no rules.
            rate: rate of every metric; None = the rates in force.
            rates: metric → its own rate, which overrides ``rate``.

        Raises:
            ConfigurationError: a rate is outside [0, 1] or for an unknown metric, or an object in ``rules`` is not a rule.
        """
        from spanscore.wiring.preview import recent_preview  # imported on first use

        return recent_preview(self._pipeline, rules, rate, rates)

    def serve_metrics(self, port: int = 9464, host: str = "127.0.0.1") -> int:
        """Serve the instruments to Prometheus until the scorer is shut down, with exemplars that lead to the scored traces.

        The instruments also go to the application's meter provider or to OTLP. Call this method at the start: counters are
        complete at any time, but histograms count from this call on. A forked child does not serve, but may call this again
        with another port. Needs the extra ``prometheus``. Blocks for some 100 ms, for imports.

        Args:
            port: TCP port; 0 = any free port.
            host: the address to listen on; the default is reachable only from this machine. Use ``"0.0.0.0"`` in a pod or
                container.

        Returns:
            The port. The page is ``http://<host>:<port>/metrics``.

        Raises:
            ConfigurationError: the address cannot be opened, or the scorer serves already, is shut down, or has no instruments.
        """
        models = self._receivers.models
        return self._lifecycle.page.serve([] if models is None else [models], port=port, host=host)

    @property
    def metrics_endpoint(self) -> ScrapeEndpoint | None:
        """The page that ``serve_metrics`` serves; None if it does not serve."""
        return self._lifecycle.page.endpoint

    def reload(self, path: str | Path | None = None) -> Reload:
        """Read the configuration file again, and apply changed rates, rules, metrics, judges, budgets and alerts. Blocks.

        Units that are open keep the metrics, judges and rates of their start; budgets apply to all units immediately. The
        overrides of ``from_config`` stay in force. Keys that need a restart are named in the result and have no effect yet.
        Reading and making judges takes some 100 ms on the caller's thread. Thread-safe.

        Args:
            path: another file, which replaces the present one; None = the file that was read before.

        Raises:
            ConfigurationError: a key or a value is wrong, the scorer was not made by ``from_config``, or it is shut down. The
                message is one line, and nothing has changed.
        """
        if self._reloader is None:
            raise ConfigurationError(
                "reload() reads a file again, and this scorer has none: make it by OnlineScorer.from_config(path)"
            )
        if self._lifecycle.closing.begun:
            raise ConfigurationError("the scorer is shut down, so reload() has no effect: make another scorer")
        return self._reloader.reload(path)

    def start_workers(self) -> None:
        """Start to score jobs of other processes from a spool, before this process has a unit."""
        if not self._lifecycle.closing.begun:
            self._lifecycle.ready()
            self._pipeline.engine.begin()

    def submit(self, item: Sample, /, *, apply_sampling: bool = False) -> str | None:
        """Score a hand-made sample on the current span, or else on a new span. Does not block.

        The sample is copied, and may be edited after the call. A second sample under the same span gets a new child span,
        because a span has one score per metric.

        Args:
            item: the sample.
            apply_sampling: whether the sampling rates apply; otherwise every metric scores it, with probability 1.

        Returns:
            The trace id, 32 hex digits; None if the sample was rejected (counted as ``event_queue_full`` or
            ``trace_not_sampled``).
        """
        if self._lifecycle.closing.begun:
            return None
        self._lifecycle.ready()
        return self._receivers.submitted.submit(item, sampled=apply_sampling)

    def status(self) -> Status:
        """Return the scorer's counts, queues and judges at this moment; ``print`` it for a small table."""
        from spanscore.wiring.status import status_of  # imported on first use

        return status_of(
            self._pipeline, self._receivers, self._lifecycle, None if self._reloader is None else self._reloader.state
        )

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until every ended unit is scored and its spans are exported; later units do not delay it. Blocks.

        Args:
            timeout: seconds.

        Returns:
            True if all these units are scored, and spanscore's own provider, if in use, has exported their spans. A failed
            export to the default endpoint, if it was not configured, is ignored if ``spans_to`` has the spans, and for metrics
            that are scraped.
        """
        return self._lifecycle.flush(timeout)

    def shutdown(self, timeout: float = EXIT_TIMEOUT_S) -> bool:
        """Export the held spans, finish open evaluations, and settle unfinished ones as ``shutdown``. Blocks for at most
        ``timeout`` seconds.

        Running roots end here as ``abandoned`` and are not scored, because the exporter would be closed at their end. Only
        spanscore's own providers are shut down. A second call, even on another thread, waits for the first call and returns its
        result.

        Remaining threads are daemons and delay no exit: ``spanscore-loop``, one for all scorers of the process, and
        ``spanscore-judge-…``. Each ends after 30 idle seconds. A metric or hook that hangs keeps its thread.

        Returns:
            Whether every ended unit was scored and exported.
        """
        self.uninstall()
        return self._lifecycle.shutdown(timeout)

    def export_held_spans(self, timeout: float = 2.0) -> None:
        """Export the spans that wait for their scores now, as ``pending``. Blocks for ``timeout`` seconds at most."""
        if not self._lifecycle.closing.begun:
            export_held_spans(self._pipeline, self._external_spans.finish_ended, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.flush()
        self.shutdown()


def pipeline_of(scorer: OnlineScorer) -> Pipeline:
    """Return the parts of a scorer, for sources of units and for tests of parts. Not public; may change without notice."""
    return scorer._pipeline


def reloader_of(scorer: OnlineScorer) -> Reloader | None:
    """Return the reloader of a scorer; None if it was not made from a file. Not public; may change without notice."""
    return scorer._reloader


def receivers_of(scorer: OnlineScorer) -> ReceiverSet:
    """Return the receivers of a scorer, for sources of units and for tests of parts. Not public; may change without notice."""
    return scorer._receivers
