"""SerialThread: calls that may block for long, and know no deadline, one after another on a thread of their own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread

from spanscore.runtime.threads import JobQueue, start_daemon

__all__ = ["SerialThread"]


class SerialThread:
    """Runs calls one after another on a thread that starts with the first, at the latest. Any thread.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._queue: JobQueue[Callable[[], bool] | None] = JobQueue()
        self._waiting: dict[Callable[[], bool], Future[bool]] = {}
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread, if it does not run."""
        with self._lock:
            self._start()

    def do(self, work: Callable[[], bool]) -> Future[bool]:
        """Run work after what came before; the same work that still waits is not done twice. Does not block.

        The answer is False where no thread can be started.
        """
        with self._lock:
            if work in self._waiting:
                return self._waiting[work]
            future: Future[bool] = Future()
            if self._start():
                self._waiting[work] = future
                self._queue.put(work)
            else:
                future.set_result(False)
            return future

    def stop(self) -> None:
        """Let the thread end after what it has."""
        with self._lock:
            if self._thread is not None:
                self._queue.put(None)
                self._thread = None

    def _start(self) -> bool:
        if self._thread is None:
            self._thread = start_daemon(self._work, self._name)
        return self._thread is not None

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            with self._lock:
                future = self._waiting.pop(work)
            future.set_running_or_notify_cancel()
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001  (handed to the caller, who waits)
                future.set_exception(error)
