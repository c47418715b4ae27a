"""Logging, at most one line per cause and hour; and inspection of foreign objects without running their code."""

from __future__ import annotations

import logging
import sysconfig
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from traceback import walk_tb
from typing import Any, Final, TypeGuard, TypeVar
from uuid import UUID

# --- foreign --------------------------------------------------------------------------------------------------------

# ``type(x).__name__`` runs code of the metaclass, ``isinstance`` runs ``x.__class__``, and ``str(error)`` runs code of the
# error. Such code may hang the calling thread with all its work, or raise ``SystemExit`` into the application.

T = TypeVar("T")

_name_of: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__
_module_of: Final[Callable[[type], Any]] = type.__dict__["__module__"].__get__
_dict_of: Final[Callable[[type], Mapping[str, Any]]] = type.__dict__["__dict__"].__get__
bases_of: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
"""The method resolution order of a class."""


def class_name(kind: type) -> str:
    """Return a class's name."""
    return str.__str__(_name_of(kind))  # the name may be a subclass of str, and its __str__ must not run


def type_name(thing: object) -> str:
    """Return the name of an object's class."""
    return class_name(type(thing))


def module_of(kind: type) -> str:
    """Return the module name of a class; empty if it has none."""
    module = _module_of(kind)
    return str.__str__(module) if is_a(module, str) else ""


def defines(kind: type, name: str) -> bool:
    """Whether a class or one of its bases defines a member of this name."""
    return any(name in _dict_of(base) for base in bases_of(kind))


def is_a(thing: object, *kinds: type[T]) -> TypeGuard[T]:
    """Whether an object is an instance of one of the classes, by its type and not by its ``__class__``."""
    return issubclass(type(thing), kinds)


def plain_text(value: object) -> str | None:
    """Return a text, a number or a UUID as text; None for any other value, because code of the value would have to run."""
    printer = next((printer for kind, printer in _PRINTERS.items() if is_a(value, kind)), None)
    return None if printer is None else printer(value)


_PRINTERS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: str.__str__,
    bool: bool.__repr__,
    int: int.__repr__,
    float: float.__repr__,
    UUID: UUID.__str__,
}


def error_text(error: BaseException) -> str | None:
    """Return an error's text, or None if that would run a ``__str__`` that is not Python's own."""
    printer: Any = next(base for base in bases_of(type(error)) if "__str__" in _dict_of(base))
    fields = next((fields for kind, fields in _PRINTED_FIELDS.items() if kind is printer), None)
    if fields is None:
        return None
    printed = [*_arguments_of(error), *(_dict_of(printer)[field].__get__(error) for field in fields)]
    return str.__str__(printer.__str__(error)) if all(type(value) in _PLAIN for value in printed) else None


_arguments_of: Final[Callable[[BaseException], tuple[Any, ...]]] = BaseException.__dict__["args"].__get__
_PLAIN: Final = (str, int, float, bool, bytes, type(None))
"""Types are compared by identity, because a class may compare or hash by its own code."""
_PRINTED_FIELDS: Final[Mapping[type[BaseException], tuple[str, ...]]] = {
    BaseException: (),
    KeyError: (),
    ImportError: ("msg",),
    OSError: ("errno", "strerror", "filename", "filename2"),
}
"""Class with a ``__str__`` → the fields that this ``__str__`` prints in addition to the arguments."""


# --- log ------------------------------------------------------------------------------------------------------------

# At most one log line per cause and hour in a process, and one per fault of spanscore, without content.
#
# Messages of exceptions and tracebacks may quote prompts. So a line names only the error's class and its line of code.

_LIBRARIES = (str(Path(__file__).parents[1]), sysconfig.get_paths()["stdlib"])
_log = logging.getLogger("spanscore")
_faults: set[str] = set()
_MAX_CAUSES = 100
"""Maximum number of causes, and of faults, that a process logs."""
_REPEAT_AFTER_S = 3600.0
"""A lasting cause is logged again after this time, because readers of today's logs do not see yesterday's."""
_logged_at: dict[str, float] = {}


def log_once(cause: str, text: str, *, level: int = logging.WARNING, now_s: float | None = None) -> None:
    """Log a problem that the operator must act upon: the first time, and then at most hourly.

    May be called on any thread; never raises. After 100 causes a new cause is not logged.

    Args:
        cause: key of the cause.
        text: the problem and its remedy, without user content or API keys.
        level: level of ``logging``.
        now_s: seconds on any steady clock; None = the system's.
    """
    if cause not in _logged_at and len(_logged_at) >= _MAX_CAUSES:
        return
    now = monotonic() if now_s is None else now_s
    before = _logged_at.setdefault(cause, now)  # atomic: if several threads have the same cause at once, one logs it
    if before is not now and now - before < _REPEAT_AFTER_S:
        return
    _logged_at[cause] = now
    _log_line(level, "spanscore: %s", text)  # a line may be shown without its logger's name


def log_event(text: str, *, level: int = logging.INFO) -> None:
    """Log an event that an operator caused, each time. Thread-safe; never raises."""
    _log_line(level, "spanscore: %s", text)


def log_internal_error(operation: str, error: BaseException) -> None:
    """Log once that an operation of spanscore failed. Thread-safe; never raises.

    Args:
        operation: a verb with its object ("read a log record").
        error: the cause; errors of one class from one line of code are the same fault.
    """
    origin = _origin(error)
    if origin in _faults or len(_faults) >= _MAX_CAUSES:
        return
    _faults.add(origin)
    line = "spanscore could not %s (%s); the application is not affected, logged once"
    _log_line(logging.WARNING, line, operation, origin)


def forget_causes() -> None:
    """Log every cause and fault again, like a new process. For tests, because the log of one would change that of the next."""
    _logged_at.clear()
    _faults.clear()


def _log_line(level: int, line: str, *words: str) -> None:
    try:
        _log.log(level, line, *words)
    except BaseException as error:  # raised by the application's log filter or handler, so it cannot be logged
        if threading.current_thread() is threading.main_thread() and not isinstance(error, Exception):
            raise  # e.g. KeyboardInterrupt: on another thread it would end a thread of spanscore


def user_origin(error: BaseException) -> str:
    """Return class, file and line of an error: the last line of the user's own code, if there is such a line."""
    return _origin(error, _is_of_user)


def _origin(error: BaseException, is_relevant: Callable[[str], bool] = lambda file: True) -> str:
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    relevant = [place for place in places if is_relevant(place[0])] or places
    if not relevant:
        return type_name(error)
    file, line = relevant[-1]
    name = file.replace("\\", "/").rpartition("/")[2]
    return f"{type_name(error)} at {name}:{line}"


def _is_of_user(file: str) -> bool:
    return not (file.startswith((*_LIBRARIES, "<")) or "site-packages" in file)
