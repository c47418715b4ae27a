"""Simulation of the gate of ``spanscore evaluate --baseline``: coverage of its paired interval, and rate of false failures.

    python -m benchmarks.gate > benchmarks/gate.md        # two minutes; --runs 100 for a look

Two runs over the same cases are drawn from distributions with a known change of the mean. The page states the distributions,
the meaning of the numbers and the targets. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from spanscore.monitoring.estimates import MeanInterval, moments
from spanscore.monitoring.judge_check_runs import JudgeComparison

Law = Callable[[Random], tuple[float, float]]
CASES = (20, 60, 200, 1000)
FEW = 60
INTRODUCTION = """\
# Reliability of the gate of `spanscore evaluate --baseline`

The gate compares each case of a run with the same case of an earlier run. This page
shows how many cases the gate needs to find a worse run. `python -m benchmarks.gate` prints the page.

A run fails if its mean quality fell by more than `max_drop` (here 0) and the 95 % interval of the change lies below 0. For
each cell, {runs:,} pairs of runs were drawn from a distribution with a known change of the mean:

- **pass/fail**: 90 % of the cases pass. The change breaks a share of these cases. In each run, the judge errs on 5 % of the
  cases.
- **score**: a case has a quality from 0.2 to 0.9, and the judge adds noise of up to ±0.1 in each run.

A cell has three numbers: the share of runs whose interval contains the true change · the mean width of the interval · the
share of runs that fail. Targets: the first share is at least 0.92 with 20 cases, and at least 0.94 from 60 cases on. If
nothing changed, at most 0.035 of the runs fail (nominal: 0.025).
"""


class Cell(NamedTuple):
    """One distribution at one number of cases."""

    coverage: float
    width: float
    failed: float


def binary(passing: float, *, broken: float, noise: float) -> tuple[Law, float]:
    """Cases that pass or fail: the change breaks a share of them, and the judge flips a share in either run."""

    def law(random: Random) -> tuple[float, float]:
        good = random.random() < passing
        after = good and random.random() >= broken
        before, now = (float(value != (random.random() < noise)) for value in (good, after))
        return before, now

    return law, -passing * broken * (1 - 2 * noise)


def rated(drop: float) -> tuple[Law, float]:
    """Qualities between .2 and .9, with a judge's noise of ±.1 in either run."""

    def law(random: Random) -> tuple[float, float]:
        level = random.uniform(0.2, 0.9)
        return level + random.uniform(-0.1, 0.1), level - drop + random.uniform(-0.1, 0.1)

    return law, -drop


LAWS = {
    "pass/fail, nothing changed": binary(0.9, broken=0.0, noise=0.05),
    "pass/fail, 5 % broken": binary(0.9, broken=0.05, noise=0.05),
    "pass/fail, 20 % broken": binary(0.9, broken=0.2, noise=0.05),
    "score, nothing changed": rated(0.0),
    "score, 0.03 lower": rated(0.03),
    "score, 0.1 lower": rated(0.1),
}


def drawn(law: Law, cases: int, random: Random) -> list[tuple[float, float]]:
    """Return each case before and now."""
    return [law(random) for _ in range(cases)]


def gap(law: Law, cases: int, random: Random) -> MeanInterval:
    """Return the paired difference between one run and its baseline."""
    found = JudgeComparison(
        difference=moments([((1.0 + now - was) / 2.0, 1.0) for was, now in drawn(law, cases, random)])
    ).gap
    assert found is not None
    return found


def cell(law: Law, true: float, cases: int, runs: int, seed: int) -> Cell:
    """Return the result of ``runs`` runs."""
    gaps = [gap(law, cases, Random(seed + run)) for run in range(runs)]
    held = sum(one.low <= true <= one.high for one in gaps)
    failed = sum(one.mean < 0.0 and one.high < 0.0 for one in gaps)
    return Cell(held / runs, sum(one.high - one.low for one in gaps) / runs, failed / runs)


def page(cells: Mapping[str, Sequence[Cell]], runs: int) -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION.format(runs=runs)
    yield "| distribution (true change) | " + " | ".join(f"{cases} cases" for cases in CASES) + " |"
    yield "|---|" + "---|" * len(CASES)
    for name, row in cells.items():
        true = LAWS[name][1]
        change = f"{true:+.3f}" if true else "0.000"
        yield f"| {name} ({change}) | " + " | ".join(f"{c:.3f} · {w:.3f} · {f:.3f}" for c, w, f in row) + " |"
    small, large = (cells[f"pass/fail, {share} % broken"][CASES.index(200)].failed for share in (5, 20))
    yield f"\n{'A cell misses its target.' if is_missed(cells) else 'Every cell meets its targets.'}"
    yield f"With 200 pass/fail cases, the gate finds a change that breaks 5 % of the passing cases in {small:.3f} of the runs."
    yield f"The share is {large:.3f} if the change breaks 20 % of the passing cases."


def is_missed(cells: Mapping[str, Sequence[Cell]]) -> bool:
    """Return whether a cell misses a target."""
    return any(
        one.coverage < (0.92 if cases < FEW else 0.94) or (LAWS[name][1] == 0.0 and one.failed > 0.035)
        for name, row in cells.items()
        for cases, one in zip(CASES, row, strict=True)
    )


def main() -> int:
    """Print the page; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    cells = {
        name: [cell(law, true, cases, runs, 1000 * place) for place, cases in enumerate(CASES)]
        for name, (law, true) in LAWS.items()
    }
    print("\n".join(page(cells, runs)))
    return int(is_missed(cells))


if __name__ == "__main__":
    sys.exit(main())
