"""The one asyncio loop of the process, on which every judge is called.

An asynchronous HTTP client belongs to the loop that first used it: shared over three loops, half of the calls failed with
"Event loop is closed" (what an application shares with a judge is called by its blocking side: ``judges/blocking.py``).
So ``score``, ``score_sync`` and the engine all submit to this one. It is started on first use, never stopped by a scorer,
and made anew in a forked child. Nothing that a judge does ends it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from spanscore.errors import SpanscoreError
from spanscore.notice import harmless
from spanscore.pool import DaemonPool

__all__ = ["on_loop", "run", "running", "submit"]

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_inherited: list[Any] = []
_POOL_THREADS = 32
"""For name resolution, and for chat models that can only block."""


def running() -> asyncio.AbstractEventLoop:
    """Return the loop, started if it was not. Safe from any thread."""
    global _loop, _thread  # noqa: PLW0603  (one loop per process is the point)
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_serve, args=(_loop,), name="spanscore-loop", daemon=True)
            _thread.start()
        return _loop


def on_loop() -> bool:
    """Whether the caller runs on the loop's own thread."""
    return _thread is not None and threading.get_ident() == _thread.ident


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the loop; the future can be waited for from any other thread. Does not block."""
    return asyncio.run_coroutine_threadsafe(work, running())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop and block until it is done; also inside another running loop (Jupyter).

    Raises:
        SpanscoreError: called on the loop's own thread, where it would wait for itself for ever.
    """
    if on_loop():
        work.close()
        raise SpanscoreError(
            "score_sync was called on spanscore's own loop, where it would block itself: await score()"
        )
    return submit(work).result()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(_unnoticed)
    loop.set_default_executor(DaemonPool(_POOL_THREADS, "spanscore-judge"))
    while not loop.is_closed():
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001  (SystemExit out of some task: whoever awaits the task has it too)
            harmless("keep a judge's task from ending its loop", error)


def _unnoticed(_: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
    """asyncio prints what nobody awaited, traceback and message; it may quote a prompt."""
    error = what.get("exception")
    if error is not None:
        harmless("await a judge's background task", error)


def _forget() -> None:
    """In a forked child the loop's thread does not exist: forget it, the next use starts another."""
    global _lock, _loop, _thread
    if (
        _loop is not None
    ):  # kept: collected, each task of the parent would be reported as destroyed, on the child's stderr
        _inherited.append((_loop, asyncio.all_tasks(_loop)))
    _lock, _loop, _thread = threading.Lock(), None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
