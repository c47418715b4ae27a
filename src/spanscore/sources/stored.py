"""What every store gives: whole traces, and what of it could not be had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from spanscore.core.codecs.otlp_request import WireSpan

__all__ = ["StoredTrace", "TraceStore", "Unread"]


class StoredTrace(NamedTuple):
    """All that a store has of one trace.

    Attributes:
        trace_id: 16 bytes.
        spans: valid ones, in any order; a store may have one twice.
    """

    trace_id: bytes
    spans: Sequence[WireSpan]


class Unread(NamedTuple):
    """Something that could not be read, and was passed over.

    Attributes:
        name: of it: a trace's id, a line of a file, a stretch of time.
        because: why, without content.
    """

    name: str
    because: str


class TraceStore(Protocol):
    """Reads a store once, from the beginning. Blocks; one thread.

    Attributes:
        lost: what the store does not keep of a span, and what that means here, a sentence each; empty while nothing is known.
    """

    lost: Sequence[str]

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Yield each trace once, whole.

        Raises:
            ConfigurationError: there is no such store, or it refuses. Raised when the first trace is asked for.
        """
