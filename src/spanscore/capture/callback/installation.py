"""Installs a callback handler on every LangChain chain of the process, and uninstalls it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from time import time_ns
from typing import Any, cast
from weakref import ref

from langchain_core.callbacks import BaseCallbackHandler

from spanscore.capture.callback.handler import SpanCallbackHandler
from spanscore.core import context
from spanscore.core.threads import renew_lock_in_child


class _Switch:
    """The hook that LangChain asks for a handler whenever a callback manager is configured, in every thread.

    LangChain cannot unregister a hook, so one is registered for all scorers of the process: a script that runs again installs
    another handler, and each run must be recorded once.

    Attributes:
        installed: installation of the handler on every chain; None = no handler.
    """

    def __init__(self) -> None:
        self.installed: Installation | None = None
        self._lock = Lock()
        self.is_registered = False

    def get(self) -> BaseCallbackHandler | None:
        """Return the installed handler for a configured run; None without a handler, and inside a judge's call."""
        installed = self.installed
        return installed.handler if installed is not None and not context.is_judging() else None


_switch = _Switch()
renew_lock_in_child(_switch)


@dataclass(eq=False, repr=False)
class Installation:
    """Puts one handler on every chain of the process, and replaces an earlier one. Thread-safe; may be repeated.

    ``name`` is the scorer's. ``replaced`` is called with the name of the scorer whose handler replaced this one.
    """

    handler: SpanCallbackHandler
    name: str
    replaced: Callable[[str], None]

    def __post_init__(self) -> None:
        this = ref(self)  # it refers to the handler, so a strong reference would be a cycle
        self.handler.is_installed = lambda: (installed := _switch.installed) is not None and installed is this()

    def install(self) -> None:
        """Attach the handler to every chain that starts from now on, in the place of an installed handler."""
        with _switch._lock:
            if not _switch.is_registered:
                from langchain_core.tracers.context import (
                    register_configure_hook,  # brings the LangSmith client: 290 ms
                )

                register_configure_hook(cast("ContextVar[Any]", _switch), inheritable=True)  # only get() is ever called
                _switch.is_registered = True
            self.handler.installed_ns = time_ns()
            before, _switch.installed = _switch.installed, self
        if before is not None and before is not self:
            before.replaced(self.name)

    def uninstall(self) -> None:
        """Detach the handler from further chains; running chains are recorded to their end."""
        with _switch._lock:
            if _switch.installed is self:
                _switch.installed = None

    def notes(self) -> list[str]:
        """Return the reason for which no further run is recorded, for ``status()``; empty while runs are recorded."""
        why_closed = self.handler.memory.why_closed
        return [why_closed] if why_closed else []
