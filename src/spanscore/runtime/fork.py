"""The one place that hears of a fork. In a child each part is as new: what was open is the parent's to count, end and export.

Parts are made as new in the order in which they registered, so what a part is built on comes before it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from weakref import ref

from spanscore.runtime.log import log_internal_error

__all__ = ["Forkable", "before_fork", "reset_in_child"]

Part = TypeVar("Part")


class Forkable(Protocol):
    """What can be made as new."""

    def reset(self) -> None:
        """Forget everything, re-make locks: a thread that held one at the fork does not exist in the child."""


def reset_in_child(part: Part, reset: Callable[[Part], object]) -> None:
    """Have ``reset(part)`` called in every child that is forked while the part lives. Any thread."""
    _in_child.add(part, reset)


def before_fork(part: Part, wait: Callable[[Part], object]) -> None:
    """Have ``wait(part)`` called before every fork while the part lives; the fork comes when it returns. Any thread."""
    _before.add(part, wait)


class _Calls:
    """What is done to living parts, in the order in which they came. No lock: a fork might find it held."""

    def __init__(self) -> None:
        self._living: dict[int, tuple[ref[Any], Callable[[Any], object]]] = {}

    def add(self, part: Part, call: Callable[[Part], object]) -> None:
        weak = ref(part, lambda dead: self._living.pop(id(dead), None))
        self._living[id(weak)] = weak, call

    def make(self) -> None:
        for weak, call in list(self._living.values()):
            part = weak()
            try:
                if part is not None:
                    call(part)
            except Exception as error:  # noqa: BLE001  (the other parts need their call all the same)
                log_internal_error("handle a fork", error)


_before, _in_child = _Calls(), _Calls()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before.make, after_in_child=_in_child.make)
