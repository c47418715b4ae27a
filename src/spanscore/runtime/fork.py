"""In a forked child: be as new. Ledger from zero, nothing inherited that is the parent's to count, end or export."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Forkable", "reset_in_child"]


class Forkable(Protocol):
    """What can be made as new."""

    def reset(self) -> None:
        """Forget everything, re-make locks."""


_alive: WeakSet[Forkable] = WeakSet()


def reset_in_child(part: Forkable) -> None:
    """Have ``part.reset()`` called in every child that is forked while it lives."""
    _alive.add(part)


def _after_in_child() -> None:
    for part in list(_alive):
        part.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
