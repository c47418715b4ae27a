"""Reads frames of LangChain's callback manager while it calls the handler. No other file reads this private code.

- ``pass_on_start``: a start that LangChain passes only to inline handlers is passed to the other handlers, too.
- ``is_awaited``: whether a coroutine reports the end of a run.
- ``own_task``: the asyncio task whose end ends a root.

The module was checked with langchain-core 1.4 to 1.8; check it again for 2.0. If a manager is written differently, each
function does nothing. Each function costs at most 0.4 µs per root, start or end that calls it. ``test_other_handlers``,
``test_ends`` and ``test_streams`` fail without them.

``pass_on_start`` mends ``AsyncCallbackManager.on_llm_start``, which reports completion models under ``ainvoke``, ``astream``
and ``abatch``. It has an ``if`` that ``on_chat_model_start`` lacks::

    for prompt in prompts:
        if inline_handlers:
            inline_tasks.append(ahandle_event(inline_handlers, "on_llm_start", ...))
        else:
            non_inline_tasks.append(ahandle_event(non_inline_handlers, "on_llm_start", ...))
    ...  # awaits the inline tasks one by one, then the other tasks together

If one handler is inline, no handler that is not inline gets the start. spanscore's handler is inline, so it appends the tasks
of the ``else`` branch, unless another handler is inline (LangSmith's tracer): then the start is lost even without spanscore. A
``run_inline`` that depends on its caller has the same effect for 8 µs more per asynchronous chain, because each event reads it
three times.
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

_START: Final = "on_llm_start"
_MOST_FRAMES: Final = 4
"""Number of frames up to the manager's: the handler's method, two frames of LangChain's dispatch, the manager's method."""
_SPANSCORE: Final = "spanscore"
_LIBRARIES: Final = frozenset({"langchain", "langchain_classic", "langchain_core", "langgraph"})
_MANAGER: Final = "langchain_core.callbacks.manager"
_INVOKE: Final = "ainvoke"


def pass_on_start(handler_class: type) -> None:
    """Pass a completion model's start to the handlers that are not inline. Never raises.

    Call this function in the ``on_llm_start`` of ``handler_class``. Under a synchronous manager it has no effect.
    """
    try:
        frame: FrameType | None = _getframe(1)
        for _ in range(_MOST_FRAMES):
            frame = frame.f_back if frame is not None else None
            if frame is not None and frame.f_code.co_name == _START:
                if isinstance(frame.f_locals.get("self"), AsyncCallbackManager):
                    _append_tasks(frame.f_locals, handler_class)
                return
    except Exception as fault:  # noqa: BLE001  (locals of another library)
        log_internal_error("pass a model's start to other callbacks", fault)


def _append_tasks(caller: dict[str, Any], handler_class: type) -> None:
    """Append the tasks of the handlers that are not inline to the manager's list, given the local variables of its method."""
    handlers, tasks = caller.get("non_inline_handlers"), caller.get("non_inline_tasks")
    inline = caller["inline_handlers"]
    if not handlers or tasks is None or tasks or not all(isinstance(handler, handler_class) for handler in inline):
        return
    manager = caller["self"]
    arguments = {"parent_run_id": manager.parent_run_id, "tags": manager.tags, "metadata": manager.metadata}
    for prompt, run in zip(caller["prompts"], caller["managers"], strict=True):
        arguments |= {**caller["kwargs"], "run_id": run.run_id}
        tasks.append(ahandle_event(handlers, _START, "ignore_llm", caller["serialized"], [prompt], **arguments))


def is_awaited() -> bool:
    """Return whether a coroutine reports this end: then all steps of the run are over.

    An async stream that its reader left ends with an error instead. Call this function on the application's thread, below the
    handler.
    """
    frame: FrameType | None = _getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _SPANSCORE:
        frame = frame.f_back
    return frame is not None and bool(frame.f_code.co_flags & CO_COROUTINE)


def own_task() -> ReferenceType[Task[Any]] | None:
    """Return the task whose end ends the root that begins now; None outside a loop, or if the root may outlive the task.

    A root cannot outlive its task if LangChain's and LangGraph's frames are coroutines from the callback manager outwards, or
    from an ``ainvoke`` outwards, which awaits everything that it starts. Other roots end by their event, by age, or at the
    shutdown:

    - A generator (``astream``) may begin in one task and be read in another.
    - The roots of an ``abatch`` begin in short tasks, which contain only the callback manager.
    - If an application calls a manager by hand, the run may end anywhere.

    Call this function on the application's thread, below the handler. A call takes 0.4 µs inside a loop, otherwise 0.07 µs.
    """
    loop: AbstractEventLoop | None = _get_running_loop()
    if loop is None:
        return None
    frame: FrameType | None = _getframe(1)
    is_bound, outermost_module = False, _MANAGER
    while frame is not None:  # from the innermost frame outwards, up to the application's first frame
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if package in _LIBRARIES:
            code = frame.f_code
            is_coroutine = bool(code.co_flags & CO_COROUTINE)
            is_bound = is_coroutine and (is_bound or outermost_module == _MANAGER or code.co_name == _INVOKE)
            outermost_module = module
        elif package != _SPANSCORE:
            break
        frame = frame.f_back
    task = current_task(loop) if is_bound and outermost_module != _MANAGER else None
    return None if task is None else ref(task)
