"""Who asks whether a handler runs inline? In one place a yes takes a start from every other handler.

``AsyncCallbackManager.on_llm_start``, which tells of completion models under ``ainvoke``, ``astream`` and ``abatch``, has an
``if`` where ``on_chat_model_start`` has none (langchain-core 1.0 to 1.8)::

    if inline_handlers:
        inline_tasks.append(ahandle_event(inline_handlers, "on_llm_start", ...))
    else:
        non_inline_tasks.append(ahandle_event(non_inline_handlers, "on_llm_start", ...))

So one handler with ``run_inline = True`` leaves the others without that start. There we say no, unless somebody else says yes
all the same (LangSmith's tracer, LangGraph's messages): beside that one a handler that says no hears nothing itself. Whoever
calls the handler in the end asks again, is told yes, and calls on the spot and first: our order is kept.

Known by the code that asks: 60 ns per event and question under an asynchronous manager, nothing under a synchronous one.
"""

from __future__ import annotations

from inspect import unwrap
from types import CodeType, FrameType
from typing import Final

from langchain_core.callbacks import AsyncCallbackManager

__all__ = ["ASKING", "is_inline_beside"]


def _codes() -> list[CodeType]:
    """Return the code of that method and of its comprehensions, functions of their own before Python 3.12."""
    code = getattr(unwrap(getattr(AsyncCallbackManager, "on_llm_start", None)), "__code__", None)  # type: ignore[arg-type]
    return [] if code is None else [code, *(part for part in code.co_consts if isinstance(part, CodeType))]


ASKING: Final = {id(code): code for code in _codes()}
"""By identity: equal code would be compared, and hashed, instruction by instruction."""


def is_inline_beside(asking: FrameType, ours: type) -> bool:
    """Whether a handler that is not one of ours runs inline, among those of the manager that asks."""
    frame: FrameType | None = asking
    while frame is not None and "self" not in frame.f_locals:  # out of a comprehension
        frame = frame.f_back
    handlers = () if frame is None else frame.f_locals["self"].handlers
    return any(handler.run_inline for handler in handlers if not isinstance(handler, ours))
