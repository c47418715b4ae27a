"""The judges' loop: a blocking call releases it when it is interrupted, and errors without an awaiter are logged."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from spanscore.core import loop
from spanscore.errors import SpanscoreError


class Interrupted(Future[None]):
    """A result that somebody stops waiting for."""

    def result(self, timeout: float | None = None) -> None:
        raise KeyboardInterrupt


async def nothing() -> None: ...


def test_interrupted_it_asks_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    future = Interrupted()

    def submit(work: Coroutine[Any, Any, Any]) -> Future[None]:
        work.close()
        return future

    monkeypatch.setattr(loop, "submit", submit)

    with pytest.raises(KeyboardInterrupt):
        loop.run(nothing())

    assert future.cancelled()


def test_on_the_loop_itself_it_says_what_to_await() -> None:
    async def blocking() -> None:
        loop.run(nothing())

    with pytest.raises(SpanscoreError, match=r"await score\(\) or fit\(\)"):
        loop.run(blocking())


class Client:
    """An asynchronous client that closes itself on the loop of the thread that collects it, as OpenAI's does."""

    def __init__(self, own: asyncio.AbstractEventLoop) -> None:
        self._own = own

    async def aclose(self) -> None:
        self._own.call_soon(print)

    def __del__(self) -> None:
        asyncio.get_running_loop().create_task(self.aclose())


def logged_after(work: Coroutine[Any, Any, None], caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Return level and text of the lines about errors of tasks that the work leaves behind."""

    async def and_collect() -> None:
        await work
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()

    with caplog.at_level(logging.INFO, "spanscore"):
        loop.run(and_collect())
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_a_client_of_a_closed_loop_that_is_collected_here_is_no_fault_of_a_judge(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = asyncio.new_event_loop()
    closed.close()
    held = [Client(closed)]

    async def collect() -> None:
        held.clear()

    ((level, line),) = logged_after(collect(), caplog)

    assert level == logging.INFO
    assert line.startswith("spanscore: Client.aclose failed on spanscore's loop, as its own loop is closed")


def test_any_other_error_that_nobody_awaits_is_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise RuntimeError("a prompt")

    async def forget() -> None:
        asyncio.ensure_future(fail())  # noqa: RUF006

    ((level, line),) = logged_after(forget(), caplog)

    assert level == logging.WARNING
    assert "await a judge's background task (RuntimeError at test_loop.py" in line
    assert "a prompt" not in line
