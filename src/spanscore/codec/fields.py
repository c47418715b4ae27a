"""Dataclasses ↔ JSON objects, field by field: what is not there has its default, and what is not known is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any

__all__ = ["fields_known", "fields_told", "hex_of", "of_hex"]


def fields_told(thing: Any, /, **named: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults.

    Args:
        thing: of a frozen dataclass whose values, but for those that are ``named``, JSON can carry.
        named: field → how it is written; None = it is left out.
    """
    values = dict[str, Any]()
    for name, default in _defaults(thing.__class__):
        value = named[name] if name in named else getattr(thing, name)
        if value is not None and (default is None or value != default):
            values[name] = value
    return values


def fields_known(kind: type, given: Mapping[str, Any], /, **read: Any) -> Any:
    """Make a dataclass of those fields of a JSON object that it has.

    Args:
        kind: the dataclass.
        given: the object.
        read: field → its value, where that is not what stands there.
    """
    return kind(**{name: given[name] for name, _ in _defaults(kind) if name in given} | read)


def hex_of(number: int | None, digits: int) -> str | None:
    """Return a number as hex digits; None stays None."""
    return None if number is None else f"{number:0{digits}x}"


def of_hex(text: str | None) -> int | None:
    """Return the number that hex digits stand for; None stays None."""
    return None if text is None else int(text, 16)


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple((one.name, _default(one)) for one in fields(kind) if one.init)


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default
