"""Two releases that are looked at every minute for a day: how often does the interval miss, and how soon is a drop seen?

    python -m benchmarks.compare --markdown benchmarks/compare.md    # ten minutes; --runs 100 for a look

A run is a day of both releases' scores, drawn minute by minute; at each of the 1,440 looks the interval of the difference is
made of the sums so far. A run misses if it is outside at any look. Where nothing differs, at most .05 of the runs may: that is
what ``sequential.at_every_look`` promises. All runs are made at once here, by arrays; a test holds them against the function.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import ceil, log
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanscore.monitoring import sequential
from spanscore.monitoring.estimates import Moments

__all__ = ["LAWS", "SPLITS", "WEIGHTINGS", "Day", "Sums", "day", "every_look", "missed", "one_look"]

Floats: TypeAlias = NDArray[np.float64]
Law: TypeAlias = Callable[[np.random.Generator, NDArray[np.int64], float], tuple[Floats, Floats]]
"""Dice, scores per cell and a mean → the sum of the qualities and of their squares, per cell."""

LOOKS = 1_440
SEED = 24
MOST = 0.05
_SLACK = 0.015
"""Of a share of 1,000 runs: two standard errors of .05."""


class Sums(NamedTuple):
    """The fields of ``Moments``, each (runs, looks), so far."""

    n: Floats
    w: Floats
    wy: Floats
    w2: Floats
    w2y: Floats
    w2y2: Floats

    def at(self, run: int, look: int) -> Moments:
        """Return them as the library has them."""
        return Moments(*(float(one[run, look]) for one in self))


def _passing(dice: np.random.Generator, scores: NDArray[np.int64], mean: float) -> tuple[Floats, Floats]:
    passed: Floats = np.asarray(dice.binomial(scores, mean), dtype=np.float64)
    return passed, passed


def _spread(draw: Callable[[np.random.Generator, float, int], Floats]) -> Law:
    def law(dice: np.random.Generator, scores: NDArray[np.int64], mean: float) -> tuple[Floats, Floats]:
        y = draw(dice, mean, int(scores.sum()))
        cells = np.repeat(np.arange(scores.size), scores.ravel())
        first, second = (np.bincount(cells, weights, scores.size).reshape(scores.shape) for weights in (y, y * y))
        return np.asarray(first, np.float64), np.asarray(second, np.float64)

    return law


def _beta(dice: np.random.Generator, mean: float, size: int, spread: float = 10.0) -> Floats:
    return dice.beta(mean * spread, (1 - mean) * spread, size)


def _five_points(dice: np.random.Generator, mean: float, size: int) -> Floats:
    return dice.binomial(4, _beta(dice, mean, size, 3.0)) / 4


LAWS: Mapping[str, tuple[Law, float]] = {
    "pass/fail .5": (_passing, 0.5),
    "pass/fail .85": (_passing, 0.85),
    "pass/fail .98": (_passing, 0.98),
    "pass/fail .995": (_passing, 0.995),
    "five points .9": (_spread(_five_points), 0.9),
    "continuous .85": (_spread(_beta), 0.85),
}


class Weighting(NamedTuple):
    """Groups of units: share of the traffic, sampling rate before and from the eighth hour on, shortfall in the mean's."""

    groups: tuple[tuple[float, float, float, float], ...]


WEIGHTINGS: Mapping[str, Weighting] = {
    "all alike": Weighting(((1.0, 1.0, 1.0, 1.0),)),
    "rules": Weighting(((0.9, 0.05, 0.05, 0.9), (0.1, 1.0, 1.0, 1.9))),
    "paced": Weighting(((0.9, 0.2, 0.02, 0.9), (0.1, 1.0, 0.5, 1.9))),
}
"""Units of the last group fail more often; a budget that runs low lowers the rates."""
_PACED = LOOKS // 3

_minutes = np.arange(LOOKS)
SPLITS: Mapping[str, tuple[Floats, Floats]] = {
    "even": (np.ones(LOOKS), np.ones(LOOKS)),
    "canary": (np.ones(LOOKS), np.where(_minutes < LOOKS // 12, 0.0, 0.2)),
    "rollout": (2 - 2 * np.clip(_minutes / LOOKS, 0.05, 0.95), 2 * np.clip(_minutes / LOOKS, 0.05, 0.95)),
}
"""Traffic of both, by the minute: half each; a fifth as much from the third hour on; from one to the other over the day."""


class Day(NamedTuple):
    """A day of two releases."""

    a: Sums
    b: Sums


def day(
    runs: int, *, law: str, weighting: str, split: str, per_minute: float, drop: float = 0.0, seed: int = SEED
) -> Day:
    """Draw so many days; ``per_minute``: scores of a release that has half of the traffic; ``drop``: of b's mean."""
    dice = np.random.default_rng(seed)
    draw, mean = LAWS[law]
    sides = [
        _side(dice, runs, draw, true, WEIGHTINGS[weighting], traffic * per_minute)
        for true, traffic in zip((mean, mean - drop), SPLITS[split], strict=True)
    ]
    return Day(*sides)


def _side(
    dice: np.random.Generator, runs: int, draw: Law, mean: float, weighting: Weighting, per_minute: Floats
) -> Sums:
    per_unit = 1 / sum(share * rate for share, rate, _, _ in weighting.groups)
    total: list[Floats] = [np.zeros((runs, LOOKS)) for _ in Sums._fields]
    for share, rate, later, shortfall in weighting.groups:
        rates = np.where(_minutes < _PACED, rate, later)
        scores = dice.poisson(per_minute * per_unit * share * rates, (runs, LOOKS))
        y, y2 = draw(dice, scores, 1 - (1 - mean) * shortfall)
        w = 1 / rates
        more = (scores, w * scores, w * y, w**2 * scores, w**2 * y, w**2 * y2)
        total = [np.asarray(so_far + one, np.float64) for so_far, one in zip(total, more, strict=True)]
    return Sums(*(np.cumsum(one, axis=1) for one in total))


class Looks(NamedTuple):
    """The difference, both ends, and whether anything is said; each (runs, looks)."""

    middle: Floats
    low: Floats
    high: Floats
    said: NDArray[np.bool_]

    def missed(self, true: float) -> NDArray[np.bool_]:
        """Return (runs, looks): whether it is outside."""
        return self.said & ((self.high < true) | (self.low > true))


def every_look(of: Day, *, level: float = 0.95, unseen: float = sequential._UNSEEN) -> Looks:
    """Return ``sequential.at_every_look`` at every look."""
    with np.errstate(all="ignore"):
        sides = [_estimates(one) for one in of]
        x = [sequential._AT_PLANNED * one.n / sequential.PLANNED_SCORES for one in sides]
        allowed = log(1 / (1 - level)) + sum(np.log1p(one) for one in x) / 2
        spread = sum((1 + 1 / one) * (side.error2 + unseen * side.away2) for one, side in zip(x, sides, strict=True))
        half = np.sqrt(2 * allowed * spread)
    said = np.minimum(sides[0].n, sides[1].n) >= sequential.LEAST_SCORES
    middle = sides[1].mean - sides[0].mean
    return Looks(middle, middle - half, middle + half, said)


def one_look(of: Day) -> Looks:
    """Return the usual interval of one look, 1.96 standard errors, from the same number of scores on."""
    with np.errstate(all="ignore"):
        sides = [_estimates(one) for one in of]
        half = 1.96 * np.sqrt(sides[0].error2 + sides[1].error2)
    said = np.minimum(sides[0].n, sides[1].n) >= sequential.LEAST_SCORES
    middle = sides[1].mean - sides[0].mean
    return Looks(middle, middle - half, middle + half, said)


class _Estimates(NamedTuple):
    mean: Floats
    n: Floats
    error2: Floats
    away2: Floats


def _estimates(of: Sums) -> _Estimates:
    mean, n = of.wy / of.w, np.nan_to_num(of.w**2 / of.w2)
    one = of.w2 / n
    squares = np.maximum(of.w2y2 - 2 * mean * of.w2y + mean**2 * of.w2, 0)
    worst, best = (of.w2y - of.w2y2) / (of.w2 - of.w2y + one), (of.w2y2 + one) / (of.w2y + one)
    away = np.maximum(mean - worst, best - mean)
    return _Estimates(mean, n, squares / of.w**2, one * away**2 / of.w**2)


def missed(looks: Looks, true: float = 0.0) -> float:
    """Return the share of runs of which an interval missed, at any look."""
    return float(np.mean(looks.missed(true).any(axis=1)))


# --- the page --------------------------------------------------------------------------------------------------------

RATES = (0.2, 2.0, 20.0)
DROPS = (0.05, 0.1)


def _nulls(runs: int) -> Iterator[tuple[str, list[tuple[float, float, float]]]]:
    for split in SPLITS:
        for weighting in WEIGHTINGS:
            for law in LAWS:
                cells = []
                for per_minute in RATES:
                    drawn = day(runs, law=law, weighting=weighting, split=split, per_minute=per_minute)
                    least = missed(every_look(drawn, unseen=0))
                    cells.append((missed(every_look(drawn)), least, missed(one_look(drawn))))
                yield f"{split}, {weighting}, {law}", cells


def _seen(runs: int) -> Iterator[tuple[str, str]]:
    for law in ("pass/fail .85", "pass/fail .98", "continuous .85"):
        for drop in DROPS:
            cells = []
            for per_minute in RATES:
                drawn = day(runs, law=law, weighting="all alike", split="even", per_minute=per_minute, drop=drop)
                cells.append(_when(drawn))
            yield f"{law}, −{drop:g}", " | ".join(cells)


def _when(drawn: Day) -> str:
    looks = every_look(drawn)
    seen = looks.said & (looks.high < 0)
    share, first = seen.any(axis=1).mean(), seen.argmax(axis=1)
    if share < 0.5:
        return f"{share:.0%} in a day"
    found = np.where(seen.any(axis=1), first, LOOKS)
    at = ceil(float(np.median(found)))
    scores = float(np.median(drawn.b.n[np.arange(len(found)), np.minimum(found, LOOKS - 1)]))
    return f"{share:.0%}; half within {at:,} min, {scores:,.0f} scores each"


def _page(runs: int) -> tuple[str, float]:
    rows, worst = [], 0.0
    for name, cells in _nulls(runs):
        rows.append(f"| {name} | " + " | ".join(" · ".join(f"{one:.3f}" for one in cell) for cell in cells) + " |")
        worst = max([worst, *(cell[0] for cell in cells)])
    seen = [f"| {name} | {cells} |" for name, cells in _seen(min(runs, 200))]
    return "\n".join(
        [_HEAD.format(runs=runs, worst=worst, least=sequential.LEAST_SCORES), *rows, _POWER, *seen, ""]
    ), worst


_HEAD = """# Two releases, looked at every minute for a day

`python -m benchmarks.compare`: {runs:,} runs per cell, seed 24, 1,440 looks each, nothing said before {least} effective
scores of either side. The share of runs in which an interval of 95 % missed a difference of 0 at any look; at most .05 may.
The worst cell has **{worst:.3f}**.

Three numbers per cell: the interval that is used; the same without the two scores more in the variance, which is why they are
in it; and 1.96 standard errors, looked at as often.

*Split*: half each; a fifth as much from the third hour on; from one to the other over the day. *Weights*: all alike; rules that
sample nine tenths at .05 and the rest, which fails more, at 1; the same with rates that a budget lowers tenfold in the day.

| split, weights, metric and mean | .2 scores a minute | 2 | 20 |
| --- | --- | --- | --- |"""
_POWER = """
How soon a drop is seen: half each, weights alike, 200 runs. The share of runs in which the whole interval was below 0 within
the day, when half of them had it, and from how many scores.

| metric, mean and drop | .2 scores a minute | 2 | 20 |
| --- | --- | --- | --- |"""


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the page, or write it; 1 where a cell misses more often than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--markdown", type=Path, default=None)
    given = parser.parse_args(None if arguments is None else list(arguments))
    text, worst = _page(given.runs)
    if given.markdown is None:
        print(text)
    else:
        given.markdown.write_text(text, encoding="utf-8")
    return int(worst > MOST + _SLACK)


if __name__ == "__main__":
    sys.exit(main())
