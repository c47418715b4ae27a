"""The judge's verdicts: 0 or 1, the condition of a step (``applies_when``), and reasons that contradict their verdict."""

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
    """The judge answered that a step's condition does not hold, so the metric does not apply to the sample."""

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
"""Name of the answer field for the condition."""
_VERDICT: Final = TypeAdapter[int](BinaryAnswer)


class Applied(BaseModel):
    """The answer field for the condition. If it is 0, the condition does not hold, and the other fields are not read."""

    applies: BinaryAnswer

    @model_validator(mode="wrap")
    @classmethod
    def _skip_other_fields(cls, value: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, Mapping):
            with suppress(ValidationError):
                if _VERDICT.validate_python(value.get("applies")) == 0:
                    return cls.model_construct(applies=0)
        return read(value)


class JsonOnly(BaseModel):
    """An answer that is read from JSON only, because plain text has no answer about the condition."""

    @classmethod
    def from_plain_text(cls, text: str, evidence: Mapping[str, Any]) -> None:
        """Return None: the text is not read."""


@lru_cache(maxsize=64)
def conditional(shape: type[BaseModel]) -> type[BaseModel]:
    """Return an answer's shape with the field ``applies`` in front of the other fields; the same class for the same shape."""
    return create_model(shape.__name__, __base__=(JsonOnly, shape, Applied), __doc__=shape.__doc__)


def is_verdict(field: FieldInfo) -> bool:
    """Whether a field of an answer's shape is a ``BinaryAnswer``."""
    validators = (item for item in field.metadata if isinstance(item, AfterValidator))
    return any(validator.func is _is_zero_or_one for validator in validators)


def with_condition(instruction: str, condition: str) -> str:
    """Return the instruction with a question about the condition in front."""
    return _INSTRUCTION.format(condition=condition, instruction=instruction)


def check_condition(name: str, value: Any) -> str | None:
    """Return the user's parameter ``applies_when``, checked and stripped; None = no condition."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(
            f"{name}: applies_when is {value!r}; give the condition as one sentence, or leave the parameter out"
        )
    return value.strip()


# Does a reason contradict its verdict? Regular expressions for common English phrases decide, without another judge call.
#
#     verdict 1, "The answer fails to name the deadline."        a contradiction
#     verdict 1, "It does not violate the policy."               none: the phrase is negated
#     verdict 1, "It claims that the plan 'violates the law'"    none: the words are quoted or reported
#     verdict 0, "It meets the criterion, but it insults."       none: the reason speaks for and against the verdict
#
# The patterns prefer misses to false alarms. Quotations, reports, suppositions and concessions are skipped. A reason with any
# phrase for its verdict is no contradiction. No pattern matches reasons in other languages.
# ``tests/metrics/kit/test_contradictions.py`` contains how often the patterns are right.

_MAX_REASON_CHARS = 800
"""Number of leading characters of a reason that are read, to bound the time; the judge is asked for one sentence."""

_MAX_PHRASES, _MAX_CHARS_BEFORE = 8, 160
"""Most phrases read per clause, and most characters read before each phrase, to bound the time."""

_QUOTED: Final = re.compile(r"“[^”]*”|«[^»]*»|‘[^’]*’|`[^`]*`|\"[^\"]*(?:\"|\Z)|(?<!\w)'[^']*(?:'\w[^']*){0,3}'(?!\w)")
"""Quotations; a double quotation mark without a partner quotes the rest of the text."""
_CLAUSE: Final = re.compile(
    r"[.;:!?\n]+|\bbut\b|\bwhich\b|\bhowever\b|\byet\b"
    r"|,?\s+\band\s+(?=(?:it|this|that|these|they|the|there|nothing|none|no|so)\b)"
    r"|,\s*(?=(?:and|so|it|this|that|these|they|the|there|as|since|because|although|though|while|whereas|or\s+it)\b)"
)
"""Boundaries of clauses. A negation, a report or a supposition has no effect beyond the next boundary."""

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
_FAILS: Final = r"fail(?:s|ed)?\b|falls?\s+short\b"
"""Phrases for a failure to do the requested thing, which may be good or bad."""
_BAD: Final = (
    r"(?:violat|breach)(?:es|ed)\b",
    r"contradict(?:s|ed)?\b",
    r"conflicts?\s+with\b",
    r"(?:unsupported|ungrounded|unsubstantiated|hallucinat(?:ed|es|ion)|fabricat(?:ed|es|ion))\b",
)
_PHRASE: Final = re.compile(rf"\b(?:(?P<good>{'|'.join(_GOOD)})|(?P<fails>{_FAILS})|(?P<bad>{'|'.join(_BAD)}))")

_STEMS_OF_PHRASES: Final = (
    "meet met fulfil match pass satisf adher compl conform hold support ground attribut entail stated mentioned confirm "
    "inferred derived concluded follow consistent fail short violat breach contradict conflict substantiat hallucinat fabricat"
)
_STEMS: Final = _STEMS_OF_PHRASES.split()
"""Every phrase contains one of these substrings. A reason without them is skipped, which saves time."""

_NEGATED: Final = re.compile(
    r"\b(?:not(?!\s+(?:only|just|merely))|no|never|none|nothing|neither|nor|without|cannot|lack(?:s|ing)?|avoid(?:s|ing)?"
    r"|free\s+(?:of|from)|far\s+from|rather\s+than|instead\s+of|refrains?)\b|n['’]t\b"
)
_IN_PART: Final = re.compile(r"\b(?:only|hardly|barely|partly|partially|poorly|insufficiently|few)\b")
"""Words that restrict the praise behind them; such a phrase is not counted."""
_REPORTED: Final = re.compile(
    r"\b(?:the|these|its|all|no|of|any|both)\s+(?:states?|claims?|notes?|reports?)\b"  # nouns, here
    r"|(?P<other>\b(?:says?|said|states?|claims?|notes?|explains?|mentions?|reports?|argues?|warns?|admits?|acknowledges?|tells?"
    r"|told|asks?|informs?|suggests?|describes?|writes?|repeats?|quotes?|pretends?|points\s+out|identif(?:y|ies)|flags?|refuses?"
    r"|user|customer|human)\b|\bto\s*$)"
)
"""Words before a phrase that reports another person's words or acts, or an aim."""
_SUPPOSED: Final = re.compile(r"\b(?:if|whether|unless|would|could|might|may)\b")
"""Words of a supposition. A clause with such a word is skipped."""
_CONCEDED: Final = re.compile(r"\s*(?:and\s+)?(?:although|though|even\s+though|while|whereas|despite)\b")
"""Beginning of a conceded clause, which is skipped."""
_SUBJECT: Final = re.compile(
    r"(?:^|\b(?:answer|response|reply|output|assistant|agent|model|bot|summary|text|explanation|translation|it|this|they|and"
    r"|statements?|claims?|sentence|context|passage|reference|documents?|sources?|evidence|tone|date|number|figure|because"
    r"|since|as|so|is|are|was|were|be|has|have)\b)(?:\s+(?:\w+ly|also|then|therefore|thus|a|an|in\s+fact))*\s*$"
)
"""A phrase for a failure (``fails``, ``bad``) counts only at the beginning of a clause, or behind the judged text, its verb or
a conjunction. ``the test fails`` is about a test.
"""
_SOFTENED: Final = re.compile(
    r"\b(?:minor|small|slight(?:ly)?|overall|otherwise|nevertheless|still|acceptable|outweigh\w*)\b"
)
"""Words that soften the blame in the reason of a pass; a reason with such a word is not counted."""
_DENIED: Final = re.compile(
    r"\b(?:does|do|did)(?:\s+not|n['’]t)\s+(?:violate|contradict|fail|conflict|breach)\w*|\bno\s+(?:contradiction|violation)"
)
"""Denied failures in the reason of a fail. Their negations do not restrict its praise."""
_RESTRICTED: Final = re.compile(
    r"\b(?:not|no|none|never|nothing|neither|nor|without|cannot|but|however|although|though|while|whereas|except|yet|despite"
    r"|only|partly|partially|hardly|barely|in\s+part|some|one\s+of|half|instead|rather|too|opposite|different|differs?|unlike"
    r"|lacks?|missing|omits?|omitted|fail\w*|falls?|wrong\w*|incorrect\w*|false\w*|unclear|vague|insufficient\w*)\b"
    r"|n['’]t\b"
)
"""Words that restrict the praise in the reason of a fail; a reason with such a word is not counted."""


def contradictions_in(answer: BaseModel, *, lower: bool = False) -> int:
    """Return the number of verdicts in a judge's answer, rows included, that contradict their reason.

    Args:
        lower: whether 0 is the better verdict of the answer itself, as for a criterion that describes a fault. Then only a 0
            whose reason has a ``bad`` phrase counts. In rows, 1 is always the better verdict.
    """
    count = 0
    if (names := _reason_and_verdict(type(answer))) is not None:
        reason, verdict = (getattr(answer, name) for name in names)
        count += not verdict and _is_bad(reason) if lower else contradicts(reason, passed=bool(verdict))
    rows = (row for value in vars(answer).values() if isinstance(value, list) for row in value)
    return count + sum(contradictions_in(row) for row in rows if isinstance(row, BaseModel))


def contradicts(reason: str, *, passed: bool) -> bool:
    """Whether a reason has a phrase against its verdict, no phrase for it, and no word that softens or restricts it."""
    text = _text_to_search(reason)
    is_praise = {phrase["good"] is not None and not negated for phrase, negated in _phrases_in(text)}
    if passed:
        return is_praise == {False} and not _SOFTENED.search(text)
    return is_praise == {True} and not _RESTRICTED.search(_DENIED.sub("", text))


def _is_bad(reason: str) -> bool:
    """Whether a reason has a phrase that is negative for any criterion, such as ``violates``."""
    text = _text_to_search(reason)
    return any(phrase["bad"] is not None for phrase, _ in _phrases_in(text)) and not _SOFTENED.search(text)


def _text_to_search(reason: str) -> str:
    """Return a reason in lower case without its quotations; empty if it has no stem of a phrase, like most reasons."""
    text = reason[:_MAX_REASON_CHARS].lower()
    return _QUOTED.sub(" … ", text) if any(stem in text for stem in _STEMS) else ""


def _phrases_in(text: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield each phrase for or against a verdict, and whether it is negated."""
    for clause in _CLAUSE.split(text):
        if _CONCEDED.match(clause) or _SUPPOSED.search(clause):
            continue
        for phrase in islice(_PHRASE.finditer(clause), _MAX_PHRASES):
            before = clause[max(0, phrase.start() - _MAX_CHARS_BEFORE) : phrase.start()]
            negated = bool(_NEGATED.search(before) or _NEGATED.search(phrase.group()))
            if _is_about_answer(phrase, before, negated=negated):
                yield phrase, negated


def _is_about_answer(phrase: re.Match[str], before: str, *, negated: bool) -> bool:
    """Whether a phrase counts: it is the judge's own word about the judged text, and no negated failure."""
    if any(match["other"] for match in _REPORTED.finditer(before)):
        return False
    if phrase["good"]:
        return not _IN_PART.search(before)
    return not negated and _SUBJECT.search(before) is not None


@lru_cache(maxsize=256)
def _reason_and_verdict(shape: type[BaseModel]) -> tuple[str, str] | None:
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
