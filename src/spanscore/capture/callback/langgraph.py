"""Receives LangGraph's own events, without importing LangGraph before the application does.

A breakpoint (``interrupt_before``, ``interrupt_after``) ends a turn without an error. Only ``on_interrupt`` reports it, and
LangGraph calls it only on subclasses of its ``GraphCallbackHandler``. Therefore a handler becomes such a subclass once
LangGraph is loaded.
"""

from __future__ import annotations

import sys
from typing import Any

MODULE = "langgraph.callbacks"
"""Module that LangGraph loads before any graph can run; older versions have no such events."""


def observe_graphs(handler: Any) -> None:
    """Make the handler's class a subclass of LangGraph's handler, which LangGraph requires for interrupts."""
    base = getattr(sys.modules[MODULE], "GraphCallbackHandler", None)
    if base is not None and not isinstance(handler, base):
        kind = type(handler)
        handler.__class__ = type(kind.__name__, (kind, base), {"__doc__": kind.__doc__, "__module__": kind.__module__})
