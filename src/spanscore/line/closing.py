"""Closing: a scorer ends once; whoever asks again waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Closing"]


class Closing:
    """The one end of a scorer.

    Attributes:
        begun: the end has begun.
    """

    def __init__(self) -> None:
        self.begun = False
        self._whole = False
        self.reset()

    def reset(self) -> None:
        """Be as new: in a forked child. What had ended before the fork, or was about to, stays so."""
        self._lock = threading.RLock()  # a signal handler that shuts down may interrupt its holder
        self._over = threading.Event()
        self._thread = 0
        if self.begun:
            self._over.set()  # the thread that was at it is in the parent

    def once(self, end: Callable[[], bool], timeout_s: float) -> bool:
        """Do what ends it, the first time; then wait for it, as ``wait`` does."""
        with self._lock:
            first, self.begun = not self.begun, True
        if first:
            self._thread = threading.get_ident()
            try:
                self._whole = end()
            finally:  # also where a signal's SystemExit cuts it short
                self._over.set()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> bool:
        """Return what the end returned; False where it is not over in time."""
        if self._thread == threading.get_ident() and not self._over.is_set():
            return False  # a signal's handler, in the midst of the first call: it would wait for itself
        return self._over.wait(timeout_s) and self._whole
