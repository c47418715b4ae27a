"""Judge calls made inside a block → a list, also when the block is cut short.

A metric puts its calls on its score; an engine that times the metric out opens a block around it and still sees what was paid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from spanscore.model.score import JudgeCall

__all__ = ["EMBED_STEP", "record", "recorded_by", "recorded_calls"]

EMBED_STEP = "embed"
"""Of a call that asks for vectors: whoever answers it is no judge of the score."""

# Every open block has a list of its own, and a call goes into all of them. One shared list and slices of it would mix the
# calls of metrics that run side by side.
_open: ContextVar[tuple[Callable[[JudgeCall], object], ...]] = ContextVar("spanscore_recorded_calls", default=())


@contextmanager
def recorded_calls() -> Iterator[list[JudgeCall]]:
    """Collect the judge calls made inside the block and in tasks started there, in the order in which they ended.

    The list grows while the block runs. Blocks nest: an outer one sees the calls of the inner ones too.
    """
    calls: list[JudgeCall] = []
    token = _open.set((*_open.get(), calls.append))
    try:
        yield calls
    finally:
        _open.reset(token)


@contextmanager
def recorded_by(charge: Callable[[JudgeCall], object]) -> Iterator[None]:
    """Hand the judge calls made inside the block to ``charge``, and to none of the blocks around it."""
    token = _open.set((charge,))
    try:
        yield
    finally:
        _open.reset(token)


def record(call: JudgeCall) -> None:
    """Add one call to every open block; does nothing outside of any."""
    for add in _open.get():
        add(call)
