"""UnitCopy and Carrier: what leaves of a unit that another process scores, and who takes it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from spanscore.core.span import UnitKey

__all__ = ["REMOTE_SCORING", "Carrier", "Told", "UnitCopy"]

REMOTE_SCORING: Final = "remote_scoring"
"""Why there was no room for a unit: those before it are not answered for."""

Told = Callable[[str | None], None]
"""Called once per copy, on any thread. None: it has been answered for. A text: why it never will be, in few words that quote
nothing.
"""


class UnitCopy(NamedTuple):
    """The spans of one unit with their content, redacted.

    Attributes:
        key: of the unit.
        revision: of the unit.
        request: one ``ExportTraceServiceRequest`` of OTLP, as protobuf, of one trace. Such bytes may be put one behind another:
            they are then one request of all. Its resource says ``spanscore.forwarded_unit``, the root of the unit what was
            decided.
    """

    key: UnitKey
    revision: int
    request: bytes


class Carrier(Protocol):
    """Takes copies to another process, and tries again while there is hope: who waits for how many is not its matter."""

    def send(self, copy: UnitCopy, told: Told) -> None:
        """Take a copy on. Any thread; does not block, and never raises."""

    def arrived(self) -> bool:
        """Whether all copies that were answered for have arrived where units are scored. Any thread."""

    def state(self) -> str:
        """Return what is wrong with the way there, in few words; empty while nothing is. Any thread."""

    def close(self, timeout_s: float) -> None:
        """Send what waits for as long as there is time, then nothing more; what is left is told nothing. Blocks."""

    def reset(self) -> None:
        """Be as new: in a forked child, whose parent goes on with what it had."""
