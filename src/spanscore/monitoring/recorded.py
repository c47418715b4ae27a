"""Prometheus recording rules for the alerts on means: sums and means of each window, normal quality, and drops.

The series have the labels ``window`` and ``segment``: ``spanscore:mean{window="1h",segment="tier=gold"}``. A series without a
segment covers all units. A window detects a drop if its mean is significantly below the tolerated mean. A long window would
show a drop long after its end. So it is ignored for the time of its own length after the next shorter window was normal again,
and significantly better than the long window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.monitoring import estimates, promql
from spanscore.monitoring.promql import label
from spanscore.monitoring.watched_means import WatchedMean

WINDOW, SEGMENT, SUM = "window", "segment", "of"
"""Labels of recorded series; ``of`` names the sum."""
SUMS = "spanscore:sums"
"""Record of all sums of a window; the label ``of`` names the sum, as in ``estimates.Moments``."""
MEAN, N_EFF, STANDARD_ERROR = "spanscore:mean", "spanscore:n_eff", "spanscore:standard_error"
MISSING_SHARE = "spanscore:missing_share"
"""Record of the share of lost units per metric and service, over the steady window. Lost units have no segment or version."""
SCORED, WRITTEN, WATCHED = "spanscore:scored", "spanscore:written", "spanscore:watched"
"""Records of evaluator versions: those with scores in a window, those written now, and those whose drops are watched."""
MIN_SCORES, BASELINE, TOLERANCE, THRESHOLD, MAX_SHARE = (
    f"spanscore:{name}" for name in ("min_scores", "baseline", "tolerance", "threshold", "max_share")
)
"""Records with a number per metric or share. Each metric of the file, and each share, has ``MIN_SCORES``."""
CRITICAL, DESIGN_EFFECT, BASELINE_VARIANCE = "spanscore:z2", "spanscore:design_effect", "spanscore:baseline_variance"
"""Records: z² per metric and window; design effect minus 1; variance of the normal mean per window."""
JUDGE_P = "spanscore:judge_p"
"""Record of the p-value per metric below which its judge has changed."""
NORMAL, TOLERATED = "spanscore:normal", "spanscore:tolerated"
"""Records: normal quality of a window; normal quality minus the tolerance."""
NORMAL_NOW, STEP_WEIGHT, NORMAL_WEIGHT = "spanscore:normal_now", "spanscore:step_weight", "spanscore:normal_weight"
"""Records: normal quality in this hour; weight of the last evaluations; that weight times the normal quality."""
DROPPED, DROP, SINCE = "spanscore:dropped", "spanscore:drop", "spanscore:drop_since"
"""Records: distance of a window below the tolerated mean; mean of a window with an ongoing drop; Unix time of its start."""
STRAYS = "spanscore:strays"
"""Record of the variance of a window's normal mean, in addition to that of the scores."""
P, SIZE = "spanscore:p", "spanscore:size"
"""Records: mean, kept off 0 and 1; number of pass/fail scores with the standard error of the mean."""
LONGER = "spanscore:longer_p"
"""Record of the mean ``P`` of the next longer window, while that window detects a drop."""
RECOVERED, OVER = "spanscore:recovered", "spanscore:over"
"""Records: windows that are significantly better than the next longer one; longer windows that are ignored for that reason."""
EDGE: Final = 1e-9
"""Smallest distance of a mean from 0 and 1, so that its logarithm is finite."""
LITTLE_VARIED: Final = 16.0
"""Highest number of pass/fail scores for one effective score. A lower standard deviation counts as a quarter of the maximum."""
STEP: Final = 4
"""Evaluations over which a counter's growth is visible at any usual scrape interval."""
_COVERED = 0.9
"""Share of a window for which the normal quality must have been recorded."""
_GAP = 10
"""Evaluations without an alarm after which the next alarm is a new drop."""
_WEIGHT = {"w": semconv.WEIGHT}
"""Value of the label ``of`` → its instrument, as in ``estimates.SUMMED``."""
_HOUR_S = 3_600.0
_OF_METRIC = f"on ({promql.METRIC}) group_left ()"
_OF_WINDOW = f"on ({promql.METRIC}, {WINDOW}) group_left ()"


def constant(name: str, value: float, metric: str, **labels: str) -> dict[str, Any]:
    """Return the rule that records a constant number of a metric."""
    return {"record": name, "expr": f"vector({value:.6g})", "labels": {promql.METRIC: metric, **labels}}


def restrict(recorded: str, expression: str) -> str:
    """Return an expression, restricted to the evaluator versions in the series ``recorded``."""
    return f"{expression}\nand on ({', '.join(promql.BY_EVALUATOR)}) {recorded}"


# --- estimates --------------------------------------------------------------------------------------------------


def estimate_records(shared: Monitoring, means: Sequence[WatchedMean] = ()) -> Iterator[dict[str, Any]]:
    """Yield the rules that record the sums of each window, the estimates, the share of lost units, and the written versions.

    One rule records all sums of a window, so that they are increases over the same samples even if a scrape arrives meanwhile.

    Args:
        means: the watched means. A mean of a category or of inner units is recorded like a further metric.
    """
    own = [mean for mean in means if mean.has_own_records]
    for window in map(promql.duration, shared.windows):
        sources = [partial(_increases, window), *(partial(_increases_of_mean, window, mean) for mean in own)]
        sums = [_sums(increases(estimates.SUMMED, "")) for increases in sources]
        for key, where in _matchers_of_dimensions(shared).items():
            sums += [_segment_sums(increases(estimates.WEIGHTED, where), key) for increases in sources]
        yield {"record": SUMS, "expr": "\nor ".join(sums), "labels": {WINDOW: window}}
    yield {"record": MEAN, "expr": f"clamp({_sum('wy')} / ignoring ({SUM}) {_sum('w')}, 0, 1)"}
    yield {"record": N_EFF, "expr": f"{_sum('w')} ^ 2 / ignoring ({SUM}) {_sum('w2')}"}
    q0, q1, q2 = map(_sum, ("w2", "w2y", "w2y2"))
    match = f"ignoring ({SUM})"
    squares = f"{q2} - {match} 2 * {MEAN} * {match} {q1} + {match} {MEAN} ^ 2 * {match} {q0}"
    yield {"record": STANDARD_ERROR, "expr": f"sqrt(clamp_min({squares}, 0)) / {match} {_sum('w')}"}
    steady = steady_window(shared)
    lost = [promql.missing_share(steady)]
    lost += (mean.under(mean.name, promql.missing_share(steady, mean.matchers)) for mean in own)
    yield {"record": MISSING_SHARE, "expr": "\nor ".join(lost), "labels": {WINDOW: steady}}
    yield {"record": SCORED, "expr": f"sum without ({SUM}) ({_sum('n')} > 0)"}
    yield {"record": WRITTEN, "expr": written_versions([promql.duration(length) for length in sorted(shared.windows)])}


def steady_window(shared: Monitoring) -> str:
    """Return the shortest window of at least an hour, otherwise the shortest window; for shares and thresholds."""
    return promql.duration(min((window for window in shared.windows if window >= _HOUR_S), default=min(shared.windows)))


def _sums(increases: str) -> str:
    return f"sum by ({', '.join((SUM, *promql.BY_EVALUATOR))}) ({increases})"


def _segment_sums(increases: str, key: str) -> str:
    """Return the sums of some increases per evaluator version and segment; ``key`` is the dimension of the segments."""
    segment = f'"{SEGMENT}", "{promql.replacement(f"{key}=")}$1", "{label(key)}", "(?s)(.*)"'
    return f"sum by ({', '.join((SUM, *promql.BY_EVALUATOR, SEGMENT))}) (label_replace({increases}, {segment}))"


def _matchers_of_dimensions(shared: Monitoring) -> dict[str, str]:
    return {key: f'{label(key)}=~"{promql.any_of(values)}"' for key, values in shared.dimensions.items()}


def _increases(window: str, instruments: Mapping[str, str], where: str) -> str:
    """Return the increases of all counters; the label ``of`` is the key of the instrument."""
    return promql.label_each(
        SUM, {name: promql.increase_of_each(instrument, window, where) for name, instrument in instruments.items()}
    )


def _increases_of_mean(window: str, mean: WatchedMean, instruments: Mapping[str, str], where: str) -> str:
    """Return the increases of the counters of a mean, under the mean's name. In a share, other categories have y = 1."""
    every = ",".join(filter(None, (mean.matchers, where)))
    others = f'{every},{promql.CATEGORY}!="{mean.category}"'
    increases = {}
    for name, instrument in instruments.items():
        ones = promql.ONES.get(instrument) if mean.category else None
        increases[name] = promql.increase_of_each(ones or instrument, window, every)
        if ones is not None:  # 0 if every unit has the category
            increases[name] = f"({promql.increase_of_each(ones, window, others)} or 0 * {increases[name]})"
    return mean.under(mean.name, promql.label_each(SUM, increases))


def _sum(name: str) -> str:
    return f"{SUMS}{{{promql.matching({SUM: name})}}}"


def written_versions(windows: Sequence[str]) -> str:
    """Return the evaluator versions that are written now; ``windows``: lengths in PromQL, shortest first.

    These are the versions with a score in the shortest window in which their metric has scores.
    """
    group = f"on ({', '.join(promql.GROUP)})"
    older = [
        f'({_versions_with_scores(longer)} unless {group} {SCORED}{{{WINDOW}="{shorter}"}})'
        for shorter, longer in pairwise(windows)
    ]
    return "\nor ".join([_versions_with_scores(windows[0]), *older])


def _versions_with_scores(window: str) -> str:
    return f'sum without ({WINDOW}) ({SCORED}{{{WINDOW}="{window}"}})'


def watched_versions(longest: str, pinned: Mapping[str, str], means: Sequence[WatchedMean] = ()) -> str:
    """Return the evaluator versions that are written now and whose drops are watched.

    If a metric has several versions in the longest window, only versions older than this window are watched: a new version has
    another normal mean, and its difference from the earlier version is no drop.

    Args:
        longest: longest window, in PromQL.
        pinned: metric → the only evaluator version that is watched.
        means: the watched means.
    """
    group = f"on ({', '.join(promql.GROUP)})"
    now = _select_unpinned(pinned)

    def select_scored(where: str = "") -> str:
        return f"last_over_time({promql.population_series(semconv.SCORED, where)}[{longest}] offset {longest})"

    own = (mean for mean in means if mean.has_own_records)
    before = [select_scored(), *(mean.under(mean.name, select_scored(mean.matchers)) for mean in own)]
    old = f"sum by ({', '.join(promql.BY_EVALUATOR)}) ({' or '.join(before)}) > 0"
    several = f'count by ({", ".join(promql.GROUP)}) ({SCORED}{{{WINDOW}="{longest}"}}) > 1'
    return "\nor ".join([f"({now}\nand {old})", f"({now}\nunless {group} ({several}))", *_select_pinned(pinned)])


def present_versions(pinned: Mapping[str, str]) -> str:
    """Return the evaluator versions that are written now; of a pinned metric (metric → version) only the pinned version."""
    return f"({' or '.join([_select_unpinned(pinned), *_select_pinned(pinned)])})" if pinned else WRITTEN


def _select_unpinned(pinned: Mapping[str, str]) -> str:
    """Return the written evaluator versions of the metrics without a pinned version."""
    return WRITTEN + (f'{{{promql.METRIC}!~"{promql.any_of(pinned)}"}}' if pinned else "")


def _select_pinned(pinned: Mapping[str, str]) -> Iterator[str]:
    """Yield the pinned version of each metric, as far as it is written."""
    for metric, version in pinned.items():
        yield f"{WRITTEN}{{{promql.matching({promql.METRIC: metric, promql.EVALUATOR_VERSION: version})}}}"


# --- normal quality ---------------------------------------------------------------------------------------------


def normal_by_hour(hours: Sequence[float]) -> str:
    """Return the expression of the normal quality in the present hour; ``hours``: those of a ``Baseline``."""
    days = (" + ".join(f"{hours[24 * day + h]:.4g}*(hour()==bool {h})" for h in range(24)) for day in range(7))
    return "\nor ".join(f"({quality})\nand on () day_of_week() == {day}" for day, quality in enumerate(days))


def normal_by_hour_records(metrics: Sequence[str], shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield the rules that record the normal quality over each window, for the metrics with a record ``NORMAL_NOW``.

    The mean is weighted by the scores in each part of the window, because quiet hours may be better or worse than busy hours.
    """
    step = promql.duration(STEP * shared.interval)
    named = f'{promql.METRIC}=~"{promql.any_of(metrics)}"'
    dimensions = (
        _segment_sums(_increases(step, _WEIGHT, f"{named},{where}"), key)
        for key, where in _matchers_of_dimensions(shared).items()
    )
    yield {"record": STEP_WEIGHT, "expr": "\nor ".join([_sums(_increases(step, _WEIGHT, named)), *dimensions])}
    yield {"record": NORMAL_WEIGHT, "expr": f"{STEP_WEIGHT} * {_OF_METRIC} {NORMAL_NOW}"}
    for length in shared.windows:
        window = promql.duration(length)
        weighted, weight = (f"sum_over_time({name}[{window}])" for name in (NORMAL_WEIGHT, STEP_WEIGHT))
        covered = f"count_over_time({NORMAL_NOW}[{window}]) >= {_COVERED * length / shared.interval:g}"
        expression = (
            f"sum without ({SUM}) ({weighted}) / sum without ({SUM}) ({weight})\nand on ({promql.METRIC}) {covered}"
        )
        yield {"record": NORMAL, "expr": expression, "labels": {WINDOW: window}}


def _before(name: str, offset: str, metrics: Sequence[str]) -> str:
    return f'{name}{{{promql.METRIC}=~"{promql.any_of(metrics)}"}} offset {offset}'


# --- drops ------------------------------------------------------------------------------------------------------


def deviance(level: str) -> str:
    """Return the deviance of a window's mean from a level. If it is z², the mean is z standard errors away.

    The deviance is twice the logarithm of the likelihood ratio of the window's mean to the level (Wilks 1938; for pass/fail
    scores the G statistic). The scores count as the number of pass/fail scores with the same standard error (``SIZE``). Unlike
    a distance in standard errors, it is right for skewed scores: near 1 a few failures decide.
    """
    return f"2 * {SIZE} * ({P} * ln({P} / {level}) + (1 - {P}) * ln((1 - {P}) / (1 - {level})))"


def drop_records(
    windows: Sequence[float], offsets: Mapping[str, Sequence[str]], *, varies: bool, interval_s: float
) -> Iterator[dict[str, Any]]:
    """Yield the rules that record the windows that detect a drop, and the start of the drop.

    Args:
        windows: lengths in s.
        offsets: age of an earlier window, in PromQL → metrics with that window's mean as their baseline.
        varies: whether any metric has ``DESIGN_EFFECT`` and ``BASELINE_VARIANCE``; True if there are ``offsets``.
        interval_s: seconds between two evaluations.
    """
    lengths = sorted(windows)
    names = [promql.duration(length) for length in lengths]
    # the normal quality is a recorded baseline, or the mean of an earlier window with enough scores
    normal = [f"0 * {MEAN} + {_OF_METRIC} {BASELINE}"]
    normal += (
        f"{_before(MEAN, *offset)}\nand {_before(N_EFF, *offset)} >= {estimates.OFFSET_SCORES}"
        for offset in offsets.items()
    )
    yield {"record": NORMAL, "expr": "\nor ".join(normal)}
    yield {"record": TOLERATED, "expr": f"{NORMAL} - {_OF_METRIC} {TOLERANCE}"}
    if varies:
        own = f"({STANDARD_ERROR} ^ 2 * {_OF_METRIC} {DESIGN_EFFECT} + {_OF_WINDOW} {BASELINE_VARIANCE})"
        earlier = "\nor ".join(f"({_before(STANDARD_ERROR, *offset)}) ^ 2" for offset in offsets.items())
        yield {"record": STRAYS, "expr": f"{own} + ({earlier})\nor {own}" if earlier else own}
    yield {"record": P, "expr": f"clamp({MEAN}, {EDGE:g}, {1 - EDGE:.9g})"}
    # The number of pass/fail scores with the standard error of the mean. One effective score counts as ``LITTLE_VARIED`` of
    # them at most, and as the number of effective passes at most, because pass/fail scores without a pass would not vary
    # either.
    error2 = f"((({STANDARD_ERROR} ^ 2 + {STRAYS}) or {STANDARD_ERROR} ^ 2))" if varies else f"{STANDARD_ERROR} ^ 2"
    most = f"{N_EFF} * clamp({P} * {N_EFF}, 1, {LITTLE_VARIED:g})"
    yield {"record": SIZE, "expr": f"({P} * (1 - {P}) / {error2} < {most})\nor {most}"}
    far = f"{deviance(TOLERATED)} > {_OF_WINDOW} {CRITICAL}\nand {N_EFF} >= {_OF_METRIC} {MIN_SCORES}"
    yield {"record": DROPPED, "expr": restrict(WATCHED, f"{TOLERATED} - {MEAN} > 0\nand {far}")}
    for shorter, longer in pairwise(names):
        whole = f'{{{WINDOW}="{longer}"}}'
        yield {"record": LONGER, "expr": f"{P}{whole} and {DROPPED}{whole}", "labels": {WINDOW: shorter}}
    better = f"{deviance(LONGER)} > {estimates.RECOVERED_Z**2:.4g}\nand {N_EFF} >= {estimates.MIN_SCORES}"
    yield {"record": RECOVERED, "expr": f"{P} > {LONGER}\nand {MEAN} > {TOLERATED}\nand {better}"}
    for count, window in enumerate(names[1:], 1):
        lately = f'present_over_time({RECOVERED}{{{WINDOW}=~"{"|".join(names[:count])}"}}[{window}])'
        yield {"record": OVER, "expr": f"max without ({WINDOW}) ({lately})", "labels": {WINDOW: window}}
    yield {"record": DROP, "expr": f"{MEAN} and {DROPPED} unless {OVER}"}
    # a drop began at its recorded time, otherwise at the start of the shortest window that detects it
    starts = [f"(last_over_time({SINCE}[{promql.duration(_GAP * interval_s)}]) and max without ({WINDOW}) ({DROP}))"]
    for window, length in zip(names, lengths, strict=True):
        starts.append(f'0 * sum without ({WINDOW}) ({DROP}{{{WINDOW}="{window}"}}) + time() - {length:g}')
    yield {"record": SINCE, "expr": "\nor ".join(starts)}
