"""An object that a judge wrote → the answer of the asked shape, if its keys are the asked ones but for their case."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError

from spanscore.judges.loose_json import object_of

__all__ = ["answer_in", "bare_object"]


def answer_in(value: Any, output: type[BaseModel]) -> BaseModel | None:
    """Return an object as an ``output``; None if it is no valid one, or if two of its keys differ in case alone."""
    if not isinstance(value, Mapping) or not _is_plain(value, output):
        return None
    try:
        return output.model_validate(value)
    except ValidationError:
        pass
    try:
        return output.model_validate(_renamed(value, _names(output)))
    except (ValueError, RecursionError):  # pydantic's is a ValueError, and so is a key that stands twice
        return None


def bare_object(value: Any, output: type[BaseModel]) -> Any:
    """Return the object inside ``{"answer": {…}}``, if the keys of the inner one are asked for, and the outer one is not."""
    names = _names(output)
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((key, inner),) = value.items()
    if _folded(key) in names or not isinstance(inner, Mapping):
        return value
    return inner if any(_folded(name) in names for name in inner) else value


def _is_plain(value: Mapping[str, Any], output: type[BaseModel]) -> bool:
    """Whether an object's keys differ in more than their case, and one of them is asked for."""
    names = _names(output)
    if not names or all(names.get(key) == key for key in value):  # most answers: no key has to be folded
        return True
    folded = {_folded(key) for key in value}
    return len(folded) == len(value) and not names.keys().isdisjoint(folded)


def _folded(name: str) -> str:
    """Return a name without case, blanks, hyphens and underscores: ``"End state"`` is ``end_state``."""
    return "".join(sign for sign in name.casefold() if sign.isalnum())


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value whose objects have the asked keys.

    Raises:
        ValueError: an object has two keys for one.
    """
    if isinstance(value, list):
        return [_renamed(part, names) for part in value]
    if not isinstance(value, Mapping):
        return value
    return object_of([(names.get(_folded(key), key), _renamed(part, names)) for key, part in value.items()])


@lru_cache(maxsize=256)
def _names(output: type[BaseModel]) -> Mapping[str, str]:
    """Return the keys of an answer and of the objects inside it, by their folded form."""
    schema = output.model_json_schema()
    shapes = [schema, *schema.get("$defs", {}).values()]
    return {_folded(name): name for shape in shapes for name in shape.get("properties", ())}
