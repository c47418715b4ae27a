"""Judge calls made inside a block → a list, also when the block is cut short.

A metric puts its calls on its score; an engine that times the metric out opens a block around it and still sees what was paid.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from spanscore.model.score import JudgeCall

__all__ = ["record", "recorded_calls"]

# Every open block has a list of its own, and a call goes into all of them. One shared list and slices of it would mix the
# calls of metrics that run side by side.
_open: ContextVar[tuple[list[JudgeCall], ...]] = ContextVar("spanscore_recorded_calls", default=())


@contextmanager
def recorded_calls() -> Iterator[list[JudgeCall]]:
    """Collect the judge calls made inside the block and in tasks started there, in the order in which they ended.

    The list grows while the block runs. Blocks nest: an outer one sees the calls of the inner ones too.
    """
    calls: list[JudgeCall] = []
    token = _open.set((*_open.get(), calls))
    try:
        yield calls
    finally:
        _open.reset(token)


def record(call: JudgeCall) -> None:
    """Add one call to every open block; does nothing outside of any."""
    for calls in _open.get():
        calls.append(call)
