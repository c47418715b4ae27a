"""PlainSpans: open spans of no unit that are not claimed so far. A span that gets GenAI attributes later is a root."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from spanscore.receivers.processor.external_unit import ExternalUnit, Ids, PlainSpan

__all__ = ["PlainSpans"]

_MOST_OPEN: Final = 10_000
"""Open spans remembered, some 0.3 kB each; past them the oldest is forgotten."""


class PlainSpans:
    """The open plain spans of a process. Written by the application's threads, without a lock: a step is a dict's."""

    def __init__(self) -> None:
        self._open: OrderedDict[Ids, PlainSpan] = OrderedDict()

    def start(self, ids: Ids, span: Any, above: PlainSpan | None) -> list[ExternalUnit]:
        """Remember a span that started; return the units that waited for the span that had to make room."""
        self._open[ids] = PlainSpan(ids, span, above)
        if len(self._open) <= _MOST_OPEN:
            return []
        _, oldest = self._open.popitem(last=False)
        oldest.ended = True
        return oldest.let_go()

    def pass_by(self, ids: Ids, above: PlainSpan | None) -> None:
        """Remember what is above a span that is never a root."""
        if above is not None:
            self._open[ids] = above

    def of(self, ids: Ids | None) -> PlainSpan | None:
        """Return an open span, or the one above a span that is never a root; None = there is none."""
        return None if ids is None else self._open.get(ids)

    def open(self) -> list[PlainSpan]:
        """Return the open spans."""
        return [span for ids, span in list(self._open.items()) if span.ids == ids]

    def end(self, ids: Ids) -> PlainSpan | None:
        """Forget a span that ended, and return it; None = it is no plain one."""
        span = self._open.pop(ids, None)
        if span is None or span.ids != ids:
            return None
        span.ended = True
        return span
