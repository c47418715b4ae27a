"""yield_gil: a thread of ours that has much to do gives the application's threads the GIL in between.

Else each of them that has let go of it, for a system call as short as an event loop's look at its sockets, waits out a switch
interval (5 ms) to get it back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic_ns, sleep
from typing import Final

__all__ = ["TURN_NS", "begin_turn", "rest_after_turns", "yield_gil"]

TURN_NS: Final = 2_000_000
"""A turn costs the application two waits for a thread to wake and its caches: with 1 ms a tenth more of what a chain pays. A
longer one is a larger share of the GIL where the application wants all of it: with 4 ms a burst of a thousand waits 0.1 s more.
"""


class _Worked(threading.local):
    began_ns = 0
    rest_s: Callable[[], float] | None = None


_turn = _Worked()


def begin_turn() -> None:
    """Say that this thread has just slept, so that its first ``yield_gil`` is not one at once."""
    _turn.began_ns = monotonic_ns()


def rest_after_turns(rest_s: Callable[[], float]) -> None:
    """Have this thread rest after each of its turns, for as many seconds as it is told then."""
    _turn.rest_s = rest_s


def yield_gil() -> None:
    """Let the GIL go for a moment, if this thread has worked for two milliseconds since it last did. Else 0.2 µs."""
    if monotonic_ns() - _turn.began_ns >= TURN_NS:
        sleep(0.0 if _turn.rest_s is None else _turn.rest_s())
        begin_turn()
