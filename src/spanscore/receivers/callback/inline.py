"""In one place a handler that runs inline takes a start from every other: we give it back.

``AsyncCallbackManager.on_llm_start``, which tells of completion models under ``ainvoke``, ``astream`` and ``abatch``, has an
``if`` where ``on_chat_model_start`` has none (langchain-core 1.0 to 1.8)::

    for prompt in prompts:
        if inline_handlers:
            inline_tasks.append(ahandle_event(inline_handlers, "on_llm_start", ...))
        else:
            non_inline_tasks.append(ahandle_event(non_inline_handlers, "on_llm_start", ...))
    ...  # the inline tasks one by one, then the others together

Where all inline handlers are ours, the first of them appends what the ``else`` would have: each of the others hears what it
would hear without us, as it would hear it. Where another is inline (LangSmith's tracer), they would hear nothing without us.

Answering ``run_inline`` by who asks does as well, and costs 8 µs more per asynchronous chain, a tenth of what we add: it is
read three times per event. This costs nothing but where a completion model starts. A manager that is written differently is
left alone: one without these variables, or with something in ``non_inline_tasks`` already.
"""

from __future__ import annotations

from sys import _getframe
from types import FrameType
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.callbacks.manager import ahandle_event

from spanscore.runtime.log import log_internal_error

__all__ = ["give_back_the_start"]

_METHOD: Final = "on_llm_start"
_AWAITS: Final = 4
"""Frames from here up to the manager's: the handler's method, two of the dispatch, its own."""


def give_back_the_start(ours: type) -> None:
    """See that a start which we are being told of is heard by those that are not inline. Never raises.

    To be called in the handler's ``on_llm_start``; does nothing under a synchronous manager.
    """
    try:
        frame = _asking(_getframe(1))
        if frame is not None:
            _append_the_others(frame.f_locals, ours)
    except Exception as fault:  # noqa: BLE001  (locals of another library)
        log_internal_error("tell other callbacks of a model's start", fault)


def _asking(frame: FrameType | None) -> FrameType | None:
    """Return the asynchronous manager's frame, None where another one tells us."""
    for _ in range(_AWAITS):
        frame = frame.f_back if frame is not None else None
        if frame is not None and frame.f_code.co_name == _METHOD:
            return frame if isinstance(frame.f_locals.get("self"), AsyncCallbackManager) else None
    return None


def _append_the_others(asking: dict[str, Any], ours: type) -> None:
    others, tasks = asking.get("non_inline_handlers"), asking.get("non_inline_tasks")
    if (
        not others
        or tasks is None
        or tasks
        or not all(isinstance(handler, ours) for handler in asking["inline_handlers"])
    ):
        return
    manager = asking["self"]
    about = {"parent_run_id": manager.parent_run_id, "tags": manager.tags, "metadata": manager.metadata}
    for prompt, run in zip(asking["prompts"], asking["managers"], strict=True):
        about |= {**asking["kwargs"], "run_id": run.run_id}
        tasks.append(ahandle_event(others, _METHOD, "ignore_llm", asking["serialized"], [prompt], **about))
