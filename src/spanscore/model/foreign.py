"""What is asked of things that are not ours, without running a line of their code.

``type(x).__name__`` asks the metaclass, ``isinstance`` asks ``x.__class__``, ``str(error)`` asks the error: any of them may
hang the thread that asks, and with it everything that thread is for, or raise ``SystemExit`` into the application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard, TypeVar
from uuid import UUID

__all__ = ["bases_of", "class_name", "defines", "is_a", "module_of", "plain_text", "said_by", "type_name"]

T = TypeVar("T")

_name_of: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__
_module_of: Final[Callable[[type], Any]] = type.__dict__["__module__"].__get__
_dict_of: Final[Callable[[type], Mapping[str, Any]]] = type.__dict__["__dict__"].__get__
bases_of: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
"""The method resolution order of a class."""


def class_name(kind: type) -> str:
    """Return a class's name."""
    return str.__str__(_name_of(kind))  # a class may be named by a subclass of str


def type_name(thing: object) -> str:
    """Return the name of a thing's class."""
    return class_name(type(thing))


def module_of(kind: type) -> str:
    """Return the module that a class says it is from; empty where it says none."""
    module = _module_of(kind)
    return str.__str__(module) if is_a(module, str) else ""


def defines(kind: type, name: str) -> bool:
    """Whether a class or one of its bases has such a member."""
    return any(name in _dict_of(base) for base in bases_of(kind))


def is_a(thing: object, *kinds: type[T]) -> TypeGuard[T]:
    """Whether a thing is an instance of one of the classes, by its type and not by what it says of itself."""
    return issubclass(type(thing), kinds)


def plain_text(value: object) -> str | None:
    """Return a text, a number or a UUID as text; None for any other value, which would have to be asked for one."""
    printer = next((printer for kind, printer in _PRINTERS.items() if is_a(value, kind)), None)
    return None if printer is None else printer(value)


_PRINTERS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: str.__str__,
    bool: bool.__repr__,
    int: int.__repr__,
    float: float.__repr__,
    UUID: UUID.__str__,
}


def said_by(error: BaseException) -> str | None:
    """Return an error's text; None where another's code would have to give it: a ``__str__``, or that of an argument."""
    printer: Any = next(base for base in bases_of(type(error)) if "__str__" in _dict_of(base))
    held = next((fields for known, fields in _PRINTED.items() if known is printer), None)
    if held is None or not all(type(argument) in _PLAIN for argument in _arguments_of(error)):
        return None
    if not all(type(_dict_of(printer)[field].__get__(error)) in _PLAIN for field in held):
        return None
    return str.__str__(printer.__str__(error))


_arguments_of: Final[Callable[[BaseException], tuple[Any, ...]]] = BaseException.__dict__["args"].__get__
_PLAIN: Final = (str, int, float, bool, bytes, type(None))
"""Looked for by identity first: a class may compare, or hash, by code of its own."""
_PRINTED: Final[Mapping[type[BaseException], tuple[str, ...]]] = {
    BaseException: (),
    KeyError: (),
    ImportError: ("msg",),
    OSError: ("errno", "strerror", "filename", "filename2"),
}
"""Who prints an error → what it prints beside the arguments."""
