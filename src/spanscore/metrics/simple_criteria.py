"""SimpleCriteria: which grade does one criterion, described in plain words, get?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from spanscore.core.score import Direction
from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.condition import checked_condition
from spanscore.metrics.kit.graded import GradedMetric, bounded, bounds_wanted, direction_wanted, ordinal
from spanscore.metrics.kit.shown import Fields
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

    Formula: the most frequent of ``strictness`` grades; where several are equally frequent, the lower median of all. Range [the
    lowest grade, the highest], higher is better, or lower with ``direction="lower"``. Without ``range`` any whole number is a
    value, and there is no quality, so nothing passes or fails.

    Fields: those that ``fields`` names; by default, single turn, at least one of ``user_input``, ``response``, ``reference``,
    and multi turn, ``user_input`` (and ``reference`` if there is one). The judge is shown those fields alone.
    Judge calls: ``strictness`` (step ``score_criteria``), side by side; with ``bundle`` one for all
    (``judge_criteria``). Ballots that are lost do not count.

    Blind spot: it is as good as its definition; grades that are not described are guessed, and judges like the upper middle of
    a scale. A rubric, which says what each grade means, is steadier (``Rubrics``).

    Source: ragas 0.4.3's ``SimpleCriteriaScore``. Deviations: ballots are really cast (ragas asks once, whatever it says); a
    grade outside of ``range`` is repaired once and then an error; a tie is the lower median (ragas: the first seen);
    contexts are shown only if ``fields`` names them (ragas shows the retrieved ones); a conversation is shown as messages.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        definition: the criterion and its grades ("Score 1 to 5 by how well …"). It is an instruction: never build it
            from a sample.
        name: under which its scores appear.
        strictness: number of votes; an even one becomes the next odd.
        range: lowest and highest grade, ``[1, 5]``.
        direction: whether a high grade is good.
        pass_at: lowest quality (0…1) that passes.
        applies_when: a condition, as a sentence ("the user asks for a refund"): where the judge says, in the same call, that it
            does not hold, the score is ``not_applicable``: no pass, no fail, in no mean. None = it always applies.
        prompts: ``{"score_criteria": {"instruction": …, "examples": […]}}``, to replace ours; then ``definition`` is not shown.
        fields: fields that the judge is shown, ``["response"]``; a sample that lacks one is ``missing_field``, unless it is
            optional (``"reference:optional"``). None = ``user_input``, ``response`` and ``reference``, those that are there;
            contexts are shown only if they are named.
        required_columns: ``fields`` under the name that it has in ragas.
        bundle: whether its criterion is asked in one question with those of the other metrics of a sample that have ``bundle``,
            equal ``fields`` and the same judge. Part of the version; not with examples.
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
            raise ConfigurationError(f"{name}: definition is empty; say what is graded, and what the grades mean")
        bounds = bounds_wanted(name, range)
        self.definition = definition.strip()
        instruction = _INSTRUCTION.format(definition=self.definition)
        output = bounded(Criticism, bounds)  # its form tells the range
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
