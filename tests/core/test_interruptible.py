"""A call on a thread ends when its caller no longer waits, and the thread continues with the next call."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from spanscore.core.threads import AbandonedError, Interruptible, run_interruptibly


def count(counted: list[int], ended: threading.Event) -> None:
    try:
        while True:
            counted[0] += 1
    finally:
        ended.set()


def test_a_call_that_is_cancelled_ends_and_its_thread_serves_the_next() -> None:
    counted, ended = [0], threading.Event()

    async def run(pool: ThreadPoolExecutor) -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_interruptibly(pool, count, counted, ended), 0.05)
        return await asyncio.wait_for(run_interruptibly(pool, len, "four"), 5)

    with ThreadPoolExecutor(1) as pool:
        assert asyncio.run(run(pool)) == 4
        assert ended.is_set()


def test_a_call_that_waits_for_a_thread_is_never_made() -> None:
    made: list[int] = []

    async def run(pool: ThreadPoolExecutor) -> None:
        free = threading.Event()
        first = asyncio.ensure_future(run_interruptibly(pool, free.wait, 5))
        second = asyncio.ensure_future(run_interruptibly(pool, made.append, 1))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        free.set()
        assert await first

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(run(pool))
    assert made == []


def test_no_exception_reaches_the_thread_after_its_call_has_returned() -> None:
    for _ in range(300):
        call = Interruptible(lambda: sum(range(200)))
        ender = threading.Thread(target=call.end)
        ender.start()
        with suppress(AbandonedError):
            call.run()
        ender.join()
        assert sum(range(2_000)) == 1_999_000  # an exception that is left would be raised here
        time.sleep(0)


def test_results_and_errors_come_back() -> None:
    async def run() -> None:
        assert await run_interruptibly(None, max, 1, 2) == 2
        with pytest.raises(ZeroDivisionError):
            await run_interruptibly(None, divmod, 1, 0)

    asyncio.run(run())


ENDED_THEN_PROFILED = """
import sys, threading
from contextlib import suppress
from spanscore.core.threads import AbandonedError, Interruptible

def end(call):
    def run():
        with suppress(AbandonedError):
            call.run()
    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    call.end()
    thread.join()

def loop():
    begun.set()
    while True:
        pass

for work in (loop, lambda: begun.set()):
    for _ in range(20):
        begun = threading.Event()
        end(Interruptible(work))
sys.setprofile(lambda *_: None)
(lambda: None)()
sys.setprofile(None)
"""


def test_a_thread_that_is_profiled_goes_on_after_calls_were_ended() -> None:
    subprocess.run([sys.executable, "-c", ENDED_THEN_PROFILED], timeout=30, check=True)
