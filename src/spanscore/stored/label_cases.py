"""Reads cases for labelling, with their judge's verdicts, and draws some of them: at random, by verdict or by score."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import Any, Final, Self, get_args

from spanscore.core.codecs.stored_sample import content_hash
from spanscore.core.codecs.text import plain_number
from spanscore.core.sample import Sample
from spanscore.core.score import Label, Scale
from spanscore.errors import ConfigurationError
from spanscore.outputs.collected_cases import FoundScore
from spanscore.stored.dataset import BadRecord, none_is_a_sample, read_samples

_IDS: Final = {"trace_id": re.compile("[0-9a-f]{32}"), "span_id": re.compile("[0-9a-f]{16}")}


@dataclass(frozen=True, slots=True)
class LabelCase:
    """A case for labelling, with the judge's score of one metric.

    Attributes:
        names: fields by which a label names the case: ``trace_id`` and ``span_id`` in lower case; without the ids of a unit
            ``key``, the hash of the content.
        sample: the content.
        scores: metric → score.
        id: id of its record; None without an id.
        passed: verdict of the judge; None = no verdict.
        quality: quality of the judge's score, [0, 1]; None = no score, or a scale without quality.
    """

    names: Mapping[str, str]
    sample: Sample
    scores: Mapping[str, FoundScore]
    id: str | int | None = None
    passed: bool | None = None
    quality: float | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any], sample: Sample, own_id: str | int | None = None) -> Self:
        """Return the case in a record of ``spanscore collect``, or in a record with the fields of a sample only."""
        names = {name: record[name].lower() for name in _IDS if isinstance(record.get(name), str)}
        if not all(pattern.fullmatch(names.get(name, "")) for name, pattern in _IDS.items()):
            names = {"key": content_hash(sample)}
        scores = record.get("scores")
        results = scores if isinstance(scores, dict) else {}
        return cls(names, sample, {metric: _read_score(result) for metric, result in results.items()}, own_id)

    @property
    def key(self) -> str:
        """The case's name in the page and in the draw."""
        return "-".join(self.names.values())

    def with_verdict(self, metric: str, scale: Scale) -> Self:
        """Return the case with the verdict and the quality of a metric."""
        score = self.scores.get(metric)
        if score is None:
            return self
        quality = None if score.value is None else scale.quality(score.value)
        label = score.label or scale.label(quality)
        return replace(self, passed=None if label is None else label == "pass", quality=quality)


def _is_number(value: Any) -> bool:
    number = plain_number(value)
    return number is not None and isfinite(number)


_SCORE_FIELDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "value": lambda value: isinstance(value, str) or _is_number(value),
    "label": lambda label: label in get_args(Label),
    "evaluator_version": lambda version: isinstance(version, str) and version != "",
    "probability": lambda chance: _is_number(chance) and 0 < chance <= 1,
    "explanation": lambda text: isinstance(text, str),
    "disagreement": _is_number,
}
"""Field of a score → whether a value of a record can be one. A record may have scores of another program."""


def _read_score(result: Any) -> FoundScore:
    """Return the score in a record, without the fields that would make a line of labels unreadable."""
    fields = result if isinstance(result, dict) else {"value": result}
    values = {name: fields.get(name) for name in _SCORE_FIELDS}
    return FoundScore(**{name: value if _SCORE_FIELDS[name](value) else None for name, value in values.items()})


def read_cases(path: Path) -> tuple[list[LabelCase], list[BadRecord]]:
    """Return the cases in a file of JSON lines, and the lines that are no samples.

    Raises:
        ConfigurationError: the file cannot be read.
        SampleError: no line is a sample.
    """
    cases: list[LabelCase] = []
    bad: list[BadRecord] = []
    for read in read_samples(path, only_lines=True):
        if isinstance(read.sample, BadRecord):
            bad.append(read.sample)
        else:
            record = read.record if isinstance(read.record, dict) else {}
            cases.append(LabelCase.of(record, read.sample, read.id))
    if not cases and bad:
        raise none_is_a_sample(bad)
    return cases, bad


# --- draws ----------------------------------------------------------------------------------------------------------


class LabelPick(StrEnum):
    """The way in which cases are chosen for labelling.

    Attributes:
        RANDOM: any cases, with equal chances.
        INFORMATIVE: a stratified draw, which estimates the pass rate with the fewest labels.
        FAILING: cases that the judge fails.
        DISAGREEMENTS: cases on which the jurors disagree, the largest disagreement first.
    """

    RANDOM = "random"
    INFORMATIVE = "informative"
    FAILING = "failing"
    DISAGREEMENTS = "disagreements"

    @property
    def is_representative(self) -> bool:
        """Whether a pass rate can be estimated from the labels."""
        return self in (LabelPick.RANDOM, LabelPick.INFORMATIVE)


_SPREADS: Final = {(True, False): 0.3, (True, True): 0.45, (False, True): 0.5, (False, False): 0.45}
"""(the judge passes the case, its score is close to the threshold) → standard deviation of the human verdict, 0 to 0.5.

The true values are not known before the labels. These are planning values: humans agree most with a passing score far above the
threshold, and least with a score close to it. Wrong values make the interval wider; the estimate stays unbiased, because each
label counts by its probability.
"""
_NO_VERDICT: Final = "no case has a verdict of {!r}: choose --pick random, or another --metric"
_LACKS: Final = {
    LabelPick.FAILING: "no case fails {!r}: choose --pick random, or another --metric",
    LabelPick.DISAGREEMENTS: (
        "no case has jurors of {!r} that disagree: choose another --pick, or let a jury score the cases"
    ),
}
_FIRST: Final = 10
"""Labels that each stratum gets before the allocation, because ``calibrate`` needs humans' passes and fails."""


@dataclass(frozen=True, slots=True)
class LabelDraw:
    """The cases that were drawn for labelling.

    Attributes:
        cases: drawn cases, in the order of labelling, which does not depend on the verdicts.
        stratum: key of a drawn case → its stratum. Empty if the labels need no probability.
        sizes: stratum → number of its cases, drawn or not.
        representative: whether a pass rate can be estimated from the labels.
    """

    cases: Sequence[LabelCase]
    stratum: Mapping[str, int]
    sizes: Sequence[int]
    representative: bool

    def probabilities(self, labelled: Iterable[str]) -> dict[str, float]:
        """Return key → probability of each labelled case, n_h / N_h; empty if the labels need no probability.

        Cases that are skipped or not labelled yet do not count in n_h.
        """
        keys = [key for key in labelled if key in self.stratum]
        counts = defaultdict[int, int](int)
        for key in keys:
            counts[self.stratum[key]] += 1
        return {key: counts[self.stratum[key]] / self.sizes[self.stratum[key]] for key in keys}


def draw_labels(cases: Sequence[LabelCase], pick: LabelPick, *, metric: str, number: int, seed: int) -> LabelDraw:
    """Draw a number of cases, judged by a metric, for labelling.

    Equal arguments, with the cases in any order, draw equal cases, and a larger number adds cases.

    Raises:
        ConfigurationError: no case fits the pick.
    """
    ranked = sorted(cases, key=lambda case: _random_key(case, f"draw {seed}"))
    strata = _stratify(ranked) if pick is LabelPick.INFORMATIVE else {}
    chosen = _choose_cases(ranked, strata, pick, metric, number)
    if not chosen:
        raise ConfigurationError(_LACKS.get(pick, _NO_VERDICT).format(metric))
    order = sorted(chosen, key=lambda case: _random_key(case, f"order {seed}"))
    stratum = {case.key: place for place, members in enumerate(strata.values()) for case in members}
    drawn_from = {case.key: stratum[case.key] for case in order if strata}
    return LabelDraw(order, drawn_from, [*map(len, strata.values())], pick.is_representative)


def _choose_cases(
    ranked: Sequence[LabelCase],
    strata: Mapping[tuple[bool, bool], Sequence[LabelCase]],
    pick: LabelPick,
    metric: str,
    number: int,
) -> list[LabelCase]:
    """Return the chosen cases; ``ranked``: all cases in random order, ``strata``: the same cases by stratum."""
    if pick is LabelPick.INFORMATIVE:
        counts = allocate([*map(len, strata.values())], [_SPREADS[place] for place in strata], number)
        return [case for members, count in zip(strata.values(), counts, strict=True) for case in members[:count]]
    if pick is LabelPick.FAILING:
        ranked = [case for case in ranked if case.passed is False]
    elif pick is LabelPick.DISAGREEMENTS:
        ranked = sorted(ranked, key=lambda case: -_disagreement(case, metric))
        ranked = [case for case in ranked if _disagreement(case, metric) > 0.0]
    return [*ranked[:number]]


def allocate(sizes: Sequence[int], spreads: Sequence[float], number: int) -> list[int]:
    """Return the number of labels of each stratum, together ``number``, or all cases if there are fewer.

    Neyman's allocation gives stratum h labels in proportion to N_h·S_h. It has the smallest variance of the pass rate
    Σ N_h·p_h / N for a number of labels: Neyman (1934), *On the two different aspects of the representative method*. Each next
    label goes to the stratum with the highest N_h·S_h / √(n_h·(n_h + 1)), which is the exact optimum in whole numbers: Wright
    (2012), *The equivalence of Neyman optimum allocation for sampling and equal proportions for apportioning the U.S. House of
    Representatives*. So a larger draw contains every smaller one.

    Args:
        sizes: number of cases of each stratum, N_h.
        spreads: standard deviation of the human verdict in each stratum, S_h, as far as it is known.
    """
    counts = [0] * len(sizes)

    def priority(place: int) -> tuple[float, float]:
        count = counts[place]
        if count < _FIRST:
            return inf, -count
        return sizes[place] * spreads[place] / sqrt(count * (count + 1)), 0.0

    for _ in range(min(number, sum(sizes))):
        counts[max((place for place in range(len(sizes)) if counts[place] < sizes[place]), key=priority)] += 1
    return counts


def _stratify(cases: Sequence[LabelCase]) -> dict[tuple[bool, bool], list[LabelCase]]:
    """Return (verdict, closeness to the threshold) → its judged cases, in their order; no stratum is empty."""
    strata = defaultdict[tuple[bool, bool], list[LabelCase]](list)
    for passed in (True, False):
        own = [case for case in cases if case.passed is passed]
        qualities = sorted(case.quality for case in own if case.quality is not None)
        middle = qualities[len(qualities) // 2] if qualities else 0.0
        for case in own:
            strata[passed, _is_close(case, middle)].append(case)
    return strata


def _is_close(case: LabelCase, middle: float) -> bool:
    """Return whether the quality is on the threshold's side of the verdict's median; True if the quality is unknown."""
    if case.quality is None:
        return True
    return case.quality < middle if case.passed else case.quality > middle


def _disagreement(case: LabelCase, metric: str) -> float:
    score = case.scores.get(metric)
    return 0.0 if score is None else score.disagreement or 0.0


def _random_key(case: LabelCase, purpose: str) -> bytes:
    """Return a sort key of a case that is random over cases, but always the same for a case and purpose."""
    return blake2b(f"{purpose} {case.key}".encode(), digest_size=8).digest()
