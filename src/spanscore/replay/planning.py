"""A stored unit → what is to be scored of it now: which metrics, and as which revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from spanscore.core.job import Decision
from spanscore.core.span import Unit, UpstreamDecision
from spanscore.protocols import Metric
from spanscore.replay.reading import StoredUnit

__all__ = ["UnitPlan", "plan_of"]


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """What becomes of one unit.

    Attributes:
        units: to be handed over, one for each revision that some metric is at; none where no metric takes it.
        taken: metrics that score it now.
        skipped: that took it, and have scored it already.
        told: of those that take it, whose decision a score in the store tells; the others' was made anew.
    """

    units: Sequence[Unit]
    taken: Set[str]
    skipped: Set[str]
    told: Set[str]


def plan_of(
    stored: StoredUnit, metrics: Sequence[Metric], decide: Callable[[Unit], Mapping[str, Decision]], *, again: bool
) -> UnitPlan:
    """Return what is to be done with a unit.

    What has a score by each metric in its present version is left alone; an evaluation that failed is tried again, as a
    revision above the one that failed.

    Args:
        stored: the unit.
        metrics: all of them.
        decide: what the sampler says of it.
        again: score everything that is taken, as a revision above what is there.
    """
    decisions = decide(stored.unit)
    takers = [metric for metric in metrics if decisions[metric.name].take]
    revisions = {metric.name: _revision(stored, metric, again=again) for metric in takers}
    wanted = {name: revision for name, revision in revisions.items() if revision is not None}
    at = sorted(set(wanted.values()))
    units = [_only(stored.unit, decisions, {name for name in wanted if wanted[name] == one}, one) for one in at]
    told = {name for name in revisions if name in stored.evaluated.decided}
    return UnitPlan(
        units or [_only(stored.unit, decisions, set(), 0)], wanted.keys(), revisions.keys() - wanted.keys(), told
    )


def _revision(stored: StoredUnit, metric: Metric, *, again: bool) -> int | None:
    """Return as which revision a metric scores a unit; None: it has."""
    known = stored.evaluated.latest(stored.unit.key, metric)
    if known is None:
        return 0
    revision, failed = known
    return revision + 1 if failed or again else None


def _only(unit: Unit, decisions: Mapping[str, Decision], names: Set[str], revision: int) -> Unit:
    """Return a unit which, of those that take it, only these metrics score."""
    others = {
        name: UpstreamDecision(False, one.threshold, one.rule)
        for name, one in decisions.items()
        if one.take and name not in names
    }
    root = unit.root
    if root is None or not (others or revision):
        return unit
    decided = replace(root, decided={**(root.decided or {}), **others})
    return replace(unit, spans=tuple(decided if one is root else one for one in unit.spans), revision=revision)
