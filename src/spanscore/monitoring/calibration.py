"""Calibration: judge and humans on the same samples → how good the judge is, and pass rates corrected by it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import hypot, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.core.codecs.text import json_in
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.estimates import Moments, interval, mean, n_eff, student
from spanscore.monitoring.promql import label
from spanscore.monitoring.recorded import WRITTEN, among
from spanscore.protocols import Metric


class AnnotatedPair(NamedTuple):
    """One sample that a human and a judge have both judged.

    Attributes:
        human: whether the human passed it; ``judge`` likewise.
        probability: with which it was drawn to be labelled, of what was judged, (0, 1]; None = not told.
        weight: how many units of the traffic it stood for when it was judged: 1 / the score's probability.
    """

    human: bool
    judge: bool
    probability: float | None = None
    weight: float = 1.0


class Cell(NamedTuple):
    """The labels of one verdict of the human and one of the judge: how many, Σw and Σw²."""

    n: int = 0
    w: float = 0.0
    w2: float = 0.0

    def plus(self, w: float) -> Cell:
        """Return the cell with one more label of a weight."""
        return Cell(self.n + 1, self.w + w, self.w2 + w * w)

    def unmixed(self, other: Cell, error: float) -> Cell:
        """Return the cell of the truth; ``other``: labels of the same verdict of the judge, and of the other one of humans.

        Σw is that of the truth, and Σw² the variance of its estimate, so that the formulas of labels without errors hold.
        """
        right, wrong = (1.0 - error) / (1.0 - 2.0 * error), error / (1.0 - 2.0 * error)
        w = min(self.w + other.w, max(0.0, right * self.w - wrong * other.w))
        return Cell(self.n, w, right**2 * self.w2 + wrong**2 * other.w2)


class Proportion(NamedTuple):
    """A share, [0, 1], with the variance of its estimate."""

    share: float
    variance: float

    @classmethod
    def of(cls, sums: Moments, more: float, w_one: float, w_zero: float) -> Proportion:
        """Return the share of ones with so many ones and as many zeros more, of these weights: as Lang & Reiczigel have it."""
        w, ones = sums.w + more * (w_one + w_zero), sums.wy + more * w_one
        ones2, zeros2 = sums.w2y + more * w_one**2, sums.w2 - sums.w2y + more * w_zero**2
        share = ones / w
        return cls(share, ((1.0 - share) ** 2 * ones2 + share**2 * zeros2) / w**2)

    def or_at(self, other: float) -> Proportion:
        """Return the share with a further variance: it is ``other`` one standard error of the annotator error away."""
        return Proportion(self.share, self.variance + (other - self.share) ** 2)


# Two annotators who err independently, each with probability e whatever the truth is, disagree with probability d = 2e(1 −
# e); so e = (1 − √(1 − 2d)) / 2 and, by the delta method, Var(e) = Var(d) / (4(1 − 2d)). That is the two-rater case of
# Dawid & Skene (1979), *Maximum likelihood estimation of observer error-rates using the EM algorithm*, with one error rate
# for all. If the majority of a unit has m votes more than the minority, it is wrong with probability eᵐ / (eᵐ + (1 − e)ᵐ).

LEAST_SHARED = 10
"""Units with two or more named annotators below which no error is measured."""


class AnnotatorError(NamedTuple):
    """How often a label is wrong.

    Attributes:
        rate: probability, [0, .5), whatever the truth is.
        variance: of the estimate of ``rate``; 0 = the rate is given.
    """

    rate: float
    variance: float = 0.0

    def of_majorities(self, margins: Iterable[int]) -> AnnotatorError:
        """Return the error of labels that are majorities, each by so many votes, 1 or more; the mean over all of them."""
        margins = list(margins)
        right = 1.0 - self.rate
        odds = [self.rate**margin + right**margin for margin in margins]
        rates = (self.rate**margin / both for margin, both in zip(margins, odds, strict=True))
        slopes = (m * (self.rate * right) ** (m - 1) / both**2 for m, both in zip(margins, odds, strict=True))
        return AnnotatorError(sum(rates) / len(margins), self.variance * (sum(slopes) / len(margins)) ** 2)


KNOWN_ERROR = AnnotatorError(0.0)
"""The error of labels that are taken as the truth."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often several people agree on a unit.

    Attributes:
        units: units that two or more named annotators labelled.
        agreed: units among them on which all these annotators say the same.
        pairs: pairs of annotators of one unit.
        differing: pairs among them that do not say the same.
    """

    units: int
    agreed: int
    pairs: int
    differing: int

    @property
    def share(self) -> float | None:
        """Share of the units on which all annotators agree, [0, 1]; None without such units."""
        return self.agreed / self.units if self.units else None

    def error(self) -> AnnotatorError | None:
        """Return the error of one annotator; None with fewer than ``LEAST_SHARED`` units.

        Raises:
            ConfigurationError: annotators disagree as often as coins do.
        """
        if self.units < LEAST_SHARED:
            return None
        differing = self.differing / self.pairs
        if differing >= 0.5:  # noqa: PLR2004  (a coin)
            raise ConfigurationError(
                f"annotators differ in {self.differing} of {self.pairs} pairs on {self.units} units, as coins would: such "
                "labels correct nothing. Agree on what a pass is and label again, or state an error with --annotator-error RATE"
            )
        smoothed = (self.units * differing + 0.5) / (self.units + 1.0)
        left = 1.0 - 2.0 * differing
        variance = smoothed * (1.0 - smoothed) / self.units / (4.0 * left)
        return AnnotatorError((1.0 - sqrt(left)) / 2.0, variance)


def agreement_of(votes: Iterable[Sequence[bool]]) -> Agreement:
    """Return how often annotators agree; ``votes``: those of each unit's named annotators, one vote each."""
    several = [unit for unit in votes if len(unit) > 1]
    pairs = [one != other for unit in several for one, other in combinations(unit, 2)]
    return Agreement(len(several), sum(len({*unit}) == 1 for unit in several), len(pairs), sum(pairs))


# A judge that passes too much or too little moves the level of every mean. How often it is right, among what humans pass
# (sensitivity) and among what they fail (specificity), moves little with the traffic, so the pass rate of any window can be
# corrected by it: Rogan & Gladen (1978), *Estimating prevalence from the results of a screening test*. The interval is that
# of Lang & Reiczigel (2014), *Confidence limits for prevalence of disease adjusted for estimated sensitivity and
# specificity*.
#
# People err, too. If a label is wrong with probability e, whatever the truth and the judge's verdict are, the labels of
# each verdict of the judge are corrected first: true passes = ((1 − e)·passed − e·failed) / (1 − 2e), which is Rogan &
# Gladen with the annotator as the test. Staquet, Rozencweig, Lee & Muggia (1981), *Methodology for the assessment of new
# dichotomous diagnostic tests*, have it for a test that is held against an imperfect reference.
#
# Labels that were drawn with unequal probability, as all that failed and a tenth of what passed, count with w = 1/π; with
# equal weights every formula here is that of its source.

LEAST_LABELS = 5
"""Labels of either human class that are needed: with fewer, sensitivity or specificity is a guess."""
LEAST_J = 0.3
"""At or below it the correction divides by so little that its interval says nothing."""
_ROUNDING = 1e-9
_MOST_ERROR = 0.49
"""Annotator error up to which its own uncertainty is followed."""
Z = NormalDist().inv_cdf(0.975)
MORE = Z * Z / 2.0
"""Units that passed, and as many that failed, which a window's interval counts besides those that were seen."""


class Estimated(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The labels of a judge's verdicts, and the figures made of them; made by ``of``.

    Attributes:
        true_pass: both passed it.
        false_fail: the human passed it, the judge did not.
        false_pass: the judge passed it, the human did not.
        true_fail: neither did.
        assumed_random: no label told its probability, so all are taken to be a random part of what was judged.
        annotator_error: how often a label is wrong; by default never.
    """

    true_pass: Cell
    false_fail: Cell
    false_pass: Cell
    true_fail: Cell
    assumed_random: bool
    annotator_error: AnnotatorError = KNOWN_ERROR

    @classmethod
    def of(cls, pairs: Iterable[AnnotatedPair], annotator_error: AnnotatorError = KNOWN_ERROR) -> Calibration:
        """Return what pairs say; ``annotator_error``: how often their human is wrong.

        Raises:
            ConfigurationError: fewer than ``LEAST_LABELS`` of either human class, J at most ``LEAST_J``, or some pairs have a
                probability and others none; with the counts.
        """
        pairs = list(pairs)
        told = [pair.probability is not None for pair in pairs]
        if any(told) and not all(told):
            raise ConfigurationError(
                f"{len(told) - sum(told)} of {len(told)} labels have no probability; give it of all or of none"
            )
        cells: dict[tuple[bool, bool], Cell] = {}
        for human, judge, probability, weight in pairs:
            cells[human, judge] = cells.get((human, judge), Cell()).plus(weight / (probability or 1.0))
        made = cls(
            true_pass=cells.get((True, True), Cell()),
            false_fail=cells.get((True, False), Cell()),
            false_pass=cells.get((False, True), Cell()),
            true_fail=cells.get((False, False), Cell()),
            assumed_random=not any(told),
            annotator_error=annotator_error,
        )
        made.refuse_too_little()
        return made

    def refuse_too_little(self) -> None:
        """Refuse labels that say too little.

        Raises:
            ConfigurationError: as of ``of``.
        """
        passed, failed = self.human_passed, self.human_failed
        if min(passed, failed) < LEAST_LABELS:
            raise ConfigurationError(
                f"too few labels to correct by: humans passed {passed} and failed {failed}, and it takes {LEAST_LABELS} of "
                "each. Label more; of what the judge failed above all, with the probability of each in its line"
            )
        error, (truly_passed, truly_failed) = self.annotator_error.rate, self._classes()
        rarer = min(truly_passed.w, truly_failed.w) / (truly_passed.w + truly_failed.w)
        if error and rarer * self.labels < LEAST_LABELS:
            raise ConfigurationError(
                f"too few labels to correct by: humans passed {passed} and failed {failed}, and at an annotator error of "
                f"{error:.3g} fewer than {LEAST_LABELS} of the rarer ones are right. Label more, or each unit by several people"
            )
        if self.informedness.value <= LEAST_J + _ROUNDING:
            raise ConfigurationError(
                f"the judge says too little to correct by: it passed {self.true_pass.n} of {passed} that humans passed, and "
                f"failed {self.true_fail.n} of {failed} that they failed, so J is {self.informedness.value:.2f}, and it takes "
                f"more than {LEAST_J}. Fit the judge first, or take another one"
            )

    @property
    def labels(self) -> int:
        """Number of labels."""
        return self.human_passed + self.human_failed

    @property
    def human_passed(self) -> int:
        """Labels of what the human passed."""
        return self.true_pass.n + self.false_fail.n

    @property
    def human_failed(self) -> int:
        """Labels of what the human failed."""
        return self.false_pass.n + self.true_fail.n

    @property
    def sensitivity(self) -> Estimated:
        """Share that the judge passes of the samples that humans pass."""
        return _share(self._classes()[0], *self._weights())

    @property
    def specificity(self) -> Estimated:
        """Share that the judge fails of the samples that humans fail."""
        passed, failed = self._weights()
        return _share(self._classes()[1], failed, passed)

    @property
    def informedness(self) -> Estimated:
        """Youden's J, sensitivity + specificity − 1: a true drop of the pass rate shows as J × drop.

        Its interval is made of theirs, as Newcombe (1998) makes that of a difference (method 10).
        """
        right, wrong = self.sensitivity, self.specificity
        value = right.value + wrong.value - 1.0
        below = hypot(right.value - right.low, wrong.value - wrong.low)
        above = hypot(right.high - right.value, wrong.high - wrong.value)
        return Estimated(value, max(-1.0, value - below), min(1.0, value + above))

    @property
    def kappa(self) -> Estimated:
        """Cohen's κ, the agreement beyond chance. It depends on how much passes: for judges of other traffic compare J.

        Its interval is that of Fleiss, Cohen & Everitt (1969), with half a label more in each cell.
        """
        value, _ = _kappa(self._cells(self._true_cells()))
        middle, variance = _kappa(self._cells(self._true_cells(), 0.5))
        half = Z * sqrt(variance)
        return Estimated(value, max(-1.0, middle - half), min(1.0, middle + half))

    def corrected(self, raw: Moments) -> Estimated:
        """Return the pass rate of a window as humans would tell it; also of one without a label.

        That holds as long as the judge errs as it did on what was labelled: same evaluator version, like traffic.

        Args:
            raw: of the judge's verdicts in the window, 1 = passed; Σw > 0.
        """
        right, wrong = self.smoothed()
        typical = raw.w2 / raw.w
        seen = Proportion.of(raw, MORE, typical, typical)
        j = right.share + wrong.share - 1.0
        middle = (seen.share + wrong.share - 1.0) / j
        shift = 4.0 * MORE * (middle * right.variance - (1.0 - middle) * wrong.variance)
        variance = seen.variance + middle**2 * right.variance + (1.0 - middle) ** 2 * wrong.variance
        half = Z * sqrt(variance) / j
        value = (mean(raw) + self.specificity.value - 1.0) / self.informedness.value
        return Estimated(_clipped(value), _clipped(middle + shift - half), _clipped(middle + shift + half))

    def fresh(self, raw: Moments) -> Estimated:
        """Return the pass rate of the window that the labels were drawn from: the labels' own, made more exact by the judge.

        Prediction-powered inference, PPI++ (Angelopoulos, Duchi & Zrnic 2023) with the human as y. It holds however bad the
        judge is, but for this window alone.

        Args:
            raw: of the judge's verdicts in the window, the labelled ones among them; Σw > 0.
        """
        cells, rate = self._noisy_cells(), mean(raw)
        human, judge = _mean(cells, _human), _mean(cells, _judge)
        together = _mean(cells, lambda cell: cell.human * cell.judge)
        # PPI++'s λ, cov(human, judge) / var(judge): how much of the judge's rate beyond the labels' own counts
        power = (together - human * judge) / (rate * (1.0 - rate)) if 0.0 < rate < 1.0 else 0.0
        value, size = _clipped(human + power * (rate - judge)), self._size(power, raw)
        passed = size * value
        return Estimated(value, *interval(Moments(size, size, passed, size, passed, passed)))

    def _size(self, power: float, raw: Moments) -> float:
        """Return how many random labels would tell as much as these and the judge do; with half a label more in each cell."""
        cells = self._noisy_cells(0.5)
        rest = _mean(cells, lambda cell: cell.human - power * cell.judge)
        if not self.annotator_error.rate:  # with an annotator error a sure label varies as well
            # Σw² is that of Poisson sampling: a label drawn with π adds w²(1 − π), and a sure one nothing
            random = self.assumed_random
            sure = (cell.w2 * self.labels / raw.n if random else cell.w * raw.w2 / raw.w for cell in cells)
            drawn = [cell._replace(w2=max(0.0, cell.w2 - less)) for cell, less in zip(cells, sure, strict=True)]
        else:
            drawn = cells
        of_rest = _variance(drawn, lambda cell: cell.human - power * cell.judge - rest)
        rate = _mean(cells, _human)
        spread = rate * (1.0 - rate)
        error = self.annotator_error
        of_error = error.variance * ((2.0 * rate - 1.0) / (1.0 - 2.0 * error.rate)) ** 2
        return spread / (of_rest + spread / n_eff(raw) + of_error)

    def smoothed(self) -> tuple[Proportion, Proportion]:
        """Return sensitivity and specificity with one more label right and one wrong, each of its verdict's typical weight."""
        error = self.annotator_error
        shares = self._smoothed(error.rate)
        if not error.variance:
            return shares
        right, wrong = self._smoothed(min(error.rate + sqrt(error.variance), _MOST_ERROR))
        return shares[0].or_at(right.share), shares[1].or_at(wrong.share)

    def _smoothed(self, error: float) -> tuple[Proportion, Proportion]:
        passed, failed = self._weights()
        of_passed, of_failed = self._classes(error)
        return Proportion.of(of_passed, 1.0, passed, failed), Proportion.of(of_failed, 1.0, failed, passed)

    def _true_cells(self, error: float | None = None) -> tuple[Cell, Cell, Cell, Cell]:
        """Return true and false passes of the judge, then its false and true fails, by the truth instead of the labels."""
        error = self.annotator_error.rate if error is None else error
        pairs = ((self.true_pass, self.false_pass), (self.false_fail, self.true_fail))
        (hit, miss), (lost, rightly) = ((one.unmixed(two, error), two.unmixed(one, error)) for one, two in pairs)
        return hit, miss, lost, rightly

    def _classes(self, error: float | None = None) -> tuple[Moments, Moments]:
        """Return what is truly passed, 1 = the judge passes it, and what is truly failed, 1 = the judge fails it."""
        true_pass, false_pass, false_fail, true_fail = self._true_cells(error)
        return _class(true_pass, false_fail), _class(true_fail, false_pass)

    def _weights(self) -> tuple[float, float]:
        """Return the typical weight of a label that the judge passed, and of one that it failed."""
        passed = _typical((self.true_pass, self.false_pass))
        failed = _typical((self.true_fail, self.false_fail))
        return passed or failed, failed or passed

    def _noisy_cells(self, more: float = 0.0) -> list[_Observed]:
        """Return the labels' cells, where the human is (h − e) / (1 − 2e): that is the truth on average."""
        error = self.annotator_error.rate
        cells = self._cells((self.true_pass, self.false_pass, self.false_fail, self.true_fail), more)
        return [cell._replace(human=(cell.human - error) / (1.0 - 2.0 * error)) for cell in cells]

    def _cells(self, cells: Sequence[Cell], more: float = 0.0) -> list[_Observed]:
        """Return cells, in the order of ``_true_cells``, with so many labels more in each."""
        w_passed, w_failed = self._weights()
        places = ((1, 1, w_passed), (0, 1, w_passed), (1, 0, w_failed), (0, 0, w_failed))
        return [
            _Observed(human, judge, cell.w + more * w, cell.w2 + more * w**2)
            for (human, judge, w), cell in zip(places, cells, strict=True)
        ]


class _Observed(NamedTuple):
    human: float
    judge: int
    w: float
    w2: float


def _class(right: Cell, wrong: Cell) -> Moments:
    return Moments(right.n + wrong.n, right.w + wrong.w, right.w, right.w2 + wrong.w2, right.w2, right.w2)


def _share(of: Moments, w_one: float, w_zero: float) -> Estimated:
    """Return a share with the interval that means have (``estimates.interval``), but for what was not seen.

    That weighs as much as what has its verdict does: where a tenth of what the judge passed was labelled, one that it should
    not have passed, and that no label shows, stands for ten.
    """
    value = mean(of)
    ends = []
    for unseen, weight, sign in ((0.0, w_zero, -1.0), (1.0, w_one, 1.0)):
        squares = (1.0 - value) ** 2 * of.w2y + value**2 * (of.w2 - of.w2y) + (weight * (unseen - value)) ** 2
        half = student(0.95, n_eff(of) - 1.0) * sqrt(squares)
        ends.append(_clipped((of.wy + weight * unseen + sign * half) / (of.w + weight)))
    return Estimated(value, *ends)


def _typical(cells: Iterable[Cell]) -> float:
    """Return the mean weight of labels, each counted by its weight; 0 without any."""
    cells = list(cells)
    weight = sum(cell.w for cell in cells)
    return sum(cell.w2 for cell in cells) / weight if weight else 0.0


def _human(cell: _Observed) -> float:
    return cell.human


def _judge(cell: _Observed) -> float:
    return cell.judge


def _mean(cells: Iterable[_Observed], of: Callable[[_Observed], float]) -> float:
    cells = list(cells)
    return sum(cell.w * of(cell) for cell in cells) / sum(cell.w for cell in cells)


def _variance(cells: Iterable[_Observed], influence: Callable[[_Observed], float]) -> float:
    """Return the variance of the estimate that one label moves by its influence (linearization)."""
    cells = list(cells)
    return sum(cell.w2 * influence(cell) ** 2 for cell in cells) / sum(cell.w for cell in cells) ** 2


def _kappa(cells: Sequence[_Observed]) -> tuple[float, float]:
    """Return κ and the variance of its estimate: with equal weights that of Fleiss, Cohen & Everitt (1969)."""
    agreed = _mean(cells, lambda cell: cell.human == cell.judge)
    human, judge = _mean(cells, _human), _mean(cells, _judge)
    chance = human * judge + (1.0 - human) * (1.0 - judge)

    def influence(cell: _Observed) -> float:
        by_chance = (cell.human - human) * (2.0 * judge - 1.0) + (cell.judge - judge) * (2.0 * human - 1.0)
        of_agreed = (cell.human == cell.judge) - agreed
        return (of_agreed * (1.0 - chance) - (1.0 - agreed) * by_chance) / (1.0 - chance) ** 2

    return (agreed - chance) / (1.0 - chance), _variance(cells, influence)


def _clipped(value: float) -> float:
    return min(1.0, max(0.0, value))


# The file of ``spanscore calibrate``: what labels say of one evaluator version of a metric, as counts, from which all else
# follows.
#
# {"metric": "faithfulness", "evaluator_version": "3f9a0c1d/openai:gpt-4o-mini/1", "assumed_random": true,
# "annotator_error": {"rate": 0.05, "variance": 0.0}, "labels": {"true_pass": {"n": 150, "w": 150.0, "w2": 150.0},
# "false_fail": …, "false_pass": …, "true_fail": …}}

_WHAT = "no file of `spanscore calibrate`"
_Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class SavedCalibration:
    """A calibration, and the scores for which it holds.

    Attributes:
        metric: name.
        evaluator_version: the only one whose pass rate may be corrected by it.
    """

    metric: _Text
    evaluator_version: _Text
    calibration: Calibration

    @property
    def file_name(self) -> str:
        """The default name of the file, made of metric and evaluator version."""
        return f"calibration-{_plain(self.metric)}-{_plain(self.evaluator_version)}.json"

    @property
    def text(self) -> str:
        """The file's text."""
        of = self.calibration
        tree = {
            "metric": self.metric,
            "evaluator_version": self.evaluator_version,
            "assumed_random": of.assumed_random,
            "labels": {name: getattr(of, name)._asdict() for name in _CELLS},
        }
        if of.annotator_error.rate or of.annotator_error.variance:
            tree["annotator_error"] = of.annotator_error._asdict()
        return json.dumps(tree, indent=2) + "\n"


def read_calibration(path: str | Path) -> SavedCalibration:
    """Return what a file holds.

    Raises:
        ConfigurationError: it cannot be read, is no such file, or its labels say too little.
    """
    try:
        tree = json_in(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"calibration {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"calibration {path} is {_WHAT}: not valid JSON") from error
    try:
        read = _SAVED.validate_python(
            {"metric": tree["metric"], "evaluator_version": tree["evaluator_version"], "calibration": _counts(tree)}
        )
    except (ValidationError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is {_WHAT}: metric, evaluator version, assumed_random and labels must be in it"
        ) from error
    try:
        read.calibration.refuse_too_little()
    except ConfigurationError as error:
        raise ConfigurationError(f"calibration {path}: {error}") from error
    return read


def calibrations_of(paths: Iterable[str]) -> dict[str, SavedCalibration]:
    """Return metric → what its file holds.

    Raises:
        ConfigurationError: as ``read_calibration``; or two files are of one metric.
    """
    found: dict[str, SavedCalibration] = {}
    for path in paths:
        one = read_calibration(path)
        if one.metric in found:
            raise ConfigurationError(
                f"{path}: another file is of {one.metric!r}, too; name the one of its present evaluator version"
            )
        found[one.metric] = one
    return found


def _counts(tree: dict[str, Any]) -> dict[str, Any]:
    error = AnnotatorError(**tree.get("annotator_error", {"rate": 0.0}))
    if not (0.0 <= error.rate < 0.5 and error.variance >= 0.0):  # noqa: PLR2004  (a coin)
        raise TypeError
    cells = {name: tree["labels"][name] for name in _CELLS}
    return {**cells, "assumed_random": tree["assumed_random"], "annotator_error": error}


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.") or "unnamed"


_CELLS = ("true_pass", "false_fail", "false_pass", "true_fail")
_SAVED = TypeAdapter(SavedCalibration)


# They look at the longest window, and record nothing of a series that is not calibrated, or is no longer written.

CORRECTED = "spanscore:corrected_pass_rate"
LOW, HIGH = f"{CORRECTED}:low", f"{CORRECTED}:high"
"""The names of the corrected rate and of the ends of its interval; the label ``window`` says over which."""
_SHARE, _VARIANCE = "spanscore:smoothed_pass_rate", "spanscore:smoothed_pass_rate:variance"
_PASSED = promql.matching({label(semconv.EVALUATION_SCORE_LABEL): "pass"})


def refuse_unknown(calibrations: Mapping[str, SavedCalibration], metrics: Sequence[Metric]) -> None:
    """Refuse a calibration of a metric that there is not.

    Raises:
        ConfigurationError: there is one.
    """
    names = [metric.name for metric in metrics]
    for metric in calibrations:
        if metric not in names:
            raise ConfigurationError(
                f"monitoring.calibrations: one is of {metric!r}, which is no metric of this scorer; it has {', '.join(names)}"
            )


def corrected_records(saved: SavedCalibration, shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield the rules of one calibration; each sees what those before it have recorded."""
    window = promql.duration(max(shared.windows))
    own = promql.matching({promql.METRIC: saved.metric, promql.EVALUATOR_VERSION: saved.evaluator_version})
    every = promql.increases(window, own, promql.BY_EVALUATOR)
    ever_passed = promql.increases(window, f"{own},{_PASSED}", promql.BY_EVALUATOR)

    def sum_of_passes(instrument: str) -> str:
        """Return 0 if units were judged and none has ever passed, as there is no counter of passes then."""
        return f"({ever_passed(instrument)} or 0 * {every(instrument)})"

    share, variance = (f"{name}{{{own}}}" for name in (_SHARE, _VARIANCE))
    low, high = corrected_ends(saved.calibration, share, variance)
    for name, expression in (
        (_SHARE, among(WRITTEN, smoothed_share(sum_of_passes, every))),
        (
            _VARIANCE,
            smoothed_variance(sum_of_passes, every, f"sum without (window) ({share})"),
        ),  # sums have no such label
        (CORRECTED, among(WRITTEN, corrected(saved.calibration, sum_of_passes, every))),
        (LOW, low),
        (HIGH, high),
    ):
        yield {"record": name, "expr": expression, "labels": {promql.METRIC: saved.metric, "window": window}}


def corrected(by: Calibration, passed: promql.Sums, every: promql.Sums) -> str:
    """Return the corrected rate, [0, 1].

    Args:
        passed: sums over what the judge passed.
        every: over all that it judged.
    """
    raw = f"{passed(semconv.WEIGHT)} / {every(semconv.WEIGHT)}"
    return _clamped(f"({raw} - {1.0 - by.specificity.value:.9g}) / {by.informedness.value:.9g}")


def smoothed_share(passed: promql.Sums, every: promql.Sums) -> str:
    """Return the share that passed with ``MORE`` units more that did and as many that did not, of typical weight."""
    return f"({passed(semconv.WEIGHT)} + {_more(every, 1)}) / {_weight(every)}"


def smoothed_variance(passed: promql.Sums, every: promql.Sums, share: str) -> str:
    """Return the variance of its estimate."""
    more = _more(every, 2)
    ones, zeros = passed(semconv.WEIGHT2), f"{every(semconv.WEIGHT2)} - {passed(semconv.WEIGHT2)}"
    return f"((1 - {share}) ^ 2 * ({ones} + {more}) + {share} ^ 2 * ({zeros} + {more})) / {_weight(every)} ^ 2"


def corrected_ends(by: Calibration, share: str, variance: str) -> tuple[str, str]:
    """Return the ends of the corrected rate's interval, each in [0, 1]."""
    right, wrong = by.smoothed()
    j = right.share + wrong.share - 1.0
    rate = f"(({share} - {1.0 - wrong.share:.9g}) / {j:.9g})"
    shift = f"{4.0 * MORE:.9g} * ({rate} * {right.variance:.9g} - (1 - {rate}) * {wrong.variance:.9g})"
    spread = f"{variance} + {rate} ^ 2 * {right.variance:.9g} + (1 - {rate}) ^ 2 * {wrong.variance:.9g}"
    low, high = (_clamped(f"{rate} + {shift} {sign} {Z / j:.9g} * sqrt({spread})") for sign in "-+")
    return low, high


def _more(every: promql.Sums, power: int) -> str:
    """Return what so many units more of typical weight add to a sum of weights, or of their squares."""
    return f"{MORE:.9g} * ({every(semconv.WEIGHT2)} / {every(semconv.WEIGHT)}) ^ {power}"


def _weight(every: promql.Sums) -> str:
    return f"({every(semconv.WEIGHT)} + 2 * {_more(every, 1)})"


def _clamped(expression: str) -> str:
    return f"clamp({expression}, 0, 1)"
