"""Timebox: the user's own functions, each call for at most its deadline, on threads that are left behind where it is not kept.

A filter, a redactor or an ``Extract`` may ask a service that never answers. On a thread of ours it would hold up every unit.

    hook     a function of the user
    work     what of ours calls hooks, one thread long: it makes a unit's job, or redacts a span's content

Only a hook at work is against the clock, and each call anew: a redactor that takes half a second for each of ten texts does not
hang. Of one that hangs, a few threads are left behind; then it is answered for at once, until one of its calls returns.
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
"""Calls of one hook that hang at the same time; the next is not made."""
_THREADS: Final = 32
"""Five hooks that hang, and five units at work."""
_AGAIN_AFTER_S: Final = 60.0
"""The span thread waits for a call that hangs, and then not again for so long: a sixtieth of its time at most."""


class HookTimeout(BaseException):
    """A hook did not return in its time. No ``Exception``: no handler on the way takes it for an error of the hook's own.

    Attributes:
        outcome: of the unit whose sample it is.
        reason: what to say of it.
    """

    def __init__(self, hook: Hook) -> None:
        super().__init__(hook.what)
        self.hook = hook
        self.outcome = hook.outcome
        self.reason = f"{hook.what} did not return within {hook.deadline_s:g} s"


class Hook:
    """A function of the user. Called by work of a timebox it has a deadline, elsewhere it is called as it is.

    Args:
        what: what it is to its user.
        outcome: of a unit for which it does not return.
        deadline_s: of one call, seconds.
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
            Hung: too many calls of it hang, or this one was given up meanwhile.
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
    """One call of ours on a thread of the box, and the hook that it is in."""

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
                raise HookTimeout(hook)  # the rest of the work has no reader

    def left_s(self, otherwise: float) -> float:
        """Return what is left of the running hook's time; a deadline's length where none runs, which is looked at then."""
        return otherwise if self._hook is None else max(0.0, self._until - monotonic())

    def give_up(self) -> HookTimeout | None:
        """Leave it behind if its hook is past its deadline; None where there is nothing to complain of."""
        with self._lock:
            hook = self._hook
            if hook is None or monotonic() < self._until:
                return None
            self._given_up = True
            hook.hung += 1
        hung = HookTimeout(hook)
        log_once(f"hook {hook.what}", f"{hung.reason}: its units are {hung.outcome}; give it a timeout of its own")
        return hung


class _Here(threading.local):
    work: _Work[Any] | None = None


_here = _Here()


class Timebox:
    """Runs what calls hooks on daemon threads. None is started before there is work.

    Args:
        deadline_s: of one call of a hook, seconds.
        context: gives the context that work runs in: one in which nothing is captured, as a hook may ask a model.
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
        """Let the threads end, each after its work."""
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def has_hooks(self) -> bool:
        """Whether there is anything that could hang."""
        return bool(self._hooks)

    def hook(self, function: Callable[[Any], Any], what: str, outcome: Outcome) -> Hook:
        """Return a function of the user that has a deadline within this box."""
        hook = Hook(function, what, outcome, self._deadline_s)
        self._hooks.append(hook)
        return hook

    def run(self, call: Callable[[], T]) -> T:
        """Run a call of ours and wait for it. Span thread.

        Raises:
            Hung: a hook did not return, or one that did not has still not, a minute ago or less: then at once, without waiting.
            BaseException: whatever the call raises.
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
        """Run a call of ours. Loop thread; as ``run``, without blocking."""
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
