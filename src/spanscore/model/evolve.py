"""Frozen values, made at half the price of a frozen dataclass, and copied at a third of that of ``dataclasses.replace``.

A frozen dataclass sets every field by ``object.__setattr__``, which takes ten times as long as an assignment: a span or a score
has twenty fields, and a scored unit is made of dozens of values. Here the fields are set while the object is of a class that
has the same slots and is not frozen; then its class is the value's own, which Python allows where the slots are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, replace
from functools import cache, wraps
from inspect import signature
from types import CodeType
from typing import Any, TypeVar

__all__ = ["evolve", "quickly_made", "written"]

T = TypeVar("T")


def quickly_made(kind: type[T]) -> type[T]:
    """Have the objects of a frozen dataclass with slots made so; to stand above ``@dataclass``. Subclasses make theirs as ever.

    Raises:
        TypeError: it has a base, or fewer than two slots.
    """
    made: Any = kind  # what is read and set of a class here, mypy takes for that of an object
    layout, slow = _layout(made), made.__init__
    if layout is None:
        raise TypeError(f"{kind.__name__} is no dataclass with slots of its own alone")
    told, takes = fields(made), signature(slow).parameters
    named = ", ".join(f"{name}={name}" for name in takes if name != "self")
    quick = written(
        f"def __init__({_parameters(slow.__code__)}):",
        f"if type(self) is not _kind: return _slow(self, {named})",
        "_thaw(self, '__class__', _plain)",
        *(f"self.{one.name} = {_value(one)}" for one in told),
        "self.__class__ = _kind",
        *(["self.__post_init__()"] if hasattr(made, "__post_init__") else ()),
        _kind=kind,
        _plain=layout[0],
        _slow=slow,
        _thaw=object.__setattr__,
        **{f"_made_{one.name}": one.default_factory for one in told},
        **{f"_at_{one.name}": takes[one.name].default if one.init else one.default for one in told},
    )
    quick.__defaults__, quick.__kwdefaults__ = slow.__defaults__, slow.__kwdefaults__
    made.__init__ = wraps(slow)(quick)
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

    The copy is written out, a line for each field: a third of what a loop over them takes.
    """
    if kind.__base__ is not object or not isinstance(slots := vars(kind).get("__slots__"), tuple) or len(slots) <= 1:
        return None
    plain = type(kind.__name__, (), {"__slots__": slots})
    lines = (f"new.{name} = one.{name}" for name in slots)
    return plain, written("def copied(one):", "new = _plain()", *lines, "return new", _plain=plain)


def _parameters(code: CodeType) -> str:
    """Return those of a function, without their defaults."""
    names, by_name = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], code.co_argcount
    return ", ".join([*names[:by_name], *(["*"] if len(names) > by_name else ()), *names[by_name:]])


def _value(of: Field[Any]) -> str:
    """Return what a field is set to; in place of a value that is to be made, a constructor is given a mark for that."""
    if of.default_factory is not MISSING:
        return f"_made_{of.name}() if {of.name} is _at_{of.name} else {of.name}" if of.init else f"_made_{of.name}()"
    return of.name if of.init else f"_at_{of.name}"


def written(*lines: str, **known: Any) -> Any:
    """Return the function of these lines, the first its head: ``dataclasses`` write theirs so, too. Lines of ours alone."""
    exec("\n    ".join(lines), known)
    return known[lines[0].removeprefix("def ").partition("(")[0]]
