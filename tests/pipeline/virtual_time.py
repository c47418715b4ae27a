"""A loop with a clock that is moved by hand: timers take no real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Goes on to the next timer at once."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._look: Callable[[float], Any] = self._selector.select  # type: ignore[attr-defined]
        self._selector.select = self._jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass, as if the loop were blocked."""
        self._now_s += seconds

    def _jump(self, timeout: float | None) -> Any:
        if timeout is None:
            raise RuntimeError("everything waits, and for no time")
        self._now_s += timeout
        return self._look(0)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, from 0 s on."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def now_s() -> float:
    return asyncio.get_running_loop().time()


class RunningLoop:
    """Stands in for ``spanscore.core.loop``: work is done on the running loop, which is one in virtual time."""

    def call_soon(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)

    def submit(self, work: Coroutine[Any, Any, Any]) -> RunningLoop:
        self.submitted = asyncio.ensure_future(work)
        return self

    def result(self, timeout_s: float) -> None:
        """Return at once; the test awaits ``submitted``."""
