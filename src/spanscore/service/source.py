"""StreamSource: what ``spanscore worker`` reads spans from that are somewhere else, such as a topic; and until when it does.

A spool is none: its rows are jobs, and the queue of a scorer takes them by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

__all__ = ["StreamSource"]


class StreamSource(Protocol):
    """Reads into a scorer. Every method is called on the main thread; threads of its own are its own matter.

    In this order: ``start``, then ``unready`` and ``told`` at any time, ``pause``, the scorer drains, ``commit``.

    Attributes:
        name: for messages: ``"kafka"``.
    """

    name: str

    def start(self, wait_s: float) -> None:
        """Begin to read. Blocks until there is something to read from, or until it is known that there is not.

        Args:
            wait_s: seconds after which what does not answer is gone.

        Raises:
            SourceUnavailable: there is nothing to read from; one line that names it.
        """

    def pause(self) -> None:
        """Read no more, and keep what is being read: the drain begins. Does not block. Called once, also before ``start``."""

    def commit(self) -> None:
        """Tell whoever is read from what is settled, and leave. After the scorer has drained; blocks for seconds at most.

        What the drain had no time for is not settled: who reads it next gets it again.
        """

    def unready(self) -> str:
        """Return why it reads nothing at the moment; empty where it does, or could."""

    def told(self) -> Iterator[str]:
        """Yield what an operator should know of it, a line each: from where it reads, and how far it is."""
