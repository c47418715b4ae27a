"""``Status``, the state of a running scorer at one moment, with its tables and lines; ``status_of`` reads it from the parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

from rich.console import Group

from spanscore import semconv
from spanscore.capture.callback.model_metrics import ModelMetrics, other_tracers
from spanscore.core.job import (
    CONFIGURED,
    STATED,
    UNKNOWN,
    ExternalCounts,
    LogRecords,
    ReplayState,
    ServeState,
    TopicState,
    UnitCounts,
    Weights,
)
from spanscore.core.printable import TextTable, format_age, format_bytes, format_count
from spanscore.core.score import Outcome
from spanscore.core.span import InnerGroup, InnerKind
from spanscore.core.terminal import as_plain
from spanscore.durable.rows import REMOTE_SCORING, SpoolState
from spanscore.judges.effects.account import AccountState
from spanscore.judges.effects.budget_ledger import BudgetState
from spanscore.metrics.catalog.registry import offline_notes
from spanscore.monitoring.estimates import (
    WORTH_TELLING,
    MeanInterval,
    ReadSums,
    format_shares,
    missing_so_far,
    running_mean,
    running_shares,
)
from spanscore.monitoring.health import Applicability, running_applicability
from spanscore.monitoring.judge_check_runs import JudgeComparison
from spanscore.outputs.aggregates import is_conditional, labels_of_source
from spanscore.outputs.collected_cases import CollectState
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.spans_file import SpansFileState
from spanscore.pipeline.judge_check import JudgeCheckStatus
from spanscore.pipeline.ledger import Notes
from spanscore.protocols import Metric
from spanscore.wiring.accounts import account_rows
from spanscore.wiring.build import DISABLED, Pipeline
from spanscore.wiring.durable import spool_of, spool_rows
from spanscore.wiring.instruments import sums_in_force
from spanscore.wiring.outputs import collect_rows, sink_rows

if TYPE_CHECKING:
    from spanscore.durable.sink_outbox import SinkOutboxState
    from spanscore.wiring.from_config import ReloadState
    from spanscore.wiring.lifecycle import Lifecycle
    from spanscore.wiring.receiver_set import ReceiverSet

_RELEASED: Mapping[str, str] = {
    "done": "exported with their outcomes",
    "deadline": "exported before their scores: the wait was over (hold)",
    "overflow": "exported before their scores: too many were waiting",
    "shutdown": "exported before their scores: it was shut down",
}
"""Reason for the export of a unit's spans → its meaning in ``status()``."""
_PROVIDER_OWNERS: Mapping[str, str] = {"given": "yours", "global": "yours, global", "own": "spanscore's"}
_SOURCE_REMARKS: Mapping[str, str] = {
    "matched": " (guessed)",
    "object": " (all of it)",
    "model": " (a model's words, because the root has none)",
}
"""Source of a sample → a remark for the reader."""
_USER_PROVIDERS = ("given", "global")
_RESULT_UNKNOWN = "sent by your provider: the result is unknown here"
_MISSING_FIELD_REMARK = (
    "missing_field is no fault if a metric does not fit a unit; "
    "the unit's span has spanscore.status=partial if others scored it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """The conversations that metrics score; conversations that no metric samples are left out.

    Attributes:
        open: conversations that go on.
        ended: kind of end → conversations, each counted once.
        without_id: units without a conversation id.
        pieces: reason and remedy if this process has only parts of conversations, which are then ``incomplete``; empty if it
            has whole conversations.
    """

    open: int
    ended: Mapping[str, int]
    without_id: int
    pieces: str = ""

    def __str__(self) -> str:
        ended = ", ".join(f"{sessions:,} {end}" for end, sessions in sorted(self.ended.items()))
        line = f"conversations: {self.open:,} open; ended: {ended or 'none'}"
        line = f"{line}; incomplete, because {self.pieces}" if self.pieces else line
        if not self.without_id:
            return line
        units = f"{self.without_id:,} unit{'s are' if self.without_id > 1 else ' is'}"
        how = "use spanscore.session(…), or metadata thread_id or session_id"
        return f"{line}; {units} without a conversation id: {how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowStatus:
    """The state of a metric's second judge.

    Attributes:
        metric: name of the metric.
        judge: model of the second judge.
        evaluator_version: evaluator version of its scores; write it into ``alerts.<metric>.evaluator_version`` when this judge
            becomes the metric's own.
        eligible: number of units that it has scored, or will score.
        pending: units without an outcome yet.
        outcomes: outcome → units.
        compared: comparison of its scores with the metric's own, on the same units.
        reason: latest reason for a missing score; empty if each unit has one.
    """

    metric: str
    judge: str
    evaluator_version: str
    eligible: int
    pending: int
    outcomes: Mapping[str, int]
    compared: JudgeComparison
    reason: str

    def __str__(self) -> str:
        lost = [f"{outcome} {units:,}" for outcome, units in sorted(self.outcomes.items()) if outcome != Outcome.SCORED]
        lost += [f"pending {self.pending:,}"] if self.pending else []
        latest = f"; latest {self.reason}" if self.reason else ""
        lost_units = f" ({', '.join(lost)}{latest})" if lost else ""
        return f"{self.metric} shadow ({self.judge or self.evaluator_version}): {self.compared}{lost_units}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerStatus:
    """The state of one metric on the inner units of one entry of ``units.also``.

    Attributes:
        metric: name of the metric.
        kind: kind of the units.
        name: name of their tool, agent, retriever or model; None if the entry has no name.
        rate: share of the units below recorded roots that the metric scores, [0, 1]; None if only another process's
            configuration has the entry, or if a reload removed the metric.
        eligible: number of units below recorded roots.
        pending: number of units without an outcome yet.
        outcomes: outcome → units.
        mean: mean quality so far, of the metric's present evaluator version, and both ends of its 95 % interval, [0, 1]; None
            without scores, or if a reload removed the metric.
        reason: latest reason for a missing score; empty if each unit has a score.
        trace: trace id (32 hex digits) of that unit; empty without a reason.
    """

    metric: str
    kind: InnerKind
    name: str | None
    rate: float | None
    eligible: int
    pending: int
    outcomes: Mapping[str, int]
    mean: MeanInterval | None
    reason: str
    trace: str

    def __str__(self) -> str:
        counts = [f"{outcome} {units:,}" for outcome, units in sorted(self.outcomes.items())]
        counts += [f"pending {self.pending:,}"] if self.pending else []
        mean = "no mean yet" if self.mean is None else f"{self.mean[0]:.2f} ({self.mean[1]:.2f}–{self.mean[2]:.2f})"
        rate = "" if self.rate is None else f", rate {self.rate:g}"
        line = f"{InnerGroup(self.kind, self.name)}: {self.metric} {mean}{rate}; {self.eligible:,} eligible"
        return f"{line}{': ' if counts else ''}{', '.join(counts)}{f'; latest {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a scorer at one moment. ``print(scorer.status())`` shows it as tables.

    The first table has a row per metric:

    - its judge, and its sampling rate;
    - the mean quality so far (0 to 1, 1 is good), and below it the 95 % interval;
    - its eligible units, and their outcomes: one per unit, or pending.

    The second table has a row for traces, metrics and logs: the provider that sends them, the destination, and the last
    result. The lines below count the waiting units, and give the latest reason of each outcome without a score.

    Attributes:
        providers: rows of (signal, provider, endpoint, last result).
        units: number of units seen since the start.
        refused: number of units rejected because the event queue was full.
        eligible: metric → number of eligible units.
        pending: metric → number of eligible units without an outcome yet.
        outcomes: metric → outcome → units.
        reasons: "metric outcome" → the latest reason.
        traces: "metric outcome" → the trace id (32 hex digits) of that unit, for ``scorer.explain``.
        judges: metric → model of its judge.
        evaluator_version: metric → version, judge and votes of its scores. Only scores of one evaluator version are compared.
        queue: (units that wait for their scores, capacity).
        hold: units parked, units released by reason, spans lost.
        closed: whether the scorer was shut down.
        neighbours: other instrumentations that trace LangChain in this process now.
        unpriced: models of judges without a price; no sum includes their cost.
        overflowed: measurements with attributes replaced by ``other``, because an instrument had too many attribute sets.
        overflowing: metric → the attribute that had too many values.
        rates: metric → (lowest, highest) sampling rate, [0, 1]. The two differ if a rule raises the rate, or if samples were
            submitted, which are always scored (rate 1). The rate of a session metric is a share of sessions.
        means: metric → mean quality so far, of its present evaluator version, and both ends of its 95 % interval, [0, 1]; None
            without scores.
        shares: metric with categories → category → share of its units so far and both ends of its 95 % interval, [0, 1]; empty
            without scores.
        notes: remarks on the numbers, a sentence each.
        kinds: kind of unit (``workflow``, ``agent``, or ``chat``, a single model call) → sampled units.
        head_sampling: source of the share of traces that a head sampler kept → number of sampled units. ``th`` is ``ot=th``
            of the trace, ``configured`` is ``head_sampling_rate``. With ``unknown`` a unit counts as if no trace was dropped.
        sources: how question and answer of a sample were found (``spanscore.sample.source``) → samples.
        accounts: state of each account that judges and embeddings use; other scorers of the process may use it too.
        budgets: state of each budget of the judges.
        declined: metric → units that its judge declined to judge.
        excluded: metric → (share of the sampled units without a score, (0, 1]; lowest and highest mean if they had one). Only
            metrics with such units.
        received: counts of spans received over OTLP; None without a listener.
        shadows: the second judges; accounts and budgets include them, the other numbers do not.
        judge_check: the judges on labelled samples; accounts and budgets include them, the other numbers do not.
        sessions: the conversations that metrics score; None if no metric scores conversations.
        labels: name → labels of this name, one per unit and annotator.
        spool: content of the spool's file, of all processes that share it; None without a spool.
        spans_file: state of the file of ``spans_to``; None without it.
        collected: units that became cases of a data set; None without ``collect``.
        sinks: messages of the sinks ``webhook``, ``phoenix`` and ``langfuse``: sent, waiting and dropped.
        contradictions: metric → verdicts of its judges that their own reason contradicts; metrics without one are left out.
        applies: metric with a condition → share of traffic to which it applies, with its 95 % interval; None before its judge
            has decided on a unit.
        replay: progress of a replay; None without one.
        images_left_out: images that samples lack: above ``limits.image_bytes``, dropped by ``capture.images``, or not recorded.
        reloads: reloads of the configuration file; None if the scorer was not made from a file.
        since_s: time at which these counts began at zero, with the process, seconds since the epoch.
        inner: the inner units of ``units.also``, a value per entry and metric; accounts, budgets and the queue include
            them, the other numbers do not.
    """

    providers: Sequence[Sequence[str]]
    units: int
    refused: int
    eligible: Mapping[str, int]
    pending: Mapping[str, int]
    outcomes: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, str]
    judges: Mapping[str, str]
    queue: tuple[int, int]
    hold: Mapping[str, int]
    closed: bool
    neighbours: Sequence[str] = ()
    unpriced: Sequence[str] = ()
    overflowed: int = 0
    rates: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    means: Mapping[str, tuple[float, float, float] | None] = field(default_factory=dict)
    notes: Sequence[str] = ()
    sources: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    accounts: Sequence[AccountState] = ()
    budgets: Sequence[BudgetState] = ()
    declined: Mapping[str, int] = field(default_factory=dict)
    shadows: Sequence[ShadowStatus] = ()
    excluded: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    overflowing: Mapping[str, str] = field(default_factory=dict)
    traces: Mapping[str, str] = field(default_factory=dict)
    received: ServeState | None = None
    judge_check: Sequence[JudgeCheckStatus] = ()
    sessions: SessionStatus | None = None
    labels: Mapping[str, int] = field(default_factory=dict)
    evaluator_version: Mapping[str, str] = field(default_factory=dict)
    spool: SpoolState | None = None
    spans_file: SpansFileState | None = None
    collected: CollectState | None = None
    sinks: Sequence[SinkOutboxState] = ()
    replay: ReplayState | None = None
    since_s: float = 0.0
    contradictions: Mapping[str, int] = field(default_factory=dict)
    applies: Mapping[str, Applicability | None] = field(default_factory=dict)
    head_sampling: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, tuple[float, float, float]]] = field(default_factory=dict)
    inner: Sequence[InnerStatus] = ()
    images_left_out: int = 0
    reloads: ReloadState | None = None

    def __str__(self) -> str:
        return as_plain(self)

    def __rich__(self) -> Any:
        headers = ("metric", "judge", "rate", "mean quality (95 %)", "eligible", "outcomes")
        metrics = TextTable(headers, [self._metric_row(name) for name in self.eligible], title="spanscore")
        providers = [
            (
                what,
                _PROVIDER_OWNERS.get(which, which),
                endpoint,
                last or (_RESULT_UNKNOWN if which in _USER_PROVIDERS else ""),
            )
            for what, which, endpoint, last in self.providers
        ]
        signals = TextTable(("signal", "provider", "sent to", "last result"), providers)
        lines = (
            *self._unit_lines(),
            *self._sample_lines(),
            *self._source_lines(),
            *self._reason_lines(),
            *self._remark_lines(),
        )
        return Group(metrics, signals, *lines)

    def _metric_row(self, name: str) -> Sequence[str]:
        outcomes = [f"{outcome} {units}" for outcome, units in sorted(self.outcomes.get(name, {}).items())]
        if self.pending.get(name):
            outcomes.append(f"pending {self.pending[name]}")
        missing = self.excluded.get(name)
        is_partial = _is_large(missing)
        rate = mean = "–"
        if name in self.rates:
            least, most = self.rates[name]
            rate = f"{least:g}" if least == most else f"{least:g} … {most:g}"
            rate += f"\n−{100 * missing[0]:.0f} % lost" if _is_large(missing) else ""
        if (estimate := self.means.get(name)) is not None:
            low, high = (missing if _is_large(missing) else estimate)[1:]
            mean = f"{estimate[0]:.2f}{' of the rest' if is_partial else ''}\n{low:.2f}–{high:.2f}"
        return name, self.judges.get(name, ""), rate, mean, str(self.eligible[name]), "\n".join(outcomes) or "–"

    def _unit_lines(self) -> Iterator[str]:
        waiting, places = self.queue
        state = "shut down" if self.closed else "running"
        yield f"{state}: {format_count(self.units, 'unit')} seen; {waiting} of at most {places:,} waiting for their scores"
        released = [
            f"of {count} {_RELEASED[reason]}" for reason, count in self.hold.items() if reason in _RELEASED and count
        ]
        parked = format_count(self.hold.get("parked", 0), "unit")
        yield "; ".join([f"spans of {parked} held back until they are scored", *released])
        if self.hold.get("lost"):
            yield f"{self.hold['lost']} spans lost: their provider was shut down first; call scorer.shutdown() before it"
        if self.refused:
            remedy = "raise event_queue_size, or lower the rates"
            yield f"{format_count(self.refused, 'unit')} rejected, because the event queue was full: {remedy}"
        if self.received is not None:
            yield from received_rows(self.received)
        if self.spool is not None:
            yield from spool_rows(self.spool, self.since_s)
        if self.collected is not None:
            yield from collect_rows(self.collected)
        yield from sink_rows(self.sinks)

    def _sample_lines(self) -> Iterator[str]:
        if single_calls := self.kinds.get("chat"):
            sampled = format_count(sum(self.kinds.values()), "sampled unit")
            yield f"single model calls: {single_calls:,} of {sampled}; units.kinds can leave them out"
        if self.sources:
            sources = (
                f"{source} {count:,}{_SOURCE_REMARKS.get(source, '')}" for source, count in sorted(self.sources.items())
            )
            yield f"samples by place of question and answer: {', '.join(sources)}"
        if self.images_left_out:
            yield f"{format_count(self.images_left_out, 'image')} left out of samples (limits.image_bytes, capture.images)"
        th, *others = (self.head_sampling.get(source, 0) for source in (STATED, CONFIGURED, UNKNOWN))
        if th and any(others):
            yield (
                f"head sampling of the sampled units: ot=th on {th:,}; without it {sum(others):,}, "
                f"head_sampling_rate names the share of {others[0]:,}"
            )

    def _source_lines(self) -> Iterator[str]:
        """Yield the lines about other sources of scores, labels and accounts."""
        yield from (str(state) for state in (self.spans_file, self.replay) if state is not None)
        for metric, shares in self.shares.items():
            if shares:
                yield f"{metric}: {format_shares(shares)}"
        for metric, share in self.applies.items():
            yield f"{metric} {'has no unit yet to which it might apply' if share is None else share}"
        yield from map(str, self.inner)
        yield from map(str, [*self.shadows, *([] if self.sessions is None else [self.sessions]), *self.judge_check])
        if self.labels:
            counts = [f"{labels:,} of {name}" for name, labels in sorted(self.labels.items())]
            yield f"labels: {', '.join(counts)}"
        yield from account_rows(self.accounts, self.budgets)
        if self.neighbours:
            yield f"also traced by {', '.join(self.neighbours)}"

    def _reason_lines(self) -> Iterator[str]:
        """Yield the latest reason of each outcome without a score, once for all metrics with the same reason."""
        metrics_by_reason: dict[str, list[str]] = {}
        for key, reason in self.reasons.items():
            metric, _, outcome = key.partition(" ")
            metrics_by_reason.setdefault(f"{outcome}: {reason.removeprefix(f'{metric} ')}", []).append(metric)
        for why, metrics in metrics_by_reason.items():
            yield f"{', '.join(metrics)}, latest {why}"
        if any(key.endswith(" missing_field") for key in self.reasons):
            yield _MISSING_FIELD_REMARK
        if trace_id := next(iter(self.traces.values()), ""):
            yield f"one of these units by its trace id: scorer.explain('{trace_id}')"

    def _remark_lines(self) -> Iterator[str]:
        yield from () if self.reloads is None else self.reloads.lines()
        yield from self.notes
        yield from self._unscored_lines()
        unknown = self.head_sampling.get(UNKNOWN)
        if unknown and self.head_sampling.get(STATED):
            yield (
                f"besides units with ot=th, {format_count(unknown, 'unit')} without it and without a configured share: they "
                "count as if no head sampler had dropped any. If one did, means and intervals are wrong, not only totals. Name "
                "the service (1 if it has no sampler): sampling: {head_sampling_rate: {by_service: {NAME: 0.1}, default: 1}}"
            )
        for metric, verdicts in self.contradictions.items():
            what = "1 verdict contradicts its" if verdicts == 1 else f"{verdicts:,} verdicts contradict their"
            read = "the verdicts are kept, read some (spanscore.judge.self_contradictions on the spans)"
            yield f"{metric}: {what} own reason; {read}"
        yield from self._fault_lines()

    def _fault_lines(self) -> Iterator[str]:
        """Yield lines about settings that make the numbers useless or incomplete."""
        ended = {outcome for outcomes in self.outcomes.values() for outcome, units in outcomes.items() if units}
        if ended == {"not_sampled"} and not any(self.pending.values()):
            rates = {least for least, _ in self.rates.values()}
            rate = f"sample_rate={rates.pop():g}" if len(rates) == 1 else "the sampling rates are low"
            yield f"no unit is scored, because sampling took none; {rate}: use 1.0 while testing"
        if self.unpriced:
            models = ", ".join(self.unpriced)
            yield f"no price of {models}: no cost is counted; set judge.prices, or in Python judge(…, prices=…)"
        if self.overflowed:
            whose = [f"{metric} has too many different values of {label}" for metric, label in self.overflowing.items()]
            culprits = "; ".join(whose) or "too many different models, agents or evaluator versions"
            yield f"{self.overflowed} measurements are counted as 'other': {culprits}"

    def _unscored_lines(self) -> Iterator[str]:
        """Yield lines about sampled units without a score, and about units that judges declined."""
        for metric, missing in self.excluded.items():
            if _is_large(missing):
                ended = self.outcomes[metric].items()
                counts = (f"{outcome} {units:,}" for outcome, units in ended if units and Outcome(outcome).missing)
                how = ", ".join(counts) or "a fallback scored them"
                share, low, high = missing
                of_rest = f"the mean is of the rest; of all it is {low:.2f} at worst, {high:.2f} at best"
                rest = of_rest if share < 1 else "there is no mean"
                yield f"{metric}: {100 * share:.0f} % of the sampled units were not scored ({how}): {rest}"
        for metric, declined in self.declined.items():
            if declined:
                ended = self.outcomes[metric].items()
                attempted = sum(units for outcome, units in ended if not Outcome(outcome).not_attempted)
                units_declined = (
                    f"{declined:,} of {format_count(attempted, 'unit')} ({100 * declined / attempted:.0f} %)"
                )
                yield f"{metric}: the judge declined {units_declined}: not a random sample; the mean is of the others"


def _is_large(missing: tuple[float, float, float] | None) -> TypeGuard[tuple[float, float, float]]:
    """Whether the share of units without a score is large enough for a remark."""
    return missing is not None and missing[0] >= WORTH_TELLING


# --- received over OTLP ---------------------------------------------------------------------------------------------


def received_rows(received: ServeState) -> Iterator[str]:
    """Yield lines about received spans: requests, units, normalizers, log records, external scores, topic, proxy."""
    totals = f"{format_count(received.requests, 'request')}, {format_count(received.spans, 'span')}"
    refused, rejected = _by_reason(received.refused), _by_reason(received.rejected)
    yield "; ".join(
        [
            f"received: {totals}, {format_bytes(received.bytes)}",
            *([f"refused {refused}"] if refused else []),
            *([f"invalid spans: {rejected}"] if rejected else []),
            *_counts((received.ours, "evaluation", "left out: spans of evaluations are not scored")),
        ]
    )
    yield "; ".join(
        [
            f"units: {format_count(received.open, 'trace')} open, {received.waiting_for_root:,} of them waiting for a root",
            *_counts(
                (received.orphans, "span", "dropped, because their root never came (units.orphan_wait)"),
                (received.late, "span", "came when their unit had closed (units.idle_timeout)"),
                (received.duplicates, "span", "came again"),
                (received.revisions, "unit", "opened again for late spans"),
            ),
        ]
    )
    dialects = [
        f"{name} {spans:,}" + (f" ({without:,} without content)" if without else "")
        for name, (spans, without) in received.dialects.items()
    ]
    unread = "not read, because another scope traces the same library"
    yield "; ".join(
        [
            f"dialects: {', '.join(dialects) or 'none read yet'}",
            *_counts((received.unclaimed, "span", "of other things")),
            *(f"{format_count(traces, 'trace')} of {scope} {unread}" for scope, traces in received.unread.items()),
        ]
    )
    if received.logs is not None:
        yield _log_records_row(received.logs, received.topic)
    if received.external is not None:
        yield _external_scores_row(received.external)
    if received.topic is not None:
        yield "; ".join(_topic_parts(received.topic))
    if received.forward is not None:
        sent, failed, wrong = received.forward
        requests = f"forward: {format_count(sent, 'request')} sent on, {failed:,} failed"
        yield f"{requests}; {wrong}" if wrong else requests


def _counts(*counts: tuple[int, str, str]) -> Iterator[str]:
    """Yield number, noun and text of each count that is not 0."""
    return (f"{format_count(number, noun)} {rest}" for number, noun, rest in counts if number)


def _by_reason(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {reason}" for reason, number in counted.items() if number)


def _log_records_row(counts: LogRecords, topic: TopicState | None) -> str:
    elsewhere = ", or is read by another worker" if topic is not None and len(topic.partitions) < topic.all else ""
    late = f"without their span in time, or later than it (units.idle_timeout){elsewhere}"
    parts = [f"content in log records: {counts.joined:,} joined to their span, {counts.waiting:,} waiting for it"]
    parts += _counts((counts.unjoined, "record", late))
    parts += [f"no room for {format_count(counts.dropped, 'record')} (units.bytes)"] if counts.dropped else []
    return "; ".join(parts)


def _external_scores_row(counts: ExternalCounts) -> str:
    names = []
    for name, scores in counts.names.items():
        details = [f"{number:,} {label}" for label, number in sorted(scores.labels.items())]
        details += ["values not from 0 to 1: no mean"] if scores.off_scale else []
        details += [f"mean {scores.mean:.2f}"] if scores.mean is not None else []
        names.append(f"{name} {scores.scores:,}" + (f" ({', '.join(details)})" if details else ""))
    parts = [f"external scores: {', '.join(names) or 'none with a value or label'}"]
    parts += _counts((counts.undefined, "result", "without a value or label"))
    return "; ".join([*parts, *([f"{counts.again:,} came again"] if counts.again else [])])


def _topic_parts(topic: TopicState) -> Iterator[str]:
    yield f"kafka: topic {topic.name}, {len(topic.partitions)} of {format_count(topic.all, 'partition')}"
    yield f"{format_count(topic.lag, 'message')} not settled"
    if topic.oldest_s is not None:
        yield f"the oldest read one is {format_age(topic.oldest_s)} old"
    if topic.rebalanced_s is not None:
        yield f"rebalanced {format_age(topic.rebalanced_s)} ago"
    yield from _counts(
        (topic.dropped, "open trace", "left to other workers"),
        (topic.skipped, "message", "deleted before they were read, or unreadable"),
        (topic.held, "partition", "wait for log records to be read (kafka.logs_topic)"),
    )
    if topic.wrong:
        yield topic.wrong


# --- reading the state ----------------------------------------------------------------------------------------------


def status_of(pipeline: Pipeline, receivers: ReceiverSet, lifecycle: Lifecycle, reloads: ReloadState | None) -> Status:
    """Return the state of a scorer, from its parts; ``reloads``: None for a scorer that was not made from a file."""
    counted, page, otlp, sessions = pipeline.count_units(), lifecycle.page, receivers.otlp, pipeline.sessions
    noted = [*pipeline.units.notes.reasons.items(), *sessions.notes.reasons.items()]
    reasons = {f"{metric} {outcome}": why for (metric, outcome), why in noted}
    return Status(
        providers=[tuple(row.replace_by_page(page.url)) for row in pipeline.providers.describe()],
        units=pipeline.sum_of("units"),
        refused=pipeline.ledger.refused,
        eligible=counted.eligible,
        pending=counted.pending,
        outcomes=_count_outcomes(counted, pipeline.metrics),
        reasons={key: why for key, (why, _) in reasons.items()},
        traces={key: f"{unit.trace_id:032x}" for key, (_, unit) in reasons.items()},
        sources=dict(pipeline.units.notes.sample_sources),
        images_left_out=pipeline.units.notes.images_left_out,
        kinds=dict(pipeline.units.notes.kinds),
        head_sampling=dict(pipeline.units.notes.head_sampling),
        judges={
            name: REMOTE_SCORING if pipeline.dispatcher else _judge_of(metric)
            for name, metric in pipeline.metrics.items()
        },
        evaluator_version={name: metric.evaluator_version for name, metric in pipeline.metrics.items()},
        queue=(len(pipeline.queue), pipeline.queue.capacity),
        hold={"parked": len(pipeline.hold), **pipeline.hold.released, "lost": pipeline.hold.lost},
        closed=lifecycle.closing.begun,
        neighbours=other_tracers(),
        unpriced=_find_unpriced(pipeline),
        overflowed=_count_overflowed(receivers.models) + _count_overflowed(pipeline.telemetry),
        rates=_read_rates(pipeline, counted.eligible),
        sessions=SessionStatus(
            open=sessions.table.open,
            ended=dict(sessions.ended),
            without_id=sessions.without_id,
            pieces=sessions.table.why_shared,
        )
        if pipeline.of_sessions
        else None,
        labels=dict(pipeline.annotation_writer.labelled),
        accounts=pipeline.accounts.states(),
        budgets=pipeline.accounts.budgets(),
        inner=tuple(_read_inner(pipeline)),
        shadows=tuple(_read_shadows(pipeline, counted.sources.get(semconv.SOURCE_SHADOW))),
        received=None if otlp is None else otlp.received(),
        replay=receivers.replay_state(),
        reloads=reloads,
        since_s=pipeline.ledger.since_s,
        sinks=tuple(pipeline.outboxes.states()),
        notes=[
            *([DISABLED] if pipeline.disabled else []),
            *offline_notes(pipeline.metrics.values() if pipeline.dispatcher is None else ()),
            *receivers.notes(),
            *pipeline.providers.notes(page.endpoint),
        ],
        **_read_files(pipeline),
        **_read_sums(pipeline),
    )


def _count_overflowed(telemetry: ModelMetrics | Telemetry | None) -> int:
    return 0 if telemetry is None else telemetry.overflowed


def _find_unpriced(pipeline: Pipeline) -> list[str]:
    inner = (decider.notes for decider in pipeline.units.inner_deciders.values())
    every = (pipeline.units.notes, pipeline.sessions.notes, *inner)
    return list(dict.fromkeys(model for notes in every for model in notes.unpriced))


def _read_files(pipeline: Pipeline) -> dict[str, Any]:
    """Return the fields of a status about the parts of a scorer that have files."""
    file, spool = pipeline.providers.spans_file, spool_of(pipeline.queue)
    return {
        "spool": None if spool is None else spool.state(),
        "spans_file": None if file is None else file.state(),
        "collected": None if pipeline.collector is None else pipeline.collector.state(),
        "judge_check": () if pipeline.judge_check is None else tuple(pipeline.judge_check.states()),
    }


def _read_shares(metrics: Mapping[str, Metric], sums: ReadSums) -> dict[str, Mapping[str, MeanInterval]]:
    """Return metric → category → share, for metrics with categories."""
    return {
        name: running_shares(name, metric.scale, sums) for name, metric in metrics.items() if metric.scale.categories
    }


def _read_sums(pipeline: Pipeline) -> dict[str, Any]:
    """Return the fields of a status that are read from the sums of the instruments."""
    if pipeline.telemetry is None:
        return {"means": dict.fromkeys(pipeline.metrics)}
    every, sums = pipeline.telemetry.sums, partial(sums_in_force, pipeline, pipeline.telemetry)
    lost = {**pipeline.ledger.lost(), **pipeline.sessions.ledger.lost()}
    excluded = {
        name: missing_so_far(
            name, metric.scale, sums, _subtract(lost.get(name, Weights()), pipeline.lost_before.get(name, Weights()))
        )
        for name, metric in pipeline.metrics.items()
    }
    contradictions: Counter[str] = Counter()
    for labels, verdicts in every(semconv.JUDGE_SELF_CONTRADICTIONS).items():
        contradictions[dict(labels)[semconv.EVALUATION_NAME]] += int(verdicts)
    return {
        "means": {name: running_mean(name, metric.scale, sums) for name, metric in pipeline.metrics.items()},
        "shares": _read_shares(pipeline.metrics, sums),
        "excluded": {name: missing for name, missing in excluded.items() if missing is not None},
        "applies": {
            name: running_applicability(name, every, lost.get(name, Weights()))
            for name, metric in pipeline.metrics.items()
            if is_conditional(metric)
        },
        "contradictions": {metric: verdicts for metric, verdicts in contradictions.items() if verdicts},
        "declined": {
            dict(labels)[semconv.EVALUATION_NAME]: int(units) for labels, units in every(semconv.DECLINED).items()
        },
        "overflowing": pipeline.telemetry.overflowing,
    }


def _subtract(lost: Weights, before: Weights) -> Weights:
    return Weights(max(0.0, lost.w - before.w), max(0.0, lost.w2 - before.w2))


def _read_rates(pipeline: Pipeline, eligible: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest rate of each metric.

    Submitted samples count as rate 1. A session metric has one rate only.
    """
    rates = {name: pipeline.settings.sampling.rates_of(name) for name in pipeline.metrics}
    if unsampled := pipeline.sum_of("unsampled"):
        rates = {
            name: (1.0 if eligible.get(name, 0) <= unsampled else least, 1.0) for name, (least, _) in rates.items()
        }
    return rates | {name: (rate, rate) for name, rate in pipeline.session_rates.items()}


def _count_outcomes(counted: UnitCounts, metrics: Iterable[str]) -> dict[str, dict[str, int]]:
    outcomes: dict[str, dict[str, int]] = {name: {} for name in [*metrics, *counted.eligible]}
    for (metric, outcome, _), count in counted.outcomes.items():
        of_metric = outcomes.setdefault(metric, {})  # another process may have sampled for its own metric
        of_metric[outcome.value] = of_metric.get(outcome.value, 0) + count
    return outcomes


def _read_shadows(pipeline: Pipeline, counted: UnitCounts | None) -> Iterator[ShadowStatus]:
    if counted is None:
        return
    outcomes, pairs = _count_outcomes(counted, pipeline.shadowing), pipeline.scoring.now.pairs
    for name, metric in pipeline.shadowing.items():
        yield ShadowStatus(
            metric=name,
            judge=_judge_of(metric),
            evaluator_version=metric.evaluator_version,
            eligible=counted.eligible.get(name, 0),
            pending=counted.pending.get(name, 0),
            outcomes=outcomes[name],
            compared=pairs.compared.get(name, JudgeComparison()),
            reason=pairs.reasons.get(name, ""),
        )


def _judge_of(metric: Metric) -> str:
    judge = getattr(metric, "_judge", None)
    return judge.model if judge is not None else ""


def _read_inner(pipeline: Pipeline) -> Iterator[InnerStatus]:
    """Yield the state of each entry and metric, in the order of the configuration."""
    rates = {entry.group: entry.rate for entry in pipeline.settings.units.also}
    for group, decider in pipeline.units.inner_deciders.items():
        counted, sums = decider.ledger.count_units(), _sums_of(group, pipeline)
        for metric, eligible in counted.eligible.items():
            reason, trace = _find_reason(metric, decider.notes)
            own = pipeline.of_units.get(metric)
            yield InnerStatus(
                metric=metric,
                kind=group.kind,
                name=group.name,
                rate=rates.get(group) if metric in decider.metrics else None,
                eligible=eligible,
                pending=counted.pending[metric],
                outcomes={end.value: units for (name, end, _), units in counted.outcomes.items() if name == metric},
                mean=None if sums is None or own is None else running_mean(metric, own.scale, sums),
                reason=reason,
                trace=trace,
            )


def _find_reason(metric: str, notes: Notes) -> tuple[str, str]:
    """Return the latest reason of a metric for a missing score, and the trace id of the unit; empty without a reason."""
    of_metric = [(end, *why) for (name, end), why in notes.reasons.copy().items() if name == metric]
    if not of_metric:
        return "", ""
    outcome, reason, unit = of_metric[-1]
    return f"{outcome}: {reason}", f"{unit.trace_id:032x}"


def _sums_of(group: InnerGroup, pipeline: Pipeline) -> ReadSums | None:
    """Return the sums of an entry's units as if they were those of sampled traffic; None without instruments."""
    telemetry, own = pipeline.telemetry, frozenset(labels_of_source(group))
    if telemetry is None:
        return None
    keys = {semconv.EVALUATION_SOURCE, semconv.UNIT_KIND, semconv.UNIT_NAME}

    def read(instrument: str) -> Mapping[tuple[tuple[str, str], ...], float]:
        return {
            tuple(label for label in labels if label[0] not in keys): value
            for labels, value in sums_in_force(pipeline, telemetry, instrument).items()
            if {label for label in labels if label[0] in keys} == own
        }

    return read
