"""A client's blocking call → an awaitable, on threads of the judges' own.

A chat model's asynchronous HTTP client belongs to the loop that first used it, and integrations share one client between all
models of an address (``langchain_openai`` caches it): a judge on our loop left connections in the pool on which the
*application's* own ``ainvoke`` then failed with "bound to a different event loop" or "Event loop is closed". The blocking
client belongs to no loop and is safe in any thread, so that is the one a judge uses.

All judges share the threads: there are as many as calls are out, plus those that were busy within the last two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TypeVar

from spanscore.core.threads import DaemonPool, reset_in_child

__all__ = ["BlockingCalls"]

T = TypeVar("T")

_NO_BOUND = 1_000_000
"""How many calls are out is for the gates of the accounts to say: a bound here would have one judge wait for another."""
_IDLE_S = 2.0


class _Threads:
    """A pool; a forked child has none of its parent's threads, and begins anew."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self.reset()
        reset_in_child(self, _Threads.reset)

    def reset(self) -> None:
        """Forget all threads."""
        self.pool = DaemonPool(self._at_once, "spanscore-judge", idle_s=_IDLE_S)


_shared = _Threads(_NO_BOUND)


class BlockingCalls:
    """Threads for one judge's calls; daemons, so that a hung one holds up neither another judge nor the exit.

    Args:
        at_once: calls at most, on threads of its own: of a model that runs in this process. None: the shared threads.
    """

    def __init__(self, at_once: int | None = None) -> None:
        self._threads = _shared if at_once is None else _Threads(at_once)
        self._async_only = False

    async def run(self, call: Callable[[], T], otherwise: Callable[[], Awaitable[T]]) -> T:
        """Run a call on a thread, in the caller's context. Cancelled, it ends when the thread's call has ended.

        Whoever gives a question up so knows when it is over: until then its place is taken. Cancelled twice, it ends at once.

        Args:
            call: the blocking side.
            otherwise: the asynchronous side, used from the first time on that there proves to be no other.
        """
        if not self._async_only:
            try:
                return await _ended(self._started(call))
            except (NotImplementedError, TypeError) as error:
                # A model without ``_generate``, and LangChain's "Cannot invoke a coroutine function synchronously".
                if not isinstance(error, NotImplementedError) and "synchronously" not in str(error):
                    raise
                self._async_only = True
        return await otherwise()

    async def on_a_thread(self, call: Callable[[], T]) -> T:
        """Run a call that has only a blocking side, in the caller's context. Cancelled, it is left behind."""
        return await self._started(call)

    def _started(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads.pool, copy_context().run, _raising, call)


async def _ended(call: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        call.add_done_callback(
            lambda late: late.cancelled() or late.exception()
        )  # else asyncio prints what nobody fetched
        await asyncio.wait({call})
        raise


def _raising(call: Callable[[], T]) -> T:
    try:
        return call()
    except StopIteration as error:  # a future takes it for the end of a generator and never completes
        raise RuntimeError("StopIteration") from error
