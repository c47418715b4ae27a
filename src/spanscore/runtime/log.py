"""A fault → at most one log line per cause in a process, and a line that quotes nothing.

Messages of exceptions quote prompts, and so do tracebacks: a line names the error's class and the line of code it came from.
"""

from __future__ import annotations

import logging
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from traceback import walk_tb

from spanscore.model.foreign import type_name

__all__ = ["log_internal_error", "log_once", "raised_by_user"]

_LIBRARIES = (str(Path(__file__).parents[1]), sysconfig.get_paths()["stdlib"])
_log = logging.getLogger("spanscore")
_faults: set[str] = set()
_MAX_CAUSES = 100
"""Different causes, and different faults, that are logged; a process that has more has said enough."""
_AGAIN_AFTER_S = 3600.0
"""A cause that stays is logged again after this: who reads logs of today does not see yesterday's."""
_logged_at: dict[str, float] = {}


def log_once(cause: str, text: str, *, level: int = logging.WARNING, now_s: float | None = None) -> None:
    """Log what the operator must act upon: the first time, and at most hourly again. Any thread; never raises.

    Args:
        cause: what tells it from other causes.
        text: what happened and what to do, without content or keys.
        level: of ``logging``.
        now_s: seconds on any steady clock; None = the system's.
    """
    if cause not in _logged_at and len(_logged_at) >= _MAX_CAUSES:
        return
    now = monotonic() if now_s is None else now_s
    before = _logged_at.setdefault(cause, now)  # atomic: of several threads that meet a cause at once, one logs it
    if before is not now and now - before < _AGAIN_AFTER_S:
        return
    _logged_at[cause] = now
    _say(level, "spanscore: %s", text)  # who speaks, as a line may be shown without its logger's name


def log_internal_error(what: str, error: BaseException) -> None:
    """Say once that something of ours failed. Any thread; never raises.

    Args:
        what: what spanscore could not do.
        error: why; the same class from the same line is the same fault, wherever it was met.
    """
    origin = _origin(error)
    if origin in _faults or len(_faults) >= _MAX_CAUSES:
        return
    _faults.add(origin)
    _say(logging.WARNING, "spanscore could not %s (%s); the application is not affected, said once", what, origin)


def _say(level: int, line: str, *words: str) -> None:
    try:
        _log.log(level, line, *words)
    except BaseException as error:  # (a filter or handler of the application's logging; there is no one left to tell)
        if threading.current_thread() is threading.main_thread() and not isinstance(error, Exception):
            raise  # a signal's; on a thread of ours it would end that thread


def raised_by_user(error: BaseException) -> str:
    """Return class, file and line of an error: of the last line that is neither ours nor an installed library's, if any is."""
    return _origin(error, _is_of_user)


def _origin(error: BaseException, counts: Callable[[str], bool] = lambda file: True) -> str:
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [place for place in places if counts(place[0])] or places
    if not own:
        return type_name(error)
    file, line = own[-1]
    return f"{type_name(error)} at {_name_of(file)}:{line}"


def _is_of_user(file: str) -> bool:
    return not (file.startswith((*_LIBRARIES, "<")) or "site-packages" in file)


def _name_of(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[2]
