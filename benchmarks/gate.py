"""Simulation of the gate of ``spanscore evaluate --baseline``: coverage of its paired interval, and rate of false failures.

    python -m benchmarks.gate [--runs 1000]

Two runs over the same cases are drawn from distributions with a known change of the mean. Printed per distribution and number
of cases: the share of runs whose 95 % interval contains the true change, its mean width, and the share that fails at
``max_drop = 0``. Targets: coverage .92, from 60 cases on .94; of unchanged runs .035 may fail (nominal: .025, one side of the
interval).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from spanscore.monitoring.estimates import MeanInterval, moments
from spanscore.monitoring.judge_check_runs import JudgeComparison

Law = Callable[[Random], tuple[float, float]]
CASES = (20, 60, 200, 1000)
FEW = 60


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
    "rated, nothing changed": rated(0.0),
    "rated, 0.03 lower": rated(0.03),
    "rated, 0.1 lower": rated(0.1),
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


def main() -> int:
    """Print the table; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    print(f"{runs:,} runs a cell: coverage of the true change · mean width · share that fails at `max_drop = 0`\n")
    print("| law (true change) | " + " | ".join(f"{cases} cases" for cases in CASES) + " |")
    print("|---|" + "---|" * len(CASES))
    missed = False
    for name, (law, true) in LAWS.items():
        row = [cell(law, true, cases, runs, 1000 * place) for place, cases in enumerate(CASES)]
        print(
            f"| {name} ({true:+.3f}) | " + " | ".join(f"{c:.3f} · {w:.3f} · {f:.3f}" for c, w, f in row) + " |",
            flush=True,
        )
        missed |= any(
            one.coverage < (0.92 if cases < FEW else 0.94) or (true == 0.0 and one.failed > 0.035)
            for cases, one in zip(CASES, row, strict=True)
        )
    print(f"\nTargets: {'missed' if missed else 'met'}.")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
