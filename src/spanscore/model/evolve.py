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
from typing import Any, ParamSpec, TypeVar

__all__ = ["constructor", "evolve", "quickly_made", "written"]

P = ParamSpec("P")
T = TypeVar("T")


def quickly_made(kind: type[T]) -> type[T]:
    """Have the objects of a frozen dataclass with slots made so; to stand above ``@dataclass``. Subclasses make theirs as ever.

    Raises:
        TypeError: it has a base, or fewer than two slots.
    """
    made: Any = kind  # what is read and set of a class here, mypy takes for that of an object
    slow = made.__init__
    if _layout(made) is None:
        raise TypeError(f"{kind.__name__} is no dataclass with slots of its own alone")
    named = ", ".join(f"{name}={name}" for name in signature(slow).parameters if name != "self")
    made.__init__ = wraps(slow)(
        _setting(
            made,
            f"def __init__({_parameters(slow.__code__)}):",
            f"if type(self) is not _kind: return _slow(self, {named})",
            "_thaw(self, '__class__', _plain)",
        )
    )
    return kind


def constructor(kind: Callable[P, T]) -> Callable[P, T]:
    """Return what makes values of a class that is ``quickly_made``, as the class itself does, which takes three times as long.

    Python calls a class by way of a dictionary of what is given by name, and so it does any function of more than some fifteen
    arguments; those by position count half.
    """
    made: Any = kind
    parameters = _parameters(made.__init__.__wrapped__.__code__).removeprefix("self").lstrip(", ")
    quick: Callable[P, T] = _setting(made, f"def made({parameters}):", "self = _plain()", last="return self")
    return quick


def _setting(kind: Any, *lines: str, last: str = "return") -> Any:
    """Return a function that begins so, and goes on by setting each field of ``self``."""
    slow = getattr(kind.__init__, "__wrapped__", kind.__init__)
    told, takes = fields(kind), signature(slow).parameters
    quick = written(
        *lines,
        *(f"self.{one.name} = {_value(one)}" for one in told),
        "self.__class__ = _kind",
        *(["self.__post_init__()"] if hasattr(kind, "__post_init__") else ()),
        last,
        _kind=kind,
        _plain=_layout(kind),
        _slow=slow,
        _thaw=object.__setattr__,
        **{f"_made_{one.name}": one.default_factory for one in told},
        **{f"_at_{one.name}": takes[one.name].default if one.init else one.default for one in told},
    )
    quick.__defaults__, quick.__kwdefaults__ = slow.__defaults__, slow.__kwdefaults__
    return quick


def evolve(one: T, /, **changes: Any) -> T:
    """Return a copy with other values of these fields. What ``__post_init__`` looks at is not to be changed: it is not asked.

    Raises:
        AttributeError: there is no such field.
    """
    kind: Any = type(one)
    copied = _copier(kind, (*changes,))
    return replace(one, **changes) if copied is None else copied(one, changes)  # type: ignore[type-var]


@cache
def _copier(kind: type, changed: tuple[str, ...]) -> Any:
    """Return what copies a value with other values of these fields, a line for each field; None of a subclass."""
    plain = _layout(kind)
    if plain is None:
        return None
    kept = [f"new.{name} = one.{name}" for name in plain.__slots__ if name not in changed]
    return written(
        "def copied(one, told):",
        "new = _plain()",
        *kept,
        *(f"new.{name} = told['{name}']" for name in changed),
        "new.__class__ = _kind",
        "return new",
        _plain=plain,
        _kind=kind,
    )


@cache
def _layout(kind: type) -> type[Any] | None:
    """Return a class of the same slots, None of a subclass, which may have more."""
    if kind.__base__ is not object or not isinstance(slots := vars(kind).get("__slots__"), tuple) or len(slots) <= 1:
        return None
    return type(kind.__name__, (), {"__slots__": slots})


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
    """Return the function of these lines, the first its head: ``dataclasses`` write theirs so, too. Lines of ours alone.

    They are compiled apart: where it runs text, CPython forgets that the process ends of an interrupt, and exits with 1.
    """
    exec(compile("\n    ".join(lines), "<written>", "exec"), known)
    return known[lines[0].removeprefix("def ").partition("(")[0]]
