"""A client's blocking call → an awaitable, on threads of the judge's own.

A chat model's asynchronous HTTP client belongs to the loop that first used it, and integrations share one client between all
models of an address (``langchain_openai`` caches it): a judge on our loop left connections in the pool on which the
*application's* own ``ainvoke`` then failed with "bound to a different event loop" or "Event loop is closed". The blocking
client belongs to no loop and is safe in any thread, so that is the one a judge uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TypeVar

from spanscore.runtime.pool import DaemonPool

__all__ = ["BlockingCalls"]

T = TypeVar("T")

_MOST_THREADS = 512
"""A bound, not a plan: threads are started as questions come. One that is given up keeps its thread until its client's own
timeout (OpenAI's: 600 s), which at 16 at once and 30 s each is 320; the threads of other judges are never among them."""


class BlockingCalls:
    """Threads for one judge's calls; daemons, so that a hung one holds up neither another judge nor the exit.

    Args:
        most_threads: calls at once; 1 for a model that runs in this process.
    """

    def __init__(self, most_threads: int = _MOST_THREADS) -> None:
        self._most_threads = most_threads
        self._pool: DaemonPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._async_only = False

    async def run(self, call: Callable[[], T], otherwise: Callable[[], Awaitable[T]]) -> T:
        """Run a call on a thread, in the caller's context. Cancelled, it is left behind; its thread ends with it.

        Args:
            call: the blocking side.
            otherwise: the asynchronous side, used from the first time on that there proves to be no other.
        """
        if not self._async_only:
            try:
                return await self.on_a_thread(call)
            except (NotImplementedError, TypeError) as error:
                # A model without ``_generate``, and LangChain's "Cannot invoke a coroutine function synchronously".
                if not isinstance(error, NotImplementedError) and "synchronously" not in str(error):
                    raise
                self._async_only = True
        return await otherwise()

    async def on_a_thread(self, call: Callable[[], T]) -> T:
        """Run a call that has only a blocking side, as ``run`` does."""
        loop = asyncio.get_running_loop()
        if self._pool is None or self._loop is not loop:  # in a forked child neither loop nor threads came along
            self._pool, self._loop = DaemonPool(self._most_threads, "spanscore-judge"), loop
        return await loop.run_in_executor(self._pool, copy_context().run, _raising, call)


def _raising(call: Callable[[], T]) -> T:
    try:
        return call()
    except StopIteration as error:  # a future takes it for the end of a generator and never completes
        raise RuntimeError("StopIteration") from error
