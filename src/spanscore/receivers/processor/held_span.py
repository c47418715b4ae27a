"""HeldSpan: a ``PendingSpan`` that another library made and ended: it goes on to the processors that were to have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from spanscore.core.codecs.sdk import with_attributes
from spanscore.core.log import log_internal_error

__all__ = ["HeldSpan", "pass_on"]


class HeldSpan:
    """An ended span on its way to the processors that wait for it.

    Args:
        span: as the SDK gave it.
        exits: who is given it, each once.
        size: bytes held, roughly.
    """

    __slots__ = ("_exits", "_span", "ended", "size")

    def __init__(self, span: ReadableSpan, exits: Sequence[SpanProcessor], size: int) -> None:
        self._span: ReadableSpan | None = span
        self._exits = list(exits)
        self.size = size
        self.ended = False

    def also(self, exits: Sequence[SpanProcessor]) -> bool:
        """Give it to these, too. False: it has left."""
        if not self.ended:
            self._exits += [processor for processor in exits if processor not in self._exits]
        return not self.ended

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Pass the span on: itself, or where it is given attributes its like with them."""
        span, self._span, self.ended = self._span, None, True
        if span is not None:
            pass_on(with_attributes(span, attributes) if attributes else span, self._exits)


def pass_on(span: ReadableSpan, exits: Sequence[SpanProcessor]) -> None:
    """Give a span to processors. Never raises: one that does keeps it from no other."""
    for processor in exits:
        try:
            processor.on_end(span)
        except BaseException as error:  # noqa: BLE001  (of the application; SystemExit would end our thread)
            log_internal_error("pass a span on", error)
