"""``Pipeline`` builds the parts of one scorer from its configuration, and connects them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from math import inf

from opentelemetry.trace import Tracer

from spanscore import semconv
from spanscore.capture.intake import Intake
from spanscore.config.tree import ScorerSettings
from spanscore.core.event_queue import DutyCycle, EventQueue
from spanscore.core.job import JobResult, UnitCounts
from spanscore.core.log import log_once
from spanscore.core.score import Outcome, Score, refuse_taken_name
from spanscore.core.span import Unit, UnitKey
from spanscore.core.timebox import Timebox
from spanscore.judges.effects.budget_ledger import BudgetLedger
from spanscore.judges.score_context import suppressed_context
from spanscore.outputs.aggregates import Points
from spanscore.outputs.providers import Providers
from spanscore.outputs.score_spans import JudgeSpans
from spanscore.outputs.sinks import SINKS, CompositeSink
from spanscore.pipeline.assembly import Assembler
from spanscore.pipeline.decisions import ClosedUnitIndex, RecentUnits
from spanscore.pipeline.engine import ScoringEngine
from spanscore.pipeline.evaluation import Evaluation, lane_of
from spanscore.pipeline.jobs import Hooks, JobBuilder, redactor_in
from spanscore.pipeline.judge_check import JudgeCheckRuns, as_judges_see, judge_check_runs
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.population import Revisions, ScoreSource
from spanscore.pipeline.queues import MemoryQueue
from spanscore.pipeline.sampling import DEFAULT_KEY, RateSampler
from spanscore.pipeline.session_line import SessionPipeline
from spanscore.pipeline.sessions import SessionTable
from spanscore.pipeline.sizes import SampleObservers
from spanscore.pipeline.span_buffer import ExportPace, HeldRoots, SpanBuffer
from spanscore.pipeline.tracker import AccountQuotas, UnitTracker
from spanscore.protocols import Metric, Queue, Receiver
from spanscore.wiring.accounts import Accounts, pacer_of, purse_of, shadow_purse_of
from spanscore.wiring.feedback import AnnotationWriter, FeedbackJudging
from spanscore.wiring.instruments import telemetry_of
from spanscore.wiring.metrics import (
    ShadowPairs,
    bounds_of,
    check_screens,
    checked_metrics,
    checked_rates,
    checked_session_metrics,
    checked_shadows,
    compared_values_of,
    dialects_of,
    needs_measures,
    shown_id,
)
from spanscore.wiring.outputs import UnitEndMarker, collector_of, exports_content
from spanscore.wiring.remote_scoring import handover_of, left_to_the_other, rejection_reason_of
from spanscore.wiring.span_thread import SpanThread
from spanscore.wiring.spool import delivery_of, queue_of

DISABLED = f"{semconv.DISABLED_ENV} is set: no metric is scored, and sampled units end as filtered"
"""Line of the log and of ``status()`` in a process in which the environment stops scoring."""
EVENT_QUEUE_BYTES = 64_000_000
"""Approximate bytes of content in the event queue above which new units are ``event_queue_full``."""
_numbers = count(1)
_REMEMBERED = 250
"""Number of remembered closed units: few, because each receiver remembers its own for longer and drops their late spans."""
_NOT_OURS = (Outcome.DELEGATED, Outcome.QUEUE_FULL)
"""Outcomes of jobs that are not on the disk as jobs of this process."""
_PER_METRIC = 3
"""Number of attributes of a score on a unit's span: value, label and probability."""


class Pipeline:
    """The parts of one scorer, from the event queue to the sinks.

    Attributes:
        name: name of the scorer in logs and ``status()``: its number in the process, and its metrics.
        metrics: name → metric: ``of_units`` score units, ``of_sessions`` score sessions.
        shadowing: metric → the metric with its second judge.
        sources: sources of scores outside sampled traffic.
        receivers: entries of units; each is added before its first unit.
        prepared: calls that the span thread makes first; added before the first unit.
        points_beside: returns the gauges of a source of units.
        over: whether the scorer is being shut down, so that there is no meter any more.
        closed: whether receivers accept no further unit.
        disabled: whether the environment stops scoring in this process.
    """

    def __init__(self, metrics: Sequence[Metric], settings: ScorerSettings, providers: Providers) -> None:
        settings = left_to_the_other(settings)
        number = next(_numbers)
        self.of_units: Mapping[str, Metric] = checked_metrics(metrics, settings)
        self.of_sessions = checked_session_metrics(settings.sessions.metrics, self.of_units, settings.judge.shadows)
        self.metrics: Mapping[str, Metric] = {**self.of_units, **self.of_sessions}
        for name in self.metrics:
            refuse_taken_name(name)
        self.name = f"OnlineScorer {number} ({', '.join(self.metrics)})"
        self.shadowing = checked_shadows(settings.judge.shadows, self.of_units)
        rates = checked_rates(settings.sampling.rates, self.metrics)
        sampling = settings.sampling.model_copy(update={"rates": rates})
        self.settings = settings.model_copy(update={"sampling": sampling})
        self.providers = providers
        self.content = exports_content(settings.capture.content)
        self.disabled = _is_disabled()
        self._tracer: Tracer | None = None
        self.over = self.closed = self.provider_closed = False
        self.sinks = CompositeSink(SINKS.each(settings.outputs.sinks, content=self.content))
        self.prepared: list[Callable[[], None]] = [self._open_sinks]
        self.points_beside: Points = dict
        self._make_lasting_parts()
        self._make_parts()
        if self.handover is not None:
            self.handover.begin()

    def _make_lasting_parts(self) -> None:
        """Make the parts that a forked child keeps: others hold them, or they come from the configuration and from files."""
        settings = self.settings
        rates = {name: settings.sampling.rates_of(name)[0] for name in self.of_units}
        check_screens(settings.sampling.rules, [*self.of_units.values()], rates)
        self.compared = compared_values_of(settings, self.metrics, self.providers.resource, self._show_id)
        self.purse = purse_of(settings.judge.budget, settings.judge.replica_share, self.metrics)
        self.shadow_purse = shadow_purse_of(settings, self.shadowing)
        self.telemetry = telemetry_of(self)
        self.queue: Queue = queue_of(
            settings,
            lambda: self.ledger.record_rejected(Outcome.METRIC_ERROR),
            self.providers.resource,
            self.metrics,
        )
        self.box = Timebox(settings.limits.hook_timeout, suppressed_context)
        self.hooks = Hooks(redactor_in(settings.redactor), settings.sample_filter).within(self.box)
        self.builder = JobBuilder(
            dialects_of(settings, self.box),
            self.hooks,
            self.box,
            settings.units.kinds,
            with_measures=any(map(needs_measures, self.metrics.values())),
        )
        self.judge_check: JudgeCheckRuns | None = judge_check_runs(
            settings.judge_check,
            self.metrics,
            evaluation=lambda watched: self._evaluation(watched, self.purse),
            prepare=as_judges_see(self.hooks, self.box),
            telemetry=self.telemetry,
        )

    def begin_in_child(self) -> None:
        """Make the parts anew in a forked child, which has no thread, unit or money of its parent."""
        self.queue.reset()
        self.box.forget_calls()
        self.purse, self.shadow_purse = (
            None if purse is None else BudgetLedger(purse.budgets) for purse in (self.purse, self.shadow_purse)
        )
        if (check := self.judge_check) is not None:
            self.judge_check = check.anew(self._evaluation(check.evaluation.metrics, self.purse))
        of_parent = self.engine, self.hold, self.handover
        self._make_parts()
        for part in of_parent:  # the kept tasks of the parent's loop refer to them: their units are freed all the same
            if part is not None:
                vars(part).clear()

    def _make_parts(self) -> None:
        """Make the parts that have units, money, locks and threads, each after the parts that it refers to."""
        self.receivers: list[Receiver] = []
        self._make_ledgers()
        self._make_queues()
        self._make_sampler()
        self._make_evaluations()
        self._make_sources()
        self._make_engine()
        self._make_populations()
        self._make_feedback()

    def _make_ledgers(self) -> None:
        """Make the ledger of units, and the accounts of judges."""
        self.ledger = Ledger(self.of_units, self.compared)
        self.accounts = Accounts(
            self.metrics.values(), self.purse, shadows=self.shadowing.values(), shadow_purse=self.shadow_purse
        )

    def _make_queues(self) -> None:
        """Make the queues of events, units and spans."""
        settings, limits = self.settings, self.settings.limits
        self.event_queue: EventQueue[Receiver] = EventQueue(soft=limits.event_queue_size, soft_bytes=EVENT_QUEUE_BYTES)
        self.duty = DutyCycle()
        self.delivery = delivery_of(self.queue, self.providers, self.telemetry)
        own = self.queue is limits.job_queue  # a user's queue, of unknown size
        self.lanes = AccountQuotas(
            {name: None if settings.remote_scoring else lane_of(metric) for name, metric in self.metrics.items()},
            capacity=lambda: self.queue.capacity,
            max_bytes=inf if own else limits.queue_bytes,
        )
        self.hold: SpanBuffer = SpanBuffer(
            ExportPace(self.providers.start_flush_of_spans, on_flushed=self.event_queue.nudge),
            provider_closed=self.provider_closed,
        )

    def _make_sampler(self) -> None:
        sampling = self.settings.sampling
        self.pacer = pacer_of(self.purse, lambda: self.lanes.under_way)
        self.sampler = RateSampler(
            {name: sampling.rates_of(name)[0] for name in self.of_units},
            sessions={name: sampling.rates_of(name)[0] for name in self.of_sessions},
            rules=sampling.rules,
            key=DEFAULT_KEY if sampling.key is None else sampling.key,
            pacer=self.pacer,
            feedback_rate=0.0 if sampling.feedback is None else sampling.feedback.rate,
            head_sampling_rate=sampling.head_sampling_rate,
            service=self.providers.service_name,
        )

    def _make_evaluations(self) -> None:
        """Make the evaluation of metrics and the collector of cases."""
        self.evaluation = self._evaluation(self.metrics, self.purse)
        self.collector = collector_of(self.settings.collect, self.metrics, self.telemetry)

    def _evaluation(self, metrics: Mapping[str, Metric], purse: BudgetLedger | None) -> Evaluation:
        settings = self.settings
        return Evaluation(
            metrics,
            purse=purse,
            timeout_s=settings.limits.timeout,
            at_once=settings.limits.workers,
            transcribes=settings.judge.trace,
            quotes=settings.judge.trace and self.content,
            disabled=self.disabled,
        )

    def _make_sources(self) -> None:
        """Make the sources of scores outside sampled traffic: second judges, and units with a bad human label."""
        self.sources: list[ScoreSource] = []
        shadow_ledger = Ledger(self.shadowing)
        self.pairs = ShadowPairs(self.shadowing, shadow_ledger)
        if self.shadowing:
            evaluation = self._evaluation(self.shadowing, self.shadow_purse)
            self._add_source(semconv.SOURCE_SHADOW, evaluation, shadow_ledger, self.shadowing)
        if self.settings.sampling.feedback is not None:
            self._add_source(semconv.SOURCE_FEEDBACK, self.evaluation, Ledger(self.of_units))

    def _add_source(
        self, name: str, evaluation: Evaluation, ledger: Ledger, metrics: Collection[str] = frozenset()
    ) -> None:
        limits = self.settings.limits
        source = ScoreSource(
            name,
            evaluation,
            ledger=ledger,
            room=MemoryQueue(limits.queue_size, limits.queue_bytes),
            hold=self.hold,
            sink=self.sinks,
            leave=self._leave,
            on_scores=self._note_beside,
            metrics=metrics,
        )
        self.sources.append(source)

    def _note_beside(self, source: str, unit: Unit, scores: Sequence[Score]) -> None:
        self.units.notes.costs(scores)
        if source == semconv.SOURCE_SHADOW:
            self.pairs.settle_beside(unit, scores)

    def _make_engine(self) -> None:
        settings = self.settings
        self.engine = ScoringEngine(
            self.queue,
            self.builder,
            self.evaluation,
            post=self._post,
            made=lambda unit, samples: self._leave(lambda: self.keeping.on_samples(unit, samples)),
            came=lambda job: self._leave(lambda: self._population(job.unit).take_over(job)),
            ended=None if self.collector is None else self.collector.scored,
            sources=self.sources,
            workers=settings.limits.workers,
            turns=self.duty.turns(self.lanes.fill),
        )
        self.handover = handover_of(settings, self.builder, self.queue, self.providers, self.ledger, self._post)

    def _make_populations(self) -> None:
        """Make units, revisions and sessions, and the span thread that owns them."""
        settings = self.settings
        self.keeping = SampleObservers(self.queue)
        self.known = ClosedUnitIndex(RecentUnits(settings.listed_metadata))
        self.assembler = Assembler(remembered=_REMEMBERED)
        self.revisions = Revisions(
            list(self.of_units),
            sampler=self.sampler,
            ledger=Ledger(self.of_units),
            queue=self.queue,
            with_room=self.lanes.with_room,
            handover=self.engine.accept,
            hold=self.hold,
            sink=self.sinks,
        )
        self.sessions = SessionPipeline(
            self.of_sessions,
            table=SessionTable(bounds_of(settings.sessions)),
            sampler=self.sampler,
            ledger=Ledger(self.of_sessions, self.compared),
            queue=self.queue,
            lanes=self.lanes,
            handover=self.engine.accept,
            hold=self.hold,
            sink=self.sinks,
            post=self.event_queue.post,
            on_the_way=self._on_the_way,
            shown=self._show_id,
        )
        if self.of_sessions:
            self.keeping.observers.append(self.sessions)
            self.keeping.noticed.append(self.sessions.noticed)
        hold_s = settings.outputs.hold
        self.units = UnitTracker(
            list(self.of_units),
            ledger=self.ledger,
            assembler=self.assembler,
            sampler=self.sampler,
            queue=self.queue,
            lanes=self.lanes,
            parking=HeldRoots(
                self.hold,
                attach=settings.outputs.span and bool(self.of_units),
                hold_root_ns=int((10.0 if hold_s is None else hold_s) * 1e9),
                hold_ns=int((4.0 if hold_s is None else hold_s) * 1e9),
            ),
            sink=self.sinks,
            handover=(self.handover or self.engine).accept,
            hand_rest=self.engine.accept_rest,
            revisions=self.revisions,
            keeping=self.keeping,
            sources=self.sources,
            known=self.known,
            rejection_reason=rejection_reason_of(self.queue, settings),
        )
        turns = self.sessions.ids if self.of_sessions else None
        self.intake = Intake(self.event_queue, self.units, self.sampler, self.ledger, turns)
        self.span_thread = SpanThread(
            self.event_queue, self.receivers, self.units, sessions=self.sessions, duty=self.duty, prepare=self._prepare
        )

    def _make_feedback(self) -> None:
        sampling = self.settings.sampling.feedback
        # The source of feedback is the last one.
        self.feedback = None if sampling is None else FeedbackJudging(self, sampling, self.sources[-1])
        self.annotation_writer = AnnotationWriter(self, self.feedback)
        self.let_in(self.annotation_writer)

    def _leave(self, work: Callable[[], None]) -> None:
        """Run a call on the span thread. Any thread."""
        self.span_thread.leave(work)

    def _population(self, unit: Unit) -> SessionPipeline | Revisions | UnitTracker:
        if unit.session is not None:
            return self.sessions
        return self.revisions if unit.revision else self.units

    def _post(self, result: JobResult) -> None:
        self._leave(lambda: self._settle(result))

    def _settle(self, result: JobResult) -> None:
        population = self._population(result.unit)
        if population is self.units:
            self.pairs.settle(result)
        population.settle(result)
        if population is self.units and self.feedback is not None:
            self.feedback.settle(result)
        if self.delivery is not None and result.over and result.rest not in _NOT_OURS:
            self.hold.enqueue(UnitEndMarker(result.unit, self.delivery), spans=0)

    def count_units(self) -> UnitCounts:
        """Return the counts of units and sessions, and the separate counts of each source."""
        counts = self.ledger.count_units().joined(self.sessions.ledger.count_units())
        for source in self.sources:
            counts = counts.beside(source.name, source.ledger.count_units())
        return counts

    def share_of_limits(self, fraction: float) -> None:
        """Set this process's share, [0, 1], of the limits and budgets of judges. Any thread.

        A worker of a topic begins with 0, and sets assigned ÷ all partitions on every rebalance.
        """
        self.accounts.share(fraction)

    def when_safe(self, now_ns: int, callback: Callable[[], None]) -> None:
        """Call back when every unit that has closed by now survives the process, or has ended. Span thread."""
        self.units.tick(now_ns)  # hands over just closed units
        self.engine.passing.when_over(callback)

    def _show_id(self, text: str) -> str | None:
        return shown_id(text, self.hooks.redactor, self.box)

    @property
    def most_scores(self) -> int:
        """Maximum number of attributes that scores add to a unit's span."""
        return _PER_METRIC * len(self.of_units) if self.settings.outputs.span else 0

    def _on_the_way(self, conversation_id: str | None) -> set[UnitKey]:
        """Return the ended units without samples yet; of one conversation, as far as that is known."""
        ended = (receiver.in_flight() for receiver in self.receivers)
        return {*self.assembler.waiting(), *self.keeping.making(conversation_id)}.union(*ended)

    def tracer(self) -> Tracer:
        """Return the tracer of the capture scope, the same object at every call."""
        if self._tracer is None:
            self._tracer = self.providers.tracer(semconv.CAPTURE_SCOPE)
        return self._tracer

    def let_in(self, receiver: Receiver, *, gives_way: bool = False) -> None:
        """Add a receiver, before its first unit.

        Args:
            receiver: the receiver.
            gives_way: whether its application shares the CPU with the scorer.
        """
        self.duty.gives_way |= gives_way
        if self.closed:
            receiver.close()
        self.receivers.append(receiver)

    def sum_of(self, count: str) -> int:
        """Return the sum of a count of the receivers, by its name; a receiver without that count adds 0. Any thread."""
        return sum(int(getattr(receiver, count, 0)) for receiver in list(self.receivers))

    def close_receivers(self) -> None:
        """Close every receiver, also the ones that are made later. Any thread."""
        self.closed = True
        for receiver in self.receivers:
            receiver.close()

    def watch_for_shutdown(self) -> None:
        """Detect that the application shuts its own provider down before the scorer: spans held then are lost, and counted."""
        add = getattr(self.providers.tracer_provider, "add_span_processor", None)
        if add is not None and not self.providers.is_own:
            from spanscore.wiring.span_thread import ShutdownWatch

            add(ShutdownWatch(self._note_provider_shutdown))

    def _note_provider_shutdown(self) -> None:
        self.provider_closed = self.hold.provider_closed = True

    def close(self) -> None:
        """End the instruments and the threads of metrics and hooks."""
        self.evaluation.close()
        self.box.close()
        if self.telemetry is not None:
            self.telemetry.close()

    def _prepare(self) -> None:
        while self.prepared:  # each once, not again in a forked child
            self.prepared.pop(0)()
        if self.judge_check is not None and not self.over:
            self.judge_check.start()

    def _open_sinks(self) -> None:
        """Make the sinks: on the span thread, because importing the SDK's metrics and logs takes 170 ms."""
        parts = {"providers": self.providers, "content": self.content, "telemetry": self.telemetry}
        if self.settings.judge.trace:
            self.sinks.prepend([JudgeSpans(self.providers, to_evaluation=self.settings.outputs.evaluation_span)])
        self.sinks.prepend(
            SINKS.each([name for name in SINKS.built_in if name in self.settings.outputs.places], **parts)
        )
        if self.telemetry is not None and not self.over:
            self.telemetry.export_to(self.providers.meter())


def _is_disabled() -> bool:
    """Whether the environment stops scoring in this process. An unclear value also stops it."""
    if os.environ.get(semconv.DISABLED_ENV, "").strip().lower() in ("", "0", "false", "no", "off"):
        return False
    log_once("disabled", DISABLED)
    return True
