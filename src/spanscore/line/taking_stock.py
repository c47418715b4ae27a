"""A scorer's line → Status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from spanscore import semconv
from spanscore.core.job import Counted, Received, ReplayState
from spanscore.durable.rows import REMOTE_SCORING
from spanscore.line.build import DISABLED, Line
from spanscore.line.collecting import read_collect_state
from spanscore.line.session_status import session_status_of
from spanscore.line.so_far import applies_in, contradictions_in, count_declined, find_excluded, means_of
from spanscore.line.spool import spool_of
from spanscore.line.status import ShadowStatus, Status
from spanscore.metrics.catalog.registry import offline_notes
from spanscore.protocols import Metric

__all__ = ["status_of"]


def status_of(
    line: Line,
    *,
    units: int,
    providers: Sequence[Sequence[str]],
    closed: bool,
    neighbours: Sequence[str],
    overflowed: int,
    notes: Sequence[str],
    received: Received | None = None,
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


def _rates(line: Line, eligible: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Return the least and the most of each metric's rate: 1 for a submitted sample; no rule raises one of sessions."""
    rates = {name: line.settings.sampling.rates_of(name) for name in line.metrics}
    if unsampled := line.sum_of("unsampled"):
        rates = {name: (1.0 if eligible[name] <= unsampled else least, 1.0) for name, (least, _) in rates.items()}
    return rates | {name: (line.settings.sampling.rates_of(name)[0],) * 2 for name in line.of_sessions}


def _outcomes(counted: Counted, metrics: Iterable[str]) -> dict[str, dict[str, int]]:
    outcomes: dict[str, dict[str, int]] = {name: {} for name in metrics}
    for (metric, outcome, _), count in counted.outcomes.items():
        of_one = outcomes.setdefault(metric, {})  # another process may have chosen one of its own
        of_one[outcome.value] = of_one.get(outcome.value, 0) + count
    return outcomes


def _shadows(line: Line, beside: Counted | None) -> Iterator[ShadowStatus]:
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


def _own_notes(line: Line) -> Iterator[str]:
    if line.disabled:
        yield DISABLED
    yield from offline_notes(line.metrics.values() if line.handover is None else ())
