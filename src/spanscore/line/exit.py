"""A scorer that was not shut down is, when the interpreter exits."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

__all__ = ["EXIT_TIMEOUT_S", "exit_hook"]

EXIT_TIMEOUT_S = 5.0
"""An interpreter exit takes at most this, exporters included: the scorers of a process share it."""
_TEARDOWN_S = 0.5
"""Of it, what Python itself takes when the hooks are done: it lets go of modules and of threads that hang."""

_until: float | None = None


def exit_hook(shutdown: Callable[[float], Any]) -> Callable[[], None]:
    """Return what calls a scorer's method with what is left of that time, unless the application has let go of the scorer."""
    method = weakref.WeakMethod(shutdown)

    def at_exit() -> None:
        global _until  # noqa: PLW0603  (a process exits once)
        _until = _until or monotonic() + EXIT_TIMEOUT_S - _TEARDOWN_S
        call = method()
        if call is not None:
            call(max(0.2, _until - monotonic()))

    return at_exit
