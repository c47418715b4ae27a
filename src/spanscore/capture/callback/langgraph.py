"""LangGraph's own events: heard without importing LangGraph before the application does.

A breakpoint (``interrupt_before``, ``interrupt_after``) ends a turn without any error: only ``on_interrupt`` tells, and
LangGraph calls it on subclasses of its ``GraphCallbackHandler`` alone. So a handler becomes one when LangGraph is there.
"""

from __future__ import annotations

import sys
from typing import Any

MODULE = "langgraph.callbacks"
"""Loaded with LangGraph itself, before any graph can run; its older versions have no such events."""


def hear_graphs(handler: Any) -> None:
    """Make a handler one that LangGraph tells of interrupts, by its class: it asks for no less."""
    base = getattr(sys.modules[MODULE], "GraphCallbackHandler", None)
    if base is not None and not isinstance(handler, base):
        kind = type(handler)
        handler.__class__ = type(kind.__name__, (kind, base), {"__doc__": kind.__doc__, "__module__": kind.__module__})
