"""Attach a handler to every chain of the process, and take it off again.

LangChain asks each registered hook for a handler whenever a callback manager is configured, in every thread. It only
calls ``get()`` on what was registered, and offers no way to unregister: so what is registered is a switch.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, cast

from langchain_core.callbacks import BaseCallbackHandler

from spanscore import context

__all__ = ["Installation"]


class Installation:
    """A switch that puts one handler on every chain of the process. Safe to switch from any thread, any number of times.

    Attributes:
        on: whether it does.
    """

    def __init__(self, handler: BaseCallbackHandler) -> None:
        self._handler = handler
        self.on = False
        self._registered = False

    def get(self) -> BaseCallbackHandler | None:
        """What LangChain asks per configured run: the handler while installed, never inside a judge's call."""
        return self._handler if self.on and not context.is_judging() else None

    def install(self) -> None:
        """Attach to every chain that starts from now on."""
        if not self._registered:
            from langchain_core.tracers.context import register_configure_hook  # brings the LangSmith client: 290 ms

            self._registered = True
            register_configure_hook(cast("ContextVar[Any]", self), inheritable=True)  # only get() is ever called
        self.on = True

    def uninstall(self) -> None:
        """Attach to no further chain; runs under way are recorded to their end."""
        self.on = False
