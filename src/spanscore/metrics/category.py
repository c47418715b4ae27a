"""Category: a judge chooses one word of a closed set for an answer or a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import multimode
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, WithJsonSchema, create_model

from spanscore.core.score import categorical
from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.condition import check_condition
from spanscore.metrics.kit.graded import Fields, GradedMetric
from spanscore.metrics.kit.step import OwnPrompts, Step, odd_votes

_QUESTION = "Which category fits this exchange?"
_INSTRUCTION = """\
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
        self.question = _check_question(name, question)
        meanings = "\n".join(f"{word}: {meaning}" for word, meaning in self.categories.items())
        instruction = _INSTRUCTION.format(question=self.question, categories=meanings)
        condition = check_condition(name, applies_when)
        self.questions = (
            Step("choose_category", instruction, _build_output_model(self.scale.categories), applies_when=condition),
        )
        super().__init__(
            judge, name=name, pass_at=None, prompts=prompts, fields=fields, required_columns=None, bundle=bundle
        )
        self.votes = odd_votes(strictness)

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


def _check_question(name: str, question: Any) -> str:
    if question is None:
        return _QUESTION
    if not isinstance(question, str) or not question.strip():
        raise ConfigurationError(
            f"{name}: question is {question!r}; write the question to be answered, or leave it out"
        )
    return question.strip()
