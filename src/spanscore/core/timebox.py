"""``Timebox``: calls functions of the user with a deadline, on threads that are abandoned if a call exceeds it.

A filter, a redactor or an ``Extract`` may call a service that never answers. On the span thread or the loop it would delay
every unit. So a thread of a ``Timebox``, the *box*, calls it. A *hook* is a function of the user. *Work* is a call of
spanscore that may call hooks: it makes a unit's job or redacts a span's content.

The deadline applies to each hook call separately: a redactor that takes half a second for each of ten texts does not time out.
A hook that hangs costs four abandoned threads at most. After that its calls fail immediately, until one of the hanging calls
returns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import Context, copy_context
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from spanscore.core.context import judging
from spanscore.core.log import log_once, type_name
from spanscore.core.score import Outcome
from spanscore.core.threads import DaemonPool

T = TypeVar("T")

_MOST_HANGING: Final = 4
"""Maximum number of concurrently hanging calls of one hook; the next call is not made."""
_THREADS: Final = 32
"""Number of threads: seven hooks with four hanging calls each leave four threads for other work."""
_RETRY_AFTER_S: Final = 60.0
"""Pause of ``run`` after a hanging call. With a deadline of 1 s, hanging calls take a sixtieth of the span thread's time."""


class HookTimeout(BaseException):
    """A hook did not return in time. Not an ``Exception``, so that no handler on the way treats it as an error of the hook."""

    def __init__(self, hook: Hook) -> None:
        super().__init__(hook.title)
        self.hook = hook
        self.outcome = hook.outcome
        self.reason = f"{hook.title} did not return within {hook.deadline_s:g} s"


class Hook:
    """A function of the user. If work of a timebox calls it, the call has a deadline.

    Args:
        title: name of the function in messages.
        outcome: outcome of a unit for which it does not return.
        deadline_s: deadline of one call, seconds.

    Attributes:
        hanging: number of its calls that have exceeded the deadline, and have not returned.
    """

    def __init__(self, function: Callable[[Any], Any], title: str, outcome: Outcome, deadline_s: float) -> None:
        self.__name__ = str(getattr(function, "__name__", type_name(function)))
        self._function = function
        self.title = title
        self.outcome = outcome
        self.deadline_s = deadline_s
        self.hanging = 0

    def __call__(self, value: Any, /) -> Any:
        """Call the function.

        Raises:
            HookTimeout: four calls of it hang, or this call was abandoned meanwhile.
        """
        if self.hanging >= _MOST_HANGING:
            raise HookTimeout(self)
        work = _thread.work
        if work is None:
            return self._function(value)
        work.enter(self)
        try:
            return self._function(value)
        finally:
            work.leave(self)


class _Work(Generic[T]):
    """One call of spanscore on a thread of the box, and the hook that it calls at the moment."""

    def __init__(self, call: Callable[[], T]) -> None:
        self.future: Future[T]
        self._call = call
        self._lock = threading.Lock()
        self._hook: Hook | None = None
        self._deadline_s = 0.0  # of the hook's call, on the monotonic clock
        self._is_abandoned = False

    def run(self) -> T:
        _thread.work = self
        try:
            return self._call()
        finally:
            _thread.work = None

    def enter(self, hook: Hook) -> None:
        with self._lock:
            self._hook, self._deadline_s = hook, monotonic() + hook.deadline_s

    def leave(self, hook: Hook) -> None:
        with self._lock:
            self._hook = None
            if self._is_abandoned:
                hook.hanging -= 1
                raise HookTimeout(hook)  # the result of the work has no reader

    def remaining_s(self, default: float) -> float:
        """Return the remaining seconds of the hook's call; ``default`` if no hook runs."""
        return default if self._hook is None else max(0.0, self._deadline_s - monotonic())

    def abandon_if_late(self) -> HookTimeout | None:
        """Abandon the work if its hook has exceeded the deadline, and return the error; otherwise None."""
        with self._lock:
            hook = self._hook
            if hook is None or monotonic() < self._deadline_s:
                return None
            self._is_abandoned = True
            hook.hanging += 1
        error = HookTimeout(hook)
        log_once(f"hook {hook.title}", f"{error.reason}: its units end as {error.outcome}; set a timeout inside it")
        return error


class _Thread(threading.local):
    """The work on this thread; None on a thread that is not of a box."""

    work: _Work[Any] | None = None


_thread = _Thread()


class Timebox:
    """Runs work that calls hooks on daemon threads. The first work starts the first thread.

    Args:
        deadline_s: deadline of one hook call, seconds.
        context: returns the context of the work. By default no run is captured in it, because a hook may call a model.
    """

    def __init__(self, deadline_s: float = 1.0, context: Callable[[], Context] | None = None) -> None:
        self._deadline_s = deadline_s
        self._context = context or _judging_context
        self._hooks: list[Hook] = []
        self._pool: DaemonPool | None = None
        # work that ``run`` abandoned, its hook, end of the pause
        self._hanging: tuple[Future[Any], Hook, float] | None = None

    def forget_calls(self) -> None:
        """Forget the running calls. For a forked child, in which their threads do not exist."""
        self._hanging = None
        for hook in self._hooks:
            hook.hanging = 0

    def close(self) -> None:
        """End the threads, each after its work."""
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def has_hooks(self) -> bool:
        """Whether there is a hook that could hang."""
        return bool(self._hooks)

    def hook(self, function: Callable[[Any], Any], title: str, outcome: Outcome) -> Hook:
        """Return a user's function as a hook, with a deadline within this box."""
        hook = Hook(function, title, outcome, self._deadline_s)
        self._hooks.append(hook)
        return hook

    def run(self, call: Callable[[], T]) -> T:
        """Run a call of spanscore and wait for it. Call on the span thread.

        Raises:
            HookTimeout: a hook did not return. While its call hangs, for up to a minute, ``run`` raises this at once for all
                work, also for work with other hooks.
            BaseException: an exception of the call.
        """
        if self._hanging is not None:
            future, hook, retry_s = self._hanging
            if not future.done() and monotonic() < retry_s:
                raise HookTimeout(hook)
        work = self._begin(call)
        while not wait({work.future}, work.remaining_s(self._deadline_s)).done:
            if (error := work.abandon_if_late()) is not None:
                self._hanging = work.future, error.hook, monotonic() + _RETRY_AFTER_S
                raise error
        return work.future.result()

    async def run_async(self, call: Callable[[], T]) -> T:
        """Run a call of spanscore and wait for it without blocking. Call on the loop thread.

        Raises:
            HookTimeout: a hook did not return.
            BaseException: an exception of the call.
        """
        work = self._begin(call)
        future = asyncio.wrap_future(work.future)
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=work.remaining_s(self._deadline_s))
                if not future.done() and (error := work.abandon_if_late()) is not None:
                    raise error
            return future.result()
        finally:
            future.cancel()

    def _begin(self, call: Callable[[], T]) -> _Work[T]:
        if self._pool is None:
            self._pool = DaemonPool(_THREADS, "spanscore-hook")
        work = _Work(call)
        work.future = self._pool.submit(self._context().run, work.run)
        return work


def _judging_context() -> Context:
    with judging():
        return copy_context()
