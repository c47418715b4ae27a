"""The judges' loop: one asyncio loop on its own thread, which runs every judge call of the process.

An asynchronous HTTP client belongs to the loop that first used it: if three loops share a client, half of its calls fail with
"Event loop is closed". So ``score``, ``score_sync`` and the engine all submit to this one loop. The first use starts it, in the
process and in each forked child; it runs until the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from spanscore.core.log import log_internal_error, log_once
from spanscore.core.threads import DaemonPool, call_in_child, gevent_monkey, start_daemon
from spanscore.errors import SpanscoreError

T = TypeVar("T")

_POOL_THREADS = 32
"""Threads for name resolution, and for chat models without an asynchronous client."""
_LOOP_IS_CLOSED = ("Event loop is closed",)
"""Arguments of asyncio's error if work needs a closed loop: here the application's, because this loop is open.

Cause: an asynchronous client of the application is collected on this thread. OpenAI's client then closes itself (``__del__``)
by a task of the loop that runs on the thread, but its connections belong to the application's loop.
"""


class LoopThread:
    """An event loop on a daemon thread until the process ends. The first use starts it, in a forked child again.

    Metrics of other libraries, which may block a loop, run on a ``LoopThread`` of their own.

    Args:
        pool: name prefix of the default executor's threads.
    """

    def __init__(self, name: str, pool: str) -> None:
        self._name = name
        self._pool = pool
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ident: int | None = None
        self._inherited: list[Any] = []
        self._waiting_calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        call_in_child(self, LoopThread._begin_in_child)

    def running(self) -> asyncio.AbstractEventLoop:
        """Return the loop, and start it if necessary. Thread-safe.

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
        """Call a function on the loop, in the order of the calls. Thread-safe; the function must not block.

        If no thread can be started for the loop, the call stays queued until the next ``call_soon``.
        """
        self._waiting_calls.append((work, arguments))
        with suppress(RuntimeError):
            loop = self.running()
            with suppress(IndexError):  # another thread took the last item
                while self._waiting_calls:
                    work, arguments = self._waiting_calls.popleft()
                    loop.call_soon_threadsafe(work, *arguments)

    def on_loop(self) -> bool:
        """Whether the caller runs on the loop's own thread."""
        return threading.get_ident() == self._ident

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop. Any other thread may wait for the future. Does not block."""
        return asyncio.run_coroutine_threadsafe(work, self.running())

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ident = threading.get_ident()
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(_log_unawaited_error)
        # PYTHONASYNCIODEBUG is for the application's loops: in debug mode asyncio logs the repr of slow tasks, with content.
        loop.set_debug(False)
        loop.set_default_executor(DaemonPool(_POOL_THREADS, self._pool))
        while not loop.is_closed():
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001  (SystemExit of a task: the task's awaiter gets it, too)
                log_internal_error("keep a judge's task from ending its loop", error)

    def _begin_in_child(self) -> None:
        """Forget the loop in a forked child, in which the loop's thread does not exist. The next use starts another."""
        if self._loop is not None:
            # asyncio would report each collected task of the parent as destroyed, on the child's stderr. So none is collected.
            self._inherited.append((self._loop, asyncio.all_tasks(self._loop)))
        self._lock, self._loop, self._ident = threading.Lock(), None, None
        self._waiting_calls = deque()


_judges = LoopThread("spanscore-loop", pool="spanscore-judge")
call_soon, on_loop, submit = _judges.call_soon, _judges.on_loop, _judges.submit


def later(seconds: float, work: Callable[[], object]) -> None:
    """Call a function on the judges' loop after ``seconds``. Thread-safe; the function must not block."""
    call_soon(lambda: asyncio.get_running_loop().call_later(seconds, work))


def after_turns(turns: int, call: Callable[[], None]) -> None:
    """Call a function after this number of iterations of the running loop: other tasks run meanwhile."""
    if turns:
        asyncio.get_running_loop().call_soon(after_turns, turns - 1, call)
    else:
        call()


async def await_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine on the judges' loop, from any loop. Cancelling this call cancels the coroutine there."""
    return await (work if on_loop() else asyncio.wrap_future(submit(work)))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the judges' loop and block until it is done, even inside another running loop (Jupyter).

    If an exception in the caller's thread (Ctrl-C) interrupts the wait, the coroutine is cancelled, so that it costs no more.

    Raises:
        SpanscoreError: called on the loop's own thread, which would wait for itself forever.
    """
    if on_loop():
        work.close()
        raise SpanscoreError(
            "score_sync or fit_sync was called on spanscore's own loop and would block itself: await score() or fit()"
        )
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, under gevent with the selector of the standard library, because gevent's is for greenlets."""
    if (monkey := gevent_monkey()) is None:
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(monkey.get_original("selectors", "DefaultSelector")())


def _log_unawaited_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log the error of a task that no code awaits. asyncio would print traceback and message, which may quote a prompt."""
    error = context.get("exception")
    if error is None:
        return
    if isinstance(error, RuntimeError) and error.args == _LOOP_IS_CLOSED:
        coroutine = getattr(context.get("future"), "get_coro", lambda: None)()
        work = getattr(coroutine, "__qualname__", "a callback")
        log_once(
            f"closed loop {work}",
            f"{work} failed on spanscore's loop, as its own loop is closed: an asynchronous client of the application was "
            "collected while it was open. No score is affected; await the client's close() before its loop ends",
            level=logging.INFO,
        )
        return
    log_internal_error("await a judge's background task", error)
