"""The task that a root runs in: when it is over and no end was told, none will be.

Only where everything of LangChain and LangGraph that a root's start was called from is awaited whole: coroutines (a model's
``agenerate``), up to an ``ainvoke``, which reads to its end whatever it begins. They cannot outlive the task. A generator
(``astream``) may be begun in one task and read in another; the roots of an ``abatch`` begin in short tasks of their own, with
nothing but the callback manager in them; and where an application calls a manager by hand, the run may end anywhere. Those end
by their event, by age, or at the shutdown.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task, _get_running_loop, current_task
from inspect import CO_COROUTINE
from sys import _getframe
from threading import get_ident
from types import FrameType
from typing import Any, Final
from weakref import ReferenceType, ref

__all__ = ["is_awaited", "is_over", "own_task", "thread_or_task"]

_OURS: Final = "spanscore"
_LIBRARIES: Final = frozenset({"langchain", "langchain_classic", "langchain_core", "langgraph"})
_MANAGER: Final = "langchain_core.callbacks.manager"
_WHOLE: Final = "ainvoke"


def own_task() -> ReferenceType[Task[Any]] | None:
    """Return the task whose end is the end of the root that begins now; None where the root may outlive it, or there is none.

    To be called on the application's thread, below the handler: 0.4 µs inside a loop, else 0.07 µs.
    """
    loop: AbstractEventLoop | None = _get_running_loop()
    if loop is None or not _is_awaited_whole(_getframe(1)):
        return None
    task = current_task(loop)
    return None if task is None else ref(task)


def thread_or_task() -> int:
    """Return what tells the caller's task, or its thread outside a loop, from others that run now."""
    loop: AbstractEventLoop | None = _get_running_loop()
    return get_ident() if loop is None else id(current_task(loop))


def is_over(task: ReferenceType[Task[Any]]) -> bool:
    """Whether nothing of a task can run any more. Any thread."""
    referent = task()
    return referent is None or referent.done() or referent.get_loop().is_closed()


def is_awaited() -> bool:
    """Whether a coroutine tells of this end: async streams that are broken off end with an error, so this one is over.

    To be called on the application's thread, below the handler.
    """
    frame: FrameType | None = _getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OURS:
        frame = frame.f_back
    return frame is not None and bool(frame.f_code.co_flags & CO_COROUTINE)


def _is_awaited_whole(frame: FrameType | None) -> bool:
    whole, outermost = False, _MANAGER
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if package in _LIBRARIES:
            code = frame.f_code
            awaited = bool(code.co_flags & CO_COROUTINE)
            whole = awaited and (whole or outermost == _MANAGER or code.co_name == _WHOLE)
            outermost = module
        elif package != _OURS:
            break
        frame = frame.f_back
    return whole and outermost != _MANAGER
