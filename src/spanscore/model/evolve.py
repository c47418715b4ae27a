"""evolve: a copy of a frozen value with some of its fields changed, at a third of the price of ``dataclasses.replace``.

A frozen dataclass sets every field by ``object.__setattr__``, which takes ten times as long as an assignment: a span or a score
has twenty fields, and a scored unit is copied several times. Here the fields are set on an object of a class that has the same
slots and is not frozen; then its class is the value's own, which Python allows where the slots are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeVar

__all__ = ["evolve"]

T = TypeVar("T")


def evolve(one: T, **changes: Any) -> T:
    """Return a copy with other values of these fields. What ``__post_init__`` looks at is not to be changed: it is not asked.

    Raises:
        AttributeError: there is no such field.
    """
    kind: Any = type(one)
    layout = _layout(kind)
    if layout is None:
        return replace(one, **changes)  # type: ignore[type-var]
    plain, values_of = layout
    new = plain()
    deque(map(setattr, repeat(new), kind.__slots__, values_of(one)), 0)
    for name, value in changes.items():
        setattr(new, name, value)
    new.__class__ = kind
    return new  # type: ignore[no-any-return]


@cache
def _layout(kind: type) -> tuple[type[Any], Callable[[Any], Any]] | None:
    """Return a class of the same slots, and what reads all fields at once; None of a subclass, which may have more."""
    if kind.__base__ is not object or not isinstance(slots := vars(kind).get("__slots__"), tuple) or len(slots) <= 1:
        return None
    return type(kind.__name__, (), {"__slots__": slots}), attrgetter(*slots)
