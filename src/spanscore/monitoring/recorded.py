"""Recording rules for the alerts on means: sums of each window, then one formula for all windows, metrics and segments.

``window`` and ``segment`` are labels of the recorded series: ``spanscore:mean{window="1h",segment="tier=gold"}``; without a
segment a series is of all units. A window sees a drop if its mean is significantly below what is tolerated. A long window would
see a drop long after its end: if the next shorter window is good again, and significantly better than the long one, the long
one is ignored for its own length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.monitoring import estimates as budget
from spanscore.monitoring import promql
from spanscore.monitoring.promql import label

WINDOW, SEGMENT, SUM = "window", "segment", "of"
"""Labels of recorded series; ``of``: which sum it is."""
SUMS = "spanscore:sums"
MEAN, N_EFF, STANDARD_ERROR = "spanscore:mean", "spanscore:n_eff", "spanscore:standard_error"
MISSING_SHARE = "spanscore:missing_share"
"""The share per metric of a service, over the steady window: lost units have no segment and no series."""
SCORED, WRITTEN, WATCHED = "spanscore:scored", "spanscore:written", "spanscore:watched"
"""The series of which a window has scores, those that are written now, and those whose drops are watched."""
MIN_SCORES, BASELINE, TOLERANCE, THRESHOLD = (
    f"spanscore:{name}" for name in ("min_scores", "baseline", "tolerance", "threshold")
)
"""A number per metric. Every metric of the file has ``MIN_SCORES``, which therefore also lists the metrics."""
CRITICAL, DESIGN_EFFECT, BASELINE_VARIANCE = "spanscore:z2", "spanscore:design_effect", "spanscore:baseline_variance"
"""z² per metric and window; by how much a burst multiplies the variance, less 1; variance of the normal mean per window."""
JUDGE_P = "spanscore:judge_p"
"""The p per metric below which its judge has changed."""
NORMAL, TOLERATED = "spanscore:normal", "spanscore:tolerated"
NORMAL_NOW, STEP_WEIGHT, NORMAL_WEIGHT = "spanscore:normal_now", "spanscore:step_weight", "spanscore:normal_weight"
"""The normal quality in this hour; the weight of the last evaluations, and that weight times the normal quality."""
DROPPED, DROP, SINCE = "spanscore:dropped", "spanscore:drop", "spanscore:drop_since"
"""By how much a window is below what is tolerated; the mean of a window whose drop goes on; Unix time at which it began."""
STRAYS, P, SIZE, LONGER = "spanscore:strays", "spanscore:p", "spanscore:size", "spanscore:longer_p"
RECOVERED, OVER = "spanscore:recovered", "spanscore:over"
EDGE: Final = 1e-9
"""How near to 0 and 1 a mean is taken, for its logarithm."""
LITTLE_VARIED: Final = 16.0
"""Scores that vary less count as if their standard deviation were a quarter of what is possible."""
STEP: Final = 4
"""Evaluations over which a counter's growth is seen at any usual interval of scrapes."""
_SEEN = 0.9
"""Share of a window of which must be known what was normal."""
_GAP = 10
"""Evaluations without an alarm after which another one begins a new drop."""
_WEIGHT = {"w": semconv.WEIGHT}
"""Value of the label ``of`` → its instrument, as ``estimates.SUMMED`` has them."""
_HOUR_S = 3_600.0
_OF_METRIC = f"on ({promql.METRIC}) group_left ()"
_OF_WINDOW = f"on ({promql.METRIC}, {WINDOW}) group_left ()"


def constant(name: str, value: float, metric: str, **labels: str) -> dict[str, Any]:
    """Return the rule that records a number of a metric."""
    return {"record": name, "expr": f"vector({value:.6g})", "labels": {promql.METRIC: metric, **labels}}


def among(recorded: str, expression: str) -> str:
    """Return an expression for those series that are in ``recorded``, of all units and of segments."""
    return f"{expression}\nand on ({', '.join(promql.BY_EVALUATOR)}) {recorded}"


# --- estimates --------------------------------------------------------------------------------------------------


def estimate_records(shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield the rules that record each window's sums, its estimates, what its means lack, and which series are written.

    One rule records all sums of a window: so they are increases over the same samples, even if a scrape arrives meanwhile.
    """
    for window in map(promql.duration, shared.windows):
        every = _sums(window, budget.SUMMED)
        dimensions = (_segment_sums(window, budget.WEIGHTED, *values) for values in shared.dimensions.items())
        yield {"record": SUMS, "expr": "\nor ".join([every, *dimensions]), "labels": {WINDOW: window}}
    yield {"record": MEAN, "expr": f"clamp({_sum('wy')} / ignoring ({SUM}) {_sum('w')}, 0, 1)"}
    yield {"record": N_EFF, "expr": f"{_sum('w')} ^ 2 / ignoring ({SUM}) {_sum('w2')}"}
    q0, q1, q2 = map(_sum, ("w2", "w2y", "w2y2"))
    but = f"ignoring ({SUM})"
    squares = f"{q2} - {but} 2 * {MEAN} * {but} {q1} + {but} {MEAN} ^ 2 * {but} {q0}"
    yield {"record": STANDARD_ERROR, "expr": f"sqrt(clamp_min({squares}, 0)) / {but} {_sum('w')}"}
    steady = steady_window(shared)
    yield {"record": MISSING_SHARE, "expr": promql.missing_share(steady), "labels": {WINDOW: steady}}
    yield {"record": SCORED, "expr": f"sum without ({SUM}) ({_sum('n')} > 0)"}
    yield {"record": WRITTEN, "expr": written([promql.duration(one) for one in sorted(shared.windows)])}


def steady_window(shared: Monitoring) -> str:
    """Return the shortest window of an hour or more, else the shortest: for shares and thresholds."""
    return promql.duration(min((one for one in shared.windows if one >= _HOUR_S), default=min(shared.windows)))


def _sums(window: str, instruments: Mapping[str, str], where: str = "") -> str:
    """Return the sums of a window per series."""
    return f"sum by ({', '.join((SUM, *promql.BY_EVALUATOR))}) ({_each(window, instruments, where)})"


def _segment_sums(window: str, instruments: Mapping[str, str], key: str, values: Sequence[str], where: str = "") -> str:
    """Return the sums of a window per series and listed value of a segment's key."""
    listed = f'{label(key)}=~"{promql.any_of(values)}"'
    each = _each(window, instruments, ",".join(filter(None, (where, listed))))
    named = f'"{SEGMENT}", "{promql.replacement(f"{key}=")}$1", "{label(key)}", "(?s)(.*)"'
    return f"sum by ({', '.join((SUM, *promql.BY_EVALUATOR, SEGMENT))}) (label_replace({each}, {named}))"


def _each(window: str, instruments: Mapping[str, str], where: str) -> str:
    return promql.labelled(SUM, {name: promql.grown_in(one, window, where) for name, one in instruments.items()})


def _sum(name: str, **labels: str) -> str:
    return f"{SUMS}{{{promql.matching({SUM: name, **labels})}}}"


def written(windows: Sequence[str]) -> str:
    """Return the series that are being written now: those with a score in the shortest window in which their metric has one.

    Args:
        windows: shortest first.
    """
    group = f"on ({', '.join(promql.GROUP)})"
    older = [f'({_scored(later)} unless {group} {SCORED}{{{WINDOW}="{one}"}})' for one, later in pairwise(windows)]
    return "\nor ".join([_scored(windows[0]), *older])


def _scored(window: str) -> str:
    return f'sum without ({WINDOW}) ({SCORED}{{{WINDOW}="{window}"}})'


def watched(longest: str, pinned: Mapping[str, str]) -> str:
    """Return the series whose drops are watched.

    A metric's only series is watched, and of several those that are written now and older than the longest window: a series
    that takes the place of another has a normal mean of its own, and what differs from the other's is no drop.

    Args:
        pinned: metric → its only series that is watched.
    """
    group = f"on ({', '.join(promql.GROUP)})"
    now = _but(pinned)
    before = f"last_over_time({promql.population(semconv.SCORED)}[{longest}] offset {longest})"
    old = f"sum by ({', '.join(promql.BY_EVALUATOR)}) ({before}) > 0"
    several = f'count by ({", ".join(promql.GROUP)}) ({SCORED}{{{WINDOW}="{longest}"}}) > 1'
    return "\nor ".join([f"({now}\nand {old})", f"({now}\nunless {group} ({several}))", *_only(pinned)])


def spoken(pinned: Mapping[str, str]) -> str:
    """Return the series that are written now, of a pinned metric (metric → series) that one alone."""
    return f"({' or '.join([_but(pinned), *_only(pinned)])})" if pinned else WRITTEN


def _but(pinned: Mapping[str, str]) -> str:
    return WRITTEN + (f'{{{promql.METRIC}!~"{promql.any_of(pinned)}"}}' if pinned else "")


def _only(pinned: Mapping[str, str]) -> Iterator[str]:
    for metric, one in pinned.items():
        yield f"{WRITTEN}{{{promql.matching({promql.METRIC: metric, promql.EVALUATOR_VERSION: one})}}}"


# --- what is normal ---------------------------------------------------------------------------------------------


def normal_by_hour(hours: Sequence[float]) -> str:
    """Return what is normal in this hour.

    Args:
        hours: of the week, 168, from Sunday 00:00 UTC on.
    """
    days = (" + ".join(f"{hours[24 * day + h]:.4g}*(hour()==bool {h})" for h in range(24)) for day in range(7))
    return "\nor ".join(f"({chosen})\nand on () day_of_week() == {day}" for day, chosen in enumerate(days))


def normal_by_hour_records(metrics: Sequence[str], shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield what is normal over each window, for the metrics of which ``NORMAL_NOW`` is recorded.

    The mean is weighted by what was scored in each part of the window: if quiet hours are better or worse than busy ones, the
    plain mean over the window is another one.
    """
    step = promql.duration(STEP * shared.interval)
    named = f'{promql.METRIC}=~"{promql.any_of(metrics)}"'
    dimensions = (_segment_sums(step, _WEIGHT, *values, where=named) for values in shared.dimensions.items())
    yield {"record": STEP_WEIGHT, "expr": "\nor ".join([_sums(step, _WEIGHT, named), *dimensions])}
    yield {"record": NORMAL_WEIGHT, "expr": f"{STEP_WEIGHT} * {_OF_METRIC} {NORMAL_NOW}"}
    for length in shared.windows:
        window = promql.duration(length)
        weighted, weight = (f"sum_over_time({name}[{window}])" for name in (NORMAL_WEIGHT, STEP_WEIGHT))
        seen = f"count_over_time({NORMAL_NOW}[{window}]) >= {_SEEN * length / shared.interval:g}"
        expression = (
            f"sum without ({SUM}) ({weighted}) / sum without ({SUM}) ({weight})\nand on ({promql.METRIC}) {seen}"
        )
        yield {"record": NORMAL, "expr": expression, "labels": {WINDOW: window}}


def _before(name: str, offset: str, metrics: Sequence[str]) -> str:
    return f'{name}{{{promql.METRIC}=~"{promql.any_of(metrics)}"}} offset {offset}'


# --- drops ------------------------------------------------------------------------------------------------------


def deviance(level: str) -> str:
    """Return the deviance of a window's mean from a level: beyond z² it is z standard errors away.

    Twice the logarithm of how much likelier scores of this mean are under it than under the level (Wilks 1938; of pass/fail
    scores the G statistic). Scores count as so many pass/fail ones as have the mean's standard error (``SIZE``). Unlike a
    distance in standard errors it holds for skewed scores: near 1 a few failures decide.
    """
    return f"2 * {SIZE} * ({P} * ln({P} / {level}) + (1 - {P}) * ln((1 - {P}) / (1 - {level})))"


def drop_records(
    windows: Sequence[float], offsets: Mapping[str, Sequence[str]], *, strays: bool, interval_s: float
) -> Iterator[dict[str, Any]]:
    """Yield the rules that record which windows see a drop, and since when.

    Args:
        windows: in s.
        offsets: how long before → the metrics whose baseline is what was then.
        strays: whether a metric has ``DESIGN_EFFECT`` and ``BASELINE_VARIANCE``; those of ``offsets`` must.
    """
    lengths = sorted(windows)
    names = [promql.duration(one) for one in lengths]
    # a recorded number is normal, or the mean of so long before, if there were enough scores
    normal = [f"0 * {MEAN} + {_OF_METRIC} {BASELINE}"]
    normal += (f"{_before(MEAN, *of)}\nand {_before(N_EFF, *of)} >= {budget.OFFSET_SCORES}" for of in offsets.items())
    yield {"record": NORMAL, "expr": "\nor ".join(normal)}
    yield {"record": TOLERATED, "expr": f"{NORMAL} - {_OF_METRIC} {TOLERANCE}"}
    if strays:
        own = f"({STANDARD_ERROR} ^ 2 * {_OF_METRIC} {DESIGN_EFFECT} + {_OF_WINDOW} {BASELINE_VARIANCE})"
        earlier = "\nor ".join(f"({_before(STANDARD_ERROR, *before)}) ^ 2" for before in offsets.items())
        yield {"record": STRAYS, "expr": f"{own} + ({earlier})\nor {own}" if earlier else own}
    yield {"record": P, "expr": f"clamp({MEAN}, {EDGE:g}, {1 - EDGE:.9g})"}
    # So many pass/fail scores have the standard error of the mean. One effective score counts for ``LITTLE_VARIED`` at
    # most, and for no more than there are effective passes: without one pass, scores of pass and fail do not vary either.
    error2 = f"((({STANDARD_ERROR} ^ 2 + {STRAYS}) or {STANDARD_ERROR} ^ 2))" if strays else f"{STANDARD_ERROR} ^ 2"
    most = f"{N_EFF} * clamp({P} * {N_EFF}, 1, {LITTLE_VARIED:g})"
    yield {"record": SIZE, "expr": f"({P} * (1 - {P}) / {error2} < {most})\nor {most}"}
    far = f"{deviance(TOLERATED)} > {_OF_WINDOW} {CRITICAL}\nand {N_EFF} >= {_OF_METRIC} {MIN_SCORES}"
    yield {"record": DROPPED, "expr": among(WATCHED, f"{TOLERATED} - {MEAN} > 0\nand {far}")}
    for shorter, longer in pairwise(names):
        whole = f'{{{WINDOW}="{longer}"}}'
        yield {"record": LONGER, "expr": f"{P}{whole} and {DROPPED}{whole}", "labels": {WINDOW: shorter}}
    better = f"{deviance(LONGER)} > {budget.RECOVERED_Z**2:.4g}\nand {N_EFF} >= {budget.MIN_SCORES}"
    yield {"record": RECOVERED, "expr": f"{P} > {LONGER}\nand {MEAN} > {TOLERATED}\nand {better}"}
    for count, window in enumerate(names[1:], 1):
        lately = f'present_over_time({RECOVERED}{{{WINDOW}=~"{"|".join(names[:count])}"}}[{window}])'
        yield {"record": OVER, "expr": f"max without ({WINDOW}) ({lately})", "labels": {WINDOW: window}}
    yield {"record": DROP, "expr": f"{MEAN} and {DROPPED} unless {OVER}"}
    # a drop began at the time of its record, else at the start of the shortest window that sees it
    starts = [f"(last_over_time({SINCE}[{promql.duration(_GAP * interval_s)}]) and max without ({WINDOW}) ({DROP}))"]
    for window, length in zip(names, lengths, strict=True):
        starts.append(f'0 * sum without ({WINDOW}) ({DROP}{{{WINDOW}="{window}"}}) + time() - {length:g}')
    yield {"record": SINCE, "expr": "\nor ".join(starts)}
