"""Threads of ours: all daemons, so that none holds up the application's exit.

After ``gevent.monkey.patch_all()`` a ``Thread`` is a greenlet of the host's thread. For nearly all of ours that is right: a
blocking call yields to the host and shares its connections. Two kinds are native threads there: an event loop, as asyncio
keeps one running loop per native thread and each ``asyncio.run`` of the host would fail beside it, and computations, as they
never yield.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from threading import Semaphore, Thread
from typing import Any, Generic, TypeVar

from spanscore.runtime.log import log_once

__all__ = ["JobQueue", "gevent_monkey", "start_daemon"]

T = TypeVar("T")

_host_hub: list[Any] = []
"""gevent's hub of the thread that started the first thread of ours: the host's. Our greenlets run there."""


def start_daemon(work: Callable[..., object], name: str, *arguments: object, native: bool = False) -> Thread | None:
    """Start a thread that ends with its work, or with the process.

    Args:
        native: a thread of the operating system also under gevent. It cannot be joined there.

    Returns:
        The thread. None: no thread can be started now, as the system has no room for one, which is logged, or as the
        interpreter is exiting (from Python 3.12 on). Whoever needs the thread tries again with its next work.
    """
    thread = Thread(target=work, args=arguments, name=name, daemon=True)
    try:
        if (monkey := gevent_monkey()) is None:
            thread.start()
        else:
            _start_under_gevent(thread, monkey, native)
    except RuntimeError as error:
        if "shutdown" not in str(error):
            log_once(
                "no thread",
                f"the thread {name} cannot be started: is the limit of processes (pids) or of memory reached? It is tried"
                " again with the next unit; units wait meanwhile, and further ones are refused when their room is full",
            )
        return None
    return thread


class JobQueue(Generic[T]):
    """First in, first out between threads. Under gevent ``queue.SimpleQueue`` fails between a native thread and a greenlet."""

    def __init__(self) -> None:
        self._jobs: deque[T] = deque()
        self._count = Semaphore(0)

    def put(self, job: T) -> None:
        """Append a job. Does not block."""
        self._jobs.append(job)
        self._count.release()

    def get(self, timeout: float | None = None) -> T:
        """Take the oldest job, as soon as there is one.

        Raises:
            TimeoutError: there was none for ``timeout`` seconds.
        """
        if not self._count.acquire(timeout=timeout):
            raise TimeoutError
        return self._jobs.popleft()


def gevent_monkey() -> Any | None:
    """Return the module ``gevent.monkey`` if it has patched ``threading``, else None."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey if monkey is not None and monkey.is_module_patched("threading") else None


def _start_under_gevent(thread: Thread, monkey: Any, native: bool) -> None:
    gevent: Any = sys.modules["gevent"]
    here = gevent.get_hub()
    if not _host_hub:
        _host_hub.append(here)
    if native:
        monkey.get_original("_thread", "start_new_thread")(thread.run, ())
    elif here is _host_hub[0]:
        thread.start()
    else:
        _host_hub[0].loop.run_callback_threadsafe(gevent.spawn, thread.start)
