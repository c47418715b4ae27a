"""OnlineScorer: what an application creates; it captures runs, scores a sample of them, and answers questions on units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID
from weakref import finalize

from spanscore import semconv
from spanscore.capture.callback.model_metrics import neighbours
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
from spanscore.wiring.feedback import seconds_since_1970_ns, text_of, uuid_of, value_of
from spanscore.wiring.lifecycle import EXIT_TIMEOUT_S, Holder, Lifecycle, export_held_spans
from spanscore.wiring.outputs import spans_file_of
from spanscore.wiring.receiver_set import ReceiverSet

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from spanscore.capture.callback.handler import SpanCallbackHandler
    from spanscore.capture.otlp.spans import OtlpSpans
    from spanscore.capture.processor.external_spans import ExternalSpans
    from spanscore.capture.stored import StoredUnits
    from spanscore.config.sampling import Rule
    from spanscore.monitoring.openmetrics import ScrapeEndpoint
    from spanscore.wiring.preview import Preview
    from spanscore.wiring.status import Status

__all__ = ["OnlineScorer"]


class OnlineScorer:
    """Scores a sampled fraction of live runs, off the request path, and puts the scores onto their spans.

    Attach ``scorer.handler`` per call (``config={"callbacks": [scorer.handler]}``) or per chain (``with_config``), or call
    ``scorer.install()`` once per process.

    The arguments from ``judge`` on are the sections of a configuration file; ``spanscore.config`` has their classes, and
    docs/reference/configuration.md says what each key means.

    Args:
        metrics: what scores units; at least one, unless ``sessions`` has some, and no two with the same name.
        sample_rate: share of units that each metric scores, [0, 1]; short for ``Sampling(rate=…)``. None = all.
        budget: what judges may be paid, ``[Budget(usd=2, per="1h")]``; short for ``JudgeSettings(budget=…)``.
        extract: where question, answer and contexts are found, if the usual places do not have them; short for
            ``Capture(extract=…)``.
        redactor: applied to every text before the judge and before export, and to the conversation's id; fails closed. Names
            (of runs, tools, models and error classes) and the ids of tool calls are exported as they are. Called from
            several threads. A function, or its name: ``my_pkg.privacy:redact``.
        sample_filter: samples for which it is false are not scored (``filtered``).
        feedback_scales: name → the words that ``feedback()`` takes under it, worst first
            (``{"user_feedback": ["bad", "ok", "good"]}``). Under a name without a scale it takes True, False and numbers from 0
            to 1.
        service_name: the service, on our own providers, where the application has none; None = ``OTEL_SERVICE_NAME``.
        tracer_provider: used instead of the global one. None = the global one if it is an SDK provider when the first root
            starts, else a private one that exports OTLP by the ``OTEL_*`` variables. Never replaced, never set globally.
        meter_provider: the same for metrics.
        logger_provider: the same for events.
        judge: budgets, second judges, and whether a call of a judge is a span. Its model is the metrics' own.
        sampling: which share of the units is scored, and which are scored more often.
        capture: whether and how runs are recorded.
        outputs: where scores land, and how long spans wait for them.
        limits: how much waits, works and takes at most.
        units: whose spans are units, and who reads them.
        sessions: the metrics of whole conversations, and when a conversation ends.
        monitoring: what the sums are told apart by.
        judge_check: labelled samples that the judges are asked about on a schedule; None = none.
        compare: what tells two releases apart: the sums are kept per value of it; None = nothing is compared.
        collect: units whose scores fail become cases of a data set, with their content, redacted, in a file of this machine.
            None = content is written to no file.
        spool: a file in which units wait for their scores: they outlive the process, and others may score them.
        remote_scoring: a ``spanscore serve`` that scores what is taken here: its spans go there with their content, redacted,
            and end here as ``delegated``; no judge is asked in this process. None = units are scored here.

    Raises:
        ConfigurationError: a metric is none, two share a name, or a value is wrong; the message names the key.
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
        settings = ScorerSettings.of(locals())  # the parameters: nothing else has a name yet
        if unread := sorted(settings.judge.model_fields_set - set(OF_SCORER)):
            raise ConfigurationError(
                f"judge.{unread[0]} is for metrics that a file names; here each metric has its judge: Faithfulness(judge(…))"
            )
        self._providers = Providers(
            tracer_provider, meter_provider, logger_provider, service_name, spans_file_of(settings)
        )
        self._line = Pipeline(metrics, settings, self._providers)
        self._life = Lifecycle(self._line, self._providers)
        self._ready = self._life.ready
        self._holder = Holder()
        finalize(self._holder, self._life.end_when_idle).atexit = False
        self._doors = ReceiverSet(self._line, ready=self._life.ready, end=self._life.end_when_idle, holder=self._holder)
        self._providers.warm_up()

    @classmethod
    def from_config(cls, path: str | Path, **overrides: Any) -> Self:
        """Make a scorer from a YAML file and ``SPANSCORE_*`` variables; keyword arguments override both.

        The arguments are those of the constructor. A section replaces the fields that were set in it, the rest is the file's:
        ``sampling=Sampling(rate=0.2)`` leaves the file's rules in force. ``sample_rate=0.2`` puts its ``rates`` and ``rules``
        out of force, which would replace or raise it, and ``metrics`` its judge, second judges and the others' rates.

        Raises:
            ConfigurationError: the file is missing, or a key, a value or an override is wrong; the message names each.
        """
        return cls._from_config(path, overrides)

    @classmethod
    def _from_config(cls, path: str | Path, overrides: Mapping[str, Any], *, unready: str = "") -> Self:
        """As ``from_config``; ``/readyz`` answers 503 with the text of ``unready`` from its first request on."""

        from spanscore.wiring.from_config import make_from_file

        scorer, served = make_from_file(path, overrides, cls)
        scorer._life.page.unready = unready
        if served is not None:
            try:
                scorer.serve_metrics(served.port, served.host)
            except ConfigurationError:
                scorer.shutdown(0)
                raise
        return scorer

    @property
    def handler(self) -> SpanCallbackHandler:
        """The callback to attach; one instance for everything."""
        return self._doors.attached().handler

    @property
    def _external_spans(self) -> ExternalSpans:
        """What every ``ScoringSpanProcessor`` of this scorer reports to."""
        return self._doors.spans()

    def _otlp_spans(self, units: Units) -> OtlpSpans:
        """Return what takes spans that arrive over the wire; made by the first call, whose ``units`` it has for good."""
        return self._doors.otlp_spans(units)

    def _stored_units(self) -> StoredUnits:
        """Return what takes whole units that were read from a store, one object for good."""
        return self._doors.stored_units()

    def install(self) -> None:
        """Attach to every chain of the process that starts from now on. Does nothing with ``capture=False``.

        One scorer is installed at a time. This one takes over from a scorer that was installed before: that one records runs
        under way to their end, has its units scored, and is shut down, unless a ``ScoringSpanProcessor`` reports to it, too.
        A scorer that was shut down, or taken over from, cannot be installed again: this is logged.
        """
        if self._line.closed:
            log_once(
                "closed scorer", f"install() of {self._line.name} does nothing: it was shut down, or taken over from"
            )
        elif self._line.settings.capture.enabled:
            self._doors.attached().installation.install()

    def uninstall(self) -> None:
        """Attach to no further chain."""
        if self._doors.attachment is not None:
            self._doors.attachment.installation.uninstall()

    def trace_id(self, run_id: UUID) -> str | None:
        """Return the trace id (32 hex digits) of a recent root run; None when it is unknown or was not recorded."""
        attachment = self._doors.attachment
        known = None if attachment is None else attachment.handler.trace_id(run_id)
        return None if known is None else f"{known:032x}"

    def unit_id(self, run_id: UUID | str) -> UnitId | None:
        """Return both ids of the unit that a run is of, for the page that shows its answer; None when it is not known.

        By its root's run a unit is known while it runs, and then as one of the last 1,000; by any other run of it until five
        seconds after its end.

        Args:
            run_id: as ``collect_runs``, ``astream_events``, a callback or ``config={"run_id": …}`` have it.

        Raises:
            ValueError: it is no UUID.
        """
        asked = uuid_of("run_id", run_id)
        attachment = self._doors.attachment
        key = None if attachment is None else attachment.handler.memory.unit(attachment.handler.id_here(asked))
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
        """Say what a person thought of a unit: a span under the unit's, an event, and a count. Does not block. Any thread.

        Ids alone are enough: the unit need not have been scored, nor have run in this process. The same call again says
        nothing new; another value under the same name by the same annotator is the label's next revision, and the last by time
        is the one that holds.

        Args:
            trace_id: of the unit, 32 hex digits or the number; None with a ``key``.
            value: True, False or a number from 0, worst, to 1; under a name with a scale (``feedback_scales``), one of its
                words.
            name: of the question that was answered, in lower snake case, and no metric's.
            span_id: of the unit's span, 16 hex digits or the number; None = the one unit of the trace that this process knows,
                of the last 10,000.
            annotator: who said so.
            comment: content: exported only where content is.
            when: it was said, a datetime with a time zone or seconds since 1970; None = now. To be given where a unit is
                labelled from several processes: by it equal calls are known, and which of two votes is the last.
            key: in place of the ids: what the run's metadata have as ``feedback_key``. Of no unit that this process knows, the
                label is an event with that key.

        Returns:
            Whether it was taken; not when the scorer is closed, or has no room for more at the moment.

        Raises:
            ValueError: an id, the name, the value or the time is none, or without ``span_id`` the unit is not known; the
                message says what is allowed.
        """
        if self._life.closing.begun:
            return False
        label = Annotation(
            name=text_of("name", name),
            value=value_of(value),
            annotator=text_of("annotator", annotator),
            comment=None if comment is None else text_of("comment", comment),
            when_ns=None if when is None else seconds_since_1970_ns(when),
            unit=self._doors.unit_of(trace_id, span_id, key),
            key=None if key is None else text_of("key", key),
        )
        return self._doors.label(label)

    def end_session(self, session_id: str) -> bool:
        """End a conversation: its session metrics score it when the turns that have ended are in. Does not block; any thread.

        Runs of it that have not ended by now are turns of what comes after.

        Returns:
            Whether one of this id was open. False where it is unknown, has ended, was forgotten (of more than ten times
            ``Sessions.max_open`` the oldest is), the scorer is shut down, or no metric scores conversations. Of spans that
            others make the id is known a moment after they have ended.

        Raises:
            TypeError: the id is no text, or an empty one.
        """
        known = checked_session(session_id)
        return not self._life.closing.begun and self._line.sessions.end(known)

    def explain(self, trace_id: str | int) -> list[dict[str, Any]]:
        """Return why a trace was scored or not: an entry for each of its units among the last 1,000 closed, else ``[]``.

        Per metric: its own rate (``base``) and those of the rules that matched, the rule that won, R (``randomness``), the T
        that it met, the T of the probability (hex digits), upstream's probability, the outcome, None until it is there, and why
        it is no score (``reason``), None where it is one or says all.

        A unit whose spans are still there (of the last 100 that some metric took, 4 MB together) also has, when each metric has
        its outcome: its ``spans`` with the translation whose scope they have, ``root``, ``kind``, ``why`` that is the root,
        ``parts`` of its sample with the span and attribute that each came from, and what would ``change`` an outcome
        (`spanscore.explain` returns the same of stored spans). No content. Any thread.

        Raises:
            ConfigurationError: ``trace_id`` is neither 32 hex digits nor the number.
        """
        from spanscore.wiring.explained import recent_explained  # not for applications that never look

        return recent_explained(self._line, trace_id)

    def preview(
        self,
        rules: Sequence[Rule] | None = None,
        *,
        rate: float | None = None,
        rates: Mapping[str, float] | None = None,
    ) -> Preview:
        """Return what rules and rates would take of the last 1,000 closed units; ``print`` it for tables. Asks no judge.

        By the dice that the units have, so that it is what would have been taken: how many by each rule and metric, how many
        that are on average, at what cost, and ten of them by name. A cost is what the metric's judge has cost per unit so far
        in this process; None where it has not been asked. Any thread.

        Facts that are not kept cannot be previewed, and ``unknown`` counts such units: rules on scores; rules on metadata that
        neither ``capture.metadata``, ``monitoring.dimensions`` nor a rule in force names; rules on tools and models of units
        that no rate or rule could have taken, which were not followed; and rules of any kind on units of other
        instrumentations that sampling left out when they began. Units that were submitted to be scored, or came from another
        process, are not among the 1,000.

        Args:
            rules: None = those in force; ``[]`` = none.
            rate: of every metric; None = those in force.
            rates: metric → one of its own, beside ``rate``.

        Raises:
            ConfigurationError: a rate is outside [0, 1] or of no metric, or a rule is none.
        """
        from spanscore.wiring.preview import recent_preview  # not for those who never look

        return recent_preview(self._line, rules, rate, rates)

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
        return self._life.page.serve([] if models is None else [models], port=port, host=host)

    @property
    def metrics_endpoint(self) -> ScrapeEndpoint | None:
        """The page that ``serve_metrics`` serves; None where none is served."""
        return self._life.page.endpoint

    def start_workers(self) -> None:
        """Score what others have handed over, with a spool, without waiting for a unit of this process."""
        if not self._life.closing.begun:
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
        if self._life.closing.begun:
            return None
        self._ready()
        return self._doors.submitted.submit(item, sampled=apply_sampling)

    def status(self) -> Status:
        """Return what is going on; ``print`` it for a small table."""
        from spanscore.wiring.status import status_of  # not for those who never look

        return status_of(
            self._line,
            units=self._doors.units,
            providers=[row.served(self._life.page.url) for row in self._providers.describe()],
            closed=self._life.closing.begun,
            neighbours=neighbours(),
            overflowed=0 if self._doors.models is None else self._doors.models.overflowed,
            received=None if self._doors.otlp is None else self._doors.otlp.received(),
            replay=self._doors.replayed(),
            notes=[*self._doors.notes(), *self._providers.notes(self._life.page.endpoint)],
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
        if not self._life.closing.begun:
            export_held_spans(self._line, self._external_spans.finish_ended, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.flush()
        self.shutdown()
