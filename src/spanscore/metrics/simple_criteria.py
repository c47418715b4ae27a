"""SimpleCriteria: a judge grades an answer by one criterion that is described in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from spanscore.core.score import Direction
from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.condition import checked_condition
from spanscore.metrics.kit.graded import Fields, GradedMetric, bounded, bounds_wanted, direction_wanted, ordinal
from spanscore.metrics.kit.step import OwnPrompts, Step, odd

_INSTRUCTION = """\
Grade the exchange by this criterion alone:
{definition}

Reason: a sentence on the deciding words; then the score."""


class Criticism(BaseModel):
    """Why, and which score."""

    reason: str = ""
    score: int


class SimpleCriteria(GradedMetric):
    """Which grade does this answer or conversation get by one criterion?

    Formula: the most frequent vote, a grade; if several are equally frequent, the lower median of all. Range [the lowest
    grade, the highest], higher is better, or lower with ``direction="lower"``. Without ``range`` any whole number is a
    value; a score then has no quality, and neither passes nor fails.

    Fields: the names in ``fields``. Default, single turn: at least one of ``user_input``, ``response``, ``reference``; multi
    turn: ``user_input`` (and ``reference`` if the sample has one). The judge is shown only these fields. Judge calls:
    one per vote (step ``score_criteria``), concurrently; with ``bundle``, one per vote for all its metrics
    (``judge_criteria``). Votes without an answer are ignored.

    Blind spot: a score is as good as the definition. Grades that are not described are guessed, and judges like the upper
    middle of a scale. A rubric describes each grade, and is steadier (``Rubrics``).

    Source: ragas 0.4.3's ``SimpleCriteriaScore``. Deviations: each vote is a separate judge call (ragas asks once, at any
    strictness); a grade outside of ``range`` is repaired once, then an error; contexts are shown only if ``fields`` names
    them (ragas shows the retrieved contexts); a conversation is shown as messages.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        definition: the criterion and its grades ("Score 1 to 5 by how well …"). The judge reads it as an instruction:
            never build it from a sample.
        name: name of the metric in its scores.
        strictness: number of votes; an even number is raised to the next odd number.
        range: lowest and highest grade, ``[1, 5]``.
        direction: ``"higher"`` if a high grade is good, ``"lower"`` if a low grade is good.
        pass_at: lowest quality (0…1) that passes.
        applies_when: a condition, as a sentence ("the user asks for a refund"). If the judge answers, in the same call, that it
            does not hold, the score is ``not_applicable``: no pass, no fail, in no mean. None = the metric always applies.
        prompts: ``{"score_criteria": {"instruction": …, "examples": […]}}``, or one of the two keys, to replace ours. With
            ``instruction``, ``definition`` is not shown, but must still be given.
        fields: names of the fields shown to the judge, ``["response"]``; a sample that lacks one is ``missing_field``, unless
            the field is optional (``"reference:optional"``). None = ``user_input``, ``response`` and ``reference``, if the
            sample has them; contexts are shown only if they are named.
        required_columns: ragas's name of the parameter ``fields``.
        bundle: whether one judge call judges this criterion together with the criteria of the other metrics that have
            ``bundle``, equal ``fields`` and the same judge. Part of the version; excludes examples.

    Raises:
        ConfigurationError: ``definition`` is empty, or ``range``, ``direction`` or another argument is invalid.
    """

    def __init__(
        self,
        judge: Any,
        *,
        definition: str,
        name: str = "simple_criteria_score",
        strictness: int = 1,
        range: Sequence[int] | None = None,
        direction: Direction = "higher",
        pass_at: float | None = None,
        applies_when: str | None = None,
        prompts: OwnPrompts | None = None,
        fields: Fields | None = None,
        required_columns: Fields | None = None,
        bundle: bool = False,
    ) -> None:
        if not isinstance(definition, str) or not definition.strip():
            raise ConfigurationError(f"{name}: definition is empty; describe the criterion and its grades")
        bounds = bounds_wanted(name, range)
        self.definition = definition.strip()
        instruction = _INSTRUCTION.format(definition=self.definition)
        output = bounded(Criticism, bounds)  # the shape of the answer contains the range
        condition = checked_condition(name, applies_when)
        self.questions = (Step("score_criteria", instruction, output, applies_when=condition),)
        self.scale = ordinal(bounds, direction_wanted(name, direction))
        super().__init__(
            judge,
            name=name,
            pass_at=pass_at,
            prompts=prompts,
            fields=fields,
            required_columns=required_columns,
            bundle=bundle,
        )
        self.votes = odd(strictness)
