"""Simulation of corrected pass rates: coverage of the intervals of ``monitoring/calibration.py``.

    python -m benchmarks.calibration --markdown benchmarks/calibration.md    # one minute; --runs 200 for a look

*Wrong labels* are simulated as well: every annotator errs in 5 %, with and without a correction for it.

Each run judges two windows of 5,000 units with a judge of known sensitivity and specificity, draws labels from the first one,
and corrects the second by them (Rogan-Gladen). The rate of the first window is estimated from its fresh labels (PPI++). In
*weighted* windows a fifth of the units has errors, passes less often (by .2) and is judged ten times as often. Judges are
random here: the causes of a real judge's errors, such as the length of an answer, are not simulated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanscore.errors import ConfigurationError
from spanscore.monitoring.calibration import (
    NO_ERROR,
    AnnotatedPair,
    AnnotatorError,
    Calibration,
    Cell,
    Estimated,
    agreement_of,
)
from spanscore.monitoring.estimates import Moments, moments

Counts: TypeAlias = NDArray[np.int64]

__all__ = ["Judge", "Result", "WrongLabels", "results", "table", "wrong_labels", "wrong_labels_table"]

SEED = 22
RUNS = 4_000
WINDOW = 5_000
LABELS = (50, 200, 800)
TRUE = (0.85, 0.95)
DRAWN = ("random", "by verdict")
RARE, OFTEN = 0.05, 0.5
"""Sampling probability in a weighted window."""
WRONG = 0.05
"""Error rate of one annotator."""
KNOWN_BY = ("ignored", "given", "a quarter by two", "all by two")
LEAST_SEEN = 200
"""Least number of runs that are not refused; with fewer a coverage is not meaningful."""


class Judge(NamedTuple):
    """Probabilities that the judge is right, on human passes and on human fails."""

    sensitivity: float
    specificity: float


JUDGES = (Judge(0.95, 0.90), Judge(0.90, 0.70), Judge(0.85, 0.50))


class Result(NamedTuple):
    """The result of the runs of one cell.

    Attributes:
        refused: share of refused runs.
        bias: bias of the corrected rate; then coverages: corrected rate, in a weighted window, fresh rate, κ and J.
    """

    labels: int
    judge: Judge
    true: float
    drawn: str
    refused: float
    bias: float
    corrected: float
    weighted: float
    fresh: float
    kappa: float
    j: float


def results(runs: int) -> Iterator[Result]:
    """Yield the result of every cell of the grid."""
    for labels, drawn, judge, true in product(LABELS, DRAWN, JUDGES, TRUE):
        yield _result(np.random.default_rng(SEED), runs, labels, judge, true, drawn)


def table(found: list[Result], runs: int) -> str:
    """Return the text of the page."""
    lines = [
        "| labels | drawn | se ⁄ sp | true | refused | bias | corrected | weighted | fresh | κ | J |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        shown = (one.corrected, one.weighted, one.fresh, one.kappa, one.j)
        few = (1 - one.refused) * runs < LEAST_SEEN
        cells = " | ".join("–" if few else f"{coverage:.3f}".removeprefix("0") for coverage in shown)
        bias = "–" if few else f"{one.bias:+.3f}"
        judge = f"{one.judge.sensitivity:g} ⁄ {one.judge.specificity:g}"
        lines.append(f"| {one.labels} | {one.drawn} | {judge} | {one.true:g} | {one.refused:.2f} | {bias} | {cells} |")
    return "\n".join(lines)


def _result(rng: np.random.Generator, runs: int, labels: int, judge: Judge, true: float, drawn: str) -> Result:
    kappa, j = _kappa(judge, true), sum(judge) - 1.0
    held: list[tuple[bool, ...]] = []
    values: list[float] = []
    for _ in range(runs):
        units = rng.multinomial(WINDOW, _cells(judge, true))
        try:
            made = _calibration(rng, units, labels, by_verdict=drawn == "by verdict")
        except ConfigurationError:
            continue
        plain, weighted = _window(rng, judge, true), _weighted_window(rng, judge, true)
        corrected = made.corrected(plain)
        own = int(units[0] + units[2])
        fresh = made.fresh(_sums(own))
        pairs = (
            (corrected, true),
            (made.corrected(weighted), true),
            (fresh, true),
            (made.kappa, kappa),
            (made.informedness, j),
        )
        held.append(tuple(_holds(one, value) for one, value in pairs))
        values.append(corrected.value)
    covered = np.mean(held, axis=0) if held else np.full(5, np.nan)
    bias = float(np.mean(values)) - true if values else float("nan")
    return Result(labels, judge, true, drawn, 1.0 - len(held) / runs, bias, *map(float, covered))


class WrongLabels(NamedTuple):
    """The result of the runs with wrong labels.

    Attributes:
        known_by: source of the known error rate.
        refused: share of refused runs.
        bias: bias of the corrected rate, then its coverage and the mean width of its interval.
        fresh_bias: bias of the fresh rate, then its coverage.
    """

    labels: int
    judge: Judge
    known_by: str
    refused: float
    bias: float
    coverage: float
    width: float
    fresh_bias: float
    fresh_coverage: float


def wrong_labels(
    runs: int, labels: Sequence[int] = LABELS[1:], judges: Sequence[Judge] = JUDGES
) -> Iterator[WrongLabels]:
    """Yield every cell of the grid of wrong labels, drawn at random, at the first true rate."""
    for size, judge, known_by in product(labels, judges, KNOWN_BY):
        rng, true, found = np.random.default_rng(SEED), TRUE[0], list[tuple[float, ...]]()
        for _ in range(runs):
            try:
                made = _with_wrong_labels(rng, size, judge, true, known_by)
            except ConfigurationError:
                continue
            passed = rng.binomial(WINDOW, true * judge.sensitivity + (1 - true) * (1 - judge.specificity))
            one, fresh = made.corrected(_window(rng, judge, true)), made.fresh(_sums(int(passed)))
            held, fresh_held = _holds(one, true), _holds(fresh, true)
            found.append((one.value - true, held, one.high - one.low, fresh.value - true, fresh_held))
        yield WrongLabels(size, judge, known_by, 1.0 - len(found) / runs, *map(float, np.mean(found, axis=0)))


def _with_wrong_labels(rng: np.random.Generator, labels: int, judge: Judge, true: float, known_by: str) -> Calibration:
    cells = rng.choice(4, size=labels, p=_cells(judge, true))
    truth, said = cells < 2, cells % 2 == 0
    one, two = (truth ^ (rng.random(labels) < WRONG) for _ in range(2))
    twice = {"a quarter by two": labels // 4, "all by two": labels}.get(known_by, 0)
    votes = [(bool(a), bool(b)) for a, b in zip(one[:twice], two[:twice], strict=True)]
    kept = [place for place in range(labels) if place >= twice or one[place] == two[place]]
    error = AnnotatorError(WRONG) if known_by == "given" else NO_ERROR
    if votes:
        error = agreement_of(votes).error() or NO_ERROR
    margins = [2 if place < twice else 1 for place in kept]
    pairs = (AnnotatedPair(bool(one[place]), bool(said[place])) for place in kept)
    return Calibration.of(pairs, error.of_majorities(margins))


def wrong_labels_table(found: Sequence[WrongLabels]) -> str:
    """Return the rows of the page on wrong labels."""
    lines = [
        "| labels | se ⁄ sp | error | refused | bias | coverage | width | fresh: bias | coverage |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        judge = f"{one.judge.sensitivity:g} ⁄ {one.judge.specificity:g}"
        covered, fresh = (f"{share:.3f}".removeprefix("0") for share in (one.coverage, one.fresh_coverage))
        lines.append(
            f"| {one.labels} | {judge} | {one.known_by} | {one.refused:.2f} | {one.bias:+.3f} | {covered} | {one.width:.3f} "
            f"| {one.fresh_bias:+.3f} | {fresh} |"
        )
    return "\n".join(lines)


def _cells(judge: Judge, true: float) -> list[float]:
    """Return the shares of units that both pass, only the human passes, only the judge passes, and none passes."""
    return [
        true * judge.sensitivity,
        true * (1 - judge.sensitivity),
        (1 - true) * (1 - judge.specificity),
        (1 - true) * judge.specificity,
    ]


def _kappa(judge: Judge, true: float) -> float:
    both, _, alone, neither = _cells(judge, true)
    passed = both + alone
    chance = true * passed + (1 - true) * (1 - passed)
    return (both + neither - chance) / (1 - chance)


def _calibration(rng: np.random.Generator, units: Counts, labels: int, *, by_verdict: bool) -> Calibration:
    """Return the calibration from labels of a window: of a random part, or of equally many units per verdict."""
    if by_verdict:
        made = _by_verdict(rng, units, labels // 2)
    else:
        both, human, alone, neither = (_cell(n, 1.0) for n in rng.multivariate_hypergeometric(units, labels))
        made = Calibration(both, human, alone, neither, assumed_random=True)
    made.refuse_too_little()
    return made


def _by_verdict(rng: np.random.Generator, units: Counts, each: int) -> Calibration:
    passed, failed = int(units[0] + units[2]), int(units[1] + units[3])
    of_passed, of_failed = min(each, passed), min(each, failed)
    both = int(rng.hypergeometric(units[0], units[2], of_passed))
    human = int(rng.hypergeometric(units[1], units[3], of_failed))
    return Calibration(
        true_pass=_cell(both, passed / of_passed),
        false_fail=_cell(human, failed / of_failed),
        false_pass=_cell(of_passed - both, passed / of_passed),
        true_fail=_cell(of_failed - human, failed / of_failed),
        assumed_random=False,
    )


def _cell(n: int, w: float) -> Cell:
    return Cell(int(n), n * w, n * w * w)


def _sums(passed: int) -> Moments:
    return Moments(WINDOW, WINDOW, passed, WINDOW, passed, passed)


def _window(rng: np.random.Generator, judge: Judge, true: float) -> Moments:
    cells = _cells(judge, true)
    return _sums(int(rng.binomial(WINDOW, cells[0] + cells[2])))


def _weighted_window(rng: np.random.Generator, judge: Judge, true: float) -> Moments:
    """Return the sums of a window of ten times the units, in which units with errors are judged more often."""
    errors = int(rng.binomial(10 * WINDOW, 0.2))
    sums = Moments()
    for units, rate, chance in ((errors, true - 0.16, OFTEN), (10 * WINDOW - errors, true + 0.04, RARE)):
        judged = int(rng.binomial(units, chance))
        cells = _cells(judge, rate)
        passed = int(rng.binomial(judged, cells[0] + cells[2]))
        one, zero = moments([(1.0, chance)]), moments([(0.0, chance)])
        sums += _times(one, passed) + _times(zero, judged - passed)
    return sums


def _times(one: Moments, n: int) -> Moments:
    return Moments(n * one.n, n * one.w, n * one.wy, n * one.w2, n * one.w2y, n * one.w2y2)


def _holds(one: Estimated, value: float) -> bool:
    return one.low <= value <= one.high


def main() -> None:
    """Print the table, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args()
    values = {
        "table": table([*results(asked.runs)], asked.runs),
        "wrong": wrong_labels_table([*wrong_labels(asked.runs)]),
    }
    if asked.markdown is None:
        print(*values.values(), sep="\n\n")
    else:
        asked.markdown.write_text(_PAGE.format(runs=asked.runs, seed=SEED, **values), encoding="utf-8")


_PAGE = """\
# Corrected pass rates

This page shows how often the 95 % intervals of `spanscore calibrate` contain the
true value. `python -m benchmarks.calibration` simulates {runs:,} runs per cell, with seed {seed}. Runs with refused labels
do not count: fewer than 5 labels of either human class, or J at most 0.3.

{table}

- *labels*: number of labels. *drawn by verdict*: as many labels of failed units as of passed units, with their
  probabilities.
- *se ⁄ sp*: the judge's true sensitivity and specificity. *true*: the true pass rate. *refused*: the share of runs with
  refused labels.
- *bias*: the mean error of the corrected rate. The columns behind it are coverages.
- *corrected*: the rate of another window by Rogan–Gladen, with the interval of Lang & Reiczigel. *weighted*: the same, if
  units with errors pass less often, by 0.2, and are judged ten times as often.
- *fresh*: the rate of the labels' own window by PPI++.
- If nine in ten runs are refused, the labels of the other runs contain more failures than the traffic. Intervals of κ and
  of the fresh rate, which need the share of failures among the labels, then contain the true value less often.
- The simulated judge errs at random. The causes of a real judge's errors are not simulated.

## Wrong labels

Each annotator is wrong on 5 % of the units, independently of the truth, of the judge and of each other. The true rate is
0.85, and labels are drawn at random.

- *ignored*: labels count as right. *given*: the option `--annotator-error 5%`.
- *a quarter by two*, *all by two*: this share of units has two annotators. Their disagreement measures the error, and units
  with a tie are left out.

{wrong}

If the annotators' error is known, intervals contain the true value a little too often. Sensitivity and specificity then err
together, and the interval ignores this dependence.
"""


if __name__ == "__main__":
    main()
