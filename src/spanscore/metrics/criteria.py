"""AspectCritic, SimpleCriteria and Category: a judge decides, grades or categorises by a description in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import multimode
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, WithJsonSchema, create_model

from spanscore.core.printable import did_you_mean
from spanscore.core.prompt import ASPECTS, Aspect
from spanscore.core.score import BINARY, Direction, categorical
from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.condition import BinaryAnswer, check_condition
from spanscore.metrics.kit.graded import (
    Fields,
    GradedMetric,
    check_bounds,
    ordinal_scale,
    restrict_score,
)
from spanscore.metrics.kit.judged import refuse_unknown
from spanscore.metrics.kit.step import OwnPrompts, Step

_DECIDE = """\
Judge this aspect alone:
{definition}

Reason: a sentence on the deciding words. Verdict: 1 if it holds (or the answer is yes), else 0."""


class Critique(BaseModel):
    """Why, and whether the aspect holds."""

    reason: str = ""
    verdict: BinaryAnswer


class AspectCritic(GradedMetric):
    """Does the aspect hold for this answer or conversation?

    Formula: the majority of the votes, each 0 or 1. Range {0, 1}, higher is better (``definition="The response is polite."``),
    or lower with ``direction="lower"``, for an unwanted aspect (``definition="Could the response hurt somebody?"``).

    Fields: the names in ``fields``. Default, single turn: at least one of ``user_input``, ``response``, ``reference``; multi
    turn: ``user_input`` (and ``reference`` if the sample has one). The judge is shown only these fields. Judge calls:
    one per vote (step ``critique``), concurrently; with ``bundle``, one per vote for all its metrics (``judge_criteria``).

    A ready aspect (``aspect="harmfulness"``) has a definition, a direction and a name; ``spanscore metrics -m aspect_critic``
    lists them.

    Votes without an answer are ignored; at least one vote must have an answer, and the score reports their number. Only a vote
    without an answer can cause a tie, which is the failing verdict: 0, or 1 if ``direction`` is ``"lower"``.

    Blind spot: a score is as good as the definition. Votes of one model at a low temperature agree with each other far more
    than independent judges would. Such votes show the judge's noise, not its bias.

    Source: ragas 0.4.3's ``AspectCritic``. Deviations: each vote is a separate judge call (ragas asks once, at any strictness);
    a verdict outside {0, 1} is repaired once and then an error (ragas returns it); in a conversation, shown as messages, the
    reference is shown too (ragas drops it); contexts are shown only if ``fields`` names them (ragas shows all that there is).

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        definition: the aspect, as a sentence that holds or not, or a question with a yes or no. The judge
            reads it as an instruction: never build it from a sample. None = the definition of ``aspect``.
        aspect: name of a ready aspect, such as ``"harmfulness"`` or ``"refusal"``, instead of a definition;
            ``AspectCritic.harmfulness(llm)`` is the same. None = ``definition`` is used.
        name: name of the metric in its scores. None = the ready aspect's name, or ``aspect_critic`` without a ready aspect.
        strictness: number of votes; an even number is raised to the next odd number.
        direction: ``"higher"`` when 1 is good, ``"lower"`` when 0 is. None = the ready aspect's direction, or ``"higher"``
            without a ready aspect.
        pass_at: lowest quality that passes; None: 1.
        applies_when: a condition, as a sentence ("the user asks for a refund"). If the judge answers, in the same call, that it
            does not hold, the score is ``not_applicable``: no pass, no fail, in no mean. None = the metric always applies.
        prompts: ``{"critique": {"instruction": …, "examples": […]}}``, or one of the two keys, to replace ours. With
            ``instruction``, the definition is not shown, but ``definition`` or ``aspect`` must still be given.
        fields: names of the fields shown to the judge, ``["response"]``; a sample that lacks one is ``missing_field``, unless
            the field is optional (``"reference:optional"``). None = ``user_input``, ``response`` and ``reference``, if the
            sample has them; contexts are shown only if they are named.
        required_columns: ragas's name of the parameter ``fields``.
        bundle: whether one judge call judges this criterion together with the criteria of the other metrics that have
            ``bundle``, equal ``fields`` and the same judge. Part of the version; excludes examples.

    Raises:
        ConfigurationError: not one of ``definition`` and ``aspect`` is given, or the aspect or another argument is invalid.

    Example:
        >>> from spanscore import SingleTurnSample
        >>> from spanscore.metrics import AspectCritic
        >>> polite = AspectCritic("lexical", name="polite", definition="The response is polite.")
        >>> score = polite.score_sync(SingleTurnSample(user_input="And of Spain?", response="Madrid, with pleasure."))
        >>> print(score.metric, score.label)
        polite pass
    """

    name = "aspect_critic"
    _grade_field = "verdict"
    aspects: ClassVar[Mapping[str, Aspect]] = ASPECTS

    def __init__(
        self,
        judge: Any,
        *,
        definition: str | None = None,
        aspect: str | None = None,
        name: str | None = None,
        strictness: int = 1,
        direction: Direction | None = None,
        pass_at: float | None = None,
        applies_when: str | None = None,
        prompts: OwnPrompts | None = None,
        fields: Fields | None = None,
        required_columns: Fields | None = None,
        bundle: bool = False,
    ) -> None:
        chosen = _find_aspect(name or self.name, definition, aspect)
        name = name or aspect or self.name
        self.aspect = aspect
        self.definition = chosen.definition
        instruction = _DECIDE.format(definition=self.definition)
        condition = check_condition(name, applies_when)
        self.questions = (Step("critique", instruction, Critique, applies_when=condition),)
        direction = direction or chosen.direction
        refuse_unknown(name, "direction", direction, Direction)
        self.scale = replace(BINARY, direction=direction)
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

    def _break_tie(self, grades: Sequence[Any]) -> int:
        return 0 if self.scale.direction == "higher" else 1


def _find_aspect(name: str, definition: str | None, aspect: str | None) -> Aspect:
    if aspect is None:
        if not isinstance(definition, str) or not definition.strip():
            raise ConfigurationError(
                f"{name}: definition is empty: write the condition in one sentence, "
                f"or set aspect to one of {', '.join(ASPECTS)}"
            )
        return Aspect(definition.strip())
    if definition is not None:
        raise ConfigurationError(f"{name}: aspect and definition are both given; a ready aspect has its own definition")
    if aspect not in ASPECTS:
        hint = did_you_mean(str(aspect), ASPECTS)
        raise ConfigurationError(f"{name}: aspect is {aspect!r}; {hint and f'{hint} '}Ready are {', '.join(ASPECTS)}")
    return ASPECTS[aspect]


for _aspect in ASPECTS:
    setattr(AspectCritic, _aspect, staticmethod(partial(AspectCritic, aspect=_aspect)))


_GRADE = """\
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
        bounds = check_bounds(name, range)
        self.definition = definition.strip()
        instruction = _GRADE.format(definition=self.definition)
        output = restrict_score(Criticism, bounds)  # the shape of the answer contains the range
        condition = check_condition(name, applies_when)
        self.questions = (Step("score_criteria", instruction, output, applies_when=condition),)
        refuse_unknown(name, "direction", direction, Direction)
        self.scale = ordinal_scale(bounds, direction)
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


_QUESTION = "Which category fits this exchange?"
_CHOOSE = """\
{question}
Choose the one category that fits best:

{categories}

Reason: a sentence on the deciding words; then the category, by its name alone."""


class Choice(BaseModel):
    """Why, and which category."""

    reason: str = ""
    category: str


class Category(GradedMetric):
    """Which of the categories that I described fits this answer or conversation?

    Formula: the most frequent vote, one of the words in ``categories``; if several are equally frequent, the word that is
    listed first. The value is the word. Quality: 0 for a word in ``bad``, 1 for the others. If
    ``bad`` is empty, the score has no quality. Range {the words}, higher is better: a category in ``bad`` is worse than any
    other.

    Fields: the names in ``fields``. Default, single turn: at least one of ``user_input``, ``response``, ``reference``; multi
    turn: ``user_input`` (and ``reference`` if the sample has one). The judge is shown only these fields. Judge calls:
    one per vote (step ``choose_category``), concurrently; with ``bundle``, one per vote for all its metrics
    (``judge_criteria``). Votes without an answer are ignored.

    Blind spot: a sample that fits two categories gets one of them, and a sample that fits none gets the nearest; give a
    category for the rest. Meanings that overlap are decided by the judge's taste.

    Source: OpenAI's ``label_model`` grader (``labels``, ``passing_labels``) and Phoenix's ``create_classifier``
    (``choices``). Deviations: each word has its meaning in the prompt; a word outside the set is repaired once, then an
    error; a metric can have several votes; there is a quality only if ``bad`` states it.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        categories: word → its meaning, 2 to 50 of them: ``{"refund": "The user asks for money back.", "other": "The rest."}``.
            They are an instruction: never build them from a sample. A word has letters, digits, ``_`` and ``-``, begins with
            a letter and is at most 40 characters long.
        question: what is categorised, as a question ("What does the user want?"). None: which category fits the exchange.
        bad: words with quality 0; the others have 1. Empty: the metric has no quality, and no pass or fail.
        name: name of the metric in its scores.
        strictness: number of votes; an even number is raised to the next odd number.
        applies_when: a condition, as a sentence ("the user asks for a refund"). If the judge answers, in the same call, that it
            does not hold, the score is ``not_applicable``: no pass, no fail, in no mean. None: the metric always applies.
        prompts: ``{"choose_category": {"instruction": …, "examples": […]}}``, or one of the two keys, to replace ours. With
            ``instruction``, ``question`` and the meanings are not shown.
        fields: names of the fields shown to the judge, ``["user_input"]``; a sample that lacks one is ``missing_field``, unless
            the field is optional (``"reference:optional"``). None: ``user_input``, ``response`` and ``reference``, if the
            sample has them; contexts are shown only if they are named.
        bundle: whether one judge call judges this criterion together with the criteria of the other metrics that have
            ``bundle``, equal ``fields`` and the same judge. Part of the version; excludes examples.

    Raises:
        ConfigurationError: a category, its meaning, ``bad``, ``question`` or another argument is invalid.

    Example:
        >>> from spanscore import SingleTurnSample
        >>> from spanscore.metrics import Category
        >>> meanings = {"refund": "The user asks for money back.", "timetable": "The user asks when a ferry leaves."}
        >>> intent = Category("lexical", name="intent", categories=meanings, fields=["user_input"])
        >>> score = intent.score_sync(SingleTurnSample(user_input="When does the ferry leave?"))
        >>> print(score.metric, score.value, score.quality)
        intent timetable None
    """

    name = "category"
    _grade_field = "category"
    base_version = "1"

    def __init__(
        self,
        judge: Any,
        *,
        categories: Mapping[str, str],
        question: str | None = None,
        bad: Sequence[str] = (),
        name: str = "category",
        strictness: int = 1,
        applies_when: str | None = None,
        prompts: OwnPrompts | None = None,
        fields: Fields | None = None,
        bundle: bool = False,
    ) -> None:
        self.scale = categorical(name, _check_meanings(name, categories), bad)
        self.categories = {word: categories[word].strip() for word in self.scale.categories}
        if question is not None and (not isinstance(question, str) or not question.strip()):
            raise ConfigurationError(
                f"{name}: question is {question!r}; write the question to be answered, or leave it out"
            )
        self.question = _QUESTION if question is None else question.strip()
        meanings = "\n".join(f"{word}: {meaning}" for word, meaning in self.categories.items())
        instruction = _CHOOSE.format(question=self.question, categories=meanings)
        condition = check_condition(name, applies_when)
        self.questions = (
            Step("choose_category", instruction, _build_output_model(self.scale.categories), applies_when=condition),
        )
        super().__init__(judge, name=name, prompts=prompts, fields=fields, bundle=bundle, strictness=strictness)

    def _break_tie(self, grades: Sequence[str]) -> str:
        """Return the most frequent category that is listed first."""
        return min(multimode(grades), key=self.scale.categories.index)


def _build_output_model(categories: Sequence[str]) -> type[Choice]:
    """Return the shape of an answer with one of these words; letter case and surrounding blanks do not matter."""
    by_name = {word.casefold(): word for word in categories}

    def read_word(text: Any) -> str:
        word = by_name.get(text.strip().casefold()) if isinstance(text, str) else None
        if word is None:
            raise ValueError(f"a category is one of {', '.join(categories)}")
        return word

    schema = WithJsonSchema({"type": "string", "enum": list(categories)})
    word: Any = Annotated[str, BeforeValidator(read_word), schema]
    return create_model(Choice.__name__, __base__=Choice, __doc__=Choice.__doc__, category=(word, ...))


def _check_meanings(name: str, categories: Any) -> Mapping[str, str]:
    if not isinstance(categories, Mapping):
        raise ConfigurationError(
            f"{name}: categories is {categories!r}; write each word with its meaning, such as "
            "{refund: The user asks for money back., other: Anything else.}"
        )
    for word, meaning in categories.items():
        if not isinstance(meaning, str) or not meaning.strip():
            raise ConfigurationError(f"{name}: categories.{word} is {meaning!r}; write its meaning as a sentence")
    return categories
