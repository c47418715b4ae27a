"""HeldWireSpan: a span that waits in a proxy for its unit's scores, and goes on with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from spanscore.core.codecs.otlp_request import WireSpan

__all__ = ["Exit", "HeldWireSpan"]


class Exit(Protocol):
    """Where a span that was kept goes on to: the proxy's own way to its backend."""

    def pass_on(self, span: WireSpan, attributes: Mapping[str, Any] | None) -> None:
        """Send it on, with these attributes appended to its own. Called once per kept span; never raises, does not block."""


@dataclass(frozen=True, slots=True)
class HeldWireSpan:
    """A ``PendingSpan`` of one kept span.

    Attributes:
        span: as it came.
        exit: whose it is.
    """

    span: WireSpan
    exit: Exit

    @property
    def size(self) -> int:
        """Bytes held: those that came."""
        return len(self.span.raw)

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Send it on; its end time is its own."""
        self.exit.pass_on(self.span, attributes)
