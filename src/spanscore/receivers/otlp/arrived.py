"""What the receiver of spans from elsewhere knows of one request: what its spans are, and where it was read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence, Set
from typing import NamedTuple

from spanscore.core.codecs.otlp_request import Taken, WireSpan
from spanscore.receivers.otlp.held import Exit
from spanscore.receivers.otlp.unsampled import Sorting, UnsampledUnit

__all__ = ["Arrived", "Looked", "StreamRead"]


class Looked(NamedTuple):
    """What the spans of one request are to us.

    Attributes:
        taken: the request.
        sorting: of all that are not ours.
        kept: those that wait for their scores; all others are to go on now.
        copies: of units that another process took, to be scored here.
        private: copies of any kind, which go nowhere.
        scores: spans that may hold scores of others.
    """

    taken: Taken
    sorting: Sorting
    kept: Sequence[WireSpan]
    copies: Sequence[WireSpan] = ()
    private: Sequence[WireSpan] = ()
    scores: Sequence[WireSpan] = ()


class Arrived(NamedTuple):
    """The spans of one request.

    Attributes:
        unsampled: units that are told to be so.
        spans: the others, each with whether it is claimed.
        roots: how many of them begin a unit for sure.
        traces: of claimed ones.
        beside: traces of unclaimed ones and of copies.
        kept: those that wait for their exit.
        copies: of units that another process took.
        size: bytes of claimed ones, and of copies.
    """

    unsampled: Sequence[UnsampledUnit]
    spans: Sequence[tuple[WireSpan, bool]]
    roots: int
    traces: Set[bytes]
    beside: Set[bytes]
    kept: Sequence[WireSpan]
    exit: Exit | None
    copies: Sequence[WireSpan]
    size: int


class StreamRead(NamedTuple):
    """Where a request was read, and not received.

    Attributes:
        stream: which; spans of one that has ended are left.
        log_ns: what its log says when it was written, nanoseconds.
        arrived: its spans.
        noted: called on the span thread with the traces of its spans, when these are where they belong.
    """

    stream: Hashable
    log_ns: int
    arrived: Arrived
    noted: Callable[[Collection[bytes]], None]
