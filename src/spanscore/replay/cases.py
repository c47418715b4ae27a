"""Stored units → cases: those of which a condition holds, each question once, or a draw of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heapreplace
from math import log
from random import Random
from typing import Final

from spanscore import semconv
from spanscore.config.collect import CaseCondition
from spanscore.core.codecs.text import plain_number
from spanscore.core.job import Job
from spanscore.core.sample import Samples
from spanscore.metrics.catalog.registry import built_ins
from spanscore.outputs.collected_cases import CollectedCase, FoundScore, case_sample
from spanscore.replay.reading import StoredUnit

__all__ = ["CaseCounts", "drawn", "folded", "found"]

_NO_SCORE: Final = frozenset({semconv.SCORE_ID, semconv.SCORE_REVISION})


@dataclass(slots=True)
class CaseCounts:
    """What was looked through.

    Attributes:
        traces: that were read; likewise ``units``.
        unscored: units that nobody has scored.
        matched: units of which a condition holds.
        without_content: of these, those on whose spans there is no content; reason → units.
        unusable: likewise, those of which no sample could be made for another reason.
        metrics: that some unit has a score of.
    """

    traces: int = 0
    units: int = 0
    unscored: int = 0
    matched: int = 0
    without_content: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    metrics: set[str] = field(default_factory=set)


def found(
    units: Iterable[StoredUnit],
    conditions: Sequence[CaseCondition],
    read: Callable[[StoredUnit], Job],
    counts: CaseCounts,
) -> Iterator[CollectedCase]:
    """Yield the units of which a condition holds, all where there is none, that can be a case.

    Args:
        units: of a store.
        conditions: any of them will do.
        read: makes a unit's sample, redacted.
        counts: takes in what was seen.
    """
    for unit in units:
        scores = unit.evaluated.found or _on_root(unit)
        counts.units += 1
        counts.unscored += not scores
        counts.metrics.update(scores)
        held = {one.metric for one in conditions if one.holds(scores)}
        if held or not conditions:
            counts.matched += 1
            yield from _case(unit, scores, held or scores.keys(), read(unit).samples, counts)


def _case(
    unit: StoredUnit,
    scores: Mapping[str, FoundScore],
    metrics: Collection[str],
    samples: Samples,
    counts: CaseCounts,
) -> Iterator[CollectedCase]:
    """Yield the case of a unit; nothing where no sample could be made, which is counted."""
    requires = {name: built_ins()[name].requires for name in metrics if name in built_ins()}
    sample = case_sample(samples, metrics, requires)
    if sample is None:
        bare = not any(semconv.is_content(name) for span in unit.unit.spans for name in span.attributes)
        (counts.without_content if bare else counts.unusable)[samples.reason or "no sample"] += 1
        return
    yield CollectedCase.of(unit.unit.key, sample, scores)


def _on_root(unit: StoredUnit) -> Mapping[str, FoundScore]:
    """Return the scores that stand on the unit's own span: all that there is of them where evaluation spans are off."""
    held = {} if unit.unit.root is None else unit.unit.root.attributes
    values = {name.removeprefix(semconv.SCORE): name for name in held if name.startswith(semconv.SCORE)}
    known = {metric: plain_number(held[name]) for metric, name in values.items() if name not in _NO_SCORE}
    return {
        metric: FoundScore(
            value,
            held.get(semconv.LABEL + metric),
            None,
            plain_number(held.get(semconv.PROBABILITY + metric)),
        )
        for metric, value in known.items()
    }


def folded(cases: Iterable[CollectedCase]) -> list[CollectedCase]:
    """Return cases with equal questions as one, the first, which says how many they were."""
    by_question: dict[str, CollectedCase] = {}
    for case in cases:
        first = by_question.setdefault(case.question, case)
        if first is not case:
            first.times += case.times
    return list(by_question.values())


def drawn(cases: Iterable[CollectedCase], number: int, seed: int) -> list[CollectedCase]:
    """Draw cases without replacement, each with a chance in proportion to the units for which it stands, 1/probability.

    So rules that score some traffic more often do not shape the draw. A case of which nobody says how probable it was stands
    for itself. Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006), algorithm A-Res.
    """
    random, kept = Random(seed), list[tuple[float, int, CollectedCase]]()
    for place, case in enumerate(cases):
        draw = log(1.0 - random.random()) * (case.probability or 1.0), place, case  # log(u) / w
        if len(kept) < number:
            heappush(kept, draw)
        elif draw[0] > kept[0][0]:
            heapreplace(kept, draw)
    return [case for _, _, case in sorted(kept, key=lambda one: one[1])]
