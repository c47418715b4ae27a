"""A blocking call on the judges' loop releases it when it is interrupted."""

from __future__ import annotations

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
