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


class _HandlerHook:
    """Returns the installed handler to LangChain whenever a callback manager is configured, in every thread.

    LangChain takes a context variable as a hook, and calls only its ``get``. Hooks cannot be unregistered, so the process has
    one for all scorers.

    Attributes:
        installed: installation of the handler on every chain; None = no handler.
    """

    def __init__(self) -> None:
        self.installed: Installation | None = None
        self._lock = Lock()
        self.is_registered = False

    def get(self) -> BaseCallbackHandler | None:
        """Return the installed handler; None without a handler, and inside a judge's call."""
        installed = self.installed
        return installed.handler if installed is not None and not context.is_judging() else None


_hook = _HandlerHook()
renew_lock_in_child(_hook)


@dataclass(eq=False, repr=False)
class Installation:
    """Puts a handler on every chain of the process, and replaces the handler that was there. Thread-safe; may be repeated.

    Attributes:
        name: name of the handler's scorer.
        replaced: called with the name of the scorer whose handler replaced this one.
    """

    handler: SpanCallbackHandler
    name: str
    replaced: Callable[[str], None]

    def __post_init__(self) -> None:
        this = ref(self)  # a strong reference would be a cycle, because this object refers to the handler
        self.handler.is_installed = lambda: (installed := _hook.installed) is not None and installed is this()

    def install(self) -> None:
        """Attach the handler to every chain that starts from now on. An installed handler is replaced."""
        with _hook._lock:
            if not _hook.is_registered:
                # Imported here, because the import takes 290 ms: it loads the LangSmith client.
                from langchain_core.tracers.context import register_configure_hook

                register_configure_hook(cast("ContextVar[Any]", _hook), inheritable=True)
                _hook.is_registered = True
            self.handler.installed_ns = time_ns()
            before, _hook.installed = _hook.installed, self
        if before is not None and before is not self:
            before.replaced(self.name)

    def uninstall(self) -> None:
        """Detach the handler from further chains; running chains are recorded to their end."""
        with _hook._lock:
            if _hook.installed is self:
                _hook.installed = None

    def notes(self) -> list[str]:
        """Return the reason for which no further run is recorded, for ``status()``; empty while runs are recorded."""
        why_closed = self.handler.memory.why_closed
        return [why_closed] if why_closed else []
