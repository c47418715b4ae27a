"""``Pipeline`` builds the parts of one scorer from its configuration, and connects them."""

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
from spanscore.core.codecs.text import safe_text
from spanscore.core.event_queue import DutyCycle, EventQueue
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
from spanscore.pipeline.judge_check import JudgeCheckRuns, as_judges_see, judge_check_runs
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.population import Revisions, ScoreSource, unit_of
from spanscore.pipeline.queues import MemoryQueue
from spanscore.pipeline.sampling import DEFAULT_KEY, BudgetPacer, RateSampler
from spanscore.pipeline.sessions import SessionBounds, SessionPipeline, SessionTable
from spanscore.pipeline.sizes import SampleObservers
from spanscore.pipeline.span_buffer import HOLD_ROOT_S, HOLD_S, ExportPace, SpanBuffer
from spanscore.pipeline.tracker import AccountQuotas, UnitTracker
from spanscore.protocols import Metric, Queue, Receiver, Sink
from spanscore.samples.redaction import redact
from spanscore.wiring.accounts import (
    Accounts,
    build_budget_ledger,
    build_shadow_budget_ledger,
    replace_budgets,
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
from spanscore.wiring.remote_scoring import handover_of, rejection_reason_of
from spanscore.wiring.span_thread import ShutdownWatch, SpanThread
from spanscore.wiring.spool import delivery_of, queue_of, set_metrics, spool_of

DISABLED = f"{semconv.DISABLED_ENV} is set: no metric is scored, and sampled units end as filtered"
"""Line of the log and of ``status()`` in a process in which the environment stops scoring."""
EVENT_QUEUE_BYTES = 64_000_000
"""Approximate bytes of content in the event queue above which new units are ``event_queue_full``."""
_numbers = count(1)
_LOOK_S = 1.0
"""Seconds between two checks, after a reload, of the units that began before it."""
_REMEMBERED = 250
"""Number of remembered closed units. Few suffice, because receivers remember their units for longer, and drop late spans."""
_NOT_OURS = (Outcome.DELEGATED, Outcome.QUEUE_FULL)
"""Outcomes of jobs that are not on the disk as jobs of this process."""
_PER_METRIC = 3
"""Number of attributes of a score on a unit's span: value, label and probability."""


class Scoring(NamedTuple):
    """The evaluations of a unit's metrics.

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
        metrics: name → metric: ``of_units`` score units, ``of_sessions`` score sessions.
        of_inner: entry of ``units.also`` → names of the metrics that score its units.
        shadowing: metric → the metric with its second judge.
        scoring: the evaluations of units; a unit keeps those of its start.
        sources: sources of scores outside sampled traffic.
        users_sinks: the sinks of ``outputs.sinks``.
        outboxes: outboxes of those sinks that send messages.
        receivers: entries of units; each is added before its first unit.
        prepared: calls that the span thread makes first; added before the first unit.
        points_beside: returns the gauges of a source of units.
        on_start: calls at the start of the span thread, also in a forked child.
        ended: set when the instruments and threads have ended.
        over: whether the scorer is being shut down, so that there is no meter any more.
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
        self.over = self.closed = self.provider_closed = False
        self.prepared: list[Callable[[], None]] = [self._open_sinks]
        self.points_beside: Points = dict
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
        if self.handover is not None:
            self.handover.begin()
        self.outboxes.begin()

    def _configure(self, checked: CheckedConfiguration) -> None:
        self.checked = checked
        self.settings, self.of_units, self.of_sessions, self.shadowing, self.of_inner = checked
        self.metrics: Mapping[str, Metric] = checked.metrics

    def _evaluator_versions(self) -> dict[str, str]:
        return {name: metric.evaluator_version for name, metric in self.metrics.items()}

    def _make_lasting_parts(self) -> None:
        """Make the parts that a forked child keeps: other objects refer to them, or they depend only on settings and files."""
        settings = self.settings
        self.compared: ComparedValues | None = None
        if settings.compare is not None and settings.outputs.instruments:
            by, versions = settings.compare.by, self._evaluator_versions()
            self.compared = ComparedValues(by, self.providers.resource, versions, self.redact)
        self.budget_ledger = build_budget_ledger(settings.judge.budget, settings.judge.replica_share, self.metrics)
        self.shadow_budget_ledger = build_shadow_budget_ledger(settings, self.shadowing)
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
            self.on_demand,
            image_limit_of(settings, redacts=self.hooks.redactor is not None),
        )
        self.judge_check = self._judge_check(self.metrics)

    def _judge_check(self, metrics: Mapping[str, Metric]) -> JudgeCheckRuns | None:
        return judge_check_runs(
            self.settings.judge_check,
            metrics,
            evaluation=lambda watched: self._evaluation(watched, self.budget_ledger),
            prepare=as_judges_see(self.hooks, self.box),
            telemetry=self.telemetry,
        )

    def check(self, metrics: Sequence[Metric], settings: ScorerSettings) -> Replacement:
        """Return the parts for ``change``. Nothing changes. Any thread.

        Raises:
            ConfigurationError: the metrics and the settings do not fit together.
        """
        checked = check_configuration(metrics, settings)
        judge = checked.settings.judge
        if self.telemetry is not None:
            refuse_too_many_sums(checked)
        if checked.settings.collect is not None:
            check_conditions(checked.settings.collect.conditions, checked.metrics, "collect.when")
        check_sinks(self.users_sinks, checked.metrics)
        return Replacement(
            checked,
            build_budget_ledger(judge.budget, judge.replica_share, checked.metrics),
            build_shadow_budget_ledger(checked.settings, checked.shadowing),
            FeedbackScales(checked.settings.feedback_scales, checked.metrics),
            self._judge_check(checked.metrics),
        )

    def change(self, new: Replacement) -> None:
        """Sample and score the units that begin from now on by other settings and metrics. Call on the span thread."""
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
        open_units = self.open_units()  # later: a root that begins meanwhile is kept for either sampler
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
        """Note the evaluator versions that are not in force any more. No mean of ``status()`` has their scores."""
        lost = {**self.ledger.lost(), **self.sessions.ledger.lost()}
        for name, metric in self.metrics.items():
            if versions.get(name, metric.evaluator_version) != metric.evaluator_version:
                self.retired.add((name, versions[name]))
                self.lost_before[name] = lost.get(name, Weights())
            self.retired.discard((name, metric.evaluator_version))

    def _change_populations(self, open_units: Collection[UnitKey]) -> None:
        """Decide on units that begin from now on by other metrics and rates."""
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
        if tuple(self.known.metadata) != self.settings.listed_metadata:
            self.known.use_metadata(self.settings.listed_metadata)
        self.on_demand |= fields_on_demand(self.metrics.values())
        self.engine.pipeline = self.builder = replace(self.builder, on_demand=self.on_demand)

    def _change_outputs(self, new: Replacement) -> None:
        """Export, collect and check the scores of other metrics from now on."""
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
        """Return the units that have begun and have not ended. Span id 0 = every unit of the trace. Call on the span thread."""
        units = {key for receiver in self.receivers for key in receiver.open_keys()}
        # The end of a root may be in the event queue: the root is in no receiver then, and in no ledger yet.
        self.span_thread.read_events()
        beside = (*self.inner_ledgers().values(), *(source.ledger for source in self.sources))
        ledgers = (self.ledger, self.revisions.ledger, *beside)
        units.update(unit_of(key) for ledger in ledgers for key in ledger.open_units())
        return units.union(*(receiver.open_keys() for receiver in self.receivers))

    def _forget_closed_later(self) -> None:
        """Forget earlier metrics, judges and rates when their last unit has ended."""
        set_metrics(self.queue, self.metrics, add=bool(self.scoring.earlier))
        self.sampler_in_force.use(self.sampler, self.units.earlier_samplers())
        if self.scoring.earlier and not self.over:
            loop.later(_LOOK_S, lambda: self._run_on_span_thread(self._forget_closed))

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
        of_parent = self.engine, self.hold, self.handover
        self._make_parts()
        for part in of_parent:  # the kept tasks of the parent's loop refer to them, but their units can be freed
            if part is not None:
                vars(part).clear()

    def _make_parts(self) -> None:
        """Make the parts that have units, money, locks and threads, each after the parts that it refers to."""
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
        # The source of feedback is the last one.
        self.feedback = None if sampling is None else FeedbackJudging(self, sampling, self.sources[-1])
        self.annotation_writer = AnnotationWriter(self)
        self.let_in(self.annotation_writer)

    def _accounts(self, earlier: Accounts | None = None) -> Accounts:
        return Accounts(
            self.metrics.values(),
            self.budget_ledger,
            shadows=self.shadowing.values(),
            shadow_budget_ledger=self.shadow_budget_ledger,
            earlier=earlier,
        )

    def _make_queues(self) -> None:
        """Make the queues of events, units and spans."""
        limits = self.settings.limits
        self.event_queue: EventQueue[Receiver] = EventQueue(
            soft_events=limits.event_queue_size, soft_bytes=EVENT_QUEUE_BYTES
        )
        self.duty = DutyCycle()
        self.delivery = delivery_of(self.queue, self.providers, self.telemetry)
        own = self.queue is limits.job_queue  # a user's queue, of unknown size
        self.account_quotas = AccountQuotas(
            self._quotas(),
            capacity=lambda: self.queue.capacity,
            max_bytes=inf if own else limits.queue_bytes,
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
        sends = self.settings.remote_scoring is not None
        return {name: None if sends else quota_of(metric) for name, metric in self.metrics.items()}

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
        """Yield the sources of scores outside sampled traffic: second judges, and units with a bad human label."""

        def make(name: str, evaluation: Callable[[Unit], Evaluation], ledger: Ledger) -> ScoreSource:
            limits = self.settings.limits
            return ScoreSource(
                name,
                evaluation,
                ledger=ledger,
                room=MemoryQueue(limits.queue_size, limits.queue_bytes),
                hold=self.hold,
                sink=self.sinks,
                run_on_span_thread=self._run_on_span_thread,
                on_scores=self._note_beside,
                scores_traffic=ledger is self.shadow_ledger,
            )

        yield make(semconv.SOURCE_SHADOW, lambda unit: self.scoring.of(unit.key).shadows, self.shadow_ledger)
        if self.settings.sampling.feedback is not None:
            of_units = Ledger(self.of_units)
            yield make(semconv.SOURCE_FEEDBACK, lambda unit: self.scoring.of(unit.key).evaluation, of_units)

    def _note_beside(self, source: str, unit: Unit, scores: Sequence[Score]) -> None:
        self.units.notes.costs(scores)
        if source == semconv.SOURCE_SHADOW:
            self.scoring.of(unit.key).pairs.add_shadow_scores(unit, scores)

    def _make_engine(self) -> None:
        settings = self.settings
        self.engine = ScoringEngine(
            self.queue,
            self.builder,
            lambda unit: self.scoring.of(unit.key).evaluation,
            post=self._post,
            made=lambda unit, samples: self._run_on_span_thread(lambda: self.keeping.on_samples(unit, samples)),
            came=lambda job: self._run_on_span_thread(lambda: self._population(job.unit).take_over(job)),
            ended=job_listener(self.collector, self.users_sinks),
            sources=self.sources,
            workers=settings.limits.workers,
            turns=self.duty.turns(self.account_quotas.fill),
        )
        self.handover = handover_of(settings, self.builder, self.queue, self.providers, self.ledger, self._post)

    def _make_populations(self) -> None:
        """Make units, revisions and sessions, and the span thread that owns them."""
        settings = self.settings
        self.keeping = SampleObservers(self.queue)
        self.known = RecentUnits(settings.listed_metadata)
        self.assembler = Assembler(remembered=_REMEMBERED)
        self.revisions = Revisions(
            list(self.of_units),
            sampler=self.sampler,
            ledger=Ledger(self.of_units),
            queue=self.queue,
            with_room=self.account_quotas.with_room,
            handover=self.engine.accept,
            hold=self.hold,
            sink=self.sinks,
        )
        self.sessions = SessionPipeline(
            self.of_sessions,
            table=SessionTable(self._session_bounds()),
            sampler=self.sampler,
            ledger=Ledger(self.of_sessions, self.compared),
            queue=self.queue,
            account_quotas=self.account_quotas,
            handover=self.engine.accept,
            hold=self.hold,
            sink=self.sinks,
            post=self.event_queue.post,
            possible_turns=self._possible_turns,
            shown=self.redact,
        )
        if self.of_sessions:
            self.keeping.observers.append(self.sessions)
            self.keeping.noticed.append(self.sessions.noticed)
        self.units = UnitTracker(
            list(self.of_units),
            ledger=self.ledger,
            assembler=self.assembler,
            sampler=self.sampler,
            queue=self.queue,
            account_quotas=self.account_quotas,
            hold=self.hold,
            sink=self.sinks,
            handover=(self.handover or self.engine).accept,
            hand_rest=self.engine.accept_rest,
            revisions=self.revisions,
            keeping=self.keeping,
            sources=self.sources,
            known=self.known,
            rejection_reason=rejection_reason_of(self.queue, settings),
            inner=self.of_inner,
            join_inner=self.scoring.join,
        )
        turns = self.sessions.ids if self.of_sessions else None
        self.intake = Intake(self.event_queue, self.units, self.sampler_in_force, self.ledger, turns)
        self.span_thread = SpanThread(
            self.event_queue, self.receivers, self.units, sessions=self.sessions, duty=self.duty, prepare=self._prepare
        )

    def _session_bounds(self) -> SessionBounds:
        sessions = self.settings.sessions
        bounds = sessions.model_dump(exclude={"metrics", "idle_timeout"})
        return SessionBounds(idle_ns=int(sessions.idle_timeout * 1e9), **bounds)

    def _run_on_span_thread(self, work: Callable[[], None]) -> None:
        """Run a call on the span thread. Thread-safe."""
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
        if self.delivery is not None and result.over and result.rest not in _NOT_OURS:
            self.hold.enqueue(UnitEndMarker(result.unit, self.delivery), spans=0)

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
        return {group: books.ledger for group, books in self.units.inner_books.items()}

    def when_safe(self, now_ns: int, callback: Callable[[], None]) -> None:
        """Call back when every unit that has closed by now survives the process, or has ended. Call on the span thread."""
        self.units.tick(now_ns)  # hands over just closed units
        self.engine.passing.when_over(callback)

    def redact(self, text: str) -> str | None:
        """Return the exported form of a text that may name a person; None if the redactor fails."""
        redactor = self.hooks.redactor
        if redactor is None:
            return safe_text(text)
        try:
            return safe_text(self.box.run(lambda: redact(text, redactor)))
        except BaseException:  # noqa: BLE001  (SystemExit, too: only a text from the redactor is exported)
            return None

    @property
    def most_scores(self) -> int:
        """Maximum number of attributes that scores add to a unit's span."""
        return _PER_METRIC * len(self.of_units) if self.settings.outputs.span else 0

    def _possible_turns(self, conversation_id: str | None) -> set[UnitKey]:
        """Return the ended units without samples yet; of one conversation, as far as that is known."""
        ended = (receiver.in_flight() for receiver in self.receivers)
        return {*self.assembler.waiting(), *self.keeping.making(conversation_id)}.union(*ended)

    def tracer(self) -> Tracer:
        """Return the tracer of the capture scope, the same object at every call."""
        if self._tracer is None:
            self._tracer = self.providers.tracer(semconv.CAPTURE_SCOPE)
        return self._tracer

    def let_in(self, receiver: Receiver, *, yields_cpu: bool = False) -> None:
        """Add a receiver, before its first unit; ``yields_cpu``: its application shares the CPU with the scorer."""
        self.duty.yields_cpu |= yields_cpu
        if self.closed:
            receiver.close()
        self.receivers.append(receiver)

    def sum_of(self, count: str) -> int:
        """Return the sum of a count of the receivers, by its name; a receiver without that count adds 0. Thread-safe."""
        return sum(int(getattr(receiver, count, 0)) for receiver in list(self.receivers))

    def close_receivers(self) -> None:
        """Close every receiver, including receivers that are made later. Thread-safe."""
        self.closed = True
        for receiver in self.receivers:
            receiver.close()

    def watch_for_shutdown(self) -> None:
        """Detect that the application shuts its own provider down before the scorer. Spans held then are lost, and counted."""
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
        while self.prepared:  # each once, not again in a forked child
            self.prepared.pop(0)()
        if self.judge_check is not None and not self.over:
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
        if self.telemetry is not None and not self.over:
            self.telemetry.export_to(self.providers.meter())


def _is_disabled() -> bool:
    """Whether the environment stops scoring in this process. An unclear value also stops it."""
    if os.environ.get(semconv.DISABLED_ENV, "").strip().lower() in ("", "0", "false", "no", "off"):
        return False
    log_once("disabled", DISABLED)
    return True
