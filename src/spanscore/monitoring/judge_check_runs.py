"""Compares two runs of a judge, or two judges, on the same samples, and keeps the first answers of a judge in a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, Field, ValidationError

from spanscore.core.files import whole_file
from spanscore.core.log import log_once
from spanscore.core.printable import format_count
from spanscore.errors import ConfigurationError
from spanscore.monitoring.estimates import MeanInterval, Moments, format_signed, interval, mean, moments

_Answers: TypeAlias = dict[str, dict[str, dict[str, Annotated[float, Field(ge=0, le=1)]]]]


class _BaselineFile(BaseModel):
    format: Literal[1] = 1
    first: _Answers


class FirstAnswers:
    """The quality of a judge's first answer, by metric, evaluator version and sample, in a file that outlives the process.

    Methods block while they read or write the file:

    ``{"format": 1, "first": {"faithfulness": {"<evaluator version>": {"<hash of the sample>": 0.75, …}}}}``

    The file contains no text of a sample. Processes may share it: an entry in the file is never changed, and the file is
    replaced as a whole.

    Raises:
        ConfigurationError: the file exists and is not such a file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: _Answers = _read(path)
        self._has_file = bool(self._first)

    def of(self, metric: str, evaluator_version: str) -> Mapping[str, float]:
        """Return sample → quality of one evaluator version; empty before its first run."""
        return self._first.get(metric, {}).get(evaluator_version, {})

    def keep(self, metric: str, evaluator_version: str, answers: Mapping[str, float]) -> None:
        """Keep the answers to samples without an earlier answer. Never raises.

        If the file was removed, these answers are the first. If the file cannot be read or written, that is logged, and the
        answers are kept in memory.
        """
        try:
            in_file = _read(self._path)
            if self._has_file and not in_file:
                self._first = {}
            for name, by_version in in_file.items():  # another process may have written first
                for version, earlier in by_version.items():
                    self._add(name, version, earlier)
        except ConfigurationError as error:
            log_once(f"judge check {self._path}", f"{error}: the judge is compared with the first run of this process")
            self._add(metric, evaluator_version, answers)
            return
        self._add(metric, evaluator_version, answers)
        if in_file == self._first:
            return
        try:
            with whole_file(self._path) as file:
                file.write(_BaselineFile(first=self._first).model_dump_json(indent=1))
            self._has_file = True
        except OSError as error:
            log_once(
                f"judge check {self._path}",
                f"the judge check's baseline {self._path} cannot be written ({error.strerror}): a judge that changes while no "
                "process runs will not be detected. Let judge_check.baseline be a writable file that outlives "
                "the process",
            )

    def _add(self, metric: str, evaluator_version: str, answers: Mapping[str, float]) -> None:
        if not answers:
            return
        kept = self._first.setdefault(metric, {}).setdefault(evaluator_version, {})
        kept |= {sample: quality for sample, quality in answers.items() if sample not in kept}


def _read(path: Path) -> _Answers:
    try:
        return _BaselineFile.model_validate_json(path.read_bytes()).first
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigurationError(f"the judge check's baseline {path} cannot be read: {error.strerror}") from None
    except ValidationError:
        raise ConfigurationError(
            f"{path} is not a baseline of a judge check: name another file in judge_check.baseline, or remove it to start again"
        ) from None


ENOUGH = 0.5
"""Share of the samples that must be answered for a run to be compared."""
_TESTS = 2


class PairedAnswer(NamedTuple):
    """The first and the present answer to one sample: qualities, and whether each agrees with the human."""

    first: float
    now: float
    was_right: bool
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRuns:
    """The comparison of a run with the first run of the same evaluator version.

    Attributes:
        answered: samples that the judge answered in this run; a sample without an answer is no disagreement.
        right: answers that agree with the human verdict.
        was_right: first answers to the same samples that agree with the human verdict.
        raised: samples with a higher quality than at first.
        lowered: samples with a lower quality than at first.
        gained: samples that were wrong at first and are right now.
        lost: samples that were right at first and are wrong now.
    """

    samples: int
    answered: int
    right: int
    was_right: int
    raised: int
    lowered: int
    gained: int
    lost: int

    @property
    def is_enough(self) -> bool:
        """Whether enough samples were answered for a comparison."""
        return self.answered > 0 and self.answered >= ENOUGH * self.samples

    @property
    def agreement(self) -> float:
        """Share of the answers that agree with the labels, [0, 1]; of at least one answer."""
        return self.right / self.answered

    @property
    def first_agreement(self) -> float:
        """Share of the first answers to these samples that agree with the labels, [0, 1]."""
        return self.was_right / self.answered

    @property
    def p(self) -> float:
        """Upper bound of the probability that an unchanged judge changes its answers as much, (0, 1].

        It is the smaller p of two exact sign tests, doubled because there are two:

        - An unchanged judge may answer a question differently, but raises and lowers its answers equally often.
        - A careless judge may err in both directions equally often. So right answers that became wrong are compared with wrong
          answers that became right.

        For pass/fail verdicts, the sign test is McNemar's (McNemar 1947; Fagerland, Lydersen & Laake 2013, 4.2).
        """
        return min(1.0, _TESTS * min(sign_test(self.raised, self.lowered), sign_test(self.gained, self.lost)))


def compare_runs(samples: int, answers: Collection[PairedAnswer]) -> PairedRuns:
    """Return the comparison of a run with the first run. ``samples`` is the number of labelled samples, answered or not."""
    return PairedRuns(
        samples=samples,
        answered=len(answers),
        right=sum(answer.is_right for answer in answers),
        was_right=sum(answer.was_right for answer in answers),
        raised=sum(answer.now > answer.first for answer in answers),
        lowered=sum(answer.now < answer.first for answer in answers),
        gained=sum(answer.is_right and not answer.was_right for answer in answers),
        lost=sum(answer.was_right and not answer.is_right for answer in answers),
    )


def sign_test(one_way: int, other_way: int) -> float:
    """Return the exact two-sided p of this many changes in each direction; 1 without changes."""
    changes = one_way + other_way
    tail = sum(comb(changes, k) for k in range(min(one_way, other_way) + 1))
    return min(1.0, 2 * tail / (1 << changes))


def least_turned(below: float) -> int:
    """Return how many answers must change, all in one direction, for a p below ``below``, (0, 1)."""
    changed = 1
    while _TESTS * sign_test(changed, 0) >= below:
        changed += 1
    return changed


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """The sums of units with a quality from two judges; ``+`` adds the sums of other units.

    The mean difference of pairs is more precise than the difference of two means, because the variation between units cancels
    out.

    Attributes:
        own: sums of the metric's own judge.
        shadow: sums of the second judge.
        difference: sums of (1 + shadow − own) / 2, which is in [0, 1] like a quality.
    """

    own: Moments = field(default_factory=Moments)
    shadow: Moments = field(default_factory=Moments)
    difference: Moments = field(default_factory=Moments)

    def __add__(self, other: JudgeComparison) -> JudgeComparison:
        return JudgeComparison(self.own + other.own, self.shadow + other.shadow, self.difference + other.difference)

    @property
    def pairs(self) -> int:
        """Number of compared units."""
        return int(self.difference.n)

    @property
    def gap(self) -> MeanInterval | None:
        """Mean of shadow − own with its 95 % interval, each in [−1, 1]; None without pairs."""
        if not self.pairs:
            return None
        ends = (mean(self.difference), *interval(self.difference))
        return MeanInterval(*(2.0 * end - 1.0 for end in ends))

    def __str__(self) -> str:
        gap = self.gap
        if gap is None:
            return "no unit has both scores yet"
        means = f"mean {mean(self.shadow):.2f} against {mean(self.own):.2f}"
        middle, low, high = map(format_signed, gap)
        units = f"on the same {format_count(self.pairs, 'unit')}"
        return f"{means} {units}; difference {middle} (95 %: {low} to {high})"


def pair(own: float, shadow: float, probability: float | None) -> JudgeComparison:
    """Return the sums of one unit: both qualities, [0, 1], and its sampling probability; None = 1."""
    qualities = (own, shadow, (1.0 + shadow - own) / 2.0)
    return JudgeComparison(*(moments([(y, probability or 1.0)]) for y in qualities))
