"""Status: what a person asks in the first hour, as a value and as a small table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from spanscore.core.job import CONFIGURED, STATED, UNKNOWN, Received, ReplayState
from spanscore.core.printable import Fitting, format_count
from spanscore.core.score import Outcome
from spanscore.durable.rows import SpoolState
from spanscore.judges.effects.account import AccountState
from spanscore.judges.effects.budget_ledger import BudgetState
from spanscore.line.account_row import account_rows
from spanscore.line.collecting import collect_rows
from spanscore.line.judged_rows import applies_rows, contradiction_rows
from spanscore.line.received_rows import received_rows
from spanscore.line.session_status import SessionStatus
from spanscore.line.spool_rows import spool_rows
from spanscore.monitoring.estimates import WORTH_TELLING
from spanscore.monitoring.health import Applicability
from spanscore.monitoring.judge_check_runs import JudgeComparison
from spanscore.outputs.collected_cases import CollectState
from spanscore.outputs.spans_file import SpansFileState
from spanscore.pipeline.judge_check import JudgeCheckStatus

__all__ = ["ShadowStatus", "Status"]

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
    received: Received | None = None
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

    def _metrics_table(self) -> Fitting:
        headers = ("metric", "judge", "rate", "mean quality (95 %)", "eligible", "outcomes")
        return Fitting(headers, [self._row(name) for name in self.eligible], title="spanscore")

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

    def _providers_table(self) -> Fitting:
        rows = [
            (what, _WHOSE.get(which, which), endpoint, last or (_NOT_SEEN if which in _THEIRS else ""))
            for what, which, endpoint, last in self.providers
        ]
        return Fitting(("signal", "provider", "sent to", "last result"), rows)

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
            remedy = "raise event_queue_size or event_queue_bytes, or lower the rates"
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
