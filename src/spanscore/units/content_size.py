"""How much content keeps alive: what a bound in bytes counts, without rendering anything."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import islice
from types import FunctionType
from typing import Any, Final

from spanscore.core.sample import (
    AIMessage,
    HumanMessage,
    MultiTurnSample,
    Samples,
    SingleTurnSample,
    ToolCall,
    ToolMessage,
)
from spanscore.core.span import Attributes, Unit

__all__ = ["size_bytes_of"]

_ENTRY: Final = 80  # bytes of a container's entry, roughly
_MOST: Final = 20_000  # things looked at, 10 ms at worst
_LONG: Final = 1_000  # a longer text is counted once
_FIRST: Final = slice(_MOST)
_SMALL: Final = frozenset({type(None), bool, int, float, FunctionType})  # nothing inside, and not counted
_MODELS: Final = frozenset({SingleTurnSample, MultiTurnSample, HumanMessage, AIMessage, ToolMessage, ToolCall})


def size_bytes_of(unit: Unit, samples: Samples | None = None) -> int:
    """Return roughly how many bytes of content a unit keeps alive, or the samples that were submitted for it.

    A long text counts once, however often it is there. Sees into lists, tuples, dicts and samples, runs no code of what it
    sees, and stops after 20,000 things: then it is a lower bound.
    """
    if samples is not None:
        return _size_bytes([samples.single_turn, samples.multi_turn])
    # Content is kept alive by what will render it, or by attributes that came as they are.
    attributes = (span.attributes for span in unit.spans)
    return _size_bytes([each.held if isinstance(each, Attributes) else dict(each) for each in attributes])


def _size_bytes(held: list[Any]) -> int:
    seen: set[int] = set()
    total, left = 0, held
    for _ in range(_MOST):
        if not left:
            break
        thing = left.pop()
        kind = type(thing)
        if kind is str or kind is bytes:
            if len(thing) <= _LONG:
                total += len(thing)
            elif id(thing) not in seen:
                seen.add(id(thing))
                total += len(thing)
        elif kind not in _SMALL:
            inside = _inside(thing, kind)
            total += _ENTRY * len(inside)
            left += inside
    return total


def _inside(thing: Any, kind: type) -> Collection[Any]:
    """Return what a container holds, as far as it is looked at; nothing for any other thing."""
    if kind is dict:
        return thing.values() if len(thing) <= _MOST else list(islice(thing.values(), _MOST))
    if kind is partial:
        return thing.args  # type: ignore[no-any-return]
    if kind is list:
        return thing if len(thing) <= _MOST else thing[:_MOST]  # type: ignore[no-any-return]
    if issubclass(kind, tuple):
        return tuple.__getitem__(thing, _FIRST)
    return list(vars(thing).values()) if kind in _MODELS else ()
