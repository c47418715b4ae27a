"""Metric and labels → lessons: what its one verdict step is shown of each sample, and the verdict that is right for it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

from pydantic import BaseModel

from spanscore.core.codecs.annotation_file import passes
from spanscore.core.prompt import Example, Prompt, Reply
from spanscore.core.sample import AnnotatedSample, HumanValue, Sample
from spanscore.core.score import Scale, Score
from spanscore.errors import ConfigurationError, JudgeError
from spanscore.judges.rendering import fenced
from spanscore.judges.score_context import Asker, asked_by
from spanscore.protocols import Judge

__all__ = ["Lesson", "Lessons", "Prompts", "Question", "Teachable", "VerdictStep", "lessons_of", "verdict_step"]

Prompts: TypeAlias = dict[str, dict[str, Any]]
"""What a metric takes as ``prompts``; empty = its own words."""
_MOST_SHOWN = 8_000
"""Characters of a demonstration: it is read, and paid for, with every later question."""
_NAMED = 5


class Question(Protocol):
    """A step of a metric, to who teaches it."""

    @property
    def name(self) -> str:
        """As the judge sees it."""

    @property
    def instruction(self) -> str:
        """What the judge is to do."""

    @property
    def output(self) -> type[BaseModel]:
        """The shape of its answer."""

    @property
    def examples(self) -> tuple[Example, ...]:
        """Worked cases."""


class Teachable(Protocol):
    """A metric that asks a judge (``JudgedMetric``)."""

    name: str
    scale: Scale

    @property
    def questions(self) -> Sequence[Question]:
        """Its steps, in its own words."""

    @property
    def steps(self) -> Mapping[str, Question]:
        """Its steps by name, in the words in force."""

    @property
    def evaluator_version(self) -> str:
        """Of its scores."""

    async def score(self, sample: Sample) -> Score:
        """Score one sample; never raises for what a judge does."""

    def with_changes(self, *, judge: Judge | None = None, prompts: Mapping[str, Any] | None = None) -> Self:
        """Return the same metric with another judge, or in other words."""


@dataclass(frozen=True, slots=True)
class VerdictStep:
    """The one step of a metric that gives the verdict.

    Attributes:
        question: in the words in force.
        own: in the metric's own.
        verdict: field of its answer that holds the verdict, a whole number.
        reason: field that holds the judge's words; None where it has none.
    """

    question: Question
    own: Question
    verdict: str
    reason: str | None

    @property
    def prompts_in_force(self) -> Prompts:
        """What makes of the metric's own words those in force."""
        return self.prompts(self.question.examples)

    def prompts(self, examples: Sequence[Example], instruction: str | None = None) -> Prompts:
        """Return what a metric takes as ``prompts``, to show these demonstrations; ``instruction`` None = the one in force."""
        words = self.question.instruction if instruction is None else instruction
        change: dict[str, Any] = {} if words == self.own.instruction else {"instruction": words}
        if tuple(examples) != self.own.examples:
            change["examples"] = [{"evidence": one.evidence, "output": one.output} for one in examples]
        return {self.own.name: change} if change else {}


@dataclass(frozen=True, slots=True)
class Lesson:
    """A sample whose right verdict is known.

    Attributes:
        evidence: what the judge is shown of it, as JSON.
        verdict: the human's, as the judge would give it.
        example: the same as a demonstration; None where it is too long for one.
    """

    sample: Sample
    evidence: Mapping[str, Any]
    verdict: int
    group: Hashable
    example: Example | None


@dataclass(frozen=True, slots=True)
class Lessons:
    """The lessons in labels.

    Attributes:
        notes: what was left out, and why, a sentence each.
    """

    step: VerdictStep
    lessons: tuple[Lesson, ...]
    notes: tuple[str, ...]


def verdict_step(metric: Teachable) -> VerdictStep:
    """Return the step of a metric that a label can teach.

    Raises:
        ConfigurationError: it has several, or its answer holds no verdict on the sample; the message names the step.
    """
    without = next((question for question in metric.questions if not _verdict_fields(question)), None)
    if without is not None:
        fields = ", ".join(without.output.model_fields)
        raise _unteachable(metric, without.name, f"its answer ({fields}) holds no verdict on the sample")
    if len(metric.questions) != 1:
        others = " and ".join(question.name for question in metric.questions[:-1]) or "no step"
        name = metric.questions[-1].name if metric.questions else "nothing"
        raise _unteachable(metric, name, f"a label says nothing of each verdict of several ({others} beside it)")
    (own,) = metric.questions
    if metric.scale.kind == "continuous":
        raise _unteachable(metric, own.name, "the metric's value is made of its verdicts, and is none itself")
    texts = [name for name, kind in own.output.model_fields.items() if kind.annotation is str]
    return VerdictStep(metric.steps[own.name], own, _verdict_fields(own)[0], texts[0] if texts else None)


def _verdict_fields(question: Question) -> list[str]:
    """Return the one field that is a whole number, where all others are texts; none where it is otherwise."""
    kinds = {name: kind.annotation for name, kind in question.output.model_fields.items()}
    numbers = [name for name, kind in kinds.items() if kind in (int, bool)]
    return numbers if len(numbers) == 1 and all(kind in (int, bool, str) for kind in kinds.values()) else []


def _unteachable(metric: Teachable, step: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{metric.name} cannot be fitted: its step {step} cannot be taught by a label of the whole sample: {why}"
    )


async def lessons_of(metric: Teachable, labels: Sequence[AnnotatedSample]) -> Lessons:
    """Return the labels that can teach a metric. Asks nobody.

    Raises:
        ConfigurationError: the metric has no verdict step, or asks it several times about one sample; or a label is none of
            its scale's.
    """
    step = verdict_step(metric)
    lessons, seen, left_out = list[Lesson](), set[str](), Counter[str]()
    for label, verdict in zip(labels, _verdicts(metric, labels), strict=True):
        if label.sample is None:
            left_out["no sample stands beside the label"] += 1
        elif (evidence := await _shown(metric, label.sample)) is None:
            left_out[f"{metric.name} asks nothing about such a sample"] += 1
        elif (shown := fenced(evidence)) in seen:
            left_out["an equal sample stands before it, and may not teach and test at once"] += 1
        else:
            seen.add(shown)
            lessons.append(_lesson(step, label, label.sample, evidence, verdict))
    notes = [f"{count} of {len(labels)} labels are left out: {why}" for why, count in left_out.items()]
    long = sum(lesson.example is None for lesson in lessons)
    if long:
        notes.append(f"{long} samples are no demonstrations: longer than {_MOST_SHOWN:,} characters")
    return Lessons(step, tuple(lessons), tuple(notes))


def _lesson(
    step: VerdictStep, label: AnnotatedSample, sample: Sample, evidence: Mapping[str, Any], verdict: int
) -> Lesson:
    shown = fenced(evidence)
    comment = label.label.comment if label.label else None
    output: dict[str, Any] = {step.reason: comment} if step.reason and comment else {}
    example = Example(evidence, {**output, step.verdict: verdict})
    group: Hashable = ("line", label.line) if label.group is None else ("group", label.group)
    return Lesson(sample, evidence, verdict, group, example if len(shown) <= _MOST_SHOWN else None)


def _verdicts(metric: Teachable, labels: Sequence[AnnotatedSample]) -> list[int]:
    found, faults = list[int](), list[str]()
    for label in labels:
        try:
            found.append(_verdict(label.human, metric.scale))
        except ConfigurationError as error:
            faults.append(f"  line {label.line}: {error}")
    if faults:
        more = [f"  and {len(faults) - _NAMED} more"] if len(faults) > _NAMED else []
        raise ConfigurationError(
            "\n".join([f"labels that are none of {metric.name}'s scale:", *faults[:_NAMED], *more])
        )
    return found


def _verdict(human: HumanValue, scale: Scale) -> int:
    """Return what a human said as the judge would say it: of a pass or fail 0 or 1, else the grade."""
    if scale.kind == "binary":
        return int(passes(human, scale) == (scale.direction == "higher"))
    if isinstance(human, bool | str) or human != int(human):
        raise ConfigurationError(f"the judge gives grades, so a label is a grade, a whole number; this is {human!r}")
    if scale.range is not None and not scale.range[0] <= human <= scale.range[1]:
        raise ConfigurationError(f"{human:g} is not on the scale, {scale.range[0]:g} to {scale.range[1]:g}")
    return int(human)


class _Listening:
    """A judge that says nothing, and remembers what it was asked."""

    model = "none"

    def __init__(self) -> None:
        self.heard: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Reply:
        self.heard.append(prompt)
        raise JudgeError(f"{prompt.step}: nobody was asked")


async def _shown(metric: Teachable, sample: Sample) -> Mapping[str, Any] | None:
    """Return what the judge would be shown of a sample; None where it would not be asked.

    Raises:
        ConfigurationError: it would be asked about several things.
    """
    judge = _Listening()
    with asked_by(Asker()):  # no budget pays for it
        await metric.with_changes(judge=judge).score(sample)
    different = {fenced(prompt.evidence): prompt for prompt in judge.heard}
    if len(different) > 1:
        step = judge.heard[0].step
        raise _unteachable(metric, step, f"it is asked about {len(different)} parts of one sample")
    # As it will stand in a file: a text that is more than a text (Passages) is a text.
    asked = [json.loads(json.dumps(prompt.evidence, default=str)) for prompt in different.values()]
    return asked[0] if asked else None
