"""Client of Prometheus' HTTP API: reads series, the sums of each metric's scores, and the scores of each release."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Final, NamedTuple

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.baselines import DAY_S, STEP_S
from spanscore.monitoring.estimates import SUMMED, WEIGHTED, Moments
from spanscore.monitoring.releases import ReleasePair, ReleaseScores, Steps

_HOW = "give the address of its page, such as http://localhost:9090"


class RangeSeries(NamedTuple):
    """A time series: labels, and (seconds since the epoch, value) pairs in order."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class PrometheusApi:
    """A Prometheus server, or a server with the same API. Queries block.

    Args:
        url: address of its page, ``http://localhost:9090``, without name and password.
        timeout_s: for one answer, in s.

    Raises:
        ConfigurationError: the address is not valid.
    """

    url: str
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.url)
        except ValueError as error:
            raise ConfigurationError(f"the address of Prometheus cannot be read: {error}; {_HOW}") from None
        if parts.username or parts.password:
            raise ConfigurationError(
                "the address of Prometheus contains a name or a password, which queries do not use; remove it"
            )
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(f"{self.url!r} is not an address of a Prometheus; {_HOW}")

    def query_range(self, expression: str, *, start_s: float, end_s: float, step_s: float) -> list[RangeSeries]:
        """Return the series of an expression from ``start_s`` to ``end_s``, both included.

        Raises:
            ConfigurationError: no server answers, or it refuses; the message has the address and the reason.
        """
        fields = {"query": expression, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        body = urllib.parse.urlencode(fields).encode()
        try:
            request = urllib.request.Request(f"{self.url.rstrip('/')}/api/v1/query_range", data=body)
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                answer = response.read()
        except urllib.error.HTTPError as error:
            message = None
            with suppress(ValueError, AttributeError, OSError):  # an answer of another server has no message
                message = json.loads(error.read()).get("error")
            raise ConfigurationError(f"{self.url} refused ({error.code}): {message or error.reason}") from None
        except urllib.error.URLError as error:
            raise ConfigurationError(f"no Prometheus answers at {self.url}: {error.reason}; {_HOW}") from None
        except (OSError, HTTPException) as error:  # a timeout while reading, or a lost connection
            raise ConfigurationError(f"{self.url} gave an incomplete answer: {error}") from None
        with suppress(AttributeError, KeyError, TypeError, ValueError, RecursionError):
            tree = json.loads(answer)
            if tree["status"] == "success":
                return [
                    RangeSeries(dict(entry["metric"]), [(float(time), float(value)) for time, value in entry["values"]])
                    for entry in tree["data"]["result"]
                ]
        raise ConfigurationError(f"the server at {self.url} is not a Prometheus; {_HOW}")


class ScoredEvaluator(NamedTuple):
    """A metric, the evaluator version (version, judge and votes) of its scores, and the units that have them.

    ``inner`` is the entry of ``units.also``, such as ``tool search``; empty = roots' units, or conversations.
    """

    metric: str
    evaluator_version: str
    inner: str = ""

    @property
    def subject(self) -> str:
        """Name of the metric, and of the units if they are inner, as of a ``WatchedMean``."""
        return f"{self.metric} ({self.inner})" if self.inner else self.metric


History = Mapping[ScoredEvaluator, Mapping[int, Moments]]
"""Metric and version → start of five minutes, seconds since the epoch → sums. Times without scores are left out."""


def scored_days(api: PrometheusApi, *, end_s: float, days: int, where: Mapping[str, str]) -> Iterator[History]:
    """Yield the scores of each day before ``end_s``, oldest first.

    Args:
        end_s: end of the last day, seconds since the epoch.
        where: label → required value.

    Raises:
        ConfigurationError: Prometheus does not answer, or refuses.
    """
    last = int(end_s // STEP_S) * STEP_S
    by = (promql.METRIC, promql.EVALUATOR_VERSION, promql.label(semconv.UNIT_KIND), promql.label(semconv.UNIT_NAME))
    sources = f'{promql.label(semconv.EVALUATION_SOURCE)}=~"|{semconv.SOURCE_INNER}"'
    matchers = ",".join(filter(None, (promql.matching(where), sources)))
    for day in range(days, 0, -1):
        begin, end = last - day * DAY_S, last - (day - 1) * DAY_S
        sums = _query_increases(api, WEIGHTED.items(), by, matchers, begin, end, STEP_S)
        yield {
            ScoredEvaluator(metric, version, f"{kind} {name}".strip()): {
                time: Moments(**parts)
                for time, parts in steps.items()
                if parts.get("w") and len(parts) == len(WEIGHTED)
            }
            for (metric, version, kind, name), steps in sums.items()
        }


def _query_increases(
    api: PrometheusApi,
    instruments: Iterable[tuple[str, str]],
    by: Sequence[str],
    where: str,
    begin: int,
    end: int,
    step: int,
) -> dict[tuple[str, ...], dict[int, dict[str, float]]]:
    """Return values of labels → start of a step → name → growth of the counters in the step, for the configured judge.

    The growth is the sum of the exact differences of each replica's counter; ``increase()`` is not exact around a restart. The
    steps of a restart, and of a replica's first scores, have no growth.

    ``instruments`` are pairs of a name and its instrument, ``by`` the labels that separate groups, of which absent ones are
    empty. ``begin`` and ``end`` are seconds since the epoch, multiples of ``step``: the starts of the first and the last step.
    """
    sums: defaultdict[tuple[str, ...], defaultdict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for name, instrument in instruments:
        growth = promql.exact_increase(instrument, promql.duration(step), where, by)
        for series in api.query_range(growth, start_s=begin + step, end_s=end, step_s=step):
            steps = sums[tuple(series.labels.get(label, "") for label in by)]
            for time, value in series.points:
                steps[int(time) - step][name] = value
    return {labels: dict(steps) for labels, steps in sums.items()}


_LOST: Final = {"lost": semconv.COMPARED_MISSING_WEIGHT, "lost2": semconv.COMPARED_MISSING_WEIGHT2}
_FINE_S, _COARSE_S = 60, 300
_FINE_UNTIL_S: Final = 2 * 86_400
_MOST_STEPS: Final = 10_000
"""Points per time series: Prometheus returns at most 11,000."""


@dataclass(frozen=True, slots=True)
class ReleaseHistory:
    """The scores of each release within a time range.

    Attributes:
        scores: compared value → scores of the release.
        begin_s: start of the first step, seconds since the epoch.
        end_s: end of the last step, seconds since the epoch.
        step_s: length of a step, in s.
        is_fixed: whether ``begin_s`` is the same at a later look.
    """

    scores: Mapping[str, ReleaseScores]
    begin_s: int
    end_s: int
    step_s: int
    is_fixed: bool

    @property
    def values(self) -> list[str]:
        """The releases that have scores."""
        return sorted(value for value, scores in self.scores.items() if scores.scored)

    def pair(self, a: str, b: str) -> ReleasePair:
        """Return two releases, with a note if the start of the comparison moves; a release without scores is empty.

        Both are compared from the first score of the later one. The interval that holds at every look needs a fixed start.
        """
        first, second = (self.scores.get(value, ReleaseScores(value)) for value in (a, b))
        pair = ReleasePair(first, second, self.end_s)
        have_scores = pair.a.span_s and pair.b.span_s
        if not have_scores or self.is_fixed or pair.since_s >= self.begin_s + 2 * self.step_s:
            return pair
        note = (
            "both have scores from before --since, whose start moves: the interval holds at one look. For one that "
            "holds at every look give --since a time, such as that of the release"
        )
        return replace(pair, notes=(note,))


def read_history(
    api: PrometheusApi,
    *,
    begin_s: float,
    end_s: float,
    is_fixed: bool,
    where: Mapping[str, str],
    progress: Callable[[list[tuple[str, str]]], Iterable[tuple[str, str]]] = list,
) -> ReleaseHistory:
    """Return the scores of all releases in a Prometheus.

    Args:
        begin_s: start, seconds since the epoch.
        end_s: end, seconds since the epoch.
        is_fixed: whether the start is the same at a later look.
        where: label → required value.
        progress: wraps the list of sums (fields and instruments) to show progress; one sum is queried at a time.

    Raises:
        ConfigurationError: Prometheus does not answer, or refuses; or the time range is too long.
    """
    step = _FINE_S if end_s - begin_s <= _FINE_UNTIL_S else _COARSE_S
    begin, end = int(begin_s // step) * step, int(end_s // step) * step
    if end - begin > _MOST_STEPS * step:
        raise ConfigurationError(f"--since: at most {_MOST_STEPS * step // 86_400} days can be compared at once")
    # the weights of lost units have no evaluator version
    by = (promql.RELEASE, promql.METRIC, promql.EVALUATOR_VERSION)
    matchers = ",".join(filter(None, (promql.matching(where), f'{promql.RELEASE}!=""')))
    sums = _query_increases(api, progress([*SUMMED.items(), *_LOST.items()]), by, matchers, begin, end, step)
    scored: defaultdict[str, defaultdict[str, dict[str, Steps]]] = defaultdict(lambda: defaultdict(dict))
    lost: defaultdict[str, dict[str, Steps]] = defaultdict(dict)
    for (value, metric, evaluator_version), parts in sums.items():
        # the first step of a replica, and that of a restart, may lack some sums
        steps = {time: Moments(**of) for time, of in parts.items() if of.keys() in (SUMMED.keys(), _LOST.keys())}
        if with_scores := {start: of for start, of in steps.items() if of.w}:
            scored[value][metric][evaluator_version] = with_scores
        else:
            lost[value][metric] = steps
    scores = {value: ReleaseScores(value, scored[value], lost[value]) for value in {*scored, *lost}}
    return ReleaseHistory(scores, begin, end, step, is_fixed)
