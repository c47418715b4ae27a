"""How many false alarms worlds bring in which scores are not independent around a mean that stays, and what a baseline mends.

    python -m benchmarks.baselines         # ten minutes; --months 3 for a look

Each month has four weeks before it, of which the baseline is learned by the code of ``spanscore baseline``; then the condition
of the drop alerts is evaluated once a minute for 30 days, and for one more in which the mean is 0.1 lower.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, median
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from spanscore.metrics.catalog.registry import create
from spanscore.monitoring.drops import DropPlan, plans_of
from spanscore.monitoring.estimates import Moments
from spanscore.monitoring.hour_of_week import STEP_S, LearnedBaseline, learned
from spanscore.settings.tree import AlertSettings, MonitoringSettings

__all__ = ["LAWS", "WORLDS", "Month", "month", "rows"]

DAY = 1_440
"""Minutes; all times here are."""
LEARNED, WATCHED, DROPPED = 28 * DAY, 30 * DAY, DAY
DROP = 0.1
MEAN = 0.85
PER_MINUTE = 10.0
BETA = 10.0
"""a + b of a continuous metric's scores: a standard deviation of 0.11."""
THURSDAY = 96
"""Hour of the week at the epoch, at which a simulation begins."""
HELD = 3
"""Evaluations for which a condition holds before it is an alarm: ``for`` of two intervals."""

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


class Sums(NamedTuple):
    """Of each minute: scores, Σy, Σy²."""

    n: Floats
    y: Floats
    y2: Floats


@dataclass(frozen=True, slots=True)
class World:
    """A way in which scores come.

    Attributes:
        swing: of the mean with the day, either way.
        wander: standard deviation of the mean, which forgets itself within two hours (Ornstein-Uhlenbeck).
        burst: answers that are equal and come at once, on average.
        best: how the traffic swings, by a factor of nine: 1 = most is scored where the mean is best, -1 = least.
    """

    swing: float = 0.0
    wander: float = 0.0
    burst: int = 1
    best: int = -1


WORLDS: Mapping[str, World] = {
    "independent scores, a mean that stays": World(),
    "day swing of ±.02": World(swing=0.02, best=1),
    "day swing of ±.04": World(swing=0.04),
    "hour-scale wander of .01": World(wander=0.01),
    "day swing of ±.02 and wander of .01": World(swing=0.02, wander=0.01, best=1),
    "bursts of 5 equal answers": World(burst=5),
    "bursts of 20 equal answers": World(burst=20),
}
LAWS: Mapping[str, str] = {"pass/fail": "exact_match", "continuous": "faithfulness"}
"""Law of the scores → a metric of that kind."""
FORGETS = 120.0


class Month(NamedTuple):
    """What 30 days brought: false alarms by baseline, minutes until the drop is told (a day = not), what was learned."""

    alarms: Mapping[str, int]
    delays: Mapping[str, int]
    learned: LearnedBaseline


def month(world: World, law: str, seed: int) -> Month:
    """Return one month of a world, the same for the same seed."""
    dice = np.random.default_rng(seed)
    minutes = np.arange(LEARNED + WATCHED + DROPPED, dtype=float)
    plan = _plan(law, None)
    sums = _scored(dice, world, minutes, binary=plan.binary)
    of = learned(_steps(Sums(*(one[:LEARNED] for one in sums))))
    hours = np.array(of.hours)[((minutes // 60 + THURSDAY) % 168).astype(int)]
    flat = np.full(len(minutes), of.mean)
    sized = _plan(law, of.min_scores)
    firing = {
        "flat": _firing(plan, sums, _weighted(sums, flat)),
        "plain mean of the profile": _firing(plan, sums, _plain(hours)),
        "profile": _firing(plan, sums, _weighted(sums, hours)),
        "profile, slack": _firing(sized, sums, _weighted(sums, hours), of.slack),
        "offset 7d": _firing(plan, sums, None),
    }
    clean, dropped = slice(LEARNED, LEARNED + WATCHED), slice(LEARNED + WATCHED, None)
    return Month(
        {name: _begun(one[clean]) for name, one in firing.items()},
        {name: _first(one[dropped]) for name, one in firing.items()},
        of,
    )


def _plan(law: str, least: int | None) -> DropPlan:
    alert = AlertSettings(baseline=MEAN, min_scores=least)
    metric = create(LAWS[law], judge="lexical", embeddings="lexical")
    return plans_of({metric.name: alert}, [metric], MonitoringSettings())[0]


# --- scores -----------------------------------------------------------------------------------------------------


def _scored(dice: np.random.Generator, world: World, minutes: Floats, *, binary: bool) -> Sums:
    day = 2 * np.pi * minutes / DAY
    true = MEAN + world.swing * np.sin(day) + _wandering(dice, world.wander, len(minutes))
    true = true - np.where(minutes >= LEARNED + WATCHED, DROP, 0.0)
    traffic = PER_MINUTE * (1 + 0.8 * world.best * np.sin(day))
    groups = dice.poisson(traffic / world.burst)
    minute = np.repeat(np.arange(len(minutes)), groups)
    size = dice.geometric(1 / world.burst, len(minute)).astype(float)
    y = _drawn(dice, np.clip(true, 0.01, 0.99)[minute], binary=binary)
    sums = (np.bincount(minute, size * y**power, len(minutes)).astype(float) for power in (0, 1, 2))
    return Sums(*sums)


def _drawn(dice: np.random.Generator, true: Floats, *, binary: bool) -> Floats:
    if binary:
        return (dice.random(len(true)) < true).astype(float)
    return dice.beta(true * BETA, (1 - true) * BETA)


def _wandering(dice: np.random.Generator, deviation: float, length: int) -> Floats:
    """Return an Ornstein-Uhlenbeck process, minute by minute."""
    kept = np.exp(-1 / FORGETS)
    steps = dice.normal(0, deviation * sqrt(1 - kept**2), length) if deviation else np.zeros(length)
    found = np.empty(length)
    now = dice.normal(0, deviation) if deviation else 0.0
    for minute, step in enumerate(steps.tolist()):
        now = kept * now + step
        found[minute] = now
    return found


def _steps(sums: Sums) -> dict[int, Moments]:
    """Return the sums as ``spanscore baseline`` reads them; every unit is scored, so w = 1."""
    by_step = [one.reshape(-1, STEP_S // 60).sum(axis=1).tolist() for one in sums]
    return {
        number * STEP_S: Moments(n=n, w=n, wy=y, w2=n, w2y=y, w2y2=y2)
        for number, (n, y, y2) in enumerate(zip(*by_step, strict=True))
    }


# --- alarms -----------------------------------------------------------------------------------------------------

Normal: TypeAlias = Callable[[int], Floats]
"""Length of a window → what is normal over the one that ends with each minute."""


def _weighted(sums: Sums, normal: Floats) -> Normal:
    return lambda window: _sum_over(normal * sums.n, window) / np.maximum(_sum_over(sums.n, window), 1e-9)


def _plain(normal: Floats) -> Normal:
    return lambda window: _sum_over(normal, window) / window


def _firing(plan: DropPlan, sums: Sums, normal: Normal | None, slack: Mapping[int, float] | None = None) -> Bools:
    """Return whether a drop is told in each minute, by ``promql.dropped`` over every window.

    Args:
        normal: None = the mean of seven days before, with its own error.
        slack: by the length of a window in seconds.
    """
    told = np.zeros(len(sums.n), bool)
    for window in (int(length) // 60 for length in MonitoringSettings().windows):
        n, means, variance = _estimate(sums, window)
        stray = _slack(slack or {}, window * 60) ** 2
        before = _before(means) if normal is None else normal(window)
        of_before = _before(variance) if normal is None else 0.0
        null = before - plan.tolerated
        own, of_null = (
            variance + stray + of_before,
            np.clip(null * (1 - null), 0, None) / np.maximum(n, 1) + stray + of_before,
        )
        error = np.sqrt(np.maximum(own, of_null) if plan.binary else np.where(variance > 0, own, of_null))
        held = (n >= plan.least) & (null - means > plan.z * error) & (np.arange(len(n)) >= 7 * DAY + window)
        told |= np.logical_and.reduce([np.roll(held, evaluation) for evaluation in range(HELD)])
    return told


def _estimate(sums: Sums, window: int) -> tuple[Floats, Floats, Floats]:
    n, y, y2 = (_sum_over(one, window) for one in sums)
    safe = np.maximum(n, 1e-9)
    means = y / safe
    return n, means, np.maximum(y2 - 2 * means * y + means**2 * n, 0) / safe**2


def _slack(slack: Mapping[int, float], window_s: int) -> float:
    known = [length for length in slack if length <= window_s]
    return slack[max(known, default=min(slack))] if slack else 0.0


def _before(values: Floats) -> Floats:
    return np.roll(values, 7 * DAY)


def _sum_over(values: Floats, window: int) -> Floats:
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.concatenate([total[1:window], total[window:] - total[:-window]])


def _begun(told: Bools) -> int:
    return int((told[1:] & ~told[:-1]).sum() + told[0])


def _first(told: Bools) -> int:
    return int(told.argmax()) if told.any() else DAY


# --- the table --------------------------------------------------------------------------------------------------


def rows(months: int, worlds: Sequence[str] = tuple(WORLDS), laws: Sequence[str] = tuple(LAWS)) -> list[list[str]]:
    """Return the table's rows: false alarms in 30 days by baseline, and what the command would have said."""
    return [
        _row(law, name, [month(WORLDS[name], law, seed) for seed in range(months)]) for law in laws for name in worlds
    ]


def _row(law: str, name: str, found: Sequence[Month]) -> list[str]:
    alarms = [f"{mean(one.alarms[baseline] for one in found):.2f}" for baseline in found[0].alarms]
    explained = [one.learned.explained for one in found if one.learned.explained is not None]
    return [
        name,
        law,
        *alarms,
        " / ".join(_delay(found, baseline) for baseline in ("flat", "profile, slack")),
        f"{max(0.0, median(explained)):.0%}" if explained else "–",
        f"{mean(one.learned.is_autocorrelated for one in found):.0%}",
        f"{median(one.learned.slack.get(3_600, 0.0) for one in found):.4f}",
        f"{median(one.learned.clump for one in found):.1f}",
    ]


def _delay(found: Sequence[Month], baseline: str) -> str:
    middle = median(one.delays[baseline] for one in found)
    return f"{middle:.0f}" if middle < DAY else "> 1 d"


HEADERS = (
    "world",
    "scores",
    "flat",
    "plain mean of the profile",
    "profile",
    "profile, slack",
    "offset 7d",
    "min to tell −.1: flat / slack",
    "explained",
    "autocorrelated",
    "slack of 1 h",
    "clump",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=40, help="of each world and law, by seed (40)")
    parser.add_argument("--only", default="", help="worlds whose name begins so")
    given = parser.parse_args()
    worlds = [name for name in WORLDS if name.startswith(given.only)]
    for row in (HEADERS, ["---"] * len(HEADERS), *rows(given.months, worlds)):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
