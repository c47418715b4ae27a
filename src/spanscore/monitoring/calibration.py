"""Calibrates a judge with human labels: estimates its sensitivity and specificity, and corrects pass rates with both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, hypot, sqrt
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
from spanscore.monitoring.recorded import WRITTEN, restrict
from spanscore.protocols import Metric


class AnnotatedPair(NamedTuple):
    """One sample with the verdicts of a human and of a judge.

    Attributes:
        human: whether the human passed the sample.
        judge: whether the judge passed the sample.
        probability: probability with which the sample was drawn from the judged samples for labelling, (0, 1]; None = unknown.
        weight: units of the traffic that the sample represents: 1 / sampling probability of the score.
    """

    human: bool
    judge: bool
    probability: float | None = None
    weight: float = 1.0


class Cell(NamedTuple):
    """The labels with one verdict of the human and one of the judge: their number, Σw and Σw²."""

    n: int = 0
    w: float = 0.0
    w2: float = 0.0

    def plus(self, w: float) -> Cell:
        """Return the cell with one more label of weight ``w``."""
        return Cell(self.n + 1, self.w + w, self.w2 + w * w)

    def correct_errors(self, other: Cell, error: float) -> Cell:
        """Return the cell corrected for annotator errors: Σw of the true verdicts, and as Σw² the variance of this estimate.

        With these numbers, the formulas for labels without errors are right.

        Args:
            other: cell with the same verdict of the judge and the opposite verdict of the human.
            error: probability that a label is wrong.
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
        """Return the share of ones after adding ``more`` ones and zeros of these weights (Lang & Reiczigel)."""
        w, ones = sums.w + more * (w_one + w_zero), sums.wy + more * w_one
        ones2, zeros2 = sums.w2y + more * w_one**2, sums.w2 - sums.w2y + more * w_zero**2
        share = ones / w
        return cls(share, ((1.0 - share) ** 2 * ones2 + share**2 * zeros2) / w**2)


LEAST_SHARED = 10
"""Least number of units with two or more named annotators; below it the annotator error is not measured."""


class AnnotatorError(NamedTuple):
    """The error rate of a label.

    Attributes:
        rate: probability that a label is wrong, [0, .5), for either truth.
        variance: variance of the estimate of ``rate``; 0 = the rate is given.
    """

    rate: Annotated[float, Field(ge=0.0, lt=0.5, strict=True)]  # 0.5 is a coin
    variance: Annotated[float, Field(ge=0.0, strict=True)] = 0.0

    def of_majorities(self, margins: Iterable[int]) -> AnnotatorError:
        """Return the mean error of majority labels; ``margins``: votes by which each majority leads, 1 or more.

        A majority of m votes more than the minority is wrong with probability eᵐ / (eᵐ + (1 − e)ᵐ).
        """
        margins = list(margins)
        right = 1.0 - self.rate
        odds = [self.rate**margin + right**margin for margin in margins]
        rates = (self.rate**margin / both for margin, both in zip(margins, odds, strict=True))
        slopes = (m * (self.rate * right) ** (m - 1) / both**2 for m, both in zip(margins, odds, strict=True))
        return AnnotatorError(sum(rates) / len(margins), self.variance * (sum(slopes) / len(margins)) ** 2)


NO_ERROR = AnnotatorError(0.0)
"""Error of labels that count as the truth."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often several people agree on a unit.

    Attributes:
        units: units that two or more named annotators labelled.
        agreed: units among them on which all these annotators agree.
        pairs: pairs of annotators on the same unit.
        differing: pairs among them that disagree.
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

        Two annotators who err independently, each with probability e for either truth, disagree with probability
        d = 2e(1 − e). So e = (1 − √(1 − 2d)) / 2 and, by the delta method, Var(e) = Var(d) / (4(1 − 2d)). That is the two-rater
        case of Dawid & Skene (1979), *Maximum likelihood estimation of observer error-rates using the EM algorithm*, with one
        error rate for all.

        Raises:
            ConfigurationError: annotators agree no more often than by chance.
        """
        if self.units < LEAST_SHARED:
            return None
        differing = self.differing / self.pairs
        if differing >= 0.5:  # noqa: PLR2004  (chance)
            raise ConfigurationError(
                f"annotators differ in {self.differing} of {self.pairs} pairs on {self.units} units, which is chance: such "
                "labels correct nothing. Agree on a definition of a pass and label again, or state --annotator-error RATE"
            )
        smoothed = (self.units * differing + 0.5) / (self.units + 1.0)
        rest = 1.0 - 2.0 * differing
        variance = smoothed * (1.0 - smoothed) / self.units / (4.0 * rest)
        return AnnotatorError((1.0 - sqrt(rest)) / 2.0, variance)


def agreement_of(votes: Iterable[Sequence[bool]]) -> Agreement:
    """Return the agreement of annotators; ``votes``: per unit, one vote of each named annotator."""
    several = [unit for unit in votes if len(unit) > 1]
    pairs = [first != second for unit in several for first, second in combinations(unit, 2)]
    return Agreement(len(several), sum(len({*unit}) == 1 for unit in several), len(pairs), sum(pairs))


LEAST_LABELS = 5
"""Fewest labels of each human verdict. With fewer labels, sensitivity or specificity is a guess."""
LEAST_J = 0.3
"""Lowest usable J. At or below it the correction divides by so small a number that its interval is useless."""
_ROUNDING = 1e-9
_MOST_ERROR = 0.49
"""Largest annotator error for which the uncertainty of the error is taken into account."""
Z = NormalDist().inv_cdf(0.975)
ADDED = Z * Z / 2.0
"""Number of passed units, and of failed units, that the interval of a window assumes in addition to the observed units."""


class Estimated(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


def labels_needed(labels: int, rate: Estimated, half_width: float) -> int:
    """Return about how many labels a rate needs in all for an interval of ± ``half_width``; its width falls as 1/√labels.

    Args:
        half_width: wanted half of the interval's width, above 0.
    """
    return ceil(labels * ((rate.high - rate.low) / 2.0 / half_width) ** 2)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The labels of a judge's verdicts, and the figures computed from them. Use ``of`` to make one.

    A judge that passes too much or too little shifts every pass rate. Its sensitivity (right verdicts among human passes) and
    specificity (right verdicts among human fails) vary little with the traffic, so they can correct the pass rate of any
    window.

    Annotators err, too, so the labels of each verdict of the judge are corrected first. docs/how-to/correct-the-pass-rate.md
    (*When people err*) has the formula and its sources. Labels that were drawn with unequal probability, such as all failed
    units and a tenth of the passed units, count with w = 1/π. With equal weights, each formula equals that of its source.

    Attributes:
        true_pass: human and judge passed the sample.
        false_fail: the human passed it, the judge failed it.
        false_pass: the judge passed it, the human failed it.
        true_fail: human and judge failed it.
        assumed_random: no label has a probability, so the labels count as a random part of the judged units.
        annotator_error: error rate of a label; default: no errors.
    """

    true_pass: Cell
    false_fail: Cell
    false_pass: Cell
    true_fail: Cell
    assumed_random: bool
    annotator_error: AnnotatorError = NO_ERROR

    @classmethod
    def of(cls, pairs: Iterable[AnnotatedPair], annotator_error: AnnotatorError = NO_ERROR) -> Calibration:
        """Return the calibration from pairs of verdicts; ``annotator_error``: error rate of the human verdicts.

        Raises:
            ConfigurationError: a human verdict has fewer than ``LEAST_LABELS`` labels, J is at most ``LEAST_J``, or only some
                pairs have a probability. The message has the counts.
        """
        pairs = list(pairs)
        has_probability = [pair.probability is not None for pair in pairs]
        if any(has_probability) and not all(has_probability):
            raise ConfigurationError(
                f"{has_probability.count(False)} of {len(has_probability)} labels have no probability; "
                "give it for all labels or for none"
            )
        cells: dict[tuple[bool, bool], Cell] = {}
        for human, judge, probability, weight in pairs:
            cells[human, judge] = cells.get((human, judge), Cell()).plus(weight / (probability or 1.0))
        calibration = cls(
            true_pass=cells.get((True, True), Cell()),
            false_fail=cells.get((True, False), Cell()),
            false_pass=cells.get((False, True), Cell()),
            true_fail=cells.get((False, False), Cell()),
            assumed_random=not any(has_probability),
            annotator_error=annotator_error,
        )
        calibration.refuse_too_little()
        return calibration

    def refuse_too_little(self) -> None:
        """Refuse labels that are too few, or a judge that is too inaccurate, for a correction.

        Raises:
            ConfigurationError: as in ``of``.
        """
        passed, failed = self.human_passed, self.human_failed
        if min(passed, failed) < LEAST_LABELS:
            raise ConfigurationError(
                f"too few labels for a correction: humans passed {passed} and failed {failed}, but {LEAST_LABELS} of each are "
                "needed. Label more units, mainly units that the judge failed, with the probability of each in its line"
            )
        error, (truly_passed, truly_failed) = self.annotator_error.rate, self._sums_by_truth()
        rarer = min(truly_passed.w, truly_failed.w) / (truly_passed.w + truly_failed.w)
        if error and rarer * self.labels < LEAST_LABELS:
            raise ConfigurationError(
                f"too few labels for a correction: humans passed {passed} and failed {failed}, and at an annotator error of "
                f"{error:.3g} fewer than {LEAST_LABELS} of the rarer ones are right. Label more, or each unit by several people"
            )
        if self.informedness.value <= LEAST_J + _ROUNDING:
            raise ConfigurationError(
                f"the judge is too inaccurate for a correction: it passed {self.true_pass.n} of {passed} human passes and "
                f"failed {self.true_fail.n} of {failed} human fails, so J is {self.informedness.value:.2f}; it must exceed "
                f"{LEAST_J}. Tune the judge first, or use another one"
            )

    @property
    def labels(self) -> int:
        """Number of labels."""
        return self.human_passed + self.human_failed

    @property
    def human_passed(self) -> int:
        """Labels with the human verdict pass."""
        return self.true_pass.n + self.false_fail.n

    @property
    def human_failed(self) -> int:
        """Labels with the human verdict fail."""
        return self.false_pass.n + self.true_fail.n

    @property
    def sensitivity(self) -> Estimated:
        """Share that the judge passes of the samples that humans pass."""
        return _share(self._sums_by_truth()[0], *self._weights())

    @property
    def specificity(self) -> Estimated:
        """Share that the judge fails of the samples that humans fail."""
        passed, failed = self._weights()
        return _share(self._sums_by_truth()[1], failed, passed)

    @property
    def informedness(self) -> Estimated:
        """Youden's J, sensitivity + specificity − 1. A true drop of the pass rate appears as J × drop in the judge's verdicts.

        The interval combines those of sensitivity and specificity, as Newcombe (1998) does for a difference (method 10).
        """
        right, wrong = self.sensitivity, self.specificity
        value = right.value + wrong.value - 1.0
        below = hypot(right.value - right.low, wrong.value - wrong.low)
        above = hypot(right.high - right.value, wrong.high - wrong.value)
        return Estimated(value, max(-1.0, value - below), min(1.0, value + above))

    @property
    def kappa(self) -> Estimated:
        """Cohen's κ, the agreement beyond chance. It depends on the share of passes: to compare judges of other traffic, use
        J.

        The interval is that of Fleiss, Cohen & Everitt (1969), with half a label added to each cell.
        """
        value, _ = _kappa(self._cells(self._true_cells()))
        middle, variance = _kappa(self._cells(self._true_cells(), 0.5))
        half = Z * sqrt(variance)
        return Estimated(value, max(-1.0, middle - half), min(1.0, middle + half))

    def corrected(self, raw: Moments) -> Estimated:
        """Return the pass rate that humans would give a window, which may have no labels.

        It is right as long as the judge errs as it did on the labelled units: same evaluator version, similar traffic. Rate:
        Rogan & Gladen (1978), *Estimating prevalence from the results of a screening test*. Interval: Lang & Reiczigel (2014),
        *Confidence limits for prevalence of disease adjusted for estimated sensitivity and specificity*.

        Args:
            raw: sums of the judge's verdicts in the window, 1 = passed; Σw > 0.
        """
        right, wrong = self.smoothed()
        typical = raw.w2 / raw.w
        passed = Proportion.of(raw, ADDED, typical, typical)
        j = right.share + wrong.share - 1.0
        middle = (passed.share + wrong.share - 1.0) / j
        shift = 4.0 * ADDED * (middle * right.variance - (1.0 - middle) * wrong.variance)
        variance = passed.variance + middle**2 * right.variance + (1.0 - middle) ** 2 * wrong.variance
        half = Z * sqrt(variance) / j
        value = (mean(raw) + self.specificity.value - 1.0) / self.informedness.value
        return Estimated(_clip(value), _clip(middle + shift - half), _clip(middle + shift + half))

    def fresh(self, raw: Moments) -> Estimated:
        """Return the pass rate of the window from which the labels were drawn: that of the labels, made more precise by the
        judge.

        The method, prediction-powered inference (PPI++: Angelopoulos, Duchi & Zrnic 2023) with the human verdict as y, is right
        for any judge, but only for this window.

        Args:
            raw: sums of the judge's verdicts in the window, including the labelled units; Σw > 0.
        """
        cells, rate = self._unbiased_cells(), mean(raw)
        human, judge = _mean(cells, lambda cell: cell.human), _mean(cells, lambda cell: cell.judge)
        both = _mean(cells, lambda cell: cell.human * cell.judge)
        # PPI++'s λ, cov(human, judge) / var(judge): the weight of the judge's rate in addition to that of the labels
        weight = (both - human * judge) / (rate * (1.0 - rate)) if 0.0 < rate < 1.0 else 0.0
        value, size = _clip(human + weight * (rate - judge)), self._equivalent_labels(weight, raw)
        passed = size * value
        return Estimated(value, *interval(Moments(size, size, passed, size, passed, passed)))

    def _equivalent_labels(self, weight: float, raw: Moments) -> float:
        """Return the number of random labels with the precision of labels and judge together. Half a label is added per cell.

        ``weight`` is λ, and ``raw`` has the sums of the window, as in ``fresh``.
        """
        cells = self._unbiased_cells(0.5)
        rest = _mean(cells, lambda cell: cell.human - weight * cell.judge)
        if not self.annotator_error.rate:  # with an annotator error, a label drawn for certain varies too
            # Σw² is that of Poisson sampling: a label drawn with π adds w²(1 − π), and a label that is drawn certainly adds 0.
            random = self.assumed_random
            certain = (cell.w2 * self.labels / raw.n if random else cell.w * raw.w2 / raw.w for cell in cells)
            drawn = [cell._replace(w2=max(0.0, cell.w2 - less)) for cell, less in zip(cells, certain, strict=True)]
        else:
            drawn = cells
        of_rest = _variance(drawn, lambda cell: cell.human - weight * cell.judge - rest)
        rate = _mean(cells, lambda cell: cell.human)
        spread = rate * (1.0 - rate)
        error = self.annotator_error
        of_error = error.variance * ((2.0 * rate - 1.0) / (1.0 - 2.0 * error.rate)) ** 2
        return spread / (of_rest + spread / n_eff(raw) + of_error)

    def smoothed(self) -> tuple[Proportion, Proportion]:
        """Return sensitivity and specificity, each with one right and one wrong label added, of typical weight."""
        error = self.annotator_error
        shares = self._smooth_rates(error.rate)
        if not error.variance:
            return shares
        raised = self._smooth_rates(min(error.rate + sqrt(error.variance), _MOST_ERROR))  # by one standard error
        right, wrong = (
            own._replace(variance=own.variance + (other.share - own.share) ** 2)
            for own, other in zip(shares, raised, strict=True)
        )
        return right, wrong

    def _smooth_rates(self, error: float) -> tuple[Proportion, Proportion]:
        passed, failed = self._weights()
        of_passed, of_failed = self._sums_by_truth(error)
        return Proportion.of(of_passed, 1.0, passed, failed), Proportion.of(of_failed, 1.0, failed, passed)

    def _true_cells(self, error: float | None = None) -> tuple[Cell, Cell, Cell, Cell]:
        """Return the true passes, false passes, false fails and true fails of the judge, corrected for annotator errors."""
        error = self.annotator_error.rate if error is None else error
        return (
            self.true_pass.correct_errors(self.false_pass, error),
            self.false_pass.correct_errors(self.true_pass, error),
            self.false_fail.correct_errors(self.true_fail, error),
            self.true_fail.correct_errors(self.false_fail, error),
        )

    def _sums_by_truth(self, error: float | None = None) -> tuple[Moments, Moments]:
        """Return the sums of true passes, 1 = the judge passes, and of true fails, 1 = the judge fails."""
        true_pass, false_pass, false_fail, true_fail = self._true_cells(error)
        return _class(true_pass, false_fail), _class(true_fail, false_pass)

    def _weights(self) -> tuple[float, float]:
        """Return the typical weight of a label on a unit that the judge passed, and on one that it failed."""
        passed = _typical_weight(self.true_pass, self.false_pass)
        failed = _typical_weight(self.true_fail, self.false_fail)
        return passed or failed, failed or passed

    def _unbiased_cells(self, more: float = 0.0) -> list[_Observed]:
        """Return the cells with the human verdict h as (h − e) / (1 − 2e); its mean is that of the true verdict."""
        error = self.annotator_error.rate
        cells = self._cells((self.true_pass, self.false_pass, self.false_fail, self.true_fail), more)
        return [cell._replace(human=(cell.human - error) / (1.0 - 2.0 * error)) for cell in cells]

    def _cells(self, cells: Sequence[Cell], more: float = 0.0) -> list[_Observed]:
        """Return cells in the order of ``_true_cells`` with their verdicts, and ``more`` labels added to each."""
        w_passed, w_failed = self._weights()
        places = ((1, 1, w_passed), (0, 1, w_passed), (1, 0, w_failed), (0, 0, w_failed))
        return [
            _Observed(human, judge, cell.w + more * w, cell.w2 + more * w**2)
            for (human, judge, w), cell in zip(places, cells, strict=True)
        ]


class _Observed(NamedTuple):
    """The verdicts of a cell, 1 = pass, with its Σw and Σw²."""

    human: float
    judge: int
    w: float
    w2: float


def _class(right: Cell, wrong: Cell) -> Moments:
    return Moments(right.n + wrong.n, right.w + wrong.w, right.w, right.w2 + wrong.w2, right.w2, right.w2)


def _share(of: Moments, w_one: float, w_zero: float) -> Estimated:
    """Return a share with the interval of means (``estimates.interval``), but with another weight for the unseen label.

    The unseen label has the weight of labels with the same verdict of the judge. Example: if a tenth of the passed units was
    labelled, an unseen wrongly passed unit represents ten units.
    """
    value = mean(of)
    ends = []
    for unseen, weight, sign in ((0.0, w_zero, -1.0), (1.0, w_one, 1.0)):
        squares = (1.0 - value) ** 2 * of.w2y + value**2 * (of.w2 - of.w2y) + (weight * (unseen - value)) ** 2
        half = student(0.95, n_eff(of) - 1.0) * sqrt(squares)
        ends.append(_clip((of.wy + weight * unseen + sign * half) / (of.w + weight)))
    return Estimated(value, *ends)


def _typical_weight(*cells: Cell) -> float:
    """Return the mean weight of labels, each weighted by its weight; 0 without labels."""
    weight = sum(cell.w for cell in cells)
    return sum(cell.w2 for cell in cells) / weight if weight else 0.0


def _mean(cells: Sequence[_Observed], of: Callable[[_Observed], float]) -> float:
    return sum(cell.w * of(cell) for cell in cells) / sum(cell.w for cell in cells)


def _variance(cells: Sequence[_Observed], influence: Callable[[_Observed], float]) -> float:
    """Return the variance of an estimate from the influence of each cell's labels on it (linearization)."""
    return sum(cell.w2 * influence(cell) ** 2 for cell in cells) / sum(cell.w for cell in cells) ** 2


def _kappa(cells: Sequence[_Observed]) -> tuple[float, float]:
    """Return κ and the variance of its estimate: with equal weights, that of Fleiss, Cohen & Everitt (1969)."""
    agreed = _mean(cells, lambda cell: cell.human == cell.judge)
    human, judge = _mean(cells, lambda cell: cell.human), _mean(cells, lambda cell: cell.judge)
    chance = human * judge + (1.0 - human) * (1.0 - judge)

    def influence(cell: _Observed) -> float:
        by_chance = (cell.human - human) * (2.0 * judge - 1.0) + (cell.judge - judge) * (2.0 * human - 1.0)
        of_agreed = (cell.human == cell.judge) - agreed
        return (of_agreed * (1.0 - chance) - (1.0 - agreed) * by_chance) / (1.0 - chance) ** 2

    return (agreed - chance) / (1.0 - chance), _variance(cells, influence)


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))


# The file of ``spanscore calibrate``: the labels of one evaluator version of a metric, as counts. All other figures are
# computed from them.
#
# {"metric": "faithfulness", "evaluator_version": "3f9a0c1d/openai:gpt-4o-mini/1", "assumed_random": true,
# "annotator_error": {"rate": 0.05, "variance": 0.0}, "labels": {"true_pass": {"n": 150, "w": 150.0, "w2": 150.0},
# "false_fail": …, "false_pass": …, "true_fail": …}}

_WHAT = "no file of `spanscore calibrate`"
_Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class SavedCalibration:
    """A calibration, and the scores to which it applies.

    Attributes:
        evaluator_version: the only evaluator version whose pass rate it may correct.
    """

    metric: _Text
    evaluator_version: _Text
    calibration: Calibration

    @property
    def file_name(self) -> str:
        """Default name of the file, from metric and evaluator version."""
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
    """Return the calibration in a file.

    Raises:
        ConfigurationError: the file cannot be read, is not a calibration, or its labels cannot correct.
    """
    try:
        tree = json_in(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"calibration {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"calibration {path} is {_WHAT}: not valid JSON") from error
    try:
        names = {name: tree[name] for name in ("metric", "evaluator_version")}
        labels = {name: tree["labels"][name] for name in _CELLS}
        error_rate = AnnotatorError(**tree.get("annotator_error", {"rate": 0.0}))
        calibration = {**labels, "assumed_random": tree["assumed_random"], "annotator_error": error_rate}
        read = _SAVED.validate_python({**names, "calibration": calibration})
    except (ValidationError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is {_WHAT}: it must contain metric, evaluator version, assumed_random and labels"
        ) from error
    try:
        read.calibration.refuse_too_little()
    except ConfigurationError as error:
        raise ConfigurationError(f"calibration {path}: {error}") from error
    return read


def calibrations_of(paths: Iterable[str]) -> dict[str, SavedCalibration]:
    """Return metric → its calibration.

    Raises:
        ConfigurationError: as ``read_calibration``; or two files are for one metric.
    """
    calibrations: dict[str, SavedCalibration] = {}
    for path in paths:
        calibration = read_calibration(path)
        if calibration.metric in calibrations:
            raise ConfigurationError(
                f"{path}: another file is for {calibration.metric!r}, too; name only the file of its present evaluator version"
            )
        calibrations[calibration.metric] = calibration
    return calibrations


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.") or "unnamed"


_CELLS = ("true_pass", "false_fail", "false_pass", "true_fail")
_SAVED = TypeAdapter(SavedCalibration)


# The recording rules read the longest window. They record nothing for other evaluator versions, nor for one that is no longer
# written.

CORRECTED = "spanscore:corrected_pass_rate"
LOW, HIGH = f"{CORRECTED}:low", f"{CORRECTED}:high"
"""Names of the corrected rate and the ends of its interval; the label ``window`` is the window's length."""
_SHARE, _VARIANCE = "spanscore:smoothed_pass_rate", "spanscore:smoothed_pass_rate:variance"
_PASSED = promql.matching({label(semconv.EVALUATION_SCORE_LABEL): "pass"})


def refuse_unknown(calibrations: Mapping[str, SavedCalibration], metrics: Sequence[Metric]) -> None:
    """Refuse a calibration of an unknown metric.

    Raises:
        ConfigurationError: a calibration names a metric that this scorer does not have.
    """
    names = [metric.name for metric in metrics]
    for metric in calibrations:
        if metric not in names:
            raise ConfigurationError(
                f"monitoring.calibrations: one is for {metric!r}, not a metric of this scorer; it has {', '.join(names)}"
            )


def corrected_records(saved: SavedCalibration, shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield the recording rules of one calibration. A rule may read the records of earlier rules."""
    window = promql.duration(max(shared.windows))
    own = promql.matching({promql.METRIC: saved.metric, promql.EVALUATOR_VERSION: saved.evaluator_version})
    every = promql.increases(window, own, promql.BY_EVALUATOR)
    passed = promql.increases(window, f"{own},{_PASSED}", promql.BY_EVALUATOR)

    def sum_of_passes(instrument: str) -> str:
        """Return the sum; 0 if units were judged but never passed, because the counter of passes does not exist then."""
        return f"({passed(instrument)} or 0 * {every(instrument)})"

    share, variance = (f"{name}{{{own}}}" for name in (_SHARE, _VARIANCE))
    low, high = corrected_ends(saved.calibration, share, variance)
    bare_share = f"sum without (window) ({share})"  # the sums have no label ``window``
    for name, expression in (
        (_SHARE, restrict(WRITTEN, smoothed_share(sum_of_passes, every))),
        (_VARIANCE, smoothed_variance(sum_of_passes, every, bare_share)),
        (CORRECTED, restrict(WRITTEN, corrected_rate(saved.calibration, sum_of_passes, every))),
        (LOW, low),
        (HIGH, high),
    ):
        yield {"record": name, "expr": expression, "labels": {promql.METRIC: saved.metric, "window": window}}


def corrected_rate(by: Calibration, passed: promql.Sums, every: promql.Sums) -> str:
    """Return the PromQL expression of the corrected rate, [0, 1].

    Args:
        passed: sums over units that the judge passed.
        every: sums over all judged units.
    """
    raw = f"{passed(semconv.WEIGHT)} / {every(semconv.WEIGHT)}"
    return _clamp(f"({raw} - {1.0 - by.specificity.value:.9g}) / {by.informedness.value:.9g}")


def smoothed_share(passed: promql.Sums, every: promql.Sums) -> str:
    """Return the share of passes after adding ``ADDED`` passed and ``ADDED`` failed units of typical weight."""
    return f"({passed(semconv.WEIGHT)} + {_added_weight(every, 1)}) / {_weight(every)}"


def smoothed_variance(passed: promql.Sums, every: promql.Sums, share: str) -> str:
    """Return the variance of the estimate of ``smoothed_share``."""
    added = _added_weight(every, 2)
    ones, zeros = passed(semconv.WEIGHT2), f"{every(semconv.WEIGHT2)} - {passed(semconv.WEIGHT2)}"
    return f"((1 - {share}) ^ 2 * ({ones} + {added}) + {share} ^ 2 * ({zeros} + {added})) / {_weight(every)} ^ 2"


def corrected_ends(by: Calibration, share: str, variance: str) -> tuple[str, str]:
    """Return the ends of the corrected rate's interval, each in [0, 1]."""
    right, wrong = by.smoothed()
    j = right.share + wrong.share - 1.0
    rate = f"(({share} - {1.0 - wrong.share:.9g}) / {j:.9g})"
    shift = f"{4.0 * ADDED:.9g} * ({rate} * {right.variance:.9g} - (1 - {rate}) * {wrong.variance:.9g})"
    spread = f"{variance} + {rate} ^ 2 * {right.variance:.9g} + (1 - {rate}) ^ 2 * {wrong.variance:.9g}"
    low, high = (_clamp(f"{rate} + {shift} {sign} {Z / j:.9g} * sqrt({spread})") for sign in "-+")
    return low, high


def _added_weight(every: promql.Sums, power: int) -> str:
    """Return the contribution of ``ADDED`` units of typical weight to a sum of weights to this power, 1 or 2."""
    return f"{ADDED:.9g} * ({every(semconv.WEIGHT2)} / {every(semconv.WEIGHT)}) ^ {power}"


def _weight(every: promql.Sums) -> str:
    return f"({every(semconv.WEIGHT)} + 2 * {_added_weight(every, 1)})"


def _clamp(expression: str) -> str:
    return f"clamp({expression}, 0, 1)"
