"""Frozen values, made at half the price of a frozen dataclass, and copied at a third of that of ``dataclasses.replace``.

A frozen dataclass sets every field by ``object.__setattr__``, which takes ten times as long as an assignment: a span or a score
has twenty fields, and a scored unit is made of dozens of values. Here the fields are set while the object is of a class that
has the same slots and is not frozen; then its class is the value's own, which Python allows where the slots are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, make_dataclass, replace
from functools import cache, wraps
from typing import Any, TypeVar

__all__ = ["evolve", "quickly_made"]

T = TypeVar("T")


def quickly_made(kind: type[T]) -> type[T]:
    """Have the objects of a frozen dataclass with slots made so; to stand above ``@dataclass``. Subclasses make theirs as ever.

    Raises:
        TypeError: it has a base, or fewer than two slots.
    """
    made: Any = kind  # what is read and set of a class here, mypy takes for that of an object
    layout, slow, check = _layout(made), made.__init__, getattr(made, "__post_init__", None)
    if layout is None:
        raise TypeError(f"{kind.__name__} is no dataclass with slots of its own alone")
    plain, thaw = layout[0], object.__setattr__
    assigning: Any = make_dataclass(
        kind.__name__, [(one.name, one.type, copy(one)) for one in fields(made)], slots=True
    )
    fill = assigning.__init__

    @wraps(slow)
    def fill_quickly(self: Any, *values: Any, **named: Any) -> None:
        if type(self) is not kind:
            slow(self, *values, **named)
            return
        thaw(self, "__class__", plain)
        fill(self, *values, **named)
        self.__class__ = kind
        if check is not None:
            check(self)

    made.__init__ = fill_quickly
    return kind


def evolve(one: T, **changes: Any) -> T:
    """Return a copy with other values of these fields. What ``__post_init__`` looks at is not to be changed: it is not asked.

    Raises:
        AttributeError: there is no such field.
    """
    kind: Any = type(one)
    layout = _layout(kind)
    if layout is None:
        return replace(one, **changes)  # type: ignore[type-var]
    new = layout[1](one)
    for name, value in changes.items():
        setattr(new, name, value)
    new.__class__ = kind
    return new  # type: ignore[no-any-return]


@cache
def _layout(kind: type) -> tuple[type[Any], Callable[[Any], Any]] | None:
    """Return a class of the same slots, and what copies a value into an object of it; None of a subclass, which may have more.

    The copy is written out, a line for each field, as ``dataclasses`` write what they make: a third of what a loop takes.
    """
    if kind.__base__ is not object or not isinstance(slots := vars(kind).get("__slots__"), tuple) or len(slots) <= 1:
        return None
    known: dict[str, Any] = {"plain": (plain := type(kind.__name__, (), {"__slots__": slots}))}
    lines = ["def copied(one):", "new = plain()", *(f"new.{name} = one.{name}" for name in slots), "return new"]
    exec("\n    ".join(lines), known)
    return plain, known["copied"]
