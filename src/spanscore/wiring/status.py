"""Status: what ``status()`` returns, as a value and as a table, built from a scorer's parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeGuard

from spanscore import semconv
from spanscore.core.job import (
    CONFIGURED,
    STATED,
    UNKNOWN,
    ExternalCount,
    ExternalCounts,
    LogRecords,
    ReplayState,
    ServeState,
    TopicState,
    UnitCounts,
)
from spanscore.core.printable import TextTable, format_count
from spanscore.core.score import Outcome
from spanscore.durable.rows import REMOTE_SCORING, SpoolState
from spanscore.judges.effects.account import AccountState
from spanscore.judges.effects.budget_ledger import BudgetState
from spanscore.metrics.catalog.registry import offline_notes
from spanscore.monitoring.estimates import WORTH_TELLING, MeanInterval, MissingShare, missing_so_far, running_mean
from spanscore.monitoring.health import Applicability, applied_so_far
from spanscore.monitoring.judge_check_runs import JudgeComparison
from spanscore.outputs.aggregates import is_conditional
from spanscore.outputs.collected_cases import CollectState
from spanscore.outputs.spans_file import SpansFileState
from spanscore.pipeline.judge_check import JudgeCheckStatus
from spanscore.protocols import Metric
from spanscore.wiring.accounts import account_rows
from spanscore.wiring.build import DISABLED, Pipeline
from spanscore.wiring.outputs import collect_rows, read_collect_state
from spanscore.wiring.spool import spool_of, spool_rows

__all__ = [
    "SessionStatus",
    "ShadowStatus",
    "Status",
    "applies_in",
    "applies_rows",
    "contradiction_rows",
    "contradictions_in",
    "count_declined",
    "find_excluded",
    "means_of",
    "received_rows",
    "session_status_of",
    "status_of",
]

# --- judged rows ----------------------------------------------------------------------------------------------------

# What judges said beside their verdicts → rows of ``status()``: to what a metric applies, and what contradicts itself.


def applies_rows(applies: Mapping[str, Applicability | None]) -> Iterator[str]:
    """Yield a row per metric with a condition."""
    for metric, share in applies.items():
        yield f"{metric} {'has judged nothing to which it might apply' if share is None else share}"


def contradiction_rows(contradictions: Mapping[str, int]) -> Iterator[str]:
    """Yield a row per metric whose judges spoke against their own verdicts."""
    for metric, verdicts in contradictions.items():
        what = "1 verdict contradicts its" if verdicts == 1 else f"{verdicts:,} verdicts contradict their"
        yield f"{metric}: {what} own reason; nothing was changed, read some (spanscore.judge.self_contradictions on the spans)"


# --- received rows --------------------------------------------------------------------------------------------------

# Received → the rows that ``status()`` has of what comes over the wire.

_KB, _MB = 1_000, 1_000_000


def received_rows(received: ServeState) -> Iterator[str]:
    """Yield a row each of the door, units, dialects, log records, scores of others, of a topic, and of a proxy's way on."""
    yield "; ".join(_door(received))
    yield "; ".join(_units(received))
    yield "; ".join(_dialects(received))
    if received.logs is not None:
        yield "; ".join(_logs(received.logs, received.topic))
    if received.external is not None:
        yield "; ".join(_external(received.external))
    if received.topic is not None:
        yield "; ".join(_topic(received.topic))
    if received.forward is not None:
        sent, failed, wrong = received.forward
        requests = f"forward: {format_count(sent, 'request')} sent on, {failed:,} failed"
        yield f"{requests}; {wrong}" if wrong else requests


def _door(received: ServeState) -> Iterator[str]:
    size = f"{received.bytes / _MB:,.1f} MB" if received.bytes >= _MB else f"{received.bytes / _KB:,.1f} kB"
    yield f"door: {format_count(received.requests, 'request')}, {format_count(received.spans, 'span')}, {size}"
    if refused := _by_reason(received.refused):
        yield f"refused {refused}"
    if rejected := _by_reason(received.rejected):
        yield f"spans that are not valid: {rejected}"
    if received.ours:
        yield f"{format_count(received.ours, 'evaluation')} refused: no evaluation is evaluated"


def _units(received: ServeState) -> Iterator[str]:
    yield f"units: {format_count(received.open, 'trace')} open, {received.waiting_for_root:,} of them waiting for a root"
    if received.orphans:
        yield f"{format_count(received.orphans, 'span')} given up, as their root never came (units.orphan_wait)"
    if received.late:
        yield f"{format_count(received.late, 'span')} came when their unit had closed (units.idle_timeout)"
    if received.duplicates:
        yield f"{format_count(received.duplicates, 'span')} came again"
    if received.revisions:
        yield f"{format_count(received.revisions, 'unit')} opened once more"


def _dialects(received: ServeState) -> Iterator[str]:
    read = [
        f"{name} {spans:,}" + (f" ({without:,} without content)" if without else "")
        for name, (spans, without) in received.dialects.items()
    ]
    yield f"dialects: {', '.join(read) or 'none read yet'}"
    if received.unclaimed:
        yield f"{format_count(received.unclaimed, 'span')} of other things"
    for scope, traces in received.unread.items():
        yield f"{format_count(traces, 'trace')} of {scope} not read, as another scope traces the same library"


def _logs(counts: LogRecords, topic: TopicState | None) -> Iterator[str]:
    remote_scoring = ", or is read by another worker" if topic is not None and len(topic.partitions) < topic.all else ""
    yield f"content in log records: {counts.joined:,} joined to their span, {counts.waiting:,} waiting for it"
    if counts.unjoined:
        in_time = f"did not come in time, or was read before (units.idle_timeout){remote_scoring}"
        yield f"{format_count(counts.unjoined, 'record')} whose span {in_time}"
    if counts.dropped:
        yield f"no room for {format_count(counts.dropped, 'record')} (units.bytes)"


def _external(counts: ExternalCounts) -> Iterator[str]:
    names = [f"{name} {_of_others(of)}" for name, of in counts.names.items()]
    yield f"scores of others: {', '.join(names) or 'none with a value or label'}"
    if counts.undefined:
        yield f"{format_count(counts.undefined, 'result')} without a value or label"
    if counts.again:
        yield f"{counts.again:,} came again"


def _of_others(of: ExternalCount) -> str:
    parts = [f"{scores:,} {label}" for label, scores in sorted(of.labels.items())]
    parts += ["values not from 0 to 1: no mean"] if of.off_scale else []
    parts += [f"mean {of.mean:.2f}"] if of.mean is not None else []
    return f"{of.scores:,} ({', '.join(parts)})" if parts else f"{of.scores:,}"


def _topic(topic: TopicState) -> Iterator[str]:
    yield f"kafka: topic {topic.name}, {len(topic.partitions)} of {format_count(topic.all, 'partition')}"
    yield f"{format_count(topic.lag, 'message')} not settled"
    if topic.oldest_s is not None:
        yield f"the oldest that was read is {topic.oldest_s:,.0f} s old"
    if topic.rebalanced_s is not None:
        yield f"rebalanced {topic.rebalanced_s:,.0f} s ago"
    if topic.dropped:
        yield f"{format_count(topic.dropped, 'open trace')} left to other workers"
    if topic.skipped:
        yield f"{format_count(topic.skipped, 'message')} gone before they were read"
    if topic.held:
        yield f"{format_count(topic.held, 'partition')} wait for log records to be read (kafka.logs_topic)"
    if topic.wrong:
        yield topic.wrong


def _by_reason(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {reason}" for reason, number in counted.items() if number)


# --- session status -------------------------------------------------------------------------------------------------

# SessionStatus: what the conversations of a scorer are at, for ``status()``.


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """The conversations that metrics score, those left out that no metric takes.

    Attributes:
        open: conversations that go on.
        ended: how they ended → conversations, each counted once.
        without_id: units that are in none, as nothing names their conversation.
        pieces: why every conversation is a part of one and so ``incomplete``, and what to do; empty = they are whole.
    """

    open: int
    ended: Mapping[str, int]
    without_id: int
    pieces: str = ""

    def __str__(self) -> str:
        ended = ", ".join(f"{sessions:,} {end}" for end, sessions in sorted(self.ended.items()))
        line = f"conversations: {self.open:,} open; ended: {ended or 'none'}"
        line = f"{line}; incomplete, as {self.pieces}" if self.pieces else line
        if not self.without_id:
            return line
        units = f"{self.without_id:,} unit{'s are' if self.without_id > 1 else ' is'}"
        how = "use spanscore.session(…), or metadata thread_id or session_id"
        return f"{line}; {units} in none, as nothing names a conversation: {how}"


def session_status_of(line: Pipeline) -> SessionStatus | None:
    """Return what they are at; None where no metric scores them."""
    if not line.of_sessions:
        return None
    sessions = line.sessions
    return SessionStatus(
        open=sessions.table.open,
        ended=dict(sessions.ended),
        without_id=sessions.without_id,
        pieces=sessions.table.pieces.shared,
    )


# --- so far ---------------------------------------------------------------------------------------------------------

# What ``status()`` tells of a line's scores so far: their means, and what these lack.


def means_of(line: Pipeline) -> dict[str, MeanInterval | None]:
    """Return metric → how good its scores are so far; None where there are none, or their scale is open."""
    if line.telemetry is None:
        return dict.fromkeys(line.metrics)
    return {name: running_mean(name, metric.scale, line.telemetry.sums) for name, metric in line.metrics.items()}


def find_excluded(line: Pipeline) -> dict[str, MissingShare]:
    """Return metric → what its mean lacks; those that lack nothing, or have no mean, are left out."""
    if line.telemetry is None:
        return {}
    lost, sums = {**line.ledger.lost(), **line.sessions.ledger.lost()}, line.telemetry.sums
    shares = {name: missing_so_far(name, metric.scale, sums, lost[name]) for name, metric in line.metrics.items()}
    return {name: lacking for name, lacking in shares.items() if lacking is not None}


def applies_in(line: Pipeline) -> dict[str, Applicability | None]:
    """Return metric with a condition → to how much of traffic it applies; None where nobody has said yet."""
    if line.telemetry is None:
        return {}
    lost, sums = {**line.ledger.lost(), **line.sessions.ledger.lost()}, line.telemetry.sums
    conditional = (name for name, metric in line.metrics.items() if is_conditional(metric))
    return {name: applied_so_far(name, sums, lost[name]) for name in conditional}


def contradictions_in(line: Pipeline) -> dict[str, int]:
    """Return metric → verdicts of its judges that their own reason speaks against; those without any are left out."""
    counts: dict[str, int] = {}
    for labels, verdicts in (
        () if line.telemetry is None else line.telemetry.sums(semconv.JUDGE_SELF_CONTRADICTIONS).items()
    ):
        if verdicts:
            metric = dict(labels)[semconv.EVALUATION_NAME]
            counts[metric] = counts.get(metric, 0) + int(verdicts)
    return counts


def count_declined(line: Pipeline) -> dict[str, int]:
    """Return metric → units that its judge declined; empty without instruments."""
    sums = {} if line.telemetry is None else line.telemetry.sums(semconv.DECLINED)
    return {dict(labels)[semconv.EVALUATION_NAME]: int(units) for labels, units in sums.items()}


# --- status ---------------------------------------------------------------------------------------------------------

# Status: what a person asks in the first hour, as a value and as a small table.

_LEFT: Mapping[str, str] = {
    "done": "left with their outcomes",
    "deadline": "left before their scores: the wait was over (hold)",
    "overflow": "left before their scores: too many were waiting",
    "shutdown": "left before their scores: it was shut down",
}
"""Why a unit's spans left → what that means."""
_WHOSE: Mapping[str, str] = {"given": "yours", "global": "yours, global", "own": "spanscore's"}
_GUESSED: Mapping[str, str] = {
    "matched": " (guessed)",
    "object": " (all of it)",
    "model": " (a model's words, as the root holds none)",
}
"""Source of a sample → what a person should know of it."""
_THEIRS = ("given", "global")
_NOT_SEEN = "sent by your provider: how it went is not known here"
_DOES_NOT_FIT = (
    "missing_field is no fault where a metric does not fit a unit; "
    "the unit's span says spanscore.status=partial if others scored it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowStatus:
    """What a metric's second judge is at.

    Attributes:
        evaluator_version: of its scores: what ``alerts.<metric>.evaluator_version`` will be of when it is the metric's own.
        eligible: units that it was asked about, or was to be.
        outcomes: outcome → units.
        compared: its scores beside the metric's own, on the same units.
        reason: why it gave no score, the latest; empty where it always did.
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


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a scorer at one moment. ``print(scorer.status())`` shows it as tables.

    The first table has a row per metric: its judge; the share of units that it scores; their mean quality so far, from 0 to 1
    where 1 is good, above its 95 % interval; the units it could have scored (``eligible``); and how they ended, each in one
    outcome, or pending. The second says for traces, metrics and logs whose provider sends them, where to, and how that went.
    Below stand how many units are waiting, what their spans wait for, and the latest reason of each outcome that is no score.

    Attributes:
        providers: rows of (what, which, endpoint, last result).
        units: roots recorded since the start.
        refused: roots turned away because the event queue was full.
        eligible: metric → units that entered.
        pending: metric → units between entry and outcome.
        outcomes: metric → outcome → units.
        reasons: "metric outcome" → the latest reason.
        traces: "metric outcome" → the trace id (32 hex digits) of the unit of which it is: ``scorer.explain`` tells more.
        judges: metric → model of its judge.
        evaluator_version: metric → of which its scores are: version, judge and votes. Only scores of one evaluator version are
            compared.
        queue: places taken, places in all.
        hold: units parked, units released by reason, spans lost.
        closed: whether the scorer was shut down.
        neighbours: other instrumentations that trace LangChain in this process now.
        unpriced: models of judges that were paid for at a price that is not known; their cost is in no sum.
        overflowed: measurements whose attributes became ``other``, as an instrument had too many sets of them.
        overflowing: metric → the attribute of which it had too many values.
        rates: metric → the least and the most of its sampling rate; they differ if rules raise it, or if samples were
            submitted, which are scored whatever the rate. Of a session metric it is
            a share of sessions.
        means: metric → mean quality so far and both ends of its 95 % interval, [0, 1]; None where there is none.
        notes: what must be known of the numbers, a sentence each.
        kinds: kind of unit (``workflow``, ``agent``, or ``chat``, a model called alone) → units that were chosen to be scored.
        head_sampling: source of the share that a head sampler kept (``th``: ``ot=th`` of the trace; ``configured``:
            ``head_sampling_rate``; ``unknown``: neither, so that the unit counts as if none was dropped) → chosen units.
        sources: how question and answer of a sample were found (``spanscore.sample.source``) → samples.
        accounts: whom the judges and embeddings ask, and what each is at: a row each; other scorers may ask them, too.
        budgets: what judges may be paid, and what each budget is at.
        declined: metric → units that its judge declined to judge.
        excluded: metric → share of the chosen units that the mean lacks, (0, 1], and the bounds of the mean of all; a metric
            whose mean lacks nothing is left out.
        received: what came over the wire; None where nothing listens for it.
        shadows: the second judges, beside what they are compared with; in none of the other numbers but accounts and budgets.
        judge_check: the judges on labelled samples; likewise.
        sessions: the conversations that metrics score; None where none does.
        labels: name → units of which somebody said it.
        spool: what is in the file, of all processes that share it; None where there is none.
        spans_file: what ``spans_to`` has written; None where no file is asked for.
        collected: units that became cases of a data set; None where none does.
        contradictions: metric → verdicts of its judges that their own reason speaks against, where there are any.
        applies: metric with a condition → to how much of traffic it applies, with its 95 % interval; None where nobody said.
        replay: how far a replay is; None where none is.
        since_s: when these counts began at zero, with the process, seconds since the epoch.
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
    replay: ReplayState | None = None
    since_s: float = 0.0
    contradictions: Mapping[str, int] = field(default_factory=dict)
    applies: Mapping[str, Applicability | None] = field(default_factory=dict)
    head_sampling: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        from spanscore.core.terminal import as_plain

        return as_plain(self)

    def __rich__(self) -> Any:
        """Return the tables."""
        from rich.console import Group

        return Group(self._metrics_table(), self._providers_table(), *self._flow(), *self._reasons(), *self._remarks())

    def _metrics_table(self) -> TextTable:
        headers = ("metric", "judge", "rate", "mean quality (95 %)", "eligible", "outcomes")
        return TextTable(headers, [self._row(name) for name in self.eligible], title="spanscore")

    def _row(self, name: str) -> Sequence[str]:
        outcomes = [f"{outcome} {units}" for outcome, units in sorted(self.outcomes.get(name, {}).items())]
        if self.pending.get(name):
            outcomes.append(f"pending {self.pending[name]}")
        return (
            name,
            self.judges.get(name, ""),
            _rate(self.rates.get(name), self.excluded.get(name)),
            _mean(self.means.get(name), self.excluded.get(name)),
            str(self.eligible[name]),
            "\n".join(outcomes) or "–",
        )

    def _providers_table(self) -> TextTable:
        rows = [
            (what, _WHOSE.get(which, which), endpoint, last or (_NOT_SEEN if which in _THEIRS else ""))
            for what, which, endpoint, last in self.providers
        ]
        return TextTable(("signal", "provider", "sent to", "last result"), rows)

    def _flow(self) -> Iterator[str]:
        waiting, places = self.queue
        state = "shut down" if self.closed else "running"
        yield f"{state}: {format_count(self.units, 'unit')} seen; {waiting} of at most {places:,} waiting for their scores"
        released = [f"of {count} {_LEFT[reason]}" for reason, count in self.hold.items() if reason in _LEFT and count]
        yield "; ".join(
            [f"spans of {format_count(self.hold.get('parked', 0), 'unit')} held back until they are scored", *released]
        )
        if self.hold.get("lost"):
            yield f"{self.hold['lost']} spans lost, as their provider was shut down first: call scorer.shutdown() before it"
        if self.refused:
            remedy = "raise event_queue_size, or lower the rates"
            yield f"{format_count(self.refused, 'unit')} refused, as the event queue was full: {remedy}"
        if self.received is not None:
            yield from received_rows(self.received)
        if self.spool is not None:
            yield from spool_rows(self.spool, self.since_s)
        if self.collected is not None:
            yield from collect_rows(self.collected)
        yield from self._samples()
        yield from self._beside()
        yield from account_rows(self.accounts, self.budgets)
        if self.neighbours:
            yield f"also traced by {', '.join(self.neighbours)}"

    def _samples(self) -> Iterator[str]:
        if alone := self.kinds.get("chat"):
            chosen = format_count(sum(self.kinds.values()), "unit")
            yield f"{alone:,} of {chosen} chosen were a model called alone: units.kinds can leave them out"
        if self.sources:
            yield f"samples by where question and answer stood: {', '.join(map(_source, sorted(self.sources.items())))}"
        th, *others = (self.head_sampling.get(source, 0) for source in (STATED, CONFIGURED, UNKNOWN))
        if th and any(others):
            yield (
                f"head sampling of the chosen units: ot=th on {th:,}; without it {sum(others):,}, "
                f"head_sampling_rate names the share of {others[0]:,}"
            )

    def _beside(self) -> Iterator[str]:
        """Yield what stands beside the scores of units."""
        yield from (str(state) for state in (self.spans_file, self.replay) if state is not None)
        yield from applies_rows(self.applies)
        yield from map(str, [*self.shadows, *([] if self.sessions is None else [self.sessions]), *self.judge_check])
        if self.labels:
            counts = [f"{name} of {format_count(units, 'unit')}" for name, units in sorted(self.labels.items())]
            yield f"labels: {', '.join(counts)}"

    def _reasons(self) -> Iterator[str]:
        """Yield why there was no score: the latest of each outcome, once for metrics that say the same."""
        metrics_by_reason: dict[str, list[str]] = {}
        for key, reason in self.reasons.items():
            metric, _, outcome = key.partition(" ")
            metrics_by_reason.setdefault(f"{outcome}: {reason.removeprefix(f'{metric} ')}", []).append(metric)
        for why, metrics in metrics_by_reason.items():
            yield f"{', '.join(metrics)}, latest {why}"
        if any(key.endswith(" missing_field") for key in self.reasons):
            yield _DOES_NOT_FIT
        if trace_id := next(iter(self.traces.values()), ""):
            yield f"one of these units by its trace id: scorer.explain('{trace_id}')"

    def _describe_excluded(self) -> Iterator[str]:
        for metric, lacking in self.excluded.items():
            if _is_worth_telling(lacking):
                ended = (
                    (outcome, units) for outcome, units in self.outcomes[metric].items() if Outcome(outcome).missing
                )
                how = ", ".join(f"{outcome} {units:,}" for outcome, units in ended if units) or "a fallback scored them"
                share, low, high = lacking
                sentence = f"{metric}: {100 * share:.0f} % of the chosen units were not scored ({how})"
                of_rest = f"the mean is of the rest; of all it is {low:.2f} at worst, {high:.2f} at best"
                yield f"{sentence}: {of_rest if share < 1 else 'there is no mean'}"

    def _describe_declined(self) -> Iterator[str]:
        for metric, declined in self.declined.items():
            if declined:
                of = sum(
                    units for outcome, units in self.outcomes[metric].items() if not Outcome(outcome).not_attempted
                )
                share = f"{declined:,} of {format_count(of, 'unit')} ({100 * declined / of:.0f} %)"
                sentence = f"{metric}: the judge declined {share}"
                yield f"{sentence}: these are no random ones, and the mean is of the others"

    def _remarks(self) -> Iterator[str]:
        yield from self.notes
        yield from self._describe_excluded()
        yield from self._describe_declined()
        yield from self._describe_mixed_sampling()
        yield from contradiction_rows(self.contradictions)
        if self._none_sampled():
            rates = {least for least, _ in self.rates.values()}
            rate = f"sample_rate={rates.pop():g}" if len(rates) == 1 else "the sampling rates are low"
            yield f"nothing is scored, as sampling took none; {rate}: use 1.0 while testing"
        if self.unpriced:
            yield f"no price of {', '.join(self.unpriced)}: their cost is not counted; give judge(…, prices=…) one"
        if self.overflowed:
            whose = [f"{metric} has too many different values of {label}" for metric, label in self.overflowing.items()]
            culprits = "; ".join(whose) or "too many different models, agents or evaluator versions"
            yield f"{self.overflowed} measurements are told as 'other': {culprits}"

    def _describe_mixed_sampling(self) -> Iterator[str]:
        unknown = self.head_sampling.get(UNKNOWN)
        if unknown and self.head_sampling.get(STATED):
            yield (
                f"beside units with ot=th, {format_count(unknown, 'unit')} without it and without a configured share: they "
                "count as if no head sampler had dropped any. If one did, means and intervals are wrong, not only totals. Name "
                "the service (1 if it has no sampler): sampling: {head_sampling_rate: {by_service: {NAME: 0.1}, default: 1}}"
            )

    def _none_sampled(self) -> bool:
        ended = {outcome for outcomes in self.outcomes.values() for outcome, units in outcomes.items() if units}
        return ended == {"not_sampled"} and not any(self.pending.values())


def _source(counted: tuple[str, int]) -> str:
    source, samples = counted
    return f"{source} {samples:,}{_GUESSED.get(source, '')}"


def _is_worth_telling(lacking: tuple[float, float, float] | None) -> TypeGuard[tuple[float, float, float]]:
    return lacking is not None and lacking[0] >= WORTH_TELLING


def _rate(rate: tuple[float, float] | None, lacking: tuple[float, float, float] | None) -> str:
    if rate is None:
        return "–"
    least, most = rate
    rates = f"{least:g}" if least == most else f"{least:g} … {most:g}"
    return f"{rates}\n−{100 * lacking[0]:.0f} % lost" if _is_worth_telling(lacking) else rates


def _mean(mean: tuple[float, float, float] | None, lacking: tuple[float, float, float] | None) -> str:
    """Return the mean above its interval; where it is of a part, above the bounds that hold for all."""
    if mean is None:
        return "–"
    middle, low, high = mean
    if _is_worth_telling(lacking):
        _, low, high = lacking
    return f"{middle:.2f}{' of the rest' if _is_worth_telling(lacking) else ''}\n{low:.2f}–{high:.2f}"


# --- taking stock ---------------------------------------------------------------------------------------------------

# A scorer's line → Status.


def status_of(
    line: Pipeline,
    *,
    units: int,
    providers: Sequence[Sequence[str]],
    closed: bool,
    neighbours: Sequence[str],
    overflowed: int,
    notes: Sequence[str],
    received: ServeState | None = None,
    replay: ReplayState | None = None,
) -> Status:
    """Return the state of a scorer; what its line does not know, or not the whole of, is given, as ``Status`` has it."""
    counted = line.count_units()
    outcomes = _outcomes(counted, line.metrics)
    noted = [*list(line.units.notes.reasons.items()), *list(line.sessions.notes.reasons.items())]
    reasons = {f"{metric} {outcome}": why for (metric, outcome), why in noted}
    return Status(
        providers=[tuple(row) for row in providers],
        units=units,
        refused=line.ledger.refused,
        eligible=counted.eligible,
        pending=counted.pending,
        outcomes=outcomes,
        reasons={key: why for key, (why, _) in reasons.items()},
        traces={key: f"{unit.trace_id:032x}" for key, (_, unit) in reasons.items()},
        sources=dict(line.units.notes.sources),
        kinds=dict(line.units.notes.kinds),
        head_sampling=dict(line.units.notes.heads),
        judges={name: REMOTE_SCORING if line.handover else _judge_of(metric) for name, metric in line.metrics.items()},
        evaluator_version=dict(
            zip(line.metrics, map(attrgetter("evaluator_version"), line.metrics.values()), strict=True)
        ),
        queue=(len(line.queue), line.queue.capacity),
        hold={"parked": len(line.hold), **line.hold.released, "lost": line.hold.lost},
        closed=closed,
        neighbours=neighbours,
        unpriced=list(dict.fromkeys([*line.units.notes.unpriced, *line.sessions.notes.unpriced])),
        overflowed=overflowed + (0 if line.telemetry is None else line.telemetry.overflowed),
        rates=_rates(line, counted.eligible),
        sessions=session_status_of(line),
        labels=dict(line.annotation_writer.labelled),
        means=means_of(line),
        accounts=line.accounts.states(),
        budgets=line.accounts.budgets(),
        declined=count_declined(line),
        applies=applies_in(line),
        contradictions=contradictions_in(line),
        shadows=tuple(_shadows(line, counted.sources.get(semconv.SOURCE_SHADOW))),
        excluded=find_excluded(line),
        overflowing={} if line.telemetry is None else line.telemetry.overflowing,
        received=received,
        replay=replay,
        since_s=line.ledger.since_s,
        spool=None if (spool := spool_of(line.queue)) is None else spool.state(),
        spans_file=None if (file := line.providers.spans_file) is None else file.state(),
        collected=read_collect_state(line.collector),
        judge_check=() if line.judge_check is None else tuple(line.judge_check.states()),
        notes=[*_own_notes(line), *notes],
    )


def _rates(line: Pipeline, eligible: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Return the least and the most of each metric's rate: 1 for a submitted sample; no rule raises one of sessions."""
    rates = {name: line.settings.sampling.rates_of(name) for name in line.metrics}
    if unsampled := line.sum_of("unsampled"):
        rates = {name: (1.0 if eligible[name] <= unsampled else least, 1.0) for name, (least, _) in rates.items()}
    return rates | {name: (line.settings.sampling.rates_of(name)[0],) * 2 for name in line.of_sessions}


def _outcomes(counted: UnitCounts, metrics: Iterable[str]) -> dict[str, dict[str, int]]:
    outcomes: dict[str, dict[str, int]] = {name: {} for name in metrics}
    for (metric, outcome, _), count in counted.outcomes.items():
        of_one = outcomes.setdefault(metric, {})  # another process may have chosen one of its own
        of_one[outcome.value] = of_one.get(outcome.value, 0) + count
    return outcomes


def _shadows(line: Pipeline, beside: UnitCounts | None) -> Iterator[ShadowStatus]:
    if beside is None:
        return
    outcomes = _outcomes(beside, line.shadowing)
    for name, metric in line.shadowing.items():
        yield ShadowStatus(
            metric=name,
            judge=_judge_of(metric),
            evaluator_version=metric.evaluator_version,
            eligible=beside.eligible[name],
            pending=beside.pending[name],
            outcomes=outcomes[name],
            compared=line.pairs.compared[name],
            reason=line.pairs.reasons.get(name, ""),
        )


def _judge_of(metric: Metric) -> str:
    judge = getattr(metric, "_judge", None)
    return judge.model if judge is not None else ""


def _own_notes(line: Pipeline) -> Iterator[str]:
    if line.disabled:
        yield DISABLED
    yield from offline_notes(line.metrics.values() if line.handover is None else ())
