"""Two runs of a judge, or two judges, on the same samples → whether they differ; and the file of the first answers."""

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
    """The first quality by metric, evaluator version and sample, kept in a file over restarts. Blocks for its file.

    ``{"format": 1, "first": {"faithfulness": {"<evaluator version>": {"<hash of the sample>": 0.75, …}}}}``

    The file quotes nothing. Processes may share it: its entries win, and it is replaced as a whole.

    Raises:
        ConfigurationError: there is such a file, and it is none of these.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: _Answers = _read(path)

    def of(self, metric: str, evaluator_version: str) -> Mapping[str, float]:
        """Return sample → quality of one evaluator version; empty before its first run."""
        return self._first.get(metric, {}).get(evaluator_version, {})

    def keep(self, metric: str, evaluator_version: str, answers: Mapping[str, float]) -> None:
        """Keep those answers that are the first to their samples; the others are left as they are. Never raises.

        Where the file cannot be read or written that is logged, and they are kept in memory.
        """
        try:
            held = _read(self._path)
            for name, by_version in held.items():  # another process may have been first
                for version, kept in by_version.items():
                    self._add(name, version, kept)
        except ConfigurationError as error:
            log_once(f"judge check {self._path}", f"{error}: the judge is compared with the first run of this process")
            self._add(metric, evaluator_version, answers)
            return
        self._add(metric, evaluator_version, answers)
        if held == self._first:
            return
        try:  # also if another process wrote over the answers that were kept before
            with whole_file(self._path) as file:
                file.write(_BaselineFile(first=self._first).model_dump_json(indent=1))
        except OSError as error:
            log_once(
                f"judge check {self._path}",
                f"the judge check's baseline {self._path} cannot be written ({error.strerror}): a judge that changes while no "
                "process runs will not be seen. Let judge_check.baseline be a file that may be written and outlives "
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
            f"{path} is no baseline of a judge check: name another file in judge_check.baseline, or remove it to begin anew"
        ) from None


# A judge that has not changed may still answer otherwise the second time, but as often one way as the other: of two answers
# to one question, which came first tells nothing. So among samples whose answers differ, up and down are a coin's (the sign
# test; of pass/fail verdicts it is McNemar's, exact: McNemar 1947; Fagerland, Lydersen & Laake 2013, 4.2). A judge that has
# become careless may err both ways and leave no trace there; so the same test is made of being right: right before and
# wrong now against wrong before and right now. Of both the smaller p counts, doubled for the choice.

ENOUGH = 0.5
"""Share of the samples that must be answered before anything is said of a run."""
_TESTS = 2


class PairedAnswer(NamedTuple):
    """The first and the present answer to one sample: qualities, and whether each agrees with the human."""

    first: float
    now: float
    was_right: bool
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRuns:
    """A run beside the first one, of one evaluator version.

    Attributes:
        samples: labelled samples.
        answered: samples that the judge answered in this run; a sample without an answer is no disagreement.
        right: answers whose verdict is the human's.
        was_right: first answers to the same samples whose verdict is the human's.
        raised: samples with a higher quality than at first; ``lowered`` with a lower one.
        gained: samples with a right verdict that was wrong at first; ``lost`` with a wrong one that was right.
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
        """Whether so many are answered that something can be said."""
        return self.answered > 0 and self.answered >= ENOUGH * self.samples

    @property
    def agreement(self) -> float:
        """Share of the answers that agree with the labels, [0, 1]; of at least one answer."""
        return self.right / self.answered

    @property
    def first_agreement(self) -> float:
        """The same of the first answers to these samples."""
        return self.was_right / self.answered

    @property
    def p(self) -> float:
        """How probable as large a change is of a judge that has not changed, at most; (0, 1]."""
        return min(1.0, _TESTS * min(sign_test(self.raised, self.lowered), sign_test(self.gained, self.lost)))


def paired(samples: int, answers: Collection[PairedAnswer]) -> PairedRuns:
    """Return the comparison of a run with the first one; ``samples``: number of labelled samples, answered or not."""
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
    """Return the exact two-sided p of so many changes one way and so many the other; 1 without any."""
    changes = one_way + other_way
    tail = sum(comb(changes, k) for k in range(min(one_way, other_way) + 1))
    return min(1.0, 2 * tail / (1 << changes))


def least_turned(below: float) -> int:
    """Return how many answers must turn, all the same way, for a p below a rate in (0, 1)."""
    turned = 1
    while _TESTS * sign_test(turned, 0) >= below:
        turned += 1
    return turned


# The difference of two means says little where their intervals overlap; that of pairs, in which the units' own spread
# cancels out, says whether the judges differ, and by how much.


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """The sums of units that both judges gave a quality; ``+`` adds those of others.

    Attributes:
        own: of the metric's own judge.
        shadow: of the second one.
        difference: of (1 + second − own) / 2, which is in [0, 1] as qualities are.
    """

    own: Moments = field(default_factory=Moments)
    shadow: Moments = field(default_factory=Moments)
    difference: Moments = field(default_factory=Moments)

    def __add__(self, other: JudgeComparison) -> JudgeComparison:
        return JudgeComparison(self.own + other.own, self.shadow + other.shadow, self.difference + other.difference)

    @property
    def pairs(self) -> int:
        """Units that are compared."""
        return int(self.difference.n)

    @property
    def gap(self) -> MeanInterval | None:
        """Mean of second − own with its 95 % interval, each in [−1, 1]; None without a pair."""
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
    """Return the sums of one unit: both qualities, [0, 1], and the probability with which it was chosen; None = for certain."""
    share = probability or 1.0
    return JudgeComparison(*(moments([(y, share)]) for y in (own, shadow, (1.0 + shadow - own) / 2.0)))
