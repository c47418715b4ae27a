"""Simulation of intervals for a weighted mean, by coverage and width: the reason for the formula of ``estimates.interval``.

    python -m benchmarks.intervals --markdown benchmarks/intervals.md    # four minutes; --samples 200 for a look

Each cell draws samples of n scores from a distribution with a known mean, weighted as by sampling rules, and counts how often a
95 % interval contains the mean. All methods but the bootstrap use only the sums that the instruments export.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import log
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanscore.monitoring import estimates

__all__ = ["CHOSEN", "Cell", "cells", "ends_of", "table"]

Floats: TypeAlias = NDArray[np.float64]
Ends: TypeAlias = tuple[Floats, Floats]
Law: TypeAlias = Callable[[np.random.Generator, Floats], Floats]

SEED = 18
SIZES = (5, 7, 10, 20, 30, 50, 100, 300, 1_000)
MEANS = (0.5, 0.9, 0.97, 1.0)
Z = 1.959963984540054
RESAMPLES = 200
BOOTSTRAPPED = 400
"""Samples per cell of the bootstrap, which is slow."""


def _beta(spread: float) -> Law:
    """Return a beta distribution; a smaller ``spread`` gives more scattered scores."""

    def law(rng: np.random.Generator, mean: Floats) -> Floats:
        return np.where(
            mean >= 1.0, 1.0, rng.beta(np.minimum(mean, 0.9999) * spread, np.maximum(1 - mean, 1e-4) * spread)
        )

    return law


def _five_points(rng: np.random.Generator, mean: Floats) -> Floats:
    return np.where(mean >= 1.0, 1.0, rng.binomial(4, _beta(3.0)(rng, mean)) / 4)


LAWS: Mapping[str, Law] = {
    "pass/fail": lambda rng, mean: (rng.random(mean.shape) < mean).astype(np.float64),
    "five points": _five_points,
    "beta, wide": _beta(3.0),
    "beta, narrow": _beta(10.0),
}


class Traffic(NamedTuple):
    """Groups of units: share of all units, sampling rate, and factor on 1 − mean.

    Attributes:
        worse: factor of the last group: 2 = at a mean of .9, about .8.
    """

    shares: tuple[float, ...]
    rates: tuple[float, ...]
    worse: float = 1.0

    def draw(self, rng: np.random.Generator, law: Law, mean: float, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return qualities and weights of scored units."""
        shares, rates = np.array(self.shares), np.array(self.rates)
        scored = shares * rates
        group = rng.choice(len(shares), shape, p=scored / scored.sum())
        shortfalls = np.ones(len(shares))
        shortfalls[-1] = self.worse
        means = 1.0 - (1.0 - mean) * shortfalls / (shares @ shortfalls)
        return law(rng, means[group]), 1.0 / rates[group]


TRAFFICS: Mapping[str, Traffic] = {
    "all alike": Traffic((1.0,), (1.0,)),
    "two rates": Traffic((0.85, 0.15), (0.2, 1.0)),
    "three rates": Traffic((0.9, 0.07, 0.03), (0.1, 0.3, 1.0)),
    "all errors, worse": Traffic((0.9, 0.1), (0.2, 1.0), worse=1.7),
}


class Sums(NamedTuple):
    """Scores and weights of each sample, and the sums that the instruments export."""

    y: Floats
    weights: Floats
    w: Floats
    wy: Floats
    w2: Floats
    w2y: Floats
    w2y2: Floats

    @classmethod
    def of(cls, y: Floats, w: Floats) -> Sums:
        """Return the sums of samples, one sample per row."""
        w2 = w * w
        return cls(y, w, *(each.sum(axis=1) for each in (w, w * y, w2, w2 * y, w2 * y * y)))

    @property
    def mean(self) -> Floats:
        return self.wy / self.w

    @property
    def size(self) -> Floats:
        return self.w**2 / self.w2

    @property
    def error(self) -> Floats:
        squares = self.w2y2 - 2 * self.mean * self.w2y + self.mean**2 * self.w2
        return np.sqrt(np.maximum(0.0, squares)) / self.w


def chosen(of: Sums) -> Ends:
    """Return the interval of the library, by its own code."""
    rows = zip(of.w, of.wy, of.w2, of.w2y, of.w2y2, strict=True)
    ends = np.array([estimates.interval(estimates.Moments(0.0, *map(float, row))) for row in rows])
    return ends[:, 0], ends[:, 1]


def wilson(of: Sums) -> Ends:
    """Wilson (1927) with n_eff, for every distribution."""
    return _wilson(of.mean, of.size)


def agresti_coull(of: Sums) -> Ends:
    """Agresti and Coull (1998) with n_eff, for every distribution."""
    size = of.size + Z**2
    middle = (of.size * of.mean + Z**2 / 2) / size
    return _around(middle, Z * np.sqrt(middle * (1 - middle) / size))


def student(of: Sums) -> Ends:
    """t with n_eff − 1 degrees of freedom."""
    return _around(of.mean, _t(of.size) * of.error)


def before(of: Sums) -> Ends:
    """The library's earlier interval: Wilson's for pass/fail and below 30 effective scores, t otherwise."""
    binary = ((of.y == 0) | (of.y == 1)).all(axis=1)
    pairs = zip(wilson(of), student(of), strict=True)
    low, high = (np.where(binary | (of.size < 30), first, second) for first, second in pairs)
    return low, high


def bernstein(of: Sums) -> Ends:
    """Empirical Bernstein (Maurer and Pontil 2009, theorem 4), both sides."""
    free = np.maximum(of.size - 1, 1e-9)
    variance, share = of.error**2 * of.size**2 / free, log(4 / 0.05)
    return _around(of.mean, np.sqrt(2 * variance * share / of.size) + 7 * share / (3 * free))


def shrunk(of: Sums) -> Ends:
    """Wilson's, with n_eff divided by variance/mean(1 − mean), which four scores of a pass/fail metric shrink towards 1."""
    middle = (of.size * of.mean + Z**2 / 2) / (of.size + Z**2)
    most = middle * (1 - middle)
    ratio = np.minimum(1.0, (of.size**2 * of.error**2 + 4 * most) / ((of.size + 4) * most))
    return _wilson(of.mean, of.size / ratio)


def bootstrap(of: Sums) -> Ends:
    """Percentiles of resampled means."""
    rng, (rows, n) = np.random.default_rng(SEED), of.y.shape
    ends = np.empty((rows, 2))
    for row in range(rows):
        at = rng.integers(0, n, (RESAMPLES, n))
        w = of.weights[row][at]
        ends[row] = np.quantile((w * of.y[row][at]).sum(axis=1) / w.sum(axis=1), (0.025, 0.975))
    return ends[:, 0], ends[:, 1]


def _around(middle: Floats, half: Floats) -> Ends:
    return np.maximum(0.0, middle - half), np.minimum(1.0, middle + half)


def _t(size: Floats) -> Floats:
    return Z + (Z**3 + Z) / 4 / np.maximum(size - 1, 1.0)


def _wilson(share: Floats, size: Floats) -> Ends:
    middle, scale = share + Z**2 / 2 / size, 1 + Z**2 / size
    return _around(middle / scale, Z * np.sqrt(share * (1 - share) / size + Z**2 / 4 / size**2) / scale)


CHOSEN = "one more score"
METHODS: Mapping[str, Callable[[Sums], Ends]] = {
    CHOSEN: chosen,
    "Wilson or t (before)": before,
    "Wilson": wilson,
    "Agresti–Coull": agresti_coull,
    "t": student,
    "Wilson, variance shrunk": shrunk,
    "empirical Bernstein": bernstein,
    "bootstrap": bootstrap,
}


class Cell(NamedTuple):
    """The result of a method in one cell of the table: coverage and width."""

    method: str
    traffic: str
    law: str
    mean: float
    n: int
    covered: float
    width: float


def ends_of(method: str, y: Floats, w: Floats) -> Ends:
    """Return the ends of one method's intervals; one sample per row."""
    return METHODS[method](Sums.of(y, w))


def cells(
    samples: int,
    *,
    sizes: Sequence[int] = SIZES,
    methods: Sequence[str] = tuple(METHODS),
    laws: Sequence[str] = tuple(LAWS),
) -> Iterator[Cell]:
    """Yield every cell; each has its own seed."""
    for number, (traffic, law, mean, n) in enumerate(product(TRAFFICS, laws, MEANS, sizes)):
        y, w = TRAFFICS[traffic].draw(np.random.default_rng((SEED, number)), LAWS[law], mean, (samples, n))
        for method in methods:
            rows = min(samples, BOOTSTRAPPED) if method == "bootstrap" else samples
            low, high = ends_of(method, y[:rows], w[:rows])
            covered = np.mean((low <= mean + 1e-12) & (mean - 1e-12 <= high))
            yield Cell(method, traffic, law, mean, n, float(covered), float(np.mean(high - low)))


def table(found: list[Cell], samples: int) -> str:
    """Return both tables as Markdown."""
    below_one = [cell for cell in found if cell.mean < 1.0]
    lines = [
        "# Intervals of a mean",
        "",
        "This page compares formulas for the interval of a mean, and is the reason for",
        f"spanscore's formula. `python -m benchmarks.intervals` draws {samples:,} samples per cell (bootstrap: {BOOTSTRAPPED})",
        f"with seed {SEED}. The best formula is the narrowest one that contains the true mean in 0.93 of the samples of each",
        "cell, and in not much more.",
        "",
        "A column is a number of scores. A cell has the lowest coverage of all cells · the median of the coverages · the mean",
        "width.",
        "",
        _row("formula", map(str, SIZES)),
        _row("---", ["---"] * len(SIZES)),
        *(_row(method, (_of_all(below_one, method, n) for n in SIZES)) for method in METHODS),
        "",
        f"spanscore uses *{CHOSEN}*. The next table has each of its cells: coverage, and width in brackets. At a mean of 1 all",
        "scores are 1.",
        "",
        _row("traffic, distribution, mean", map(str, SIZES)),
        _row("---", ["---"] * len(SIZES)),
        *_in_full([cell for cell in found if cell.method == CHOSEN]),
    ]
    return "\n".join(lines) + "\n"


def _of_all(found: list[Cell], method: str, n: int) -> str:
    of = [cell for cell in found if (cell.method, cell.n) == (method, n)]
    covered = [cell.covered for cell in of]
    width = np.mean([cell.width for cell in of])
    return f"{_short(min(covered))} · {_short(float(np.median(covered)))} · {_short(float(width))}"


def _in_full(found: list[Cell]) -> Iterator[str]:
    for traffic, law, mean in product(TRAFFICS, LAWS, MEANS):
        of = [cell for cell in found if (cell.traffic, cell.law, cell.mean) == (traffic, law, mean)]
        yield _row(f"{traffic}, {law}, {mean:g}", (f"{_short(cell.covered)} ({_short(cell.width)})" for cell in of))


def _row(first: str, others: Iterator[str] | list[str] | map[str]) -> str:
    return f"| {' | '.join([first, *others])} |"


def _short(share: float) -> str:
    return f"{share:.3f}".removeprefix("0")


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=4_000, help="per cell")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    arguments = parser.parse_args()
    text = table(list(cells(arguments.samples)), arguments.samples)
    if arguments.markdown is None:
        print(text, end="")
    else:
        arguments.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
