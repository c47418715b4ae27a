"""Labels → Fitted: candidates are drawn from one part of the labels, chosen on another, and tested once on the third."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from spanscore.core import loop
from spanscore.core.codecs.annotation_file import annotated_records, read_annotations
from spanscore.core.log import type_name
from spanscore.core.prompt import Example
from spanscore.core.sample import AnnotatedSample
from spanscore.errors import ConfigurationError
from spanscore.fitting.choosing import Answers, Paired, best_of, demonstration_sets, split
from spanscore.fitting.fitted import Fitted, digest_of
from spanscore.fitting.marking import Marking, OnProgress, answers_in, refuse_silence
from spanscore.fitting.rewriting import misses_in, proposals
from spanscore.fitting.teachable import Lesson, Prompts, Teachable, VerdictStep, lessons_of, verdict_step
from spanscore.protocols import Judge, Redactor
from spanscore.samples.redaction import redacted, redacted_sample

__all__ = ["FittingRun", "warnings_for"]

_FEWEST = 20
"""Labels: of fewer, the third part is too small to show any gain."""
_ENOUGH = 100
"""Labels: of 60, a true gain of .10 was shown in one simulated run of eight."""


class _SplitLabels(NamedTuple):
    """The lessons for demonstrations, for the choice, and for the test."""

    shown: list[Lesson]
    chosen: list[Lesson]
    tested: list[Lesson]


class _Best(NamedTuple):
    """The candidate that did best, and how it did on the labels that it was chosen by, and on those that it was not."""

    prompts: Prompts
    metric: Teachable
    chosen: Paired
    tested: Paired


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingRun:
    """One fit of one metric; its attributes are the arguments of ``JudgedMetric.fit``.

    Raises:
        ConfigurationError: a number is none, or the metric has no step that a label can teach.
    """

    metric: Teachable
    annotations: Iterable[AnnotatedSample | Mapping[str, Any]] | str | Path
    demonstrations: int = 4
    candidates: int = 16
    rewriter: Judge | None = None
    redactor: Redactor | None = None
    seed: int = 0
    progress: OnProgress | None = None

    def __post_init__(self) -> None:
        if self.demonstrations < 0:
            raise ConfigurationError(f"demonstrations is {self.demonstrations}; it is how many a prompt has, 0 or more")
        if self.candidates < 1:
            raise ConfigurationError(f"candidates is {self.candidates}; it is how many are tried, 1 or more")
        if self.demonstrations == 0 and self.rewriter is None:
            raise ConfigurationError("without demonstrations and without a rewriter there is nothing to try")
        verdict_step(self.metric)

    async def run(self) -> Fitted:
        """Fit, from any loop, and say what came of it.

        Raises:
            ConfigurationError: the labels cannot teach the metric.
            JudgeError: the judge gave no verdict on any label.
        """
        if loop.on_loop():
            return await self._fitted()
        return await asyncio.wrap_future(loop.submit(self._fitted()))

    async def _fitted(self) -> Fitted:
        labels = await asyncio.to_thread(self._labels)  # a redactor may compute, and blocks no judge meanwhile
        found = await lessons_of(self.metric, labels)
        parts = self._parts(found.lessons)
        marking = Marking(self._most_judged(parts), self.progress)
        with marking.counting():
            tried, told = await self._tried(found.step, parts, marking)
            best = await self._best(tried, parts, marking)
        return Fitted(
            **self._decided(found.step, best),
            labels=(len(parts.shown), len(parts.chosen), len(parts.tested)),
            candidates=len(tried),
            judge_calls=marking.at.judge_calls,
            cost_usd=marking.at.cost_usd,
            notes=(*found.notes, *told, *marking.notes(), *warnings_for(len(found.lessons))),
        )

    def _decided(self, step: VerdictStep, best: _Best | None) -> dict[str, Any]:
        """Return which metric is used from now on, and why."""
        kept = best is not None and best.tested.shown
        used = best.metric if best is not None and kept else self.metric
        return {
            "metric": used,
            "kept": kept,
            "step": step.own.name,
            "fitted_to": digest_of(step.own),
            "prompts": best.prompts if best is not None and kept else step.prompts_in_force,
            "evaluator_version": used.evaluator_version,
            "evaluator_version_before": self.metric.evaluator_version,
            "chosen": best.chosen if best else None,
            "tested": best.tested if best else None,
        }

    def _labels(self) -> list[AnnotatedSample]:
        """Return the labels as they may be shown."""
        given, redactor = self.annotations, self.redactor
        name = self.metric.name
        labels = read_annotations(given, metric=name) if isinstance(given, str | Path) else annotated_records(given)
        return labels if redactor is None else [_redacted(label, redactor) for label in labels]

    def _parts(self, lessons: Sequence[Lesson]) -> _SplitLabels:
        if len(lessons) < _FEWEST:
            raise ConfigurationError(
                f"{len(lessons)} labelled samples are too few to fit {self.metric.name}: it takes {_FEWEST} at least"
            )
        if len({lesson.verdict for lesson in lessons}) == 1:
            raise ConfigurationError(
                f"all {len(lessons)} labels say the same, which teaches a judge to say it always: label some of the other kind"
            )
        places = split([lesson.group for lesson in lessons], self.seed)
        parts = _SplitLabels(*([lessons[place] for place in part] for part in places))
        if not all(parts):
            raise ConfigurationError("the labels are of too few sessions or traces: by these they are split in three")
        return parts

    def _most_judged(self, parts: _SplitLabels) -> int:
        misses = 0 if self.rewriter is None else len(parts.shown)
        return misses + (1 + self.candidates) * len(parts.chosen) + 2 * len(parts.tested)

    async def _tried(self, step: VerdictStep, parts: _SplitLabels, marking: Marking) -> tuple[list[Prompts], list[str]]:
        """Return the words of each candidate, and what must be known of them."""
        sets = self._demonstrations(step, parts.shown)
        if self.rewriter is None:
            return [step.prompts(examples) for examples in sets], []
        misses = misses_in(await marking.mark(self.metric, parts.shown), parts.shown)
        every = 1 if self.demonstrations == 0 else 2  # else every other candidate has an instruction of its own
        places = range(0, len(sets), every)
        told = await proposals(self.rewriter, step.question.instruction, misses, number=len(places), seed=self.seed)
        by_place = dict(zip(places, told, strict=True))
        words = [step.prompts(examples, by_place.get(place)) for place, examples in enumerate(sets)]
        lost = f"{told.count(None)} of {len(told)} instructions could not be had from the rewriter"
        return [one for one in words if one != step.prompts_in_force], [lost] if None in told else []

    def _demonstrations(self, step: VerdictStep, shown: Sequence[Lesson]) -> list[tuple[Example, ...]]:
        """Return those of each candidate; where none are wanted, those in force."""
        if self.demonstrations == 0:
            return [step.question.examples] * self.candidates
        able = [(lesson.verdict, lesson.example) for lesson in shown if lesson.example is not None]
        verdicts = [verdict for verdict, _ in able]
        sets = demonstration_sets(verdicts, self.demonstrations, self.candidates, self.seed)
        return [tuple(able[place][1] for place in places) for places in sets]

    async def _best(self, tried: Sequence[Prompts], parts: _SplitLabels, marking: Marking) -> _Best | None:
        """Return the candidate that the second part chooses, tested on the third; None where none looks better at all."""
        if not tried:
            return None
        metrics = [self.metric.with_changes(prompts=prompts) for prompts in tried]
        (before,) = await self._answers([self.metric], parts.chosen, marking)
        found = best_of(before, await self._answers(metrics, parts.chosen, marking))
        if found is None:
            return None
        place, chosen = found
        (was,) = await self._answers([self.metric], parts.tested, marking)
        (now,) = await self._answers([metrics[place]], parts.tested, marking)
        return _Best(tried[place], metrics[place], chosen, Paired.of(was, now))

    async def _answers(
        self, metrics: Sequence[Teachable], lessons: Sequence[Lesson], marking: Marking
    ) -> list[Answers]:
        """Return those of each metric; of several candidates one may be silent, as with demonstrations that are too long."""
        scores = [await marking.mark(one, lessons) for one in metrics]
        refuse_silence([score for own in scores for score in own])
        return [answers_in(own, lessons) for own in scores]


def warnings_for(labels: int) -> list[str]:
    """Return what must be known before so many labels are used."""
    if labels >= _ENOUGH:
        return []
    return [
        f"{labels} labels are few: at 60, a true gain of .10 was shown in one simulated run of eight. "
        f"Take {_ENOUGH} or more."
    ]


def _redacted(label: AnnotatedSample, redactor: Redactor) -> AnnotatedSample:
    said = label.label
    try:
        sample = None if label.sample is None else redacted_sample(label.sample, redactor)
        if said is not None and said.comment is not None:
            said = replace(said, comment=redacted(said.comment, redactor))
    except Exception as error:  # noqa: BLE001  (fails closed; the class only: its text may quote)
        raise ConfigurationError(
            f"line {label.line}: the redactor raised {type_name(error)}, so nothing was shown to anybody"
        ) from None
    return label._replace(sample=sample, label=said)
