"""Conditions of judged steps (``applies_when``), and the check whether a judge's reason contradicts its verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.functional_validators import ModelWrapValidatorHandler

from spanscore.core.score import NOT_APPLICABLE
from spanscore.errors import ConfigurationError

_INSTRUCTION: Final = """\
Does this hold here?
{condition}
Applies: 1 if it does, else 0; then the rest of the answer is not read. If it does:

{instruction}"""


class NotApplicableError(Exception):
    """The judge answered that the condition of a step does not hold, so the metric does not apply to the sample."""

    def __init__(self) -> None:
        super().__init__(NOT_APPLICABLE)


def _is_zero_or_one(value: int) -> int:
    if value not in (0, 1):
        raise ValueError("a verdict is 0 or 1")
    return value


# The schema has the range as text: half of the providers' structured modes refuse bounds or enumerations of numbers.
BinaryAnswer = Annotated[
    int, AfterValidator(_is_zero_or_one), WithJsonSchema({"type": "integer", "description": "0 or 1"})
]
"""0 or 1. ``true``, ``"1"`` and ``1.0`` are read as 1; a value other than 0 and 1 is invalid."""
APPLIES: Final = "applies"
"""Name of the answer field with the verdict on the condition, as opposed to the verdict on the sample."""
_VERDICT: Final = TypeAdapter[int](BinaryAnswer)


class Applied(BaseModel):
    """Answer field for the condition. If it is 0, the other fields are not read."""

    applies: BinaryAnswer

    @model_validator(mode="wrap")
    @classmethod
    def _rest_only_where_it_applies(cls, value: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, Mapping):
            with suppress(ValidationError):
                if _VERDICT.validate_python(value.get("applies")) == 0:
                    return cls.model_construct(applies=0)
        return read(value)


class JsonAlone(BaseModel):
    """An answer that must be JSON: plain text would not contain the verdict on the condition."""

    @classmethod
    def from_plain_text(cls, text: str, evidence: Mapping[str, Any]) -> None:
        """Return None, because plain text is not read."""


@lru_cache(maxsize=64)
def conditional(shape: type[BaseModel]) -> type[BaseModel]:
    """Return a shape with the field ``applies`` in front of the other fields; cached, so equal arguments give one class."""
    return create_model(shape.__name__, __base__=(JsonAlone, shape, Applied), __doc__=shape.__doc__)


def is_verdict(field: FieldInfo) -> bool:
    """Whether a field of an answer's shape is a ``BinaryAnswer``."""
    return any(isinstance(one, AfterValidator) and one.func is _is_zero_or_one for one in field.metadata)


def with_condition(instruction: str, condition: str) -> str:
    """Return the instruction with a question about the condition in front."""
    return _INSTRUCTION.format(condition=condition, instruction=instruction)


def checked_condition(name: str, value: Any) -> str | None:
    """Return the user's condition; None = no condition was given.

    Raises:
        ConfigurationError: the condition is empty or not a string.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(
            f"{name}: applies_when is {value!r}; give the condition as one sentence, or leave the parameter out"
        )
    return value.strip()


# Does a reason contradict its verdict? Regular expressions for plain English forms decide, without another judge call.
#
#     verdict 1, "The answer fails to name the deadline."        contradicts
#     verdict 1, "It does not violate the policy."               denied: no contradiction
#     verdict 1, "It claims that the plan 'violates the law'"    quoted and reported: not the judge's own word
#     verdict 0, "It meets the criterion, but it insults."       restricted: speaks for and against
#
# The forms prefer misses to false alarms, and skip quoted, reported, supposed and conceded words, and the user's words. A
# reason with any form for its verdict is not counted. Reasons in other languages match no form.
# ``tests/metrics/kit/test_contradictions.py`` holds how often they are right.

_MOST = 800
"""Number of leading characters of a reason that are read, to bound the time; the judge is asked for one sentence."""

_MOST_FORMS, _MOST_BEFORE = 8, 160
"""Most forms read per clause, and most characters read before each form, to bound the time."""

_QUOTED: Final = re.compile(r"“[^”]*”|«[^»]*»|‘[^’]*’|`[^`]*`|\"[^\"]*(?:\"|\Z)|(?<!\w)'[^']*(?:'\w[^']*){0,3}'(?!\w)")
"""Quotations; a double quotation mark without a partner quotes the rest of the text."""
_CLAUSE: Final = re.compile(
    r"[.;:!?\n]+|\bbut\b|\bwhich\b|\bhowever\b|\byet\b"
    r"|,?\s+\band\s+(?=(?:it|this|that|these|they|the|there|nothing|none|no|so)\b)"
    r"|,\s*(?=(?:and|so|it|this|that|these|they|the|there|as|since|because|although|though|while|whereas|or\s+it)\b)"
)
"""Clause boundaries. A negation, a report or a supposition has no effect beyond the next boundary."""

_OBJECT = (
    r"(?:\w+(?:'s)?\s+){0,4}?(?:criteri|requirement|condition|definition|standard|guideline|polic|rule|instruction|aspect"
    r"|rubric|bar\b|expectation)"
)
_NAMED = r"(?:criteri(?:on|a)|requirements?|conditions?|definition|standard|aspect|policy|guidelines?)"
_GOOD: Final = (
    rf"(?:meet|fulfil|fulfill|match|pass)(?:s|es)?\s+{_OBJECT}",
    r"satisf(?:y|ies)\b",
    r"pass(?:es)?\s+(?:the|this|every|all)\s+(?:check|test)",
    r"fulfill?s?\s+(?:every|all)\b",
    r"(?:adheres?\s+to|compl(?:y|ies)\s+with|conforms?\s+to)\b",
    rf"{_NAMED}\s+(?:holds\b|does(?:\s+not|n['’]t)\s+hold\b|(?:is|are)(?:\s+not|n['’]t)?\s+(?:\w+ly\s+)?(?:met|satisfied|fulfilled)\b)",
    r"(?:supported|grounded|attributable|entailed)\b",
    r"(?:explicitly|directly|clearly)\s+(?:stated|mentioned)\b",
    r"(?:supports?|confirms?)\s+(?:the|this|that|each|every)\s+(?:statement|claim|sentence)\b(?!')",
    r"be\s+(?:\w+ly\s+)?(?:attributed|inferred|derived|concluded)\b",
    r"follows?\s+(?:\w+ly\s+)?from\b",
    r"consistent\s+with\b",
)
_SHORT: Final = r"fail(?:s|ed)?\b|falls?\s+short\b"
"""Forms for a failure to do the requested thing, whether that thing is good or bad."""
_BAD: Final = (
    r"(?:violat|breach)(?:es|ed)\b",
    r"contradict(?:s|ed)?\b",
    r"conflicts?\s+with\b",
    r"(?:unsupported|ungrounded|unsubstantiated|hallucinat(?:ed|es|ion)|fabricat(?:ed|es|ion))\b",
)
_FORM: Final = re.compile(rf"\b(?:(?P<good>{'|'.join(_GOOD)})|(?P<short>{_SHORT})|(?P<bad>{'|'.join(_BAD)}))")

_WORDS_OF_FORMS: Final = (
    "meet met fulfil match pass satisf adher compl conform hold support ground attribut entail stated mentioned confirm "
    "inferred derived concluded follow consistent fail short violat breach contradict conflict substantiat hallucinat fabricat"
)
_STEMS: Final = _WORDS_OF_FORMS.split()
"""Every form contains one of these substrings; a reason without them is skipped."""

_NEGATED: Final = re.compile(
    r"\b(?:not(?!\s+(?:only|just|merely))|no|never|none|nothing|neither|nor|without|cannot|lack(?:s|ing)?|avoid(?:s|ing)?"
    r"|free\s+(?:of|from)|far\s+from|rather\s+than|instead\s+of|refrains?)\b|n['’]t\b"
)
_IN_PART: Final = re.compile(r"\b(?:only|hardly|barely|partly|partially|poorly|insufficiently|few)\b")
"""Words in front of a form of praise that restrict it; such a form is not counted."""
_NOT_ITS_OWN: Final = re.compile(
    r"\b(?:the|these|its|all|no|of|any|both)\s+(?:states?|claims?|notes?|reports?)\b"  # nouns, here
    r"|(?P<other>\b(?:says?|said|states?|claims?|notes?|explains?|mentions?|reports?|argues?|warns?|admits?|acknowledges?|tells?"
    r"|told|asks?|informs?|suggests?|describes?|writes?|repeats?|quotes?|pretends?|points\s+out|identif(?:y|ies)|flags?|refuses?"
    r"|user|customer|human)\b|\bto\s*$)"
)
"""Words in front of a form which show that it reports another person's words or acts, or an aim."""
_SUPPOSED: Final = re.compile(r"\b(?:if|whether|unless|would|could|might|may)\b")
"""Words of a supposition. A clause with one is skipped."""
_CONCEDED: Final = re.compile(r"\s*(?:and\s+)?(?:although|though|even\s+though|while|whereas|despite)\b")
"""Beginning of a conceded clause, which is skipped."""
_SUBJECT: Final = re.compile(
    r"(?:^|\b(?:answer|response|reply|output|assistant|agent|model|bot|summary|text|explanation|translation|it|this|they|and"
    r"|statements?|claims?|sentence|context|passage|reference|documents?|sources?|evidence|tone|date|number|figure|because"
    r"|since|as|so|is|are|was|were|be|has|have)\b)(?:\s+(?:\w+ly|also|then|therefore|thus|a|an|in\s+fact))*\s*$"
)
"""A form for a failure (``short``, ``bad``) counts only at the beginning of a clause, or behind the judged text, its verb or a
conjunction. ``the test fails`` is about a test.
"""
_SOFTENED: Final = re.compile(
    r"\b(?:minor|small|slight(?:ly)?|overall|otherwise|nevertheless|still|acceptable|outweigh\w*)\b"
)
"""Words that soften the blame in a pass's reason, wherever they are; such a reason is not counted."""
_DENIED: Final = re.compile(
    r"\b(?:does|do|did)(?:\s+not|n['’]t)\s+(?:violate|contradict|fail|conflict|breach)\w*|\bno\s+(?:contradiction|violation)"
)
"""Denied failures in a fail's reason. Their negations do not restrict its praise."""
_RESTRICTED: Final = re.compile(
    r"\b(?:not|no|none|never|nothing|neither|nor|without|cannot|but|however|although|though|while|whereas|except|yet|despite"
    r"|only|partly|partially|hardly|barely|in\s+part|some|one\s+of|half|instead|rather|too|opposite|different|differs?|unlike"
    r"|lacks?|missing|omits?|omitted|fail\w*|falls?|wrong\w*|incorrect\w*|false\w*|unclear|vague|insufficient\w*)\b"
    r"|n['’]t\b"
)
"""Words that restrict the praise in a fail's reason, wherever they are; such a reason is not counted."""


def contradictions_in(answer: BaseModel, *, lower: bool = False) -> int:
    """Return the number of verdicts in a judge's answer, rows included, that contradict their reason.

    Args:
        answer: the judge's answer.
        lower: whether 0 is the better verdict of the answer itself, as for a criterion that describes a fault. Then only a 0
            whose reason has a ``bad`` form counts. In rows, 1 is always the better verdict.
    """
    found = 0
    if (shape := _verdict_of(type(answer))) is not None:
        reason, verdict = getattr(answer, shape[0]), getattr(answer, shape[1])
        found += _speaks_ill(reason) and not verdict if lower else contradicts(reason, passed=bool(verdict))
    rows = (row for value in vars(answer).values() if isinstance(value, list) for row in value)
    return found + sum(contradictions_in(row) for row in rows if isinstance(row, BaseModel))


def contradicts(reason: str, *, passed: bool) -> bool:
    """Whether an English reason has a plain form against its verdict, none for it, and no word that softens or restricts it."""
    words = _own_words(reason)
    signs = {form["good"] is not None and not negated for form, negated in _read(words)}
    if passed:
        return signs == {False} and not _SOFTENED.search(words)
    return signs == {True} and not _RESTRICTED.search(_DENIED.sub("", words))


def _own_words(reason: str) -> str:
    """Return a reason in lower case without its quotations; empty if it can contain no form, as most reasons."""
    words = reason[:_MOST].lower()
    return _QUOTED.sub(" … ", words) if any(stem in words for stem in _STEMS) else ""


def _speaks_ill(reason: str) -> bool:
    """Whether a reason has a plain form that is negative for any criterion, such as ``violates``."""
    words = _own_words(reason)
    return any(form["bad"] is not None for form, _ in _read(words)) and not _SOFTENED.search(words)


def _read(words: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield each form for or against a verdict, and whether it is negated."""
    for clause in _CLAUSE.split(words):
        if _CONCEDED.match(clause) or _SUPPOSED.search(clause):
            continue
        for form in islice(_FORM.finditer(clause), _MOST_FORMS):
            before = clause[max(0, form.start() - _MOST_BEFORE) : form.start()]
            negated = bool(_NEGATED.search(before) or _NEGATED.search(form.group()))
            if _counts(form, before, negated=negated):
                yield form, negated


def _counts(form: re.Match[str], before: str, *, negated: bool) -> bool:
    if any(found["other"] for found in _NOT_ITS_OWN.finditer(before)):
        return False
    if form["good"]:
        return not _IN_PART.search(before)
    return not negated and _SUBJECT.search(before) is not None


@lru_cache(maxsize=256)
def _verdict_of(shape: type[BaseModel]) -> tuple[str, str] | None:
    """Return the names of an answer's reason and verdict fields; None without a reason or without exactly one verdict."""
    fields = shape.model_fields
    reason = _reason_field(shape)
    verdicts = [name for name, field in fields.items() if name != APPLIES and is_verdict(field)]
    return (reason, verdicts[0]) if reason is not None and len(verdicts) == 1 else None


_REASONS: Final = ("reason", "explanation", "rationale", "reasoning", "feedback")


def _reason_field(shape: type[BaseModel]) -> str | None:
    fields = shape.model_fields
    return next((name for name in _REASONS if name in fields and fields[name].annotation is str), None)


def reason_in(answer: BaseModel) -> str:
    """Return the reason in a judge's answer; empty if its shape has no reason field of type ``str``."""
    return str(getattr(answer, _reason_field(type(answer)) or "", ""))
