"""DaemonPool: a thread pool that never holds up the exit; and ``run_without_loop``, for a coroutine that needs no loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from spanscore.runtime.threads import JobQueue, start_daemon

__all__ = ["DaemonPool", "run_without_loop"]

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool(ThreadPoolExecutor):
    """Runs jobs on daemon threads. The standard library joins its own at interpreter exit, for however long a job takes:
    a metric that computes for an hour, or a judge's name resolution, would hold the application's exit up that long.

    A subclass because asyncio takes nothing else as a default executor; only the type is used.

    Args:
        threads: at most so many at once.
        name: what their names begin with.
        idle_s: a thread that had nothing to do for so long ends; the next job starts another.
        native: threads of the operating system also under gevent, for computations.
    """

    def __init__(self, threads: int, name: str, *, idle_s: float = 30.0, native: bool = False) -> None:
        super().__init__(threads)  # starts none
        self._most = threads
        self._name = name
        self._idle_s = idle_s
        self._native = native
        self._jobs: JobQueue[tuple[Future[Any], Callable[[], Any]] | None] = JobQueue()
        self._guard = Lock()
        self._running = 0
        self._unfinished = 0

    @property
    def is_busy(self) -> bool:
        """Whether a job that is submitted now would wait for another one to end. Any thread."""
        return self._unfinished >= self._most

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call on a thread of the pool. Any thread; does not block.

        Raises:
            RuntimeError: no thread runs, and none can be started.
        """
        future: Future[T] = Future()
        with self._guard:
            if self._unfinished >= self._running < self._most:
                self._start()
            self._unfinished += 1
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End idle threads now, and each other one after its job, without waiting for it. A later job starts another."""
        self._idle_s = 0.0
        for _ in range(self._running):
            self._jobs.put(None)

    def _start(self) -> None:
        if start_daemon(self._work, f"{self._name}-{self._running}", native=self._native) is not None:
            self._running += 1
        elif not self._running:
            raise RuntimeError("no thread can be started")

    def _work(self) -> None:
        while True:
            todo = None
            with suppress(TimeoutError):
                todo = self._jobs.get(timeout=self._idle_s)
            if todo is None:
                with self._guard:
                    if self._unfinished < self._running or not self._unfinished:
                        self._running -= 1
                        return
                continue
            _do(*todo)
            with self._guard:
                self._unfinished -= 1


def _do(future: Future[Any], job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(job())
    except BaseException as error:  # noqa: BLE001  (handed to the caller, who waits)
        future.set_exception(error)


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, without a loop, on the caller's thread.

    Raises:
        RuntimeError: it did wait for something.
    """
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    work.close()
    raise RuntimeError("a cpu_bound metric awaited something: declare it cpu_bound=False")
