"""How much a snapshot holds, roughly, from a look at the first few things in it. Application's thread: 0.3 to 5 µs.

``content_size`` counts what a unit holds on a thread of ours, and takes up to 10 ms for it. Here a few elements of a long list
stand for the others, and a text that several runs of a unit hold is counted once, as it is there once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any

from spanscore.codec import snapshot_types as types

__all__ = ["glance"]

_DEPTH = 5
"""A state's list of messages with blocks of content: an image's bytes lie so deep."""
_FEW = 8
"""Elements of a longer list that are looked at."""
_LONG = 1_000
"""A shorter text is counted as often as it is there: to remember it costs more than it weighs."""


def glance(snapshot: Any, counted: set[int], depth: int = _DEPTH) -> int:
    """Return roughly how many bytes of text a snapshot keeps alive; a lower bound where something lies deep.

    Args:
        counted: ids of long texts that are counted already; those of this snapshot are added.
    """
    kind = type(snapshot)
    if kind is str:
        return _length(snapshot, counted)
    look = _INSIDE.get(kind)
    if look is None or not depth:
        return 0
    inside, times = look(snapshot)
    total = 0
    for thing in inside:
        total += _length(thing, counted) if type(thing) is str else glance(thing, counted, depth - 1)
    return total * times


def _length(text: str, counted: set[int]) -> int:
    length = len(text)
    if length > _LONG:
        if id(text) in counted:
            return 0
        counted.add(id(text))
    return length


def _items(items: Any) -> tuple[Collection[Any], int]:
    if len(items) <= _FEW:
        return items, 1
    step = len(items) // _FEW
    return items[::step], step


_INSIDE: Mapping[type, Callable[[Any], tuple[Collection[Any], int]]] = {
    list: _items,
    tuple: _items,
    dict: lambda entries: (tuple(islice(entries.values(), 4 * _FEW)), 1),
    types.ThreadSnapshot: lambda thread: _items(thread[1]),
    types.MessageSnapshot: lambda message: (message[1:], 1),
    types.PromptSnapshot: lambda prompt: (prompt, 1),
    types.DocumentSnapshot: lambda document: (document[:1], 1),
    types.CommandSnapshot: lambda command: (command, 1),
    types.GenerationSnapshot: lambda generation: (generation[0], 1),
    types.ChoiceSnapshot: lambda choice: (choice[:1], 1),
}
"""Type → what of it is looked at, and how many times it stands there."""
