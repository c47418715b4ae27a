"""The smallest detectable drop fires in half of the cases: simulated, with the windows and the z of the rules."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from math import log, sqrt

import pytest

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.metrics import ExactMatch
from spanscore.monitoring.drops import DropPlan, SmallestDrop, plans_of, smallest_drop
from spanscore.monitoring.watched_means import watched_means

HOUR_S, DAY_S = 3_600, 86_400
HOURS = (1, 6, 24)
"""The windows."""
BASELINE, SEEDS = 0.85, 300


def planned() -> DropPlan:
    alert = AlertSettings(baseline=BASELINE, min_drop=0.1)
    shared = Monitoring(windows=[hours * HOUR_S for hours in HOURS])
    return plans_of(watched_means({"exact_match": alert}, [ExactMatch()]), shared)[0]


def seen(scores: Sequence[float], within_s: float) -> SmallestDrop:
    return smallest_drop(planned(), scores=scores, within_s=within_s)


def alarms(plan: DropPlan, *, scores: int, drop: float, hours: int, rng: random.Random) -> bool:
    """Whether some window alarms at the end of one of these hours since a drop; a day of good ones lies before it."""
    good, bad = ([mean] * length for mean, length in ((BASELINE, max(HOURS)), (BASELINE - drop, hours)))
    counts = [rng.gauss(mean * scores, sqrt(mean * (1 - mean) * scores)) for mean in [*good, *bad]]
    sums = [0.0, *accumulate(counts)]
    return any(_alarms(plan, sums, end, scores) for end in range(max(HOURS) + 1, len(sums)))


def _alarms(plan: DropPlan, sums: Sequence[float], end: int, scores: int) -> bool:
    null = plan.null
    for hours in HOURS:
        n, mean = hours * scores, max(1e-9, (sums[end] - sums[end - hours]) / (hours * scores))
        far = 2 * n * (mean * log(mean / null) + (1 - mean) * log((1 - mean) / (1 - null))) if mean < null else 0.0
        if n >= plan.least and far > plan.windows[hours * HOUR_S] ** 2:
            return True
    return False


@pytest.mark.parametrize(("scores", "hours"), [(1_000, 1), (200, 1), (200, 24), (20, 24), (20, 14 * 24), (5, 14 * 24)])
def test_the_drop_that_is_reported_alarms_half_of_the_time(scores: int, hours: int) -> None:
    rng, result = random.Random(7), seen([scores], hours * HOUR_S).at_best
    assert result is not None

    share, of_less = (
        sum(alarms(planned(), scores=scores, drop=drop, hours=hours, rng=rng) for _ in range(SEEDS)) / SEEDS
        for drop in (result, 0.7 * result)
    )

    assert of_less < 0.5 < share + 0.1, (
        share,
        of_less,
    )  # windows overlap, and all are looked at: it is seen rather sooner


def test_fewer_scores_than_a_window_needs_see_nothing() -> None:
    drop = seen([1.2], 14 * DAY_S)  # 29 in the longest window

    assert drop == SmallestDrop(within_s=14 * DAY_S, at_best=None, at_worst=None)


def test_no_drop_is_larger_than_the_baseline() -> None:
    assert seen([100], 60).at_best is None


def test_more_scores_and_more_time_see_smaller_drops() -> None:
    drops = [seen([scores], within).at_best or 1.0 for scores in (100, 1_000) for within in (HOUR_S, DAY_S, 14 * DAY_S)]

    assert drops == sorted(drops[:3], reverse=True) + sorted(drops[3:], reverse=True)
    assert all(much < little for little, much in zip(drops[:3], drops[3:], strict=True))


def test_where_all_hours_are_alike_it_is_all_one_when_a_drop_begins() -> None:
    even, profile = seen([300], DAY_S), seen([300] * 168, DAY_S)

    assert profile.at_best == profile.at_worst == pytest.approx(even.at_best)


def test_a_drop_in_a_quiet_hour_waits_for_a_busy_one() -> None:
    drop = seen([0] * 12 + [500] * 12, 6 * HOUR_S)

    assert drop.at_best == pytest.approx(seen([500], 6 * HOUR_S).at_best)
    assert drop.at_worst is None
