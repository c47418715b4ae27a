"""The one asyncio loop of the process, on which every judge is called.

A chat model's HTTP client belongs to the loop that first used it: shared over three loops, half of the calls failed with
"Event loop is closed". So ``score``, ``score_sync`` and the engine all submit to this one. It is started on first use,
never stopped by a scorer, and made anew in a forked child.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from spanscore.errors import SpanscoreError

__all__ = ["on_loop", "run", "running", "submit"]

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


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
    loop.run_forever()


def _forget() -> None:
    """In a forked child the loop's thread does not exist: forget it, the next use starts another."""
    global _lock, _loop, _thread
    _lock, _loop, _thread = threading.Lock(), None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
