"""GradedMetric, the base class of metrics with one question, to which the judge answers a grade, a verdict or a category."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from statistics import median_low, multimode
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, WithJsonSchema, create_model

from spanscore.core.printable import did_you_mean
from spanscore.core.sample import MultiTurnSample, Sample
from spanscore.core.score import Direction, Scale, ScoreValue, Votes
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.middleware import identity_of, prompt_order
from spanscore.judges.rendering import Rendered, render
from spanscore.metrics.kit.base import MULTI_TURN, SINGLE_TURN, Finding, kind_of
from spanscore.metrics.kit.bundle import ask_in_bundle, bundle_prompt
from spanscore.metrics.kit.condition import reason_in
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.step import OwnPrompts, Step, ask_votes, odd_votes

Bounds = tuple[float, float] | None
"""Lowest and highest grade; None = any whole number."""

_GRADE = re.compile(r"-?\d+(?:\.\d+)?")
_SPAN = re.compile(r"(?<![\d.])(\d+)\s*[-–]\s*(\d+)(?![\d.])")
_WIDEST = 1_000
"""Largest span of grades that is expanded into single grades. A rubric has fewer grades."""

Fields: TypeAlias = Sequence[str] | Mapping[str, Collection[str]]
"""A metric's parameter ``fields``: names, such as ``response`` or ``reference:optional``; or kind of sample → names (ragas)."""

ALL_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        SINGLE_TURN: ("user_input", "response", "retrieved_contexts", "reference_contexts", "reference"),
        MULTI_TURN: ("user_input", "reference"),
    }
)
"""Kind of sample → its fields that can be shown to a judge, in the order of the prompt."""
DEFAULT_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {SINGLE_TURN: ("user_input", "response", "reference"), MULTI_TURN: ALL_FIELDS[MULTI_TURN]}
)
"""Kind of sample → fields shown by default. Contexts are left out, as they would be most of the prompt."""
_OPTIONAL: Final = ":optional"
_CONTEXTS: Final = re.compile(
    r"\b(?:(?<!out of )(?<!in the )(?:retrieved |given |provided )?contexts?(?! of\b)|documents?|documentation|passages?"
    r"|(?<!open )(?<!open-)sources?(?! ?code)|retriev(?:ed|al)|excerpts?|snippets?|chunks?|search results?"
    r"|knowledge base|cit(?:es?|ed|ing|ations?))\b",
    re.IGNORECASE,
)
"""Words for contexts in an instruction or condition. ``open source``, ``source code`` and ``out of context`` do not match."""


class ContextsHiddenWarning(UserWarning):
    """A metric's instruction or condition mentions contexts, but ``fields`` is not given, so the judge does not see them."""


T = TypeVar("T", bound=BaseModel)


class GradedMetric(JudgedMetric):
    """The base class of a metric that shows the judge some fields of a sample, and asks one question once per vote.

    The most frequent answer is the value. A conversation is shown as messages (in ragas: as one text).

    The arguments that are not listed are those of ``JudgedMetric``.

    Args:
        fields: sample fields in the judge's prompt; None = user_input, response and reference, if the sample has them.
        required_columns: ragas's name for ``fields``; None or empty = not given.
        bundle: whether the criterion shares one judge call with the other metrics of the sample that have ``bundle``.

    Raises:
        ConfigurationError: an argument of ``JudgedMetric`` is invalid, ``fields`` is empty or names an unknown field, or a
            metric with ``bundle`` has examples.
    """

    base_version = "3"
    bundle: bool = False
    _grade_field: ClassVar[str] = "score"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": (), "multi_turn": ("user_input",)}

    def __init__(
        self,
        judge: Any,
        *,
        name: str,
        pass_at: float | None = None,
        prompts: OwnPrompts | None,
        fields: Fields | None,
        required_columns: Fields | None = None,
        bundle: bool,
        strictness: int,
    ) -> None:
        self.fields = parse_fields(name, fields, required_columns)
        if self.fields is not None:
            self.requires = {
                kind: tuple(name for name in names if not name.endswith(_OPTIONAL))
                for kind, names in self.fields.items()
            }
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        self.votes = odd_votes(strictness)
        if not isinstance(bundle, bool):
            raise ConfigurationError(f"{name}: bundle is {bundle!r}; it is true or false")
        if bundle:
            if any(step.examples for step in self.steps.values()):
                raise ConfigurationError(
                    f"{name}: bundle: true asks several criteria at once and shows no examples; leave one of the two out"
                )
            self.bundle = True
            self.base_version = f"{self.base_version}-bundled"
        if self.advice is not None:
            warnings.warn(self.advice, ContextsHiddenWarning, stacklevel=3)

    @cached_property
    def _shown_fields(self) -> Mapping[str, tuple[str, ...]]:
        if self.fields is None:
            return DEFAULT_FIELDS
        return {kind: tuple(name.removesuffix(_OPTIONAL) for name in names) for kind, names in self.fields.items()}

    @property
    def advice(self) -> str | None:
        """A warning that an instruction or condition mentions contexts, which are not shown by default; None = no warning.

        The constructor issues it as a ``ContextsHiddenWarning``, and ``spanscore check`` prints it.
        """
        for step in () if self.fields else self.steps.values():
            word = _CONTEXTS.search(f"{step.instruction}\n{step.applies_when or ''}")
            if word is not None:
                return (
                    f"{self.name}: its instruction or condition speaks of {word[0].lower()!r}, but the judge is shown no "
                    "contexts; to show them, set fields: [user_input, response, retrieved_contexts], else name the fields that "
                    "it reads"
                )
        return None

    def missing(self, sample: Sample) -> str | None:
        """Return a message that names the missing required or shown fields; None if the sample can be scored.

        Without required fields, one of the shown fields is enough.
        """
        kind = kind_of(sample)
        if self.requires[kind] or any(getattr(sample, name, None) is not None for name in self._shown_fields[kind]):
            return super().missing(sample)
        return f"{self.name} needs at least one of {', '.join(self._shown_fields[kind])}, and the sample has none"

    async def measure(self, sample: Sample) -> Finding:
        """Ask the metric's question once per vote and return the most frequent grade, verdict or category."""
        (question,) = self.questions
        evidence = evidence_of(sample, self._shown_fields[kind_of(sample)])
        return await ask_majority(
            lambda index: self.ask(question, evidence, vote_index=index),
            self.votes,
            field=self._grade_field,
            tie=self._break_tie,
        )

    def _break_tie(self, grades: Sequence[Any]) -> ScoreValue:
        grade: ScoreValue = median_low(grades)
        return grade

    async def _answer_step(self, step: Step[T], evidence: Mapping[str, Any], *, vote_index: int, repair: bool) -> T:
        if not self.bundle:
            return await super()._answer_step(step, evidence, vote_index=vote_index, repair=repair)
        answer = await ask_in_bundle(self._judge, self.name, step, evidence, vote_index=vote_index)
        return step.read_condition(answer)

    def _texts_of(self, step: Step[Any]) -> Rendered:
        if not self.bundle:
            return super()._texts_of(step)
        return render(bundle_prompt({"criterion": step}, {}, order=prompt_order(self._judge)))


def evidence_of(sample: Sample, names: Iterable[str]) -> dict[str, Any]:
    """Return field → value for the named fields that the sample has; a conversation as messages."""
    values = {name: getattr(sample, name, None) for name in names}
    if isinstance(sample, MultiTurnSample) and "user_input" in values:
        values["user_input"] = sample.messages()
    return {name: value for name, value in values.items() if value is not None}


def parse_fields(
    metric: str, fields: Fields | None, required_columns: Fields | None
) -> Mapping[str, tuple[str, ...]] | None:
    """Return the user's parameter ``fields``, checked, as kind of sample → names in the order of the prompt.

    A list applies to each kind of sample that can have all required fields of the list.

    Args:
        fields: the user's parameter ``fields``; None = the default.
        required_columns: ragas's name for ``fields``; None or empty = the default.

    Returns:
        None if neither argument is given. An optional field is there as ``reference:optional``.

    Raises:
        ConfigurationError: both arguments are given; names are empty, unknown or not in a list; or a mapping's kind of sample
            lacks a field; or, for a list, each kind lacks one.
    """
    if fields is not None and required_columns:
        raise ConfigurationError(f"{metric}: fields and required_columns are two names of one parameter; give fields")
    wanted = fields if fields is not None else required_columns or None
    if wanted is None:
        return None
    by_kind = _names_by_kind(metric, wanted)
    kinds = [kind for kind, required in by_kind.items() if _can_have(kind, required)]
    if not kinds or (isinstance(wanted, Mapping) and len(kinds) < len(by_kind)):
        raise ConfigurationError(
            f"{metric}: fields are {wanted!r}; {_describe_lack(wanted, by_kind)}. A single turn has "
            f"{', '.join(ALL_FIELDS[SINGLE_TURN])}; a conversation has {', '.join(ALL_FIELDS[MULTI_TURN])}"
        )
    return {kind: _in_order(kind, by_kind[kind]) for kind in kinds}


def _names_by_kind(metric: str, fields: Fields) -> dict[str, dict[str, bool]]:
    """Return kind of sample → field → whether it is required; a list applies to every kind."""
    if isinstance(fields, Mapping):
        return {str(getattr(kind, "value", kind)): _parse_names(metric, names) for kind, names in fields.items()}
    return dict.fromkeys(ALL_FIELDS, _parse_names(metric, fields))


def _describe_lack(fields: Fields, by_kind: Mapping[str, Mapping[str, bool]]) -> str:
    for kind, required in by_kind.items() if isinstance(fields, Mapping) else ():
        if not _can_have(kind, required):
            return (
                f"a {kind} sample has no {', '.join(name for name in required if name not in ALL_FIELDS.get(kind, ()))}"
            )
    return "no kind of sample has them all"


def _in_order(kind: str, required: Mapping[str, bool]) -> tuple[str, ...]:
    return tuple(name if required[name] else name + _OPTIONAL for name in ALL_FIELDS[kind] if name in required)


def _parse_names(metric: str, names: Any) -> dict[str, bool]:
    if isinstance(names, str) or not isinstance(names, Collection) or not names:
        raise ConfigurationError(f"{metric}: fields are {names!r}; name one or more in a list, such as [response]")
    required: dict[str, bool] = {}
    for name in names:
        field = str(name).removesuffix(_OPTIONAL)
        if field not in ALL_FIELDS[SINGLE_TURN]:
            hint = did_you_mean(field, ALL_FIELDS[SINGLE_TURN])
            raise ConfigurationError(
                f"{metric}: fields has {name!r}; {hint and f'{hint} '}A field is one of "
                f"{', '.join(ALL_FIELDS[SINGLE_TURN])}, each alone or with {_OPTIONAL} behind it"
            )
        required[field] = required.get(field, False) or field == name
    return required


def _can_have(kind: str, required: Mapping[str, bool]) -> bool:
    """Whether a kind of sample has all required fields and at least one field."""
    fields = ALL_FIELDS.get(kind, ())
    return any(name in fields for name in required) and all(name in fields for name in required if required[name])


def check_bundles(metrics: Iterable[Any]) -> None:
    """Check that all metrics with ``bundle`` have equal ``fields`` and the same judge."""
    bundled = [metric for metric in metrics if isinstance(metric, GradedMetric) and metric.bundle]
    for metric, other in pairwise(bundled):
        same_judge = identity_of(metric._judge) == identity_of(other._judge)
        if metric.fields != other.fields or not same_judge:
            raise ConfigurationError(
                f"bundle: {metric.name} and {other.name} have different {'fields' if same_judge else 'judges'}; "
                "a bundle has metrics of equal fields and one judge"
            )


@lru_cache(maxsize=64)
def restrict_score(
    shape: type[T], bounds: Bounds, *, describes_bounds: bool = True, only: tuple[float, ...] | None = None
) -> type[T]:
    """Return a subclass of an answer's shape that accepts only some scores. It is cached, so that its schema is built once.

    Args:
        shape: answer with a feedback or reason, and a field ``score``.
        bounds: lowest and highest score; None = any whole number.
        describes_bounds: whether the schema describes the bounds to the judge; False if the instruction describes them.
        only: allowed scores in order; None = all scores inside the bounds. If a whole number between the bounds is missing, the
            schema lists the allowed scores.
    """
    # The schema has the bounds as text: half of the providers' structured modes refuse them as numbers.
    if bounds is None:
        return shape
    low, high = bounds
    has_gaps = only is not None and only != _whole_numbers(bounds)
    allowed = f"one of {', '.join(map(str, only or ()))}" if has_gaps else f"{low} to {high}"

    def check(score: float) -> float:
        if not (score in only if only is not None else low <= score <= high):
            raise ValueError(f"a score is {allowed}")
        return score

    description = {"description": allowed} if describes_bounds or has_gaps else {}
    kind, name = (int, "integer") if all(grade == int(grade) for grade in only or bounds) else (float, "number")
    score: Any = Annotated[kind, AfterValidator(check), WithJsonSchema({"type": name, **description})]
    return create_model(shape.__name__, __base__=shape, __doc__=shape.__doc__, score=(score, ...))


def bounds_of(keys: Iterable[str]) -> Bounds:
    """Return the lowest and the highest grade in a rubric's keys; None if a key has no number, or all have the same number."""
    grades = grades_of(keys)
    return None if grades is None else (grades[0], grades[-1])


def grades_of(keys: Iterable[str]) -> tuple[float, ...] | None:
    """Return the grades in a rubric's keys (``score1_description`` …), in order; None in the cases of ``bounds_of``.

    A key with a span (``3-5``) has each whole number in the span.
    """
    by_key = [_grades_in(key) for key in keys]
    grades = sorted({grade for grades in by_key for grade in grades})
    return tuple(grades) if all(by_key) and len(grades) > 1 else None


def _grades_in(key: str) -> tuple[float, ...]:
    span = _SPAN.search(key)
    if span is not None and int(span[1]) < int(span[2]) <= int(span[1]) + _WIDEST:
        return tuple(range(int(span[1]), int(span[2]) + 1))
    grade = _GRADE.search(key)
    return () if grade is None else (float(grade[0]) if "." in grade[0] else int(grade[0]),)


def _whole_numbers(bounds: tuple[float, float]) -> tuple[float, ...]:
    low, high = bounds
    return tuple(range(int(low), int(high) + 1)) if high - low <= _WIDEST else ()


def check_bounds(name: str, bounds: Sequence[int] | None) -> Bounds:
    """Return the user's parameter ``range``, checked; None = any whole number."""
    if bounds is None:
        return None
    if [type(bound) for bound in bounds] != [int, int] or bounds[0] >= bounds[1]:
        raise ConfigurationError(f"{name}: range is {bounds!r}; it is two whole numbers, lowest first, such as [1, 5]")
    return bounds[0], bounds[1]


def ordinal_scale(bounds: Bounds, direction: Direction = "higher") -> Scale:
    """Return a scale of grades. Without bounds, a value has no quality, and neither passes nor fails."""
    return Scale(
        kind="ordinal", range=None if bounds is None else (float(bounds[0]), float(bounds[1])), direction=direction
    )


async def ask_majority(
    ask: Callable[[int], Coroutine[Any, Any, BaseModel]],
    number: int,
    *,
    field: str = "score",
    tie: Callable[[Sequence[Any]], ScoreValue] = median_low,
) -> Finding:
    """Ask for votes, and return the most frequent grade or category with the reason of the first vote for it.

    Args:
        ask: coroutine function from the number of the vote, from 0, to an answer.
        number: number of votes.
        field: name of the answer field with the grade.
        tie: function from all grades to the result; called if several grades are equally frequent. An odd number of votes can
            tie, too, because a vote can fail.
    """
    votes = await ask_votes(ask, number)
    grades: list[ScoreValue] = [getattr(vote, field) for vote in votes]
    grade, *tied = multimode(grades)
    if tied:
        grade = tie(grades)
    winner = votes[grades.index(grade)]
    count = f"{grades.count(grade)} of {len(grades)} votes for {grade}: " if len(grades) > 1 else ""
    value = grade if isinstance(grade, str) else float(grade)
    return Finding(value=value, explanation=count + reason_in(winner), votes=Votes(number, len(votes)))
