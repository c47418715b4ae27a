"""Simulation of false alarms in traffic with dependent scores or a moving mean, and the effect of learned baselines.

    python -m benchmarks.baselines         # five minutes; --months 3 for a look

Each month follows four weeks from which the code of ``spanscore baseline`` learns the baseline. Then the alerts on drops, as
``benchmarks/alerts.py`` simulates them, are evaluated once a minute for 30 days, and for one more day with a mean that is 0.1
lower. Each alert that begins in the 30 days is a false alarm.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import mean, median
from typing import NamedTuple

import numpy as np

from benchmarks import alerts
from benchmarks.alerts import CONTINUOUS, DAY, PASS_FAIL, Flags, Floats, Law, Rule, Sums, Window, sliding
from spanscore.config.monitoring import AlertSettings, Monitoring, OffsetBaseline
from spanscore.metrics.catalog.registry import create
from spanscore.monitoring.baselines import STEP_S, Baseline, LearnedBaseline, learn_baseline
from spanscore.monitoring.drops import DropPlan, plans_of
from spanscore.monitoring.estimates import OFFSET_SCORES, Moments
from spanscore.monitoring.watched_means import watched_means

__all__ = ["LAWS", "WORLDS", "Month", "month", "rows"]

LEARNED, WATCHED, DROPPED = 28 * DAY, 30 * DAY, DAY
"""Minutes; all times here are in minutes."""
MINUTES = alerts.SETS[-1]
"""Lengths of the windows."""
DROP = 0.1
MEAN = 0.85
THURSDAY = 96
"""Hour of the week at the epoch, at which a simulation starts."""


@dataclass(frozen=True, slots=True)
class World:
    """A model of the scores.

    Attributes:
        swing: amplitude of the mean's daily variation.
        wander: standard deviation of the mean, with a correlation time of two hours (Ornstein-Uhlenbeck).
        burst: mean number of equal answers that arrive at once.
        best: daily variation of the traffic, by a factor of nine: 1 = most scores at the best mean, -1 = fewest.
        per_minute: mean number of scores per minute.
    """

    swing: float = 0.0
    wander: float = 0.0
    burst: int = 1
    best: int = -1
    per_minute: float = 10.0


WORLDS: Mapping[str, World] = {
    "independent scores, a mean that stays": World(),
    "day swing of ±.02": World(swing=0.02, best=1),
    "day swing of ±.04": World(swing=0.04),
    "hour-scale wander of .01": World(wander=0.01),
    "day swing of ±.02 and wander of .01": World(swing=0.02, wander=0.01, best=1),
    "bursts of 5 equal answers": World(burst=5),
    "bursts of 20 equal answers": World(burst=20),
    "one score a minute": World(per_minute=1.0),
    "one score a minute, bursts of 5": World(burst=5, per_minute=1.0),
    "one score a minute, bursts of 20": World(burst=20, per_minute=1.0),
    "one score in three minutes, bursts of 5": World(burst=5, per_minute=1 / 3),
}
LAWS: Mapping[Law, str] = {PASS_FAIL: "exact_match", CONTINUOUS: "faithfulness"}
"""Distribution of the scores → a metric of that kind."""
FORGETS = 120.0


class Month(NamedTuple):
    """The result of 30 days: false alarms by baseline, minutes until the drop is detected (a day = not), and the baseline."""

    alarms: Mapping[str, int]
    delays: Mapping[str, int]
    learned: LearnedBaseline


def month(world: World, law: Law, seed: int) -> Month:
    """Return one month of a world; equal seeds give equal months."""
    minutes = np.arange(LEARNED + WATCHED + DROPPED, dtype=float)
    sums = _scored(np.random.default_rng(seed), world, minutes, law)
    of = learn_baseline(_steps(Sums(*(one[:, :LEARNED] for one in (sums.n, sums.y, sums.y2)))))
    windows = alerts.windows_of(sums, MINUTES)
    on = {name: alerts.firing(windows, rules) for name, rules in _watched(law, of, sums, windows).items()}
    drops = LEARNED + WATCHED - DAY  # the first evaluation is at the end of the first day
    return Month(
        {name: alerts.begun(one[:, LEARNED - DAY : drops]) for name, one in on.items()},
        {name: _first(one[0, drops:]) for name, one in on.items()},
        of,
    )


# --- scores -----------------------------------------------------------------------------------------------------


def _scored(rng: np.random.Generator, world: World, minutes: Floats, law: Law) -> Sums:
    day = 2 * np.pi * minutes / DAY
    true = MEAN + world.swing * np.sin(day) + _wandering(rng, world.wander, len(minutes))
    true = true - np.where(minutes >= LEARNED + WATCHED, DROP, 0.0)
    traffic = world.per_minute * (1 + 0.8 * world.best * np.sin(day))
    groups = rng.poisson(traffic / world.burst)
    minute = np.repeat(np.arange(len(minutes)), groups)
    size = rng.geometric(1 / world.burst, len(minute)).astype(float)
    y = _drawn(rng, np.clip(true, 0.01, 0.99)[minute], law)
    return Sums(*(np.bincount(minute, size * y**power, len(minutes))[None].astype(float) for power in (0, 1, 2)))


def _drawn(rng: np.random.Generator, true: Floats, law: Law) -> Floats:
    if law.spread:
        return rng.beta(true * law.spread, (1 - true) * law.spread)
    return (rng.random(len(true)) < true).astype(float)


def _wandering(rng: np.random.Generator, deviation: float, length: int) -> Floats:
    """Return an Ornstein-Uhlenbeck process, minute by minute."""
    kept = np.exp(-1 / FORGETS)
    steps = rng.normal(0, deviation * sqrt(1 - kept**2), length) if deviation else np.zeros(length)
    found = np.empty(length)
    now = rng.normal(0, deviation) if deviation else 0.0
    for minute, step in enumerate(steps.tolist()):
        now = kept * now + step
        found[minute] = now
    return found


def _steps(sums: Sums) -> dict[int, Moments]:
    """Return the sums in the form that ``spanscore baseline`` reads; every unit is scored, so w = 1."""
    by_step = [one.reshape(-1, STEP_S // 60).sum(axis=1).tolist() for one in (sums.n, sums.y, sums.y2)]
    return {
        number * STEP_S: Moments(n=n, w=n, wy=y, w2=n, w2y=y, w2y2=y2)
        for number, (n, y, y2) in enumerate(zip(*by_step, strict=True))
    }


# --- watched rules --------------------------------------------------------------------------------------------


def _watched(law: Law, of: LearnedBaseline, sums: Sums, windows: Mapping[int, Window]) -> dict[str, dict[int, Rule]]:
    """Return the rules of each baseline."""
    at = np.arange(sums.n.shape[1])
    hours = np.array(of.hours)[(at // 60 + THURSDAY) % 168][None]
    with np.errstate(invalid="ignore"):  # minutes without a score have no normal mean
        profile = {one: sliding(hours * sums.n, one) / sliding(sums.n, one) for one in MINUTES}
    plan = _plan(law, AlertSettings(baseline=of.mean))
    return {
        "flat": _rules(plan, dict.fromkeys(MINUTES, np.array([of.mean]))),
        "plain mean of the profile": _rules(plan, {one: sliding(hours, one) / one for one in MINUTES}),
        "profile": _rules(plan, profile),
        "profile, baseline SD": _rules(_as_written(law, of), profile),
        "offset 7d": _offset(_plan(law, AlertSettings(baseline=OffsetBaseline(offset=7 * 86_400))), windows),
    }


def _as_written(law: Law, of: LearnedBaseline) -> DropPlan:
    """Return the plan from the output of ``spanscore baseline``."""
    plan = _plan(law, AlertSettings(baseline=of.mean, min_scores=of.min_scores))
    baseline_sd = {float(length): strays for length, strays in of.baseline_sd.items()}
    return replace(
        plan, baseline=Baseline(level=of.mean, text="", baseline_sd=baseline_sd, design_effect=of.design_effect)
    )


def _plan(law: Law, alert: AlertSettings) -> DropPlan:
    metric = create(LAWS[law], judge="lexical", embeddings="lexical")
    return plans_of(watched_means({metric.name: alert}, [metric]), Monitoring())[0]


def _rules(plan: DropPlan, normal: Mapping[int, Floats]) -> dict[int, Rule]:
    """Return the rule of each window.

    Args:
        normal: minutes of a window → normal mean over the window.
    """
    return {
        (one := int(length) // 60): Rule(
            normal[one] - plan.tolerated,
            z,
            plan.least,
            plan.baseline.baseline_sd_of(length) ** 2,
            plan.baseline.design_effect,
        )
        for length, z in plan.windows.items()
    }


def _offset(plan: DropPlan, windows: Mapping[int, Window]) -> dict[int, Rule]:
    """Return the rules of a comparison with the mean of seven days before, which has its own error."""
    before = {
        one: replace(of, n=_before(of.n), p=_before(of.p), error2=_before(of.error2)) for one, of in windows.items()
    }
    rules = _rules(plan, {one: np.where(of.n >= OFFSET_SCORES, of.p, np.nan) for one, of in before.items()})
    return {one: replace(rule, strays=before[one].error2) for one, rule in rules.items()}


def _before(values: Floats) -> Floats:
    """Return the values of seven days before; NaN in the first seven days."""
    return np.pad(values, ((0, 0), (7 * DAY, 0)), constant_values=np.nan)[:, : values.shape[1]]


def _first(flags: Flags) -> int:
    return int(flags.argmax()) + 1 if flags.any() else DAY


# --- the table --------------------------------------------------------------------------------------------------


def rows(months: int, worlds: Sequence[str] = tuple(WORLDS), laws: Sequence[Law] = tuple(LAWS)) -> list[list[str]]:
    """Return the rows of the table: false alarms in 30 days by baseline, and the output of the command."""
    return [
        _row(law, name, [month(WORLDS[name], law, seed) for seed in range(months)]) for law in laws for name in worlds
    ]


def _row(law: Law, name: str, found: Sequence[Month]) -> list[str]:
    alarms = [f"{mean(one.alarms[baseline] for one in found):.2f}" for baseline in found[0].alarms]
    explained = [one.learned.explained for one in found if one.learned.explained is not None]
    return [
        name,
        law.name,
        *alarms,
        " / ".join(_delay(found, baseline) for baseline in ("flat", "profile, baseline SD")),
        f"{max(0.0, median(explained)):.0%}" if explained else "–",
        f"{mean(one.learned.is_autocorrelated for one in found):.0%}",
        f"{median(one.learned.baseline_sd.get(3_600, 0.0) for one in found):.4f}",
        f"{median(one.learned.design_effect for one in found):.1f}",
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
    "profile, baseline SD",
    "offset 7d",
    "min to detect −.1: flat / baseline SD",
    "explained",
    "autocorrelated",
    "baseline SD of 1 h",
    "design_effect",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=40, help="months of each world and law, by seed (40)")
    parser.add_argument("--only", default="", help="only worlds with a name that begins so")
    given = parser.parse_args()
    worlds = [name for name in WORLDS if name.startswith(given.only)]
    for row in (HEADERS, ["---"] * len(HEADERS), *rows(given.months, worlds)):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
