"""The one asyncio loop of the process, on which every judge is called.

An asynchronous HTTP client belongs to the loop that first used it: shared over three loops, half of the calls failed with
"Event loop is closed" (what an application shares with a judge is called by its blocking side: ``langchain/blocking.py``).
So ``score``, ``score_sync`` and the engine all submit to this one. It is started on first use, never stopped by a scorer,
and made anew in a forked child. Nothing that a judge does ends it. What may block a loop (other libraries' metrics) has a
``LoopThread`` of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from spanscore.core.log import log_internal_error
from spanscore.core.threads import DaemonPool, call_in_child, gevent_monkey, start_daemon
from spanscore.errors import SpanscoreError

T = TypeVar("T")

_POOL_THREADS = 32
"""For name resolution, and for chat models that can only block."""


class LoopThread:
    """A loop on a daemon thread, for the life of the process: made on first use, and anew in a forked child.

    Args:
        name: of the thread.
        pool: what the names of its default executor's threads begin with.
    """

    def __init__(self, name: str, pool: str) -> None:
        self._name = name
        self._pool = pool
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ident: int | None = None
        self._inherited: list[Any] = []
        self._unsent: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        call_in_child(self, LoopThread._begin_in_child)

    def running(self) -> asyncio.AbstractEventLoop:
        """Return the loop, started if it was not. Safe from any thread.

        Raises:
            RuntimeError: no thread can be started for it now.
        """
        with self._lock:
            if self._loop is None:
                loop = _new_loop()
                if start_daemon(self._serve, self._name, loop, native=True) is None:
                    loop.close()
                    raise RuntimeError(f"no thread can be started for {self._name}")
                self._loop = loop
            return self._loop

    def call_soon(self, work: Callable[..., object], *arguments: object) -> None:
        """Have something done on the loop, in the order of the calls. Any thread; it must not block.

        Where no thread can be started for the loop, the work waits for the next call.
        """
        self._unsent.append((work, arguments))
        with suppress(RuntimeError):
            running = self.running()
            with suppress(IndexError):  # another thread took the last one
                while self._unsent:
                    work, arguments = self._unsent.popleft()
                    running.call_soon_threadsafe(work, *arguments)

    def on_loop(self) -> bool:
        """Whether the caller runs on the loop's own thread."""
        return threading.get_ident() == self._ident

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; the future can be waited for from any other thread. Does not block."""
        return asyncio.run_coroutine_threadsafe(work, self.running())

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ident = threading.get_ident()
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(_unnoticed)
        loop.set_debug(False)  # PYTHONASYNCIODEBUG is about the host's loops; here asyncio would quote a slow metric
        loop.set_default_executor(DaemonPool(_POOL_THREADS, self._pool))
        while not loop.is_closed():
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001  (SystemExit out of some task: what awaits the task has it too)
                log_internal_error("keep a judge's task from ending its loop", error)

    def _begin_in_child(self) -> None:
        """Forget the loop, whose thread does not exist in the child: the next use starts another."""
        if self._loop is not None:
            # Kept: collected, each task of the parent would be reported as destroyed, on the child's stderr.
            self._inherited.append((self._loop, asyncio.all_tasks(self._loop)))
        self._lock, self._loop, self._ident = threading.Lock(), None, None
        self._unsent = deque()


_judges = LoopThread("spanscore-loop", pool="spanscore-judge")


call_soon, on_loop, submit = _judges.call_soon, _judges.on_loop, _judges.submit


def later(seconds: float, work: Callable[[], object]) -> None:
    """Have something done on the loop of the judges after so many seconds. Any thread; it must not block."""
    call_soon(lambda: asyncio.get_running_loop().call_later(seconds, work))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop of the judges and block until it is done; also inside another running loop (Jupyter).

    Cut short by an exception in the caller's thread (Ctrl-C), it is cancelled: nobody would use what it still pays for.

    Raises:
        SpanscoreError: called on the loop's own thread, where it would wait for itself for ever.
    """
    if on_loop():
        work.close()
        raise SpanscoreError(
            "score_sync or fit_sync was called on spanscore's own loop, where it would block itself: await score() or fit()"
        )
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop for a thread of our own. Under gevent it has the standard selector: gevent's is for greenlets."""
    if (monkey := gevent_monkey()) is None:
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(monkey.get_original("selectors", "DefaultSelector")())


def _unnoticed(_: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
    """asyncio prints the error of a task that nothing awaited, traceback and message; it may quote a prompt."""
    error = what.get("exception")
    if error is not None:
        log_internal_error("await a judge's background task", error)
