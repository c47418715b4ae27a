"""A call on a thread that ends when the coroutine that waits for it is cancelled.

A thread of Python cannot be ended from outside. Left alone, a metric that computes for minutes after its timeout keeps one of
two threads and half of the process: of 54 ROUGE scores, four of them of 8,000 words, all 54 timed out after 2 s. So an
exception is raised in the thread, which takes effect at its next instruction of Python; a call into C ends first. The function
of CPython's API that does it is called here alone; ``tests/runtime/test_interruptible.py`` holds its promises.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Generic, ParamSpec, TypeVar

__all__ = ["AbandonedError", "run_interruptibly"]

P = ParamSpec("P")
T = TypeVar("T")


class AbandonedError(BaseException):
    """Nobody waits for a call any more. No ``Exception``: a metric's own handlers do not take it for a fault."""


async def run_interruptibly(executor: Executor | None, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call on a thread, in a copy of this context, and end it there if this coroutine is cancelled.

    Args:
        executor: None = the loop's own.
        call: what is called with the rest of the arguments.
    """
    context = copy_context()
    interruptible = _Interruptible(lambda: context.run(call, *args, **kwargs))
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, interruptible.run)
    except asyncio.CancelledError:
        interruptible.end()
        raise


class _Interruptible(Generic[T]):
    """A call that any thread can end."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._guard = threading.Lock()
        self._thread: int | None = None
        self._is_ended = False

    def run(self) -> T:
        """Call it. After this has returned or raised, no exception reaches the thread.

        Raises:
            AbandonedError: it was ended.
        """
        with self._guard:
            if self._is_ended:
                raise AbandonedError
            self._thread = threading.get_ident()
        try:
            try:
                return self._call()
            finally:
                self._leave()
        except AbandonedError:  # also one that came in the last moment, before the thread was left
            self._leave()
            raise

    def end(self) -> None:
        """Raise AbandonedError in the thread that runs it, or as soon as one does. Does not wait."""
        with self._guard:
            if self._thread is not None and not self._is_ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(AbandonedError)
                )
            self._is_ended = True

    def _leave(self) -> None:
        """Let no exception reach the thread from now on: one that has not come yet comes here.

        It is not taken back through the API: CPython 3.11 then takes one to be pending for ever, and each thread of the process
        that is profiled or traced stops at its next call.
        """
        with self._guard:
            self._thread = None
        for _ in range(2):
            pass  # an exception that is pending is raised at a jump
