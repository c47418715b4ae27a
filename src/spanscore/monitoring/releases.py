"""ReleaseScores: the sums of two releases, wherever they come from → a comparison per metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from spanscore.monitoring.estimates import Moments, n_eff
from spanscore.monitoring.release_comparison import Release, ReleaseComparison

__all__ = ["ReleaseScores", "compared"]


@dataclass(frozen=True, slots=True)
class ReleaseScores:
    """The scores of one release.

    Attributes:
        name: the compared value.
        scored: metric → series → sums.
        lost: metric → Σw and Σw² of the units that its means lack; of which series they would have been, nothing tells.
        seconds: over which it was scored; 0 = not known, or no more will come.
    """

    name: str
    scored: Mapping[str, Mapping[str, Moments]] = field(default_factory=dict)
    lost: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    seconds: float = 0.0

    def release(self, metric: str, series: Iterable[str]) -> Release:
        """Return one metric's side, of these series."""
        sums = sum((self.scored.get(metric, {}).get(one, Moments()) for one in series), Moments())
        lost, lost2 = self.lost.get(metric, (0.0, 0.0))
        rate = n_eff(sums) / self.seconds if self.seconds else 0.0
        return Release(self.name, replace(sums, lost=lost, lost2=lost2), rate)


def compared(
    metrics: Iterable[str],
    a: ReleaseScores,
    b: ReleaseScores,
    *,
    across_series: bool = False,
    tolerance: float = 0.0,
    level: float = 0.95,
) -> Iterator[ReleaseComparison]:
    """Yield a comparison of each metric, also of one that has no scores.

    Args:
        across_series: whether series are what is compared; else only scores of one series are, as another judge or prompt
            measures otherwise.
    """
    for metric in metrics:
        of_a, of_b = (set(side.scored.get(metric, {})) for side in (a, b))
        series, notes = (of_a | of_b, ()) if across_series else _in_common(metric, a, b)
        sides = a.release(metric, series), b.release(metric, series)
        yield ReleaseComparison(metric, *sides, tolerance=tolerance, level=level, notes=tuple(notes))


def _in_common(metric: str, a: ReleaseScores, b: ReleaseScores) -> tuple[set[str], tuple[str, ...]]:
    """Return the series in which both have most scores, and what is left out for it."""
    of_a, of_b = (side.scored.get(metric, {}) for side in (a, b))
    both = of_a.keys() & of_b.keys()
    if not both:
        if not of_a or not of_b:
            return {*of_a, *of_b}, ()
        told = f"{a.name} was scored as {_listed(of_a)} and {b.name} as {_listed(of_b)}, which cannot be compared"
        return set(), (f"{told}: score both with the same metric version and judge",)
    chosen = max(sorted(both), key=lambda one: min(n_eff(of_a[one]), n_eff(of_b[one])))
    others = (of_a.keys() | of_b.keys()) - {chosen}
    return {chosen}, (f"of series {chosen} alone; {_listed(others)} left out",) if others else ()


def _listed(series: Iterable[str]) -> str:
    return ", ".join(one or "a series that is not told" for one in sorted(series))
