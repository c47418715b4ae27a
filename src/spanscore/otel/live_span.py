"""LiveSpan: a ``PendingSpan`` that was started, and ends as if it had when its work did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Span

from spanscore.core.log import log_internal_error

__all__ = ["LiveSpan"]


class LiveSpan:
    """A live span of ours that has not been ended yet.

    Args:
        attributes: set before it ends.
        size: bytes held, roughly.
    """

    __slots__ = ("_attributes", "_end_ns", "_span", "size")

    def __init__(self, span: Span, end_ns: int, attributes: Mapping[str, Any] | None, size: int) -> None:
        self._span = span
        self._end_ns = end_ns
        self._attributes = attributes
        self.size = size

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Set the attributes and end the span at its true end."""
        try:
            if self._attributes:
                attributes = {**self._attributes, **attributes} if attributes else self._attributes
            if attributes:
                self._span.set_attributes(attributes)
            self._span.end(end_time=self._end_ns)
        except BaseException as error:  # noqa: BLE001  (a processor of the application; SystemExit would end our thread)
            log_internal_error("end a span", error)
