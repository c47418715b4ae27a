"""``Pipeline`` makes the parts of one scorer from its configuration, and connects them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import inf
from threading import Event
from typing import NamedTuple

from opentelemetry.trace import Tracer

from spanscore import semconv
from spanscore.capture.intake import Intake
from spanscore.config.tree import ScorerSettings
from spanscore.core import loop
from spanscore.core.event_queue import DutyCycle, EventQueue, Turns
from spanscore.core.job import JobResult, UnitCounts, Weights
from spanscore.core.log import log_once
from spanscore.core.sample import ON_DEMAND
from spanscore.core.score import Outcome, Score
from spanscore.core.span import InnerGroup, Unit, UnitKey
from spanscore.core.timebox import Timebox
from spanscore.judges.effects.budget_ledger import BudgetLedger
from spanscore.judges.score_context import suppressed_context
from spanscore.outputs.aggregates import ComparedValues, Points
from spanscore.outputs.providers import Providers
from spanscore.outputs.score_spans import JudgeSpans
from spanscore.outputs.sinks import SINKS, CompositeSink
from spanscore.pipeline.annotations import FeedbackScales
from spanscore.pipeline.assembly import Assembler
from spanscore.pipeline.decisions import RecentUnits
from spanscore.pipeline.engine import ScoringEngine
from spanscore.pipeline.evaluation import Evaluation, quota_of
from spanscore.pipeline.in_force import SamplerInForce, ValueInForce
from spanscore.pipeline.jobs import Hooks, JobBuilder, redactor_in
from spanscore.pipeline.judge_check import JudgeCheckRuns, judge_check_runs, redact_for_judges
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.population import Revisions, ScoreSource, unit_of
from spanscore.pipeline.queues import AccountQuotas, MemoryQueue
from spanscore.pipeline.sampling import DEFAULT_KEY, BudgetPacer, RateSampler
from spanscore.pipeline.sessions import SessionBounds, SessionPipeline, SessionTable
from spanscore.pipeline.sizes import SampleObservers
from spanscore.pipeline.span_buffer import HOLD_ROOT_S, HOLD_S, ExportPace, SpanBuffer
from spanscore.pipeline.tracker import UnitTracker
from spanscore.protocols import Metric, Queue, Receiver, Sink
from spanscore.wiring.accounts import Accounts, build_budget_ledger, build_shadow_budget_ledger, replace_budgets
from spanscore.wiring.durable import (
    confirmation_of,
    dispatcher_of,
    queue_of,
    rejection_reason_of,
    set_metrics,
    spool_of,
)
from spanscore.wiring.feedback import AnnotationWriter, FeedbackJudging
from spanscore.wiring.instruments import declare_sums, refuse_too_many_sums, telemetry_of
from spanscore.wiring.metrics import (
    CheckedConfiguration,
    ShadowPairs,
    check_configuration,
    dialects_of,
    fields_on_demand,
    image_limit_of,
)
from spanscore.wiring.outputs import (
    SinkOutboxes,
    UnitEndMarker,
    check_conditions,
    check_sinks,
    collector_of,
    exports_content,
    job_listener,
)
from spanscore.wiring.span_thread import ShutdownWatch, SpanThread

DISABLED = f"{semconv.DISABLED_ENV} is set: no metric is scored, and sampled units end as filtered"
"""Message in the log and in ``status()`` if the environment stops scoring in this process."""
EVENT_QUEUE_BYTES = 64_000_000
"""Approximate bytes of content in the event queue above which new units are ``event_queue_full``."""
_numbers = count(1)
_CHECK_S = 1.0
"""Seconds between two checks whether the units that began before a reload have ended."""
_MAX_CLOSED = 250
"""Number of remembered closed units. Few suffice, because receivers remember their units for longer, and drop late spans."""
_NOT_ON_DISK = (Outcome.DELEGATED, Outcome.QUEUE_FULL)
"""Outcomes of jobs that this process does not have on the disk."""
_ATTRIBUTES_PER_SCORE = 3
"""Number of attributes of a score on a unit's span: value, label and probability."""


class Scoring(NamedTuple):
    """The evaluations that a unit keeps from its start to its scores.

    Attributes:
        evaluation: scores the metrics of units and of sessions.
        shadows: scores the metrics by their second judges.
        pairs: compares the scores of both judges.
    """

    evaluation: Evaluation
    shadows: Evaluation
    pairs: ShadowPairs


class Replacement(NamedTuple):
    """The parts that a reload puts into a pipeline; None = no budget of the judges or second judges, or no judge check."""

    checked: CheckedConfiguration
    budget_ledger: BudgetLedger | None
    shadow_budget_ledger: BudgetLedger | None
    scales: FeedbackScales
    judge_check: JudgeCheckRuns | None


class Pipeline:
    """The parts of one scorer, from the event queue to the sinks.

    Attributes:
        name: name of the scorer in logs and ``status()``: the scorer's number in the process, and its metrics.
        checked: the metrics and settings in force; ``change`` replaces them.
        settings: the settings in force.
        metrics: name → metric; ``of_units`` has the metrics of units, ``of_sessions`` the metrics of sessions.
        of_inner: entry of ``units.also`` → names of the metrics that score its units.
        shadowing: metric → the metric with its second judge.
        scoring: the evaluations in force, and those of open units that began before a reload.
        sources: sources of scores outside sampled traffic.
        hold: span buffer.
        dispatcher: sends units to another process that scores them; None = this process scores.
        export_confirmation: marks the jobs of a durable queue after the export of their scores; None with another queue.
        users_sinks: the sinks of ``outputs.sinks``.
        outboxes: outboxes of the sinks that send messages.
        receivers: receivers of units; each is added before its first unit.
        run_first: functions that the span thread calls first, once; added before the first unit.
        on_start: functions called at each start of the span thread, also in a forked child.
        source_points: returns the gauges of a source of units, such as Kafka.
        ended: set when the instruments and threads have ended.
        is_shutting_down: whether the shutdown has begun; then no meter is used any more.
        retired: (metric, evaluator version) that a reload replaced.
        lost_before: metric → weights of the units that it lost before its present evaluator version.
        closed: whether receivers accept no further unit.
        disabled: whether the environment stops scoring in this process.
    """

    accounts: Accounts
    pacer: BudgetPacer | None
    sampler: RateSampler
    sampler_in_force: SamplerInForce
    units: UnitTracker

    def __init__(self, metrics: Sequence[Metric], settings: ScorerSettings, providers: Providers) -> None:
        number = next(_numbers)
        self._configure(check_configuration(metrics, settings))
        settings = self.settings
        self.session_rates = {name: settings.sampling.rates_of(name)[0] for name in self.of_sessions}
        self.on_demand = fields_on_demand(self.metrics.values()) if settings.collect is None else ON_DEMAND
        self.name = f"OnlineScorer {number} ({', '.join(self.metrics)})"
        self.providers = providers
        self.content = exports_content(settings.capture.content)
        self.disabled = _is_disabled()
        self._tracer: Tracer | None = None
        self.is_shutting_down = self.closed = self.provider_closed = False
        self.run_first: list[Callable[[], None]] = [self._open_sinks]
        self.source_points: Points = dict
        self.on_start: list[Callable[[], None]] = []
        self.ended = Event()
        self._make_lasting_parts()
        self.outboxes = SinkOutboxes(spool_of(self.queue))
        self.users_sinks: list[Sink] = SINKS.each(
            settings.outputs.sinks, content=self.content, open_outbox=self.outboxes.open
        )
        check_sinks(self.users_sinks, self.metrics)
        self.sinks = CompositeSink(self.users_sinks)
        self._make_parts()
        if self.dispatcher is not None:
            self.dispatcher.begin()
        self.outboxes.begin()

    def _configure(self, checked: CheckedConfiguration) -> None:
        self.checked = checked
        self.settings, self.of_units, self.of_sessions, self.shadowing, self.of_inner = checked
        self.metrics: Mapping[str, Metric] = checked.metrics

    def _evaluator_versions(self) -> dict[str, str]:
        return {name: metric.evaluator_version for name, metric in self.metrics.items()}

    def _make_lasting_parts(self) -> None:
        """Make the parts that a forked child keeps: they have no thread, lock or unit, or other objects refer to them."""
        settings = self.settings
        self.compared: ComparedValues | None = None
        if settings.compare is not None and settings.outputs.instruments:
            by, versions = settings.compare.by, self._evaluator_versions()
            self.compared = ComparedValues(by, self.providers.resource, versions, self.redact)
        self.budget_ledger = build_budget_ledger(settings, self.metrics)
        self.shadow_budget_ledger = build_shadow_budget_ledger(settings, self.shadowing)
        self.telemetry = telemetry_of(self)
        self.queue: Queue = queue_of(
            settings, lambda: self.ledger.record_rejected(Outcome.METRIC_ERROR), self.providers.resource, self.metrics
        )
        self.box = Timebox(settings.limits.hook_timeout, suppressed_context)
        self.hooks = Hooks(redactor_in(settings.redactor), settings.sample_filter).within(self.box)
        self.builder = JobBuilder(
            dialects_of(settings, self.box),
            self.hooks,
            self.box,
            settings.units.kinds,
            self.on_demand,
            image_limit_of(settings, redacts=self.hooks.redactor is not None),
        )
        self.judge_check = self._judge_check(self.metrics)

    def _judge_check(self, metrics: Mapping[str, Metric]) -> JudgeCheckRuns | None:
        return judge_check_runs(
            self.settings.judge_check,
            metrics,
            evaluation=lambda watched: self._evaluation(watched, self.budget_ledger),
            prepare=redact_for_judges(self.hooks, self.box),
            telemetry=self.telemetry,
        )

    def check(self, metrics: Sequence[Metric], settings: ScorerSettings) -> Replacement:
        """Return the parts for ``change``, without any effect. Thread-safe.

        Raises:
            ConfigurationError: the metrics and the settings do not fit together.
        """
        checked = check_configuration(metrics, settings)
        if self.telemetry is not None:
            refuse_too_many_sums(checked)
        if checked.settings.collect is not None:
            check_conditions(checked.settings.collect.conditions, checked.metrics, "collect.when")
        check_sinks(self.users_sinks, checked.metrics)
        return Replacement(
            checked,
            build_budget_ledger(checked.settings, checked.metrics),
            build_shadow_budget_ledger(checked.settings, checked.shadowing),
            FeedbackScales(checked.settings.feedback_scales, checked.metrics),
            self._judge_check(checked.metrics),
        )

    def change(self, new: Replacement) -> None:
        """Use other settings and metrics for the units that begin from now on. Call on the span thread."""
        spending, pairs = self.budget_ledger, self._judges_compared()
        versions = self._evaluator_versions()
        self._configure(new.checked)
        self._retire(versions)
        self.budget_ledger = replace_budgets(self.budget_ledger, new.budget_ledger)
        self.shadow_budget_ledger = replace_budgets(self.shadow_budget_ledger, new.shadow_budget_ledger)
        if spending is not None and self.budget_ledger is spending and self.pacer is not None:
            self.pacer.change(spending.budgets)
        else:
            self.pacer = self._make_pacer()
        earlier = {self.sampler, *self.units.earlier_samplers()}
        self.sampler = self._rate_sampler()
        self.sampler_in_force.use(self.sampler, earlier)
        open_units = self.open_units()  # after ``use``, because roots that begin meanwhile are kept for either sampler
        self.accounts = self._accounts(self.accounts)
        self.account_quotas.change(self._quotas())
        scoring = self._scoring()
        if self._judges_compared() == pairs:
            scoring = scoring._replace(pairs=self.scoring.now.pairs)
        self.scoring.change(scoring, open_units)
        self._change_populations(open_units)
        self._change_outputs(new)
        self._forget_closed_later()

    def _retire(self, versions: Mapping[str, str]) -> None:
        """Record the evaluator versions that are not in force any more. The means of ``status()`` leave out their scores."""
        lost = {**self.ledger.lost(), **self.sessions.ledger.lost()}
        for name, metric in self.metrics.items():
            if versions.get(name, metric.evaluator_version) != metric.evaluator_version:
                self.retired.add((name, versions[name]))
                self.lost_before[name] = lost.get(name, Weights())
            self.retired.discard((name, metric.evaluator_version))

    def _change_populations(self, open_units: Collection[UnitKey]) -> None:
        """Have each population decide on its next units by the metrics and rates in force."""
        names = list(self.of_units)
        self.units.change(names, self.sampler, self.of_inner, open_units=open_units)
        self.hold.attach = self.settings.outputs.span and bool(names)
        self.revisions.metrics, self.revisions.sampler = names, self.sampler
        self.revisions.ledger.change(names)
        self.sessions.sampler = self.sampler
        if self.feedback is not None:
            self.feedback.kept.decide = self.sampler.for_feedback
        for source in self.sources:
            source.ledger.change(self.shadowing if source.scores_traffic else names)
        if tuple(self.recent_units.metadata) != self.settings.listed_metadata:
            self.recent_units.use_metadata(self.settings.listed_metadata)
        self.on_demand |= fields_on_demand(self.metrics.values())
        self.engine.builder = self.builder = replace(self.builder, on_demand=self.on_demand)

    def _change_outputs(self, new: Replacement) -> None:
        """Have the outputs and the judge check use the metrics in force."""
        self.annotation_writer.scales = new.scales
        if self.telemetry is not None:
            declare_sums(self.telemetry, self.checked)
            self.telemetry.record_waits()
        if self.compared is not None:
            self.compared.change(self._evaluator_versions())
        if self.collector is not None:
            self.collector.requires = {name: metric.requires for name, metric in self.metrics.items()}
        check = self.judge_check
        if check is not None and new.judge_check is not None and check.versions != new.judge_check.versions:
            check.stop()
            self.judge_check = new.judge_check.copy_with_evaluation(
                self._evaluation(new.judge_check.evaluation.metrics, self.budget_ledger)
            )
            if self.span_thread.alive:  # otherwise it starts with the first unit
                self.judge_check.start()

    def open_units(self) -> set[UnitKey]:
        """Return the units that have begun and have not ended; span id 0 = each unit of the trace. Call on the span thread."""
        units = {key for receiver in self.receivers for key in receiver.open_keys()}
        # The end of a root may be in the event queue: the root is in no receiver then, and in no ledger yet.
        self.span_thread.read_events()
        of_sources = (source.ledger for source in self.sources)
        ledgers = (self.ledger, self.revisions.ledger, *self.inner_ledgers().values(), *of_sources)
        units.update(unit_of(key) for ledger in ledgers for key in ledger.open_units())
        return units.union(*(receiver.open_keys() for receiver in self.receivers))

    def _forget_closed_later(self) -> None:
        """Forget the metrics, judges and rates from before a reload when their last unit has ended."""
        set_metrics(self.queue, self.metrics, add=bool(self.scoring.earlier))
        self.sampler_in_force.use(self.sampler, self.units.earlier_samplers())
        if self.scoring.earlier and not self.is_shutting_down:
            loop.later(_CHECK_S, lambda: self._run_on_span_thread(self._forget_closed))

    def _forget_closed(self) -> None:
        open_units = self.open_units()
        self.scoring.change(self.scoring.now, open_units)
        self.units.forget_closed(open_units)
        self._forget_closed_later()

    def _judges_compared(self) -> Mapping[str, tuple[str, str]]:
        """Return metric → evaluator versions of its own and of its second judge."""
        return {
            name: (self.of_units[name].evaluator_version, metric.evaluator_version)
            for name, metric in self.shadowing.items()
        }

    def begin_in_child(self) -> None:
        """Make the parts anew in a forked child, which has no threads, units and budgets of its parent."""
        self.ended = Event()
        self.queue.reset()
        self.box.forget_calls()
        self.budget_ledger, self.shadow_budget_ledger = (
            None if ledger is None else BudgetLedger(ledger.budgets)
            for ledger in (self.budget_ledger, self.shadow_budget_ledger)
        )
        if (check := self.judge_check) is not None:
            self.judge_check = check.copy_with_evaluation(
                self._evaluation(check.evaluation.metrics, self.budget_ledger)
            )
        parent_parts = self.engine, self.hold, self.dispatcher
        self._make_parts()
        for part in parent_parts:  # tasks of the parent's loop still refer to these parts; this frees the units in them
            if part is not None:
                vars(part).clear()

    def _make_parts(self) -> None:
        """Make the parts that have units, spending, locks or threads, each after the parts that it refers to."""
        self.receivers: list[Receiver] = []
        self.retired: set[tuple[str, str]] = set()
        self.lost_before: dict[str, Weights] = {}
        self.ledger = Ledger(self.of_units, self.compared)
        self.accounts = self._accounts()
        self._make_queues()
        self.pacer = self._make_pacer()
        self.sampler = self._rate_sampler()
        self.sampler_in_force = SamplerInForce(self.sampler)
        self.shadow_ledger = Ledger(self.shadowing)
        self.scoring = ValueInForce(self._scoring())
        self.collector = collector_of(self.settings.collect, self.metrics, self.telemetry)
        self.sources = [*self._sources()]
        self._make_engine()
        self._make_populations()
        sampling = self.settings.sampling.feedback
        # `_sources` yields the source of feedback last.
        self.feedback = None if sampling is None else FeedbackJudging(self, sampling, self.sources[-1])
        self.annotation_writer = AnnotationWriter(self)
        self.add_receiver(self.annotation_writer)

    def _accounts(self, earlier: Accounts | None = None) -> Accounts:
        return Accounts(
            self.metrics.values(),
            self.budget_ledger,
            shadows=self.shadowing.values(),
            shadow_budget_ledger=self.shadow_budget_ledger,
            earlier=earlier,
        )

    def _make_queues(self) -> None:
        limits = self.settings.limits
        self.event_queue: EventQueue[Receiver] = EventQueue(
            soft_events=limits.event_queue_size, soft_bytes=EVENT_QUEUE_BYTES
        )
        self.duty = DutyCycle()
        self.export_confirmation = confirmation_of(self.queue, self.providers, self.telemetry)
        is_users = self.queue is limits.job_queue  # its size in bytes is unknown
        self.account_quotas = AccountQuotas(
            self._quotas(), capacity=lambda: self.queue.capacity, max_bytes=inf if is_users else limits.queue_bytes
        )
        outputs = self.settings.outputs
        self.hold: SpanBuffer = SpanBuffer(
            ExportPace(self.providers.start_flush_of_spans, on_flushed=self.event_queue.nudge),
            attach=outputs.span and bool(self.of_units),
            hold_root_ns=int((HOLD_ROOT_S if outputs.hold is None else outputs.hold) * 1e9),
            hold_ns=int((HOLD_S if outputs.hold is None else outputs.hold) * 1e9),
            provider_closed=self.provider_closed,
        )

    def _quotas(self) -> Mapping[str, Hashable]:
        is_remote = self.settings.remote_scoring is not None  # no judge is asked here, and all metrics share a quota
        return {name: None if is_remote else quota_of(metric) for name, metric in self.metrics.items()}

    def _make_pacer(self) -> BudgetPacer | None:
        """Return the pacer that lowers the rates so that budgets last; None without a budget."""
        budget_ledger = self.budget_ledger
        if budget_ledger is None:
            return None
        pacer = BudgetPacer(budget_ledger.budgets, budget_ledger, lambda: self.account_quotas.under_way)
        budget_ledger.factors = pacer.factors
        return pacer

    def _rate_sampler(self) -> RateSampler:
        sampling = self.settings.sampling
        return RateSampler(
            {name: sampling.rates_of(name)[0] for name in self.of_units},
            inner={entry.group: entry.rate for entry in self.settings.units.also},
            sessions=self.session_rates,
            rules=sampling.rules,
            key=DEFAULT_KEY if sampling.key is None else sampling.key,
            pacer=self.pacer,
            feedback_rate=0.0 if sampling.feedback is None else sampling.feedback.rate,
            head_sampling_rate=sampling.head_sampling_rate,
            service=self.providers.service_name,
        )

    def _scoring(self) -> Scoring:
        return Scoring(
            self._evaluation(self.metrics, self.budget_ledger),
            self._evaluation(self.shadowing, self.shadow_budget_ledger),
            ShadowPairs(self.shadowing, self.shadow_ledger),
        )

    def _evaluation(self, metrics: Mapping[str, Metric], budget_ledger: BudgetLedger | None) -> Evaluation:
        settings = self.settings
        return Evaluation(
            metrics,
            budget_ledger=budget_ledger,
            timeout_s=settings.limits.timeout,
            at_once=settings.limits.workers,
            transcribes=settings.judge.trace,
            quotes=settings.judge.trace and self.content,
            disabled=self.disabled,
        )

    def _sources(self) -> Iterator[ScoreSource]:
        """Yield the sources of scores outside sampled traffic: second judges, and then units with a bad human label."""

        def make(name: str, evaluation: Callable[[Unit], Evaluation], ledger: Ledger) -> ScoreSource:
            limits = self.settings.limits
            return ScoreSource(
                name,
                evaluation,
                ledger=ledger,
                places=MemoryQueue(limits.queue_size, limits.queue_bytes),
                hold=self.hold,
                sink=self.sinks,
                run_on_span_thread=self._run_on_span_thread,
                on_scores=self._on_source_scores,
                scores_traffic=ledger is self.shadow_ledger,
            )

        yield make(semconv.SOURCE_SHADOW, lambda unit: self.scoring.of(unit.key).shadows, self.shadow_ledger)
        if self.settings.sampling.feedback is not None:
            of_units = Ledger(self.of_units)
            yield make(semconv.SOURCE_FEEDBACK, lambda unit: self.scoring.of(unit.key).evaluation, of_units)

    def _on_source_scores(self, source: str, unit: Unit, scores: Sequence[Score]) -> None:
        self.units.notes.record_unpriced(scores)
        if source == semconv.SOURCE_SHADOW:
            self.scoring.of(unit.key).pairs.add_shadow_scores(unit, scores)

    def _make_engine(self) -> None:
        settings = self.settings
        self.engine = ScoringEngine(
            self.queue,
            self.builder,
            lambda unit: self.scoring.of(unit.key).evaluation,
            post=self._post,
            on_samples=lambda unit, samples: self._run_on_span_thread(
                lambda: self.sample_observers.on_samples(unit, samples)
            ),
            on_foreign_job=lambda job: self._run_on_span_thread(lambda: self._population(job.unit).accept_job(job)),
            on_end=job_listener(self.collector, self.users_sinks),
            sources=self.sources,
            workers=settings.limits.workers,
            turns=Turns(self.duty, self.account_quotas.fill),
        )
        self.dispatcher = dispatcher_of(settings, self.builder, self.queue, self.providers, self.ledger, self._post)

    def _make_populations(self) -> None:
        """Make the populations (units, revisions, sessions), and the span thread that owns them."""
        settings = self.settings
        sessions = settings.sessions
        bounds = sessions.model_dump(exclude={"metrics", "idle_timeout"})
        self.sample_observers = SampleObservers(self.queue)
        self.recent_units = RecentUnits(settings.listed_metadata)
        self.assembler = Assembler(remembered=_MAX_CLOSED)
        self.revisions = Revisions(
            list(self.of_units),
            sampler=self.sampler,
            ledger=Ledger(self.of_units),
            queue=self.queue,
            with_room=self.account_quotas.with_room,
            dispatch=self.engine.accept,
            hold=self.hold,
            sink=self.sinks,
        )
        self.sessions = SessionPipeline(
            self.of_sessions,
            table=SessionTable(SessionBounds(idle_ns=int(sessions.idle_timeout * 1e9), **bounds)),
            sampler=self.sampler,
            ledger=Ledger(self.of_sessions, self.compared),
            queue=self.queue,
            account_quotas=self.account_quotas,
            dispatch=self.engine.accept,
            hold=self.hold,
            sink=self.sinks,
            post=self.event_queue.post,
            possible_turns=self._possible_turns,
            shown=self.redact,
        )
        if self.of_sessions:
            self.sample_observers.observers.append(self.sessions)
            self.sample_observers.unit_listeners.append(self.sessions.count_unit)
        self.units = UnitTracker(
            list(self.of_units),
            ledger=self.ledger,
            assembler=self.assembler,
            sampler=self.sampler,
            queue=self.queue,
            account_quotas=self.account_quotas,
            hold=self.hold,
            sink=self.sinks,
            dispatch=(self.dispatcher or self.engine).accept,
            dispatch_rest=self.engine.accept_rest,
            revisions=self.revisions,
            sample_observers=self.sample_observers,
            sources=self.sources,
            recent_units=self.recent_units,
            rejection_reason=rejection_reason_of(self.queue, settings),
            inner=self.of_inner,
            join_inner=self.scoring.join,
        )
        turns = self.sessions.ids if self.of_sessions else None
        self.intake = Intake(self.event_queue, self.units, self.sampler_in_force, self.ledger, turns)
        self.span_thread = SpanThread(
            self.event_queue, self.receivers, self.units, sessions=self.sessions, duty=self.duty, prepare=self._prepare
        )

    def _run_on_span_thread(self, work: Callable[[], None]) -> None:
        """Call a function on the span thread. Thread-safe; does not block."""
        self.span_thread.run_later(work)

    def _population(self, unit: Unit) -> SessionPipeline | Revisions | UnitTracker:
        if unit.session is not None:
            return self.sessions
        return self.revisions if unit.revision else self.units

    def _post(self, result: JobResult) -> None:
        self._run_on_span_thread(lambda: self._settle(result))

    def _settle(self, result: JobResult) -> None:
        population = self._population(result.unit)
        is_root = population is self.units and result.unit.inner is None
        if is_root:
            self.scoring.of(result.unit.key).pairs.add_own_scores(result)
        population.settle(result)
        if is_root and self.feedback is not None:
            self.feedback.settle(result)
        if self.export_confirmation is not None and result.over and result.rest not in _NOT_ON_DISK:
            self.hold.enqueue(UnitEndMarker(result.unit, self.export_confirmation), spans=0)

    def count_units(self) -> UnitCounts:
        """Return the counts of units and sessions, and the separate counts of each source and of inner units."""
        counts = self.ledger.count_units().with_metrics(self.sessions.ledger.count_units())
        for source in self.sources:
            counts = counts.with_source(source.name, source.ledger.count_units())
        for group, ledger in self.inner_ledgers().items():
            counts = counts.with_source(group, ledger.count_units())
        return counts

    def inner_ledgers(self) -> Mapping[InnerGroup, Ledger]:
        """Return entry of ``units.also`` → the ledger of its units. Thread-safe."""
        return {group: decider.ledger for group, decider in self.units.inner_deciders.items()}

    def when_safe(self, now_ns: int, callback: Callable[[], None]) -> None:
        """Call a function when each unit that has closed by now is on the disk, or has ended. Call on the span thread."""
        self.units.tick(now_ns)  # dispatches units that have just closed
        self.engine.in_transit.when_removed(callback)

    def redact(self, text: str) -> str | None:
        """Return the form in which a text that may name a person is exported; None if the redactor fails."""
        return self.hooks.redact_text(text, self.box)

    @property
    def max_score_attributes(self) -> int:
        """Maximum number of attributes that scores add to a unit's span."""
        return _ATTRIBUTES_PER_SCORE * len(self.of_units) if self.settings.outputs.span else 0

    def _possible_turns(self, conversation_id: str | None) -> set[UnitKey]:
        """Return the ended units without samples: all, or the units that may be turns of the conversation."""
        ended = (receiver.in_flight() for receiver in self.receivers)
        return {*self.assembler.waiting(), *self.sample_observers.making(conversation_id)}.union(*ended)

    def tracer(self) -> Tracer:
        """Return the tracer of the capture scope, the same object at every call."""
        if self._tracer is None:
            self._tracer = self.providers.tracer(semconv.CAPTURE_SCOPE)
        return self._tracer

    def add_receiver(self, receiver: Receiver, *, yields_cpu: bool = False) -> None:
        """Add a receiver, before its first unit; ``yields_cpu``: whether the application shares the CPU with the scorer."""
        self.duty.yields_cpu |= yields_cpu
        if self.closed:
            receiver.close()
        self.receivers.append(receiver)

    def sum_of(self, count: str) -> int:
        """Return the sum of an attribute over the receivers; a receiver without that attribute adds 0. Thread-safe."""
        return sum(int(getattr(receiver, count, 0)) for receiver in list(self.receivers))

    def close_receivers(self) -> None:
        """Close every receiver; receivers that are added later are closed, too. Thread-safe."""
        self.closed = True
        for receiver in self.receivers:
            receiver.close()

    def watch_for_shutdown(self) -> None:
        """Detect that the application shuts its provider down before the scorer. Then held spans are lost, and counted."""
        add = getattr(self.providers.tracer_provider, "add_span_processor", None)
        if add is not None and not self.providers.is_own:
            add(ShutdownWatch(self._note_provider_shutdown))

    def _note_provider_shutdown(self) -> None:
        self.provider_closed = self.hold.provider_closed = True

    def close(self) -> None:
        """End the instruments and the threads of metrics and hooks."""
        self.ended.set()
        self.scoring.now.evaluation.close()
        self.box.close()
        if self.telemetry is not None:
            self.telemetry.close()

    def _prepare(self) -> None:
        while self.run_first:  # each once, not again in a forked child
            self.run_first.pop(0)()
        if self.judge_check is not None and not self.is_shutting_down:
            self.judge_check.start()
        for start in self.on_start:
            start()

    def _open_sinks(self) -> None:
        """Make the sinks. Call on the span thread, because importing the SDK's metrics and logs takes 170 ms."""
        parts = {"providers": self.providers, "content": self.content, "telemetry": self.telemetry}
        if self.settings.judge.trace:
            self.sinks.prepend([JudgeSpans(self.providers, to_evaluation=self.settings.outputs.evaluation_span)])
        self.sinks.prepend(
            SINKS.each([name for name in SINKS.built_in if name in self.settings.outputs.places], **parts)
        )
        if self.telemetry is not None and not self.is_shutting_down:
            self.telemetry.export_to(self.providers.meter())


def _is_disabled() -> bool:
    """Whether the environment stops scoring in this process. An unclear value also stops it."""
    if os.environ.get(semconv.DISABLED_ENV, "").strip().lower() in ("", "0", "false", "no", "off"):
        return False
    log_once("disabled", DISABLED)
    return True
