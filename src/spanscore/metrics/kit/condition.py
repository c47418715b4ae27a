"""A condition of a judged step: does it apply here? Asked in the same call; what does not apply is no pass and no fail."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
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

__all__ = [
    "APPLIES",
    "BinaryAnswer",
    "NotApplicableError",
    "checked_condition",
    "conditional",
    "is_verdict",
    "with_condition",
]

_INSTRUCTION: Final = """\
Does this hold here?
{condition}
Applies: 1 if it does, else 0; then the rest of the answer is not read. If it does:

{instruction}"""


class NotApplicableError(Exception):
    """The judge said that the condition of a step does not hold: there is nothing to score."""

    def __init__(self) -> None:
        super().__init__(NOT_APPLICABLE)


def _is_zero_or_one(value: int) -> int:
    if value not in (0, 1):
        raise ValueError("a verdict is 0 or 1")
    return value


# The schema says it in words: half of the providers' structured modes refuse bounds or enumerations of numbers.
BinaryAnswer = Annotated[
    int, AfterValidator(_is_zero_or_one), WithJsonSchema({"type": "integer", "description": "0 or 1"})
]
"""0 or 1. ``true``, ``"1"`` and ``1.0`` are 1; anything else is no verdict."""
APPLIES: Final = "applies"
"""The field of an answer that says whether the condition holds: a verdict on the condition, none on what is judged."""
_VERDICT: Final = TypeAdapter[int](BinaryAnswer)


class Applied(BaseModel):
    """Whether the condition holds; where it does not, nothing else is read."""

    applies: BinaryAnswer

    @model_validator(mode="wrap")
    @classmethod
    def _rest_only_where_it_applies(cls, given: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(given, Mapping) and _is_none(given.get("applies")):
            return cls.model_construct(applies=0)
        return read(given)


class JsonAlone(BaseModel):
    """An answer that is read as JSON or not at all: another would not say whether the condition holds."""

    @classmethod
    def from_plain_text(cls, text: str, evidence: Mapping[str, Any]) -> None:
        """Read none."""


def _is_none(given: Any) -> bool:
    try:
        return _VERDICT.validate_python(given) == 0
    except ValidationError:
        return False


@lru_cache(maxsize=64)
def conditional(shape: type[BaseModel]) -> type[BaseModel]:
    """Return the shape of an answer that says first whether the condition holds; the same one every time."""
    return create_model(shape.__name__, __base__=(JsonAlone, shape, Applied), __doc__=shape.__doc__)


def is_verdict(field: FieldInfo) -> bool:
    """Whether a field of an answer's shape is a ``BinaryAnswer``."""
    return any(isinstance(one, AfterValidator) and one.func is _is_zero_or_one for one in field.metadata)


def with_condition(instruction: str, condition: str) -> str:
    """Return an instruction that asks about the condition first."""
    return _INSTRUCTION.format(condition=condition, instruction=instruction)


def checked_condition(name: str, given: Any) -> str | None:
    """Return a condition that a user gave; None where there is none.

    Raises:
        ConfigurationError: it is empty, or no text.
    """
    if given is None:
        return None
    if not isinstance(given, str) or not given.strip():
        raise ConfigurationError(
            f"{name}: applies_when is {given!r}; say in one sentence when there is something to judge, or leave it out"
        )
    return given.strip()
