"""Daemon threads of spanscore: pools, serial and interruptible calls; and the hook that renews objects in a forked child."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from threading import Lock, Semaphore, Thread
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import ref

from spanscore.core.log import log_internal_error, log_once

# --- fork -----------------------------------------------------------------------------------------------------------

# This is the only fork hook. A child has copies of all objects of its parent, but of its threads only the one that forked. So
# objects of spanscore replace their inner state in the child: locks, because their holders may not exist there; threads; and
# units, because the parent counts, ends and exports the units that are open at the fork.
#
# Calls are made in the order of their registration, so the objects on which an object depends come before it.

Owner = TypeVar("Owner")


def call_in_child(owner: Owner, renew: Callable[[Owner], object]) -> None:
    """Have ``renew(owner)`` called in every child that is forked while the object lives. Thread-safe.

    ``renew`` must wait for no lock of the parent, start no thread, and not refer to the object, because that would keep it
    alive.
    """
    _in_child.add(owner, renew)


def renew_lock_in_child(owner: object, make: Callable[[], object] = Lock) -> None:
    """Set ``_lock`` of an object to a new lock in every child that is forked while the object lives. Thread-safe."""
    call_in_child(owner, lambda owner: setattr(owner, "_lock", make()))


def before_fork(owner: Owner, wait: Callable[[Owner], object]) -> None:
    """Have ``wait(owner)`` called before every fork while the object lives; the fork waits for its return. Thread-safe."""
    _before.add(owner, wait)


class _ForkCalls:
    """Registered calls on living objects, in order. There is no lock, because a fork might happen while a lock is held."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[ref[Any], Callable[[Any], object]]] = {}

    def add(self, owner: Owner, call: Callable[[Owner], object]) -> None:
        weak = ref(owner, lambda dead: self._calls.pop(id(dead), None))
        self._calls[id(weak)] = weak, call

    def run(self) -> None:
        # The list keeps every object alive until the last call, because an earlier call may drop an object.
        living = [(owner, call) for weak, call in list(self._calls.values()) if (owner := weak()) is not None]
        for owner, call in living:
            try:
                call(owner)
            except Exception as error:  # noqa: BLE001  (the other objects still need their call)
                log_internal_error("handle a fork", error)


_before, _in_child = _ForkCalls(), _ForkCalls()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before.run, after_in_child=_in_child.run)


# --- threads --------------------------------------------------------------------------------------------------------

# All threads are daemons, so that no thread delays the application's exit.
#
# After ``gevent.monkey.patch_all()`` a ``Thread`` is a greenlet of the host's thread. That is right for most threads here:
# a blocking call yields to the host and shares its connections. Two kinds stay native threads: an event loop, because asyncio
# allows one running loop per native thread, and each ``asyncio.run`` of the host would fail; and computations, which never
# yield.

T = TypeVar("T")

_host_hub: list[Any] = []
"""At most one item: gevent's hub of the thread that first started a thread here. All greenlets of spanscore run on it."""


def start_daemon(work: Callable[..., object], name: str, *arguments: object, native: bool = False) -> Thread | None:
    """Start a thread that ends with its work, or with the process.

    Args:
        work: function that the thread calls.
        name: the thread's name.
        arguments: arguments of ``work``.
        native: whether it is a thread of the operating system even under gevent; gevent cannot join such a thread.

    Returns:
        The thread. None if no thread can be started now: the system allows no more threads, which is logged, or the
        interpreter is exiting (from Python 3.12 on). The caller tries again with its next work.
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
                f"the thread {name} cannot be started: is the limit of processes (pids) or memory reached? The next unit tries"
                " again; units wait meanwhile, and are rejected when the queue is full",
            )
        return None
    return thread


class ThreadQueue(Generic[T]):
    """First-in, first-out queue between threads. Under gevent ``queue.SimpleQueue`` fails between threads and greenlets."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._count = Semaphore(0)

    def put(self, item: T) -> None:
        """Append an item. Does not block."""
        self._items.append(item)
        self._count.release()

    def get(self, timeout: float | None = None) -> T:
        """Take the oldest item, and wait for one if the queue is empty.

        Args:
            timeout: seconds; None = no limit.

        Raises:
            TimeoutError: no item arrived for ``timeout`` seconds.
        """
        if not self._count.acquire(timeout=timeout):
            raise TimeoutError
        return self._items.popleft()


def gevent_monkey() -> Any | None:
    """Return the module ``gevent.monkey`` if it has patched ``threading``, otherwise None."""
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


# --- pool -----------------------------------------------------------------------------------------------------------

P = ParamSpec("P")


class DaemonPool(ThreadPoolExecutor):
    """Makes calls on daemon threads. The standard library's pool waits for its calls at interpreter exit: a metric that
    computes for an hour, or a judge's name resolution, would delay the application's exit that long.

    The pool is a subclass only because asyncio accepts no other default executor. A forked child has its own threads, and no
    calls of its parent.

    Args:
        threads: maximum number of threads.
        name: prefix of the threads' names.
        idle_s: seconds after which an idle thread ends; the next call starts another.
        native: whether the threads are threads of the operating system even under gevent; for computations.
    """

    def __init__(self, threads: int, name: str, *, idle_s: float = 30.0, native: bool = False) -> None:
        super().__init__(threads)  # starts none
        self._most = threads
        self._name = name
        self._idle_s = idle_s
        self._native = native
        self._make_parts()
        call_in_child(self, DaemonPool._make_parts)

    def _make_parts(self) -> None:
        self._calls: ThreadQueue[tuple[Future[Any], Callable[[], Any]] | None] = ThreadQueue()
        self._guard = Lock()
        self._running = 0  # threads
        self._unfinished = 0  # calls

    @property
    def is_busy(self) -> bool:
        """Whether a call submitted now would wait for the end of another call. Thread-safe."""
        return self._unfinished >= self._most

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call on a thread of the pool. Thread-safe; does not block.

        Raises:
            RuntimeError: no thread runs, and none can be started.
        """
        future: Future[T] = Future()
        with self._guard:
            has_idle_thread = self._unfinished < self._running
            if not has_idle_thread and self._running < self._most:
                self._start()
            self._unfinished += 1
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End idle threads now, and every other thread after its call. Does not wait. A later call starts a new thread."""
        self._idle_s = 0.0
        for _ in range(self._running):
            self._calls.put(None)

    def _start(self) -> None:
        if start_daemon(self._work, f"{self._name}-{self._running}", native=self._native) is not None:
            self._running += 1
        elif not self._running:
            raise RuntimeError("no thread can be started")

    def _work(self) -> None:
        while True:
            entry = None
            with suppress(TimeoutError):
                entry = self._calls.get(timeout=self._idle_s)
            if entry is None:
                with self._guard:
                    if self._unfinished < self._running or not self._unfinished:
                        self._running -= 1
                        return
                continue
            _make_call(*entry)
            with self._guard:
                self._unfinished -= 1


def _make_call(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001  (passed to the waiting caller)
        future.set_exception(error)


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, on the caller's thread, without a loop.

    Raises:
        RuntimeError: the coroutine did wait.
    """
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    work.close()
    raise RuntimeError("a cpu_bound metric awaited something: declare it cpu_bound=False")


# --- serial ---------------------------------------------------------------------------------------------------------


class SerialThread:
    """Makes calls that may block without a deadline, one after another. The first call starts the thread. Thread-safe.

    A forked child has its own thread, which its first call starts, and no calls of its parent.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._make_parts()
        call_in_child(self, SerialThread._make_parts)

    def _make_parts(self) -> None:
        self._lock = Lock()
        self._queue: ThreadQueue[Callable[[], bool] | None] = ThreadQueue()
        self._waiting: dict[Callable[[], bool], Future[bool]] = {}
        self._thread: Thread | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the thread, if it is not running."""
        with self._lock:
            self._start()

    def do(self, work: Callable[[], bool]) -> Future[bool]:
        """Run work after all earlier work. Equal work that still waits is not added again. Does not block.

        Returns:
            Future of the work's result; False if no thread can be started, or after ``stop``.
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
        """End the thread after the work that is queued. It does not start again, except in a forked child."""
        with self._lock:
            self._stopped = True
            if self._thread is not None:
                self._queue.put(None)
                self._thread = None

    def _start(self) -> bool:
        if self._thread is None and not self._stopped:
            self._thread = start_daemon(self._work, self._name)
        return self._thread is not None

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            with self._lock:
                future = self._waiting.pop(work)
            if not future.set_running_or_notify_cancel():  # cancelled
                continue
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001  (passed to the waiting caller)
                future.set_exception(error)


# --- interruptible --------------------------------------------------------------------------------------------------

# A metric that computes for minutes after its timeout would occupy one of two threads and half of the process: of 54 ROUGE
# scores, four of them of 8,000 words, all 54 timed out after 2 s. Python has no function that ends another thread. So
# ``PyThreadState_SetAsyncExc`` of CPython's API raises an exception in it, at its next Python instruction; a call into C ends
# first. Only this module uses that function; ``tests/core/test_interruptible.py`` tests it.


class AbandonedError(BaseException):
    """Raised in a call whose caller no longer waits. Not an ``Exception``, so that a metric's own handlers do not catch it."""


async def run_interruptibly(executor: Executor | None, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call on a thread, in a copy of this context, and end it there if this coroutine is cancelled.

    Args:
        executor: executor of the thread; None = the loop's own.
        call: function to call with the remaining arguments.
    """
    context = copy_context()
    interruptible = Interruptible(lambda: context.run(call, *args, **kwargs))
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, interruptible.run)
    except asyncio.CancelledError:
        interruptible.end()
        raise


class Interruptible(Generic[T]):
    """A call that any thread can end."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._guard = threading.Lock()
        self._thread: int | None = None
        self._is_ended = False

    def run(self) -> T:
        """Make the call. After this has returned or raised, no exception reaches the thread.

        Raises:
            AbandonedError: the call was ended.
        """
        with self._guard:
            if self._is_ended:
                raise AbandonedError
            self._thread = threading.get_ident()
        try:
            try:
                return self._call()
            finally:
                self._leave()
        except AbandonedError:  # also one that arrived at the last moment, before ``_leave``
            self._leave()
            raise

    def end(self) -> None:
        """Raise AbandonedError in the thread that makes the call, or as soon as a thread makes it. Does not wait."""
        with self._guard:
            if self._thread is not None and not self._is_ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(AbandonedError)
                )
            self._is_ended = True

    def _leave(self) -> None:
        """Prevent further exceptions, and raise a pending one here."""
        # The API could also withdraw a pending exception. But CPython 3.11 would then treat an exception as pending forever,
        # and each profiled or traced thread of the process would stop at its next call.
        with self._guard:
            self._thread = None
        for _ in range(2):
            pass  # the interpreter raises a pending exception at the jump of a loop
