"""Metrics for a service that is to be scored by."""

from __future__ import annotations

import asyncio
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
    """1 where there is an answer."""

    name = "answered"
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=float(bool(sample.response)))
