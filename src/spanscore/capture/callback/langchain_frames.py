"""Reads frames of LangChain's callback manager while it calls the handler. No other file reads this private code.

It was checked with langchain-core 1.4 to 1.8; check it again for 2.0. If a manager is written differently, each function does
nothing. Each function costs at most 0.4 µs per root, start or end that calls it. Without these functions, 39 tests of other
callbacks' events (``test_other_handlers``), 4 of ``test_ends`` and 2 of ``test_streams`` fail.

``give_back_the_start``: ``AsyncCallbackManager.on_llm_start``, which reports completion models under ``ainvoke``, ``astream``
and ``abatch``, has an ``if`` that ``on_chat_model_start`` lacks::

    for prompt in prompts:
        if inline_handlers:
            inline_tasks.append(ahandle_event(inline_handlers, "on_llm_start", ...))
        else:
            non_inline_tasks.append(ahandle_event(non_inline_handlers, "on_llm_start", ...))
    ...  # the inline tasks one by one, then the others together

So if one handler is inline, no other handler gets the start. If all inline handlers are spanscore's, the first of them appends
the tasks of the ``else`` branch. If another handler is inline (LangSmith's tracer), the start is lost even without
spanscore. A ``run_inline`` that depends on its caller has the same effect for 8 µs more per asynchronous chain, because
each event reads it three times.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task, _get_running_loop, current_task
from inspect import CO_COROUTINE
from sys import _getframe
from types import FrameType
from typing import Any, Final
from weakref import ReferenceType, ref

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.callbacks.manager import ahandle_event

from spanscore.core.log import log_internal_error

_METHOD: Final = "on_llm_start"
_AWAITS: Final = 4
"""Number of frames from here to the manager's frame: the handler's method, two frames of the dispatch, the manager."""
_OURS: Final = "spanscore"
_LIBRARIES: Final = frozenset({"langchain", "langchain_classic", "langchain_core", "langgraph"})
_MANAGER: Final = "langchain_core.callbacks.manager"
_WHOLE: Final = "ainvoke"


def give_back_the_start(ours: type) -> None:
    """Pass a completion model's start to the handlers that are not inline. Never raises.

    Call this function in the handler's ``on_llm_start``. Under a synchronous manager it has no effect.
    """
    try:
        frame: FrameType | None = _getframe(1)
        for _ in range(_AWAITS):
            frame = frame.f_back if frame is not None else None
            if frame is not None and frame.f_code.co_name == _METHOD:
                if isinstance(frame.f_locals.get("self"), AsyncCallbackManager):
                    _append_the_others(frame.f_locals, ours)
                return
    except Exception as fault:  # noqa: BLE001  (locals of another library)
        log_internal_error("pass a model's start to other callbacks", fault)


def _append_the_others(caller: dict[str, Any], ours: type) -> None:
    others, tasks = caller.get("non_inline_handlers"), caller.get("non_inline_tasks")
    inline = caller["inline_handlers"]
    if not others or tasks is None or tasks or not all(isinstance(handler, ours) for handler in inline):
        return
    manager = caller["self"]
    about = {"parent_run_id": manager.parent_run_id, "tags": manager.tags, "metadata": manager.metadata}
    for prompt, run in zip(caller["prompts"], caller["managers"], strict=True):
        about |= {**caller["kwargs"], "run_id": run.run_id}
        tasks.append(ahandle_event(others, _METHOD, "ignore_llm", caller["serialized"], [prompt], **about))


def is_awaited() -> bool:
    """Return whether a coroutine reports this end. Async streams that are left by their reader end with an error, so this run
    is over.

    Call it on the application's thread, below the handler.
    """
    frame: FrameType | None = _getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OURS:
        frame = frame.f_back
    return frame is not None and bool(frame.f_code.co_flags & CO_COROUTINE)


def own_task() -> ReferenceType[Task[Any]] | None:
    """Return the task whose end ends the root that begins now; None if the root may outlive its task, or outside a loop.

    If the task is over and no end was reported, no end will be. A root is bound to its task only if it cannot outlive the
    task: all callers of this start in LangChain and LangGraph are awaited completely. Such callers are coroutines (a model's
    ``agenerate``), up to an ``ainvoke``, which reads everything it begins to its end. A generator (``astream``) may begin in
    one task and be read in another. The roots of an ``abatch`` begin in short tasks with only the callback manager in them. If
    an application calls a manager by hand, the run may end anywhere. Such roots end by their event, by age, or at the shutdown.

    Call this function on the application's thread, below the handler. A call takes 0.4 µs inside a loop, otherwise 0.07 µs.
    """
    loop: AbstractEventLoop | None = _get_running_loop()
    if loop is None:
        return None
    frame: FrameType | None = _getframe(1)
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
    task = current_task(loop) if whole and outermost != _MANAGER else None
    return None if task is None else ref(task)
