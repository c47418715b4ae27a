"""Simulation of a day of two releases: how often the interval of ``spanscore compare`` misses, and how soon it detects a drop.

    nice python -m benchmarks.compare --markdown benchmarks/compare.md    # half an hour; --runs 50 for a look

A run is a day of both releases' scores, drawn minute by minute. The command counts whole quarters of an hour, so its answer
changes 87 times a day, from the tenth on: a run misses if the interval excludes the true difference at any of these looks.
Each look calls the command's own code: ``match_traffic`` and ``at_every_look``. At most .05 of the runs may miss.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanscore.monitoring.estimates import MeanInterval, Moments
from spanscore.monitoring.releases import (
    LEAST_BLOCKS,
    LEAST_SCORES,
    at_every_look,
    at_one_look,
    match_traffic,
)

__all__ = ["LAWS", "SPLITS", "WEIGHTINGS", "WORLDS", "Day", "Look", "day", "looks", "missed", "seen", "world"]

Floats: TypeAlias = NDArray[np.float64]
Law: TypeAlias = Callable[[np.random.Generator, NDArray[np.int64], Floats], tuple[Floats, Floats]]
"""Function of random generator, scores per minute and their mean; returns the sums of qualities and of squares per minute."""

MINUTES: Final = 1_440
BLOCK: Final = 15
SEED: Final = 24
MOST: Final = 0.05
_ERRORS: Final = 2.0
"""Standard errors by which a share of the runs may exceed ``MOST`` by chance."""

_minutes = np.arange(MINUTES)


class Day(NamedTuple):
    """The sums of both releases in each quarter of an hour, and the true difference of their means."""

    a: Sequence[Moments]
    b: Sequence[Moments]
    true: float


class Look(NamedTuple):
    """The intervals after a number of minutes."""

    minutes: int
    every: MeanInterval
    pooled: tuple[Moments, Moments]

    @property
    def one(self) -> MeanInterval:
        """The interval of pooled sums at one look."""
        return at_one_look(*self.pooled)


def looks(of: Day) -> Iterator[Look]:
    """Yield the command's interval at each look, and the pooled sums."""
    a, b = dict(enumerate(of.a[: LEAST_BLOCKS - 1])), dict(enumerate(of.b[: LEAST_BLOCKS - 1]))
    pooled_a, pooled_b = _total(a.values()), _total(b.values())
    for block in range(LEAST_BLOCKS - 1, len(of.a)):
        a[block], b[block] = of.a[block], of.b[block]
        pooled_a, pooled_b = pooled_a + a[block], pooled_b + b[block]
        every = at_every_look(match_traffic(a, b))
        yield Look((block + 1) * BLOCK, every, (pooled_a, pooled_b))


def missed(of: Day) -> bool:
    """Return whether the interval misses the true difference at any look."""
    return any(not every.low <= of.true <= every.high for _, every, _ in looks(of))


def seen(of: Day) -> int | None:
    """Return the minutes until the second release is known to be worse; None if it is not within the day."""
    return next((minutes for minutes, every, _ in looks(of) if every.high < 0), None)


def _total(sums: Iterable[Moments]) -> Moments:
    return reduce(add, sums, Moments())


def _blocks(n: Floats, y: Floats, y2: Floats, w: Floats) -> list[Moments]:
    """Return the sums by block, of scores, sums of qualities, of their squares, and weights per minute."""
    sums = np.stack([n, w * n, w * y, w**2 * n, w**2 * y, w**2 * y2])
    return [Moments(*block) for block in sums.reshape(6, -1, BLOCK).sum(axis=2).T.tolist()]


# --- independent scores: laws, splits and weights ---------------------------------------------------------------------


def _passing(rng: np.random.Generator, scores: NDArray[np.int64], mean: Floats) -> tuple[Floats, Floats]:
    passed: Floats = np.asarray(rng.binomial(scores, mean), dtype=np.float64)
    return passed, passed


def _spread(draw: Callable[[np.random.Generator, Floats], Floats]) -> Law:
    def law(rng: np.random.Generator, scores: NDArray[np.int64], mean: Floats) -> tuple[Floats, Floats]:
        minute = np.repeat(np.arange(scores.size), scores)
        y = draw(rng, mean[minute])
        first, second = (np.bincount(minute, weights, scores.size) for weights in (y, y * y))
        return np.asarray(first, np.float64), np.asarray(second, np.float64)

    return law


def _beta(rng: np.random.Generator, mean: Floats, spread: float = 10.0) -> Floats:
    return rng.beta(mean * spread, (1 - mean) * spread)


def _five_points(rng: np.random.Generator, mean: Floats) -> Floats:
    return np.asarray(rng.binomial(4, _beta(rng, mean, 3.0)) / 4, np.float64)


LAWS: Mapping[str, tuple[Law, float]] = {
    "pass/fail .5": (_passing, 0.5),
    "pass/fail .85": (_passing, 0.85),
    "pass/fail .98": (_passing, 0.98),
    "pass/fail .995": (_passing, 0.995),
    "five points .9": (_spread(_five_points), 0.9),
    "continuous .85": (_spread(_beta), 0.85),
}


class Weighting(NamedTuple):
    """Groups of units: share of the traffic, sampling rate before and from the eighth hour on, and factor on 1 − mean."""

    groups: tuple[tuple[float, float, float, float], ...]


WEIGHTINGS: Mapping[str, Weighting] = {
    "all alike": Weighting(((1.0, 1.0, 1.0, 1.0),)),
    "rules": Weighting(((0.9, 0.05, 0.05, 0.9), (0.1, 1.0, 1.0, 1.9))),
    "paced": Weighting(((0.9, 0.2, 0.02, 0.9), (0.1, 1.0, 0.5, 1.9))),
}
"""Units of the last group fail more often; a budget that runs low lowers the rates."""
_PACED = MINUTES // 3

SPLITS: Mapping[str, tuple[Floats, Floats]] = {
    "even": (np.ones(MINUTES), np.ones(MINUTES)),
    "canary": (np.ones(MINUTES), np.full(MINUTES, 0.2)),
    "rollout": (2 - 2 * np.clip(_minutes / MINUTES, 0.05, 0.95), 2 * np.clip(_minutes / MINUTES, 0.05, 0.95)),
}
"""Traffic of both releases per minute: half each; a fifth as much; from one to the other over the day."""


def day(seed: int, *, law: str, weighting: str, split: str, per_minute: float, drop: float = 0.0) -> Day:
    """Return a day of independent scores.

    Args:
        seed: seed of the draw.
        law: name of the distribution.
        weighting: name of the weighting.
        split: name of the split of traffic.
        per_minute: scores of a release with half of the traffic.
        drop: mean of a minus mean of b.
    """
    rng = np.random.default_rng((SEED, seed))
    draw, mean = LAWS[law]
    a, b = (
        _side(rng, draw, true, WEIGHTINGS[weighting], traffic * per_minute)
        for true, traffic in zip((mean, mean - drop), SPLITS[split], strict=True)
    )
    return Day(a, b, -drop)


def _side(rng: np.random.Generator, draw: Law, mean: float, weighting: Weighting, per_minute: Floats) -> list[Moments]:
    per_unit = 1 / sum(share * rate for share, rate, _, _ in weighting.groups)
    groups = []
    for share, rate, later, shortfall in weighting.groups:
        rates = np.where(_minutes < _PACED, rate, later)
        scores = rng.poisson(per_minute * per_unit * share * rates)
        y, y2 = draw(rng, scores, np.full(MINUTES, 1 - (1 - mean) * shortfall))
        groups.append(_blocks(scores.astype(float), y, y2, 1 / rates))
    return [_total(blocks) for blocks in zip(*groups, strict=True)]


# --- worlds in which pooled sums mislead ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Pass/fail scores of two releases.

    Attributes:
        a: scores a minute of the first release.
        b: scores a minute of the second release.
        swing: amplitude of the mean's daily variation.
        rollout: whether the traffic moves from a to b over the day, .1 to .9; both rates are then those of all traffic.
        together: scores in the same minute from one conversation, or from one burst.
        correlation: correlation of two such scores, [0, 1].
        gap: mean minutes from one such score to the next.
        mean: quality of the first release.
        drop: decrease of quality in the second release.
    """

    a: float = 3.0
    b: float = 3.0
    swing: float = 0.0
    rollout: bool = False
    together: int = 1
    correlation: float = 0.0
    gap: float = 0.0
    mean: float = 0.85
    drop: float = 0.0


WORLDS: Mapping[str, World] = {
    "still, 3 a minute each": World(),
    "still, 3 against .1 a minute": World(b=0.1),
    "swing of ±.05, 3 against 1 a minute": World(b=1.0, swing=0.05),
    "swing of ±.05, rollout, 6 a minute": World(a=6.0, b=6.0, swing=0.05, rollout=True),
    "swing of ±.05, rollout, 60 a minute": World(a=60.0, b=60.0, swing=0.05, rollout=True),
    "conversations of 5 turns, 5 a minute each": World(a=5.0, b=5.0, together=5, correlation=0.5),
    "conversations of 10 turns, 5 a minute each": World(a=5.0, b=5.0, together=10, correlation=0.5),
    "conversations of 10 turns, 5 against 1 a minute": World(a=5.0, b=1.0, together=10, correlation=0.5),
    "conversations of 10 turns, a minute apart, 5 a minute each": World(
        a=5.0, b=5.0, together=10, correlation=0.5, gap=1.0
    ),
    "bursts of 5 equal answers, 5 a minute each": World(a=5.0, b=5.0, together=5, correlation=1.0),
    "bursts of 20 equal answers, 10 a minute each": World(a=10.0, b=10.0, together=20, correlation=1.0),
    "bursts of 5, mean .98, 5 a minute each": World(a=5.0, b=5.0, together=5, correlation=1.0, mean=0.98),
    "swing of ±.05, rollout, bursts of 5, 10 a minute": World(
        a=10.0, b=10.0, swing=0.05, rollout=True, together=5, correlation=1.0
    ),
    "conversations of 10 turns, 3 minutes apart, 5 a minute each": World(
        a=5.0, b=5.0, together=10, correlation=0.5, gap=3.0
    ),
}
"""The last world is beyond the method: its conversations last half an hour, longer than the blocks of a quarter."""
BEYOND: Final = "conversations of 10 turns, 3 minutes apart, 5 a minute each"

DROPS: Mapping[str, World] = {
    "still, 3 a minute each, −.05": World(drop=0.05),
    "still, 3 a minute each, −.1": World(drop=0.1),
    "swing of ±.05, rollout, 6 a minute, −.1": World(a=6.0, b=6.0, swing=0.05, rollout=True, drop=0.1),
    "bursts of 5 equal answers, 5 a minute each, −.1": World(a=5.0, b=5.0, together=5, correlation=1.0, drop=0.1),
    "conversations of 10 turns, 5 a minute each, −.1": World(a=5.0, b=5.0, together=10, correlation=0.5, drop=0.1),
}


def world(seed: int, of: World) -> Day:
    """Return a day of a world."""
    rng = np.random.default_rng((SEED, seed))
    moved = 0.1 + 0.8 * _minutes / MINUTES if of.rollout else None
    rates = (of.a * (1 - moved), of.b * moved) if moved is not None else (of.a + 0.0 * _minutes, of.b + 0.0 * _minutes)
    swing = of.swing * np.sin(2 * np.pi * _minutes / MINUTES)
    a, b = (
        _together(rng, of, np.clip(mean + swing, 0.0, 1.0), np.asarray(rate, np.float64))
        for mean, rate in zip((of.mean, of.mean - of.drop), rates, strict=True)
    )
    return Day(a, b, -of.drop)


def _together(rng: np.random.Generator, of: World, mean: Floats, per_minute: Floats) -> list[Moments]:
    """Return the sums of groups of scores; the scores of a group share a probability to pass, drawn from a beta."""
    start = np.repeat(_minutes, rng.poisson(per_minute / of.together))
    passing = mean[start]
    if of.correlation >= 1.0:
        passing = (rng.random(len(start)) < passing).astype(float)
    elif of.correlation > 0.0:
        spread = 1 / of.correlation - 1
        passing = rng.beta(passing * spread, (1 - passing) * spread)
    minute = np.repeat(start, of.together)
    if of.gap:
        minute = minute + np.cumsum(rng.exponential(of.gap, (len(start), of.together)), axis=1).astype(int).ravel()
    passed = rng.random(len(minute)) < np.repeat(passing, of.together)
    minute, passed = minute[minute < MINUTES], passed[minute < MINUTES]
    n = np.bincount(minute, minlength=MINUTES).astype(float)
    y = np.bincount(minute, passed.astype(float), MINUTES).astype(float)
    return _blocks(n, y, y, np.ones(MINUTES))


# --- the page --------------------------------------------------------------------------------------------------------

RATES = (0.2, 2.0, 20.0)
Draw: TypeAlias = Callable[[int], Day]
"""Function from a seed to a day."""


class Known(NamedTuple):
    """Three facts on a day: whether either interval missed, and the minutes until the drop was detected."""

    every: bool
    one: bool
    minutes: int | None


def known(seed: int, draw: Draw) -> Known:
    """Return the facts on a day from its looks."""
    of = draw(seed)
    every = one = False
    minutes = None
    for look in looks(of):
        every |= not look.every.low <= of.true <= look.every.high
        one |= not look.one.low <= of.true <= look.one.high
        if minutes is None and look.every.high < 0:
            minutes = look.minutes
    return Known(every, one, minutes)


class Cells:
    """Runs days in processes, and remembers the largest share that missed."""

    def __init__(self, pool: ProcessPoolExecutor, runs: int) -> None:
        self._pool, self.runs = pool, runs
        self.worst = 0.0

    def size(self, draw: Draw, *, promised: bool = True) -> str:
        """Return the shares that missed: of the command's interval, and of that of pooled sums."""
        days = self._days(draw)
        every, one = (sum(missed) / len(days) for missed in zip(*((of.every, of.one) for of in days), strict=True))
        self.worst = max(self.worst, every) if promised else self.worst
        return f"{every:.3f} · {one:.3f}"

    def power(self, draw: Draw) -> str:
        """Return the share of detected drops, the median of minutes, and the share that missed."""
        days = self._days(draw)
        minutes = [of.minutes for of in days if of.minutes is not None]
        share = len(minutes) / len(days)
        if share < 0.5:
            return f"{share:.0%} in a day"
        middle = median([*minutes, *[MINUTES] * (len(days) - len(minutes))])
        return f"{share:.1%}; half within {middle:,.0f} min; {sum(of.every for of in days) / len(days):.3f}"

    def _days(self, draw: Draw) -> list[Known]:
        return list(self._pool.map(partial(known, draw=draw), range(self.runs), chunksize=10))


def _page(cells: Cells, few: Cells, runs: int) -> str:
    worlds = [
        f"| {name} | {cells.size(partial(world, of=of), promised=name != BEYOND)} |" for name, of in WORLDS.items()
    ]
    drops = [f"| {name} | {cells.power(partial(world, of=of))} |" for name, of in DROPS.items()]
    grid = []
    for split in SPLITS:
        for weighting in WEIGHTINGS:
            for law in LAWS:
                how = partial(day, law=law, weighting=weighting, split=split)
                shares = (few.size(partial(how, per_minute=rate)) for rate in RATES)
                grid.append(f"| {split}, {weighting}, {law} | {' | '.join(shares)} |")
    rates = []
    for law in ("pass/fail .85", "pass/fail .98", "continuous .85"):
        for drop in (0.05, 0.1):
            how = partial(day, law=law, weighting="all alike", split="even", drop=drop)
            rates.append(
                f"| {law}, −{drop:g} | {' | '.join(few.power(partial(how, per_minute=rate)) for rate in RATES)} |"
            )
    head = _HEAD.format(runs=runs, few=few.runs, scores=LEAST_SCORES, worst=max(cells.worst, few.worst))
    return "\n".join([head, *worlds, _DROPS, *drops, _GRID, *grid, _RATES, *rates, ""])


_HEAD = """# Two releases, compared at every look of a day

This page shows how often the interval of `spanscore compare` misses the true
difference of two releases, and how soon it shows a drop. `python -m benchmarks.compare` simulates {runs:,} days per world,
and {few:,} days per cell of the tables by rate, with seed 24. A look is the end of a quarter of an hour, from the tenth on.
Neither release has a result before {scores} effective scores.

A 95 % interval may miss the true difference, at any look, on at most 0.05 of the days. The worst cell has **{worst:.3f}**.
Each cell has two numbers: the share for the interval of `spanscore compare`, by its own code · the share for the
interval of one look at pooled sums, at the same looks.

The first table has releases that do not differ:

| world | missed |
| --- | --- |"""
_DROPS = """
*Rollout*: the traffic moves from 0.1 to 0.9 over the day. The method does not cover the last world, and its result is not
promised: its conversations last half an hour, twice as long as the blocks by which the variance is measured.

The second table has releases with a drop. A cell has the share of days on which the whole interval was below 0; the time
after which half of all days had such an interval; and the share of days on which the interval missed the true difference.

| world | seen |
| --- | --- |"""
_GRID = """
The third table has independent scores, and releases that do not differ.

- *Split*: each release has half of the traffic (*even*); one release has a fifth as much (*canary*); the traffic moves from
  one to the other over the day (*rollout*).
- *Weights*: all alike; *rules* that sample nine tenths at 0.05, and the rest, which fails more often, at 1; *paced*: the
  same rules with a budget that lowers the rates tenfold in the day.

| split, weights, metric and mean | .2 scores a minute | 2 | 20 |
| --- | --- | --- | --- |"""
_RATES = """
The last table shows how soon a drop is seen, if each release has half of the traffic and all weights are alike.

| metric, mean and drop | .2 scores a minute | 2 | 20 |
| --- | --- | --- | --- |"""


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the page, or write it; return 1 if a cell misses more often than allowed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs", type=int, default=1_000, help="days per world (1,000); a quarter of it in the tables by rate"
    )
    parser.add_argument("--markdown", type=Path, default=None)
    given = parser.parse_args(None if arguments is None else list(arguments))
    with ProcessPoolExecutor() as pool:
        cells, few = Cells(pool, given.runs), Cells(pool, max(1, given.runs // 4))
        text = _page(cells, few, given.runs)
    if given.markdown is None:
        print(text)
    else:
        given.markdown.write_text(text, encoding="utf-8")
    return int(any(of.worst > MOST + _ERRORS * (MOST * (1 - MOST) / of.runs) ** 0.5 for of in (cells, few)))


if __name__ == "__main__":
    sys.exit(main())
