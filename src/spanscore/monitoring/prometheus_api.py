"""Prometheus' HTTP API → series, sums of each metric's scores, and scores of each release."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any, Final, NamedTuple

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.estimates import WEIGHTED, Moments
from spanscore.monitoring.hour_of_week import DAY_S, STEP_S
from spanscore.monitoring.releases import RELEASE, ReleasePair, ReleaseScores, Steps

__all__ = [
    "History",
    "PrometheusApi",
    "RangeSeries",
    "ReleaseHistory",
    "ScoredEvaluator",
    "read_history",
    "scored_days",
    "stepped",
]

# --- prometheus api -------------------------------------------------------------------------------------------------

# Prometheus' HTTP API: an expression over a stretch of time → its series.

_HOW = "give the address of its page, such as http://localhost:9090"


class RangeSeries(NamedTuple):
    """Labels, and (seconds since the epoch, value) in order."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class PrometheusApi:
    """A Prometheus, or what answers as one does; asking it blocks.

    Args:
        url: of its page, ``http://localhost:9090``; no name and password in it.
        timeout_s: for one answer.

    Raises:
        ConfigurationError: the address is none.
    """

    url: str
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.username or parts.password:
            raise ConfigurationError(
                "the address of Prometheus holds a name or a password, which is not asked with; leave it out"
            )
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(f"{self.url!r} is no address of a Prometheus; {_HOW}")

    def query_range(self, expression: str, *, start_s: float, end_s: float, step_s: float) -> list[RangeSeries]:
        """Return the series of an expression, from ``start_s`` to ``end_s``, both of them included.

        Raises:
            ConfigurationError: nobody is there, or refuses; the message says who and why.
        """
        given = {"query": expression, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        asked = urllib.request.Request(
            f"{self.url.rstrip('/')}/api/v1/query_range", data=urllib.parse.urlencode(given).encode()
        )
        return self._answer(asked)

    def _answer(self, asked: urllib.request.Request) -> list[RangeSeries]:
        try:
            with urllib.request.urlopen(asked, timeout=self.timeout_s) as response:
                return self._read(response.read())
        except urllib.error.HTTPError as error:
            raise ConfigurationError(f"{self.url} refused ({error.code}): {_reason(error)}") from None
        except urllib.error.URLError as error:
            raise ConfigurationError(f"no Prometheus answers at {self.url}: {error.reason}; {_HOW}") from None
        except (OSError, HTTPException) as error:  # a timeout while reading, or the connection went
            raise ConfigurationError(f"{self.url} gave no whole answer: {error}") from None

    def _read(self, body: bytes) -> list[RangeSeries]:
        try:
            return _series_in(json.loads(body))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            raise ConfigurationError(f"what answers at {self.url} is no Prometheus; {_HOW}") from None


def _series_in(answer: Any) -> list[RangeSeries]:
    if answer["status"] != "success":
        raise ValueError
    return [
        RangeSeries(dict(one["metric"]), [(float(time), float(value)) for time, value in one["values"]])
        for one in answer["data"]["result"]
    ]


def _reason(error: urllib.error.HTTPError) -> str:
    """Return Prometheus' own words, else the status's."""
    try:
        told = json.loads(error.read()).get("error")
    except (ValueError, AttributeError, OSError):
        told = None
    return str(told or error.reason)


# --- score history --------------------------------------------------------------------------------------------------

# A Prometheus → the sums of each metric's scores, five minutes by five minutes.
#
# Differences of the raw counters, replica by replica, and then added up: they are exact, which ``increase()`` is not around
# a restart. The five minutes of a restart, or of a replica's first scores, are left out of all sums alike.


class ScoredEvaluator(NamedTuple):
    """A metric, and the evaluator version (its version, judge and votes) of its scores."""

    metric: str
    evaluator_version: str


History = Mapping[ScoredEvaluator, Mapping[int, Moments]]
"""Start of five minutes, in seconds since the epoch → sums; only those with scores."""


def scored_days(api: PrometheusApi, *, end_s: float, days: int, where: Mapping[str, str]) -> Iterator[History]:
    """Yield what was scored on each day before ``end_s``, oldest first.

    Args:
        where: label → the value that is asked for.

    Raises:
        ConfigurationError: Prometheus does not answer, or refuses.
    """
    end = int(end_s // STEP_S) * STEP_S
    for day in range(days, 0, -1):
        yield _between(api, end - day * DAY_S, end - (day - 1) * DAY_S, promql.matching(where))


def stepped(
    api: PrometheusApi, instrument: str, *, by: Sequence[str], where: str, begin: int, end: int, step: int
) -> Iterator[tuple[Mapping[str, str], dict[int, float]]]:
    """Yield labels, and start of a step in seconds since the epoch → by how much the population's counters grew in it.

    Args:
        by: the labels that are told apart.
        where: matchers.
        begin: of the first step, seconds since the epoch, a multiple of ``step``; ``end``: of the last one, likewise.

    Raises:
        ConfigurationError: Prometheus does not answer, or refuses.
    """
    grown = promql.grown(instrument, promql.duration(step), where, by)
    for one in api.query_range(grown, start_s=begin + step, end_s=end, step_s=step):
        yield one.labels, {int(time) - step: value for time, value in one.points}


def _between(api: PrometheusApi, start: int, end: int, where: str) -> History:
    sums: defaultdict[ScoredEvaluator, defaultdict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    by = (promql.METRIC, promql.EVALUATOR_VERSION)
    for field, instrument in WEIGHTED.items():
        for labels, points in stepped(api, instrument, by=by, where=where, begin=start, end=end, step=STEP_S):
            of = sums[ScoredEvaluator(labels.get(promql.METRIC, ""), labels.get(promql.EVALUATOR_VERSION, ""))]
            for time, value in points.items():
                of[time][field] = value
    return {
        evaluator_version: {
            time: Moments(**parts) for time, parts in steps.items() if parts.get("w") and len(parts) == len(WEIGHTED)
        }
        for evaluator_version, steps in sums.items()
    }


# --- release history ------------------------------------------------------------------------------------------------

# A Prometheus → the scores of each release, step by step, and from when on two of them are compared.
#
# Both are counted from the first score of the later release on, which stays: the interval that holds at every look is one
# of growing sums, not of a window that slides.

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
