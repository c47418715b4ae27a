"""Timebox: calls the user's own functions with a deadline, on threads that are abandoned if a call exceeds it.

A filter, a redactor or an ``Extract`` may call a service that never answers. On a thread of spanscore it would delay every
unit.

hook     a function of the user
work     spanscore's caller of hooks, on one thread, which makes a unit's job or redacts a span's content

The deadline applies to each hook call separately: a redactor that takes half a second for each of ten texts does not time out.
A hook that hangs costs a few abandoned threads. After that its calls fail immediately, until one of the hanging calls returns.
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

_MOST_HUNG: Final = 4
"""Maximum number of concurrently hanging calls of one hook; the next call is not made."""
_THREADS: Final = 32
"""Number of threads: enough for five hooks that hang, and for five units in work."""
_AGAIN_AFTER_S: Final = 60.0
"""Time for which the span thread does not wait again after a hanging call. So it waits at most a sixtieth of its time."""


class HookTimeout(BaseException):
    """A hook did not return in time. Not an ``Exception``, so that no handler on the way treats it as an error of the hook.

    Attributes:
        hook: the hook.
        outcome: outcome of the unit.
        reason: reason of the outcome.
    """

    def __init__(self, hook: Hook) -> None:
        super().__init__(hook.what)
        self.hook = hook
        self.outcome = hook.outcome
        self.reason = f"{hook.what} did not return within {hook.deadline_s:g} s"


class Hook:
    """A function of the user, with its name in messages. If work of a timebox calls it, the call has a deadline.

    Args:
        function: the user's function.
        outcome: outcome of a unit for which it does not return.
        deadline_s: deadline of one call, seconds.
    """

    def __init__(self, function: Callable[[Any], Any], what: str, outcome: Outcome, deadline_s: float) -> None:
        self.__name__ = str(getattr(function, "__name__", type_name(function)))
        self._function = function
        self.what = what
        self.outcome = outcome
        self.deadline_s = deadline_s
        self.hung = 0

    def __call__(self, value: Any, /) -> Any:
        """Call the function.

        Raises:
            HookTimeout: too many calls of it hang, or this call was abandoned meanwhile.
        """
        if self.hung >= _MOST_HUNG:
            raise HookTimeout(self)
        work = _here.work
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
        self._until = 0.0
        self._given_up = False

    def run(self) -> T:
        _here.work = self
        try:
            return self._call()
        finally:
            _here.work = None

    def enter(self, hook: Hook) -> None:
        with self._lock:
            self._hook, self._until = hook, monotonic() + hook.deadline_s

    def leave(self, hook: Hook) -> None:
        with self._lock:
            self._hook = None
            if self._given_up:
                hook.hung -= 1
                raise HookTimeout(hook)  # the result of the work has no reader

    def left_s(self, otherwise: float) -> float:
        """Return the remaining seconds of the running hook; ``otherwise`` if no hook runs."""
        return otherwise if self._hook is None else max(0.0, self._until - monotonic())

    def give_up(self) -> HookTimeout | None:
        """Abandon the work if its hook has exceeded the deadline, and return the error; otherwise None."""
        with self._lock:
            hook = self._hook
            if hook is None or monotonic() < self._until:
                return None
            self._given_up = True
            hook.hung += 1
        hung = HookTimeout(hook)
        log_once(f"hook {hook.what}", f"{hung.reason}: its units end as {hung.outcome}; set a timeout inside it")
        return hung


class _Here(threading.local):
    work: _Work[Any] | None = None


_here = _Here()


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
        self._stuck: tuple[Future[Any], Hook, float] | None = None

    def forget_calls(self) -> None:
        """Forget the calls that are under way: in a forked child, which has none of the threads that make them."""
        self._stuck = None
        for hook in self._hooks:
            hook.hung = 0

    def close(self) -> None:
        """End the threads, each after its work."""
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def has_hooks(self) -> bool:
        """Whether there is a hook that could hang."""
        return bool(self._hooks)

    def hook(self, function: Callable[[Any], Any], what: str, outcome: Outcome) -> Hook:
        """Return a user's function as a hook, with a deadline within this box."""
        hook = Hook(function, what, outcome, self._deadline_s)
        self._hooks.append(hook)
        return hook

    def run(self, call: Callable[[], T]) -> T:
        """Run a call of spanscore and wait for it. Call on the span thread.

        Raises:
            HookTimeout: a hook did not return. While that call hangs, and for a minute at most, this is raised without
                waiting.
            BaseException: an exception of the call.
        """
        if self._stuck is not None and not self._stuck[0].done() and monotonic() < self._stuck[2]:
            raise HookTimeout(self._stuck[1])
        work = self._begin(call)
        while not wait({work.future}, work.left_s(self._deadline_s)).done:
            if (hung := work.give_up()) is not None:
                self._stuck = work.future, hung.hook, monotonic() + _AGAIN_AFTER_S
                raise hung
        return work.future.result()

    async def done(self, call: Callable[[], T]) -> T:
        """Run a call of spanscore. Call on the loop thread; like ``run``, without blocking."""
        work = self._begin(call)
        done = asyncio.wrap_future(work.future)
        try:
            while not done.done():
                await asyncio.wait({done}, timeout=work.left_s(self._deadline_s))
                if not done.done() and (hung := work.give_up()) is not None:
                    raise hung
            return done.result()
        finally:
            done.cancel()

    def _begin(self, call: Callable[[], T]) -> _Work[T]:
        if self._pool is None:
            self._pool = DaemonPool(_THREADS, "spanscore-hook")
        work = _Work(call)
        work.future = self._pool.submit(self._context().run, work.run)
        return work


def _judging_context() -> Context:
    with judging():
        return copy_context()
