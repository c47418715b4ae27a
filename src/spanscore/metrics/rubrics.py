"""Rubrics and InstanceRubrics: a judge chooses one of the grades that the metric, or the sample, describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from spanscore.core.sample import Sample
from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.base import Finding, kind_of
from spanscore.metrics.kit.condition import check_condition
from spanscore.metrics.kit.graded import (
    ALL_FIELDS,
    Bounds,
    Fields,
    GradedMetric,
    ask_majority,
    bounds_of,
    check_bounds,
    evidence_of,
    grades_of,
    ordinal_scale,
    restrict_score,
)
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.step import OwnPrompts, Step, odd_votes

DEFAULT_RUBRICS: Mapping[str, str] = MappingProxyType(
    {
        "score1_description": "Wrong, off the question, or no answer at all.",
        "score2_description": "Touches the question; most of it is wrong, missing or unsupported.",
        "score3_description": "Partly right: something that matters is missing or wrong.",
        "score4_description": "Right and on the question, with a small gap or slip.",
        "score5_description": "Right, complete, clear, and nothing beside the point.",
    }
)
"""Default grades, for an answer of any kind. Grades written for one application measure more."""


class Feedback(BaseModel):
    """The judge's reason and grade."""

    feedback: str = ""
    score: int


def _build_output_model(rubrics: Mapping[str, str], bounds: Bounds) -> type[Feedback]:
    """Return the output model. The grade must be described by the rubric, or lie in the user's range."""
    described = bounds_of(rubrics)
    if bounds is None:  # the prompt contains the rubric, so the schema does not describe the range
        return restrict_score(Feedback, described, describes_bounds=False, only=grades_of(rubrics))
    return restrict_score(Feedback, bounds, describes_bounds=bounds != described)


SCORE_INSTANCE_RUBRIC: Step[Feedback] = Step(
    name="score_rubric",
    instruction='Which grade under "rubrics" fits the rest of the evidence best (score), and why (feedback, a sentence)?',
    output=restrict_score(Feedback, None),
)


class Rubrics(GradedMetric):
    """Which of the grades I described fits this answer or conversation?

    Formula: the most frequent vote, a grade; if several are equally frequent, the lower median of all. Range [the lowest
    grade, the highest], higher is better; the grades are the numbers in the rubric's keys.

    Fields: the names in ``fields``. Default, single turn: at least one of ``user_input``, ``response``, ``reference``; multi
    turn: ``user_input`` (and ``reference`` if the sample has one). The judge is shown only these fields. Judge calls:
    one per vote (step ``score_rubric``), concurrently; with ``bundle``, one per vote for all its metrics (``judge_criteria``).
    Votes without an answer are ignored.

    Blind spot: descriptions that overlap are decided by the judge's taste, and two qualities in one rubric (right, polite) can
    only be averaged. Grades are ordered but not evenly spaced, so a mean of grades is only a convention.

    Source: Kim et al., "Prometheus: Inducing Fine-grained Evaluation Capability in Language Models" (2023), as in ragas
    0.4.3's ``RubricsScore``. Deviations: each vote is a separate judge call; after a grade that the rubric does not describe,
    the judge is asked once to correct it; a second such grade is an error (ragas returns the grade); in a conversation, shown
    as messages, the reference is shown too; contexts are shown only if ``fields`` names them (ragas shows the retrieved
    contexts).

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        rubrics: ``{"score1_description": "…", "score2_description": "…"}``; None: 1 to 5 for any answer. The rubrics are an
            instruction: never build them from a sample (``InstanceRubrics`` does that safely).
        name: name of the metric in its scores.
        strictness: number of votes; an even number is raised to the next odd number.
        range: lowest and highest grade, for keys without numbers. For keys with numbers it also allows the grades between them.
        pass_at: lowest quality (0…1) that passes.
        applies_when: a condition, as a sentence ("the user asks for a refund"). If the judge answers, in the same call, that it
            does not hold, the score is ``not_applicable``: no pass, no fail, in no mean. None = the metric always applies.
        prompts: ``{"score_rubric": {"instruction": …, "examples": […]}}``, or one of the two keys, to replace ours. With
            ``instruction``, ``rubrics`` are not shown.
        fields: names of the fields shown to the judge, ``["response"]``; a sample that lacks one is ``missing_field``, unless
            the field is optional (``"reference:optional"``). None = ``user_input``, ``response`` and ``reference``, if the
            sample has them; contexts are shown only if they are named.
        required_columns: ragas's name of the parameter ``fields``.
        bundle: whether one judge call judges this criterion together with the criteria of the other metrics that have
            ``bundle``, equal ``fields`` and the same judge. Part of the version; excludes examples.

    Raises:
        ConfigurationError: ``rubrics``, ``range`` or another argument is invalid.

    Example:
        >>> from spanscore import SingleTurnSample
        >>> from spanscore.metrics import Rubrics
        >>> tone = Rubrics("lexical", name="tone", rubrics={"score1_description": "Rude.", "score2_description": "Friendly."})
        >>> score = tone.score_sync(SingleTurnSample(user_input="And of Spain?", response="Madrid, with pleasure."))
        >>> print(score.metric, score.scale.range)
        tone (1.0, 2.0)
    """

    def __init__(
        self,
        judge: Any,
        *,
        rubrics: Mapping[str, str] | None = None,
        name: str = "rubrics_score",
        strictness: int = 1,
        range: Sequence[int] | None = None,
        pass_at: float | None = None,
        applies_when: str | None = None,
        prompts: OwnPrompts | None = None,
        fields: Fields | None = None,
        required_columns: Fields | None = None,
        bundle: bool = False,
    ) -> None:
        self.rubrics = _check_rubrics(name, DEFAULT_RUBRICS if rubrics is None else rubrics)
        # The key score3_description is shown as 3; any other key is shown unchanged.
        short = {key: key.removeprefix("score").removesuffix("_description") for key in self.rubrics}
        grades = "\n".join(f"{short[key]}: {description}" for key, description in self.rubrics.items())
        bounds = check_bounds(name, range)
        self.questions = (
            Step(
                "score_rubric",
                f"Which grade fits best (score), and why (feedback, a sentence)?\n\n{grades}",
                _build_output_model(self.rubrics, bounds),
                applies_when=check_condition(name, applies_when),
            ),
        )
        self.scale = ordinal_scale(bounds or bounds_of(self.rubrics))
        super().__init__(
            judge,
            name=name,
            pass_at=pass_at,
            prompts=prompts,
            fields=fields,
            required_columns=required_columns,
            bundle=bundle,
            strictness=strictness,
        )


class InstanceRubrics(JudgedMetric):
    """Which of the grades that came with this sample fits it?

    Formula: the most frequent vote, a grade; if several are equally frequent, the lower median of all. Range [the lowest
    grade, the highest], higher is better. Each sample's rubric has its own range, so qualities of different rubrics
    can be compared, and values cannot.

    Fields: ``rubrics`` (``{"score1_description": "…"}``); single turn, whichever of ``user_input``, ``response``,
    ``reference``, ``retrieved_contexts``, ``reference_contexts`` are there; multi turn, ``user_input`` and ``reference`` too.
    Judge calls: one per vote (step ``score_rubric``), concurrently. Votes without an answer are ignored. If the rubric is
    empty, the score is undefined and no call is made.

    Blind spot: the blind spot of ``Rubrics`` applies. Two samples are comparable only as far as their rubrics are equally
    strict.

    Source: ragas 0.4.3's ``InstanceRubrics``. Deviations: after a grade that the rubric does not describe, the judge is asked
    once to correct it; a second such grade is an error (ragas returns the grade); each vote is a separate judge call; the
    rubric is evidence, not instruction, so the text of a sample cannot change the instruction; contexts are separate from the
    question (in ragas, inside it), and a conversation is shown as messages.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores.
        strictness: number of votes; an even number is raised to the next odd number.
        range: lowest and highest grade of all rubrics, for keys without numbers. For keys with numbers it also allows the
            grades between them.
        pass_at: lowest quality (0…1) that passes.
        prompts: ``{"score_rubric": {"instruction": …, "examples": […]}}``, to replace ours.

    Raises:
        ConfigurationError: ``range`` or another argument is invalid.
    """

    base_version = "3"
    requires: Mapping[str, tuple[str, ...]] = {
        "single_turn": ("rubrics",),
        "multi_turn": ("user_input", "reference", "rubrics"),
    }
    questions = (SCORE_INSTANCE_RUBRIC,)

    def __init__(
        self,
        judge: Any,
        *,
        name: str = "instance_rubrics",
        strictness: int = 1,
        range: Sequence[int] | None = None,
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        bounds = check_bounds(name, range)
        self.scale = ordinal_scale(bounds)
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        self.votes = odd_votes(strictness)
        self._bounds = bounds

    @property
    def _shown_fields(self) -> Mapping[str, tuple[str, ...]]:
        return ALL_FIELDS

    async def measure(self, sample: Sample) -> Finding:
        """Ask the judge once per vote, then return the most frequent grade."""
        rubrics = sample.rubrics
        if not rubrics:
            return Finding(value=None, reason="the sample's rubric has no grades")
        bounds = self._bounds or bounds_of(rubrics)
        # The step has the grades of this sample, so ``ask`` of the step is called, not ``self.ask``.
        step = replace(self.steps["score_rubric"], output=_build_output_model(rubrics, self._bounds))
        evidence = {**evidence_of(sample, ALL_FIELDS[kind_of(sample)]), "rubrics": rubrics}
        finding = await ask_majority(lambda index: step.ask(self._judge, evidence, vote_index=index), self.votes)
        return replace(finding, scale=replace(self.scale, range=ordinal_scale(bounds).range))


def _check_rubrics(name: str, rubrics: Any) -> dict[str, str]:
    if not isinstance(rubrics, Mapping) or not rubrics or not all(isinstance(text, str) for text in rubrics.values()):
        raise ConfigurationError(f"{name}: rubrics are a map of grades, such as {{'score1_description': 'Wrong.'}}")
    return {str(key): text for key, text in rubrics.items()}
