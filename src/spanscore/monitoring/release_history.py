"""A Prometheus → the scores of each release, step by step, and from when on two of them are compared.

Both are counted from the first score of the later release on, which stays: the interval that holds at every look is one of
growing sums, not of a window that slides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.compare_promql import RELEASE
from spanscore.monitoring.estimates import Moments
from spanscore.monitoring.prometheus_api import PrometheusApi
from spanscore.monitoring.releases import ReleasePair, ReleaseScores, Steps
from spanscore.monitoring.running_mean import WEIGHTED
from spanscore.monitoring.score_history import stepped

__all__ = ["ReleaseHistory", "read_history"]

_SCORED: Final = {"n": semconv.SCORED, **WEIGHTED}
_LOST: Final = {"lost": semconv.COMPARED_MISSING_WEIGHT, "lost2": semconv.COMPARED_MISSING_WEIGHT2}
_FINE_S, _COARSE_S = 60, 300
_FINE_UNTIL_S: Final = 2 * 86_400
_MOST_STEPS: Final = 10_000
"""Points per time series: Prometheus answers with 11,000 at most."""

_Key = tuple[str, str, str]
"""Compared value, metric, evaluator version; of what is lost an empty evaluator version."""


@dataclass(frozen=True, slots=True)
class ReleaseHistory:
    """Sums by release, metric and evaluator version.

    Attributes:
        steps: → start of a step, seconds since the epoch → sums; ``lost`` of its own, under an empty evaluator version.
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
        return sorted({value for (value, _, _), steps in self.steps.items() if any(sums.w for sums in steps.values())})

    def pair(self, a: str, b: str) -> ReleasePair:
        """Return two releases; one without scores is empty."""
        pair = ReleasePair(self._scores(a), self._scores(b), self.end_s)
        both = pair.a.span_s and pair.b.span_s
        if not both or self.is_fixed or pair.since_s >= self.begin_s + 2 * self.step_s:
            return pair
        moves = (
            "both have scores from before --since, whose beginning moves: the interval holds at one look. For one that "
            "holds at every look give --since a time, such as that of the release"
        )
        return replace(pair, notes=(moves,))

    def _scores(self, value: str) -> ReleaseScores:
        scored: defaultdict[str, dict[str, Steps]] = defaultdict(dict)
        lost: dict[str, Steps] = {}
        for (of, metric, evaluator_version), steps in self.steps.items():
            if of != value:
                continue
            if any(sums.w for sums in steps.values()):
                scored[metric][evaluator_version] = {start: sums for start, sums in steps.items() if sums.w}
            else:
                lost[metric] = steps
        return ReleaseScores(value, scored, lost)


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
        by = (RELEASE, promql.METRIC, *((promql.EVALUATOR_VERSION,) if name in _SCORED else ()))
        matchers = ",".join(filter(None, (promql.matching(where), f'{RELEASE}!=""')))
        for labels, points in stepped(api, instrument, by=by, where=matchers, begin=begin, end=end, step=step):
            of = parts[labels.get(RELEASE, ""), labels.get(promql.METRIC, ""), labels.get(promql.EVALUATOR_VERSION, "")]
            for time, value in points.items():
                of[time][name] = value
    return ReleaseHistory(_whole(parts), begin, end, step, is_fixed)


def _whole(parts: Mapping[_Key, Mapping[int, Mapping[str, float]]]) -> dict[_Key, dict[int, Moments]]:
    """Return the steps of which all sums are there: of a replica's first, or of a restart, some may not be."""
    whole = (_SCORED.keys(), _LOST.keys())
    return {
        key: {time: Moments(**of) for time, of in steps.items() if of.keys() in whole} for key, steps in parts.items()
    }
