"""Metrics that a configuration file names, with a constant value, for tests of reloads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from spanscore.metrics import BaseMetric, Finding


class Constant(BaseMetric):
    """The same value for every answer."""

    name = "constant"
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self, value: float = 1.0, name: str = "constant") -> None:
        self.value, self.name = value, name

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=self.value)


class Gated(Constant):
    """A constant value, after the gate is open."""

    gate = threading.Event()
    begun = threading.Event()

    async def measure(self, sample: Any) -> Finding:
        self.begun.set()
        while not self.gate.is_set():  # noqa: ASYNC110  (another thread sets it)
            await asyncio.sleep(0.01)
        return await super().measure(sample)


class Conversation(Constant):
    """The same value for every conversation."""

    requires = {"multi_turn": ("user_input",)}  # noqa: RUF012
