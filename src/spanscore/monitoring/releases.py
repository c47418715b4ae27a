"""ReleaseScores: the sums of two releases, wherever they come from → a comparison per metric."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from spanscore.monitoring.estimates import Moments, n_eff
from spanscore.monitoring.matched import BLOCK_S
from spanscore.monitoring.release_comparison import Release, ReleaseComparison

__all__ = ["ReleasePair", "ReleaseScores", "Steps", "compared"]

_QUIET_S: Final = 900
"""A release has traffic while its last score is at most so much older than the other's."""

Steps: TypeAlias = Mapping[int, Moments]
"""Start of a step, in seconds since the epoch → the sums of its scores."""


@dataclass(frozen=True)
class ReleaseScores:
    """The scores of one release.

    Attributes:
        name: the compared value.
        scored: metric → evaluator version → sums by step.
        lost: metric → ``lost`` and ``lost2`` by step, of the units that its means lack; they have no evaluator version.
    """

    name: str
    scored: Mapping[str, Mapping[str, Steps]] = field(default_factory=dict)
    lost: Mapping[str, Steps] = field(default_factory=dict)

    @cached_property
    def span_s(self) -> tuple[int, int] | None:
        """Starts of the first and the last step with a score, seconds since the epoch; None if there is no score."""
        starts = [start for by_version in self.scored.values() for steps in by_version.values() for start in steps]
        return (min(starts), max(starts)) if starts else None

    def release(self, metric: str, evaluator_versions: Iterable[str], pair: ReleasePair) -> Release:
        """Return one metric's side, of these evaluator versions, in the whole blocks of the time over which a pair is
        compared.
        """
        since_s, whole = pair.since_s, (pair.end_s - pair.since_s) // BLOCK_S
        blocks: defaultdict[int, Moments] = defaultdict(Moments)
        scored = self.scored.get(metric, {})
        for steps in (*(scored[one] for one in evaluator_versions if one in scored), self.lost.get(metric, {})):
            for start, sums in steps.items():
                number = (start - since_s) // BLOCK_S
                if 0 <= number < whole:
                    blocks[number] += sums
        return Release(self.name, blocks)


@dataclass(frozen=True, slots=True)
class ReleasePair:
    """Two releases.

    Attributes:
        a: the release that was there before.
        b: the release of which is asked.
        end_s: until when scores are counted, seconds since the epoch.
        notes: what else must be known of both.
    """

    a: ReleaseScores
    b: ReleaseScores
    end_s: int
    notes: tuple[str, ...] = ()

    @property
    def since_s(self) -> int:
        """From when on both are counted: the first score of the later release, which stays at later looks."""
        return max((side.span_s[0] for side in (self.a, self.b) if side.span_s), default=self.end_s)

    @property
    def ended(self) -> str:
        """Name of the release that has no traffic any more while the other one has; empty if there is none."""
        last = {side.name: side.span_s[1] for side in (self.a, self.b) if side.span_s}
        earliest = min(last, key=lambda name: last[name], default="")
        return earliest if earliest and last[earliest] < max(last.values()) - _QUIET_S else ""


def compared(
    metrics: Iterable[str],
    pair: ReleasePair,
    *,
    across_evaluator_versions: bool = False,
    tolerance: float = 0.0,
    level: float = 0.95,
) -> Iterator[ReleaseComparison]:
    """Yield a comparison of each metric, also of one that has no scores.

    Args:
        across_evaluator_versions: whether evaluator versions are what is compared; else only scores of one evaluator version
            are, as another judge or prompt measures otherwise.
    """
    a, b = pair.a, pair.b
    for metric in metrics:
        of_a, of_b = (_effective(side.scored.get(metric, {})) for side in (a, b))
        evaluator_versions = of_a.keys() | of_b.keys() if across_evaluator_versions else _in_common(of_a, of_b)
        left_out = (of_a.keys() | of_b.keys()) - evaluator_versions
        yield ReleaseComparison(
            metric=metric,
            a=a.release(metric, evaluator_versions, pair),
            b=b.release(metric, evaluator_versions, pair),
            since_s=pair.since_s,
            end_s=pair.end_s,
            obstacle=_obstacle(pair, of_a, of_b, evaluator_versions),
            tolerance=tolerance,
            level=level,
            notes=(f"of evaluator version {_listed(evaluator_versions)} alone; {_listed(left_out)} left out",)
            if evaluator_versions and left_out
            else (),
        )


def _in_common(a: Mapping[str, float], b: Mapping[str, float]) -> Set[str]:
    """Return the evaluator version in which both have most scores; empty if they have none in common."""
    both = sorted(a.keys() & b.keys())
    return {max(both, key=lambda one: min(a[one], b[one]))} if both else set()


def _obstacle(pair: ReleasePair, a: Mapping[str, float], b: Mapping[str, float], evaluator_versions: Set[str]) -> str:
    """Return why nobody knows when more scores come of both; empty if they come."""
    lacking = [side.name for side, of in ((pair.a, a), (pair.b, b)) if not of]
    if lacking:
        return f"{' and '.join(lacking)} has none yet"
    if not evaluator_versions:
        told = f"{pair.a.name} was scored as {_listed(a)} and {pair.b.name} as {_listed(b)}, which cannot be compared"
        return f"{told}: score both with the same metric version and judge"
    return f"{pair.ended} has no traffic any more" if pair.ended else ""


def _effective(scored: Mapping[str, Steps]) -> dict[str, float]:
    """Return evaluator version → its effective scores."""
    return {evaluator_version: n_eff(sum(steps.values(), Moments())) for evaluator_version, steps in scored.items()}


def _listed(evaluator_versions: Iterable[str]) -> str:
    return ", ".join(one or "an evaluator version that is not told" for one in sorted(evaluator_versions))
