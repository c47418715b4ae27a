"""Metrics for a service that is to be scored by."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from spanscore.metrics import BaseMetric, Finding


class Hangs(BaseMetric):
    """Never comes to an end."""

    name = "hangs"
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        await asyncio.Event().wait()
        raise AssertionError(sample)


class Answered(BaseMetric):
    """1 if there is an answer."""

    name = "answered"
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=float(bool(sample.response)))


class Announced(Answered):
    """Answered, and printed when a service makes it."""

    name = "announced"

    def __init__(self) -> None:
        print("metrics are imported", flush=True)


class Recovered(Answered):
    """A later release of the hanging metric, which no longer hangs."""

    name = "hangs"


class Waits(Answered):
    """Answered, once it is let go."""

    name = "waits"
    go_on = threading.Event()

    async def measure(self, sample: Any) -> Finding:
        while not self.go_on.is_set():  # noqa: ASYNC110  (another thread sets it)
            await asyncio.sleep(0.01)
        return await super().measure(sample)


class Talked(BaseMetric):
    """1 for every conversation."""

    name = "talked"
    requires = {"multi_turn": ("user_input",)}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=float(bool(sample.user_input)))
