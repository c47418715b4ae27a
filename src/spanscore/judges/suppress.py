"""The evaluator never evaluates itself: inside ``suppress_tracing()`` no instrumentation traces what a judge does.

Each of the four marks stops a tracer that the others do not: OpenTelemetry instrumentations honour the context key (some the
plain string), LangSmith only its own switch, and handlers of a configure hook, ours among them, only a context variable.
``callbacks=[]`` is the fifth, in the LangChain judge.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, copy_context
from functools import cache

from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

from spanscore.core.context import is_judging, judging

__all__ = ["suppress_tracing", "suppressed_context"]

_PLAIN_KEY = "suppress_instrumentation"


def suppress_tracing() -> AbstractContextManager[None]:
    """Mark the block as a judge's call: no instrumentation traces it. Enter and leave it in one task."""
    return nullcontext() if is_judging() else _mark_context()


@contextmanager
def _mark_context() -> Iterator[None]:
    marked = context.set_value(_PLAIN_KEY, True, context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    token = context.attach(marked)
    try:
        with judging(), _without_langsmith():
            yield
    finally:
        context.detach(token)


def suppressed_context() -> Context:
    """Return a copy of the caller's context in which everything is marked so, for good: there is no block to leave."""
    if is_judging():
        return copy_context()
    with suppress_tracing():
        return copy_context()


def _without_langsmith() -> AbstractContextManager[None]:
    """Switch LangSmith off, if it is loaded at all: importing it costs half a second, and unloaded it traces nothing."""
    if "langsmith" not in sys.modules and "langchain_core" not in sys.modules:
        return nullcontext()
    # No parent: looking for the run we are in takes longer than all the rest, and nothing in here is traced.
    return _langsmith_context()(enabled=False, parent=False)


@cache
def _langsmith_context() -> Callable[..., AbstractContextManager[None]]:
    """Return LangSmith's switch. Once: its package looks each name up anew, which takes 10 µs."""
    from langsmith import tracing_context

    return tracing_context
