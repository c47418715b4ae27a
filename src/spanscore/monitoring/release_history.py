"""A Prometheus → the scores of each release, step by step, and from when on two of them are compared.

Counted is from a fixed moment on: the interval that holds at every look is one of growing sums, not of a window that slides.
Where both releases have traffic that moment is the first score of the later one, so both have met the same hours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.compare_promql import RELEASE
from spanscore.monitoring.estimates import Moments
from spanscore.monitoring.prometheus_api import PrometheusApi
from spanscore.monitoring.releases import ReleaseScores
from spanscore.monitoring.running_mean import WEIGHTED
from spanscore.monitoring.score_history import stepped

__all__ = ["ReleaseHistory", "ReleasePair", "read_history"]

_SCORED: Final = {"n": semconv.SCORED, **WEIGHTED}
_LOST: Final = {"lost": semconv.COMPARED_EXCLUDED_WEIGHT, "lost2": semconv.COMPARED_EXCLUDED_WEIGHT2}
_FINE_S, _COARSE_S = 60, 300
_FINE_UNTIL_S: Final = 2 * 86_400
_MOST_STEPS: Final = 10_000
"""Points per series: Prometheus answers with 11,000 at most."""
_QUIET_S: Final = 900
"""A release has traffic while its last score is at most so much older than the other's."""

_Key = tuple[str, str, str]
"""Compared value, metric, series; of what is lost an empty series."""


@dataclass(frozen=True, slots=True)
class ReleasePair:
    """Two releases over the same time, and what must be known of that."""

    a: ReleaseScores
    b: ReleaseScores
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseHistory:
    """Sums by release, metric and series.

    Attributes:
        steps: → start of a step, seconds since the epoch → sums; ``lost`` of its own, under an empty series.
        begin_s: of the first step; ``end_s`` of the last one's end.
        step_s: length of a step.
        is_fixed: whether ``begin_s`` stays where it is at a later look.
    """

    steps: Mapping[_Key, Mapping[int, Moments]]
    begin_s: int
    end_s: int
    step_s: int
    is_fixed: bool

    @property
    def values(self) -> list[str]:
        """The releases that have scores."""
        return sorted({value for value, _, _ in self.steps if self._times(value)})

    def pair(self, a: str, b: str) -> ReleasePair:
        """Return both over the time in which they are to be compared; of one without scores nothing."""
        begun, ended = ({name: end(times) for name in (a, b) if (times := self._times(name))} for end in (min, max))
        newest = max(ended.values(), default=0)
        live = {name for name, last in ended.items() if last >= newest - _QUIET_S}
        together = live == {a, b}
        since = max(begun.values()) if together else self.begin_s
        sides = [self._scores(name, since, live=name in live) for name in (a, b)]
        return ReleasePair(sides[0], sides[1], tuple(self._notes(a, b, ended, since, together=together)))

    def _notes(self, a: str, b: str, ended: Mapping[str, int], since: int, *, together: bool) -> Iterable[str]:
        if len(ended) > 1 and not together:
            gone = min(ended, key=lambda name: ended[name])
            yield (
                f"{gone} has no traffic any more, so both are not of the same hours: what else has changed since counts as "
                f"{b}'s"
            )
        elif len(ended) > 1 and not self.is_fixed and since < self.begin_s + 2 * self.step_s:
            yield (
                "both have scores from before --since, whose beginning moves: the interval holds at one look. For one that "
                "holds at every look give --since a time, such as that of the release"
            )

    def _times(self, value: str) -> list[int]:
        return [time for key, steps in self.steps.items() if key[0] == value for time, of in steps.items() if of.w]

    def _scores(self, value: str, since: int, *, live: bool) -> ReleaseScores:
        scored: defaultdict[str, dict[str, Moments]] = defaultdict(dict)
        lost: dict[str, tuple[float, float]] = {}
        for (of, metric, series), steps in self.steps.items():
            if of != value:
                continue
            total = sum((sums for time, sums in steps.items() if time >= since), Moments())
            if total.w:
                scored[metric][series] = total
            elif total.lost:
                lost[metric] = total.lost, total.lost2
        return ReleaseScores(value, scored, lost, float(self.end_s - since) if live else 0.0)


def read_history(
    api: PrometheusApi,
    *,
    begin_s: float,
    end_s: float,
    is_fixed: bool,
    where: Mapping[str, str],
    told: Callable[[list[tuple[str, str]]], Iterable[tuple[str, str]]] = list,
) -> ReleaseHistory:
    """Return what a Prometheus has of all releases.

    Args:
        where: label → the value that is asked for.
        told: shows how far it has come: of these fields of sums, with their instruments, one is asked for at a time.

    Raises:
        ConfigurationError: Prometheus does not answer, or refuses; or the time is too long.
    """
    step = _FINE_S if end_s - begin_s <= _FINE_UNTIL_S else _COARSE_S
    begin, end = int(begin_s // step) * step, int(end_s // step) * step
    if end - begin > _MOST_STEPS * step:
        raise ConfigurationError(f"--since: at most {_MOST_STEPS * step // 86_400} days can be compared at once")
    parts: defaultdict[_Key, defaultdict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for name, instrument in told([*_SCORED.items(), *_LOST.items()]):
        by = (RELEASE, promql.METRIC, *((promql.SERIES,) if name in _SCORED else ()))
        matchers = ",".join(filter(None, (promql.matching(where), f'{RELEASE}!=""')))
        for labels, points in stepped(api, instrument, by=by, where=matchers, begin=begin, end=end, step=step):
            of = parts[labels.get(RELEASE, ""), labels.get(promql.METRIC, ""), labels.get(promql.SERIES, "")]
            for time, value in points.items():
                of[time][name] = value
    return ReleaseHistory(_whole(parts), begin, end, step, is_fixed)


def _whole(parts: Mapping[_Key, Mapping[int, Mapping[str, float]]]) -> dict[_Key, dict[int, Moments]]:
    """Return the steps of which all sums are there: of a replica's first, or of a restart, some may not be."""
    whole = (_SCORED.keys(), _LOST.keys())
    return {
        key: {time: Moments(**of) for time, of in steps.items() if of.keys() in whole} for key, steps in parts.items()
    }
