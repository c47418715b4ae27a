"""KeptSpans: spans that a proxy was asked to keep → each goes on exactly once, with its unit's scores or after five seconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final

from spanscore.core.codecs.otlp_request import WireSpan
from spanscore.core.span import UnitKey
from spanscore.protocols import PendingSpan
from spanscore.receivers.otlp.held import Exit, HeldWireSpan

__all__ = ["KeptSpans", "key_of"]

_EARLY_NS: Final = 5_000_000_000
"""How long a span waits for its unit to close, unless it is the root of one that is about to."""
_REMEMBERED: Final = 100_000
"""Spans that went on: a client that sends a request again, as a part of it was refused, brings them again."""


class KeptSpans:
    """Those that wait for their unit to close. Span thread."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every span: in a forked child, as they are its parent's to send on."""
        self._waiting: OrderedDict[UnitKey, tuple[int, HeldWireSpan]] = OrderedDict()  # by since when
        self._gone: OrderedDict[UnitKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, spans: Sequence[WireSpan], exit: Exit, now_ns: int) -> None:
        """Keep spans; a copy of one that waits, or has gone on, goes nowhere."""
        for span in spans:
            key = key_of(span)
            if key not in self._waiting and key not in self._gone:
                self._waiting[key] = now_ns, HeldWireSpan(span, exit)

    def give(self, keys: Sequence[UnitKey]) -> dict[int, PendingSpan]:
        """Return those that wait of these spans of one trace, by span id: who gets them ends them."""
        pending: dict[int, PendingSpan] = {}
        for key in keys:
            entry = self._waiting.pop(key, None)
            if entry is not None:
                pending[key.span_id] = entry[1]
                self._note_gone(key)
        return pending

    def let_go(self, keys: Sequence[UnitKey]) -> None:
        """Send on what waits of these, as it is."""
        for span in self.give(keys).values():
            span.end()

    def let_overdue_go(self, now_ns: int, closing: Callable[[], set[UnitKey]]) -> None:
        """Send on what has waited for five seconds.

        Args:
            now_ns: the time.
            closing: roots of units that are about to close: they wait on.
        """
        if (due_ns := self.next_due_ns()) is None or now_ns < due_ns:
            return
        stay = closing()
        waiting = takewhile(lambda held: now_ns - held[1][0] >= _EARLY_NS, self._waiting.items())
        overdue = [key for key, _ in waiting]
        for key in overdue:
            if key in stay:
                self._waiting[key] = now_ns, self._waiting[key][1]
                self._waiting.move_to_end(key)
        self.let_go([key for key in overdue if key not in stay])

    def let_all_go(self) -> None:
        """Send on everything, as it is."""
        self.let_go([*self._waiting])

    def next_due_ns(self) -> int | None:
        """Return when the oldest has waited for five seconds; None where none waits."""
        return next((since_ns + _EARLY_NS for since_ns, _ in self._waiting.values()), None)

    def _note_gone(self, key: UnitKey) -> None:
        self._gone[key] = None
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)


def key_of(span: WireSpan) -> UnitKey:
    """Return the ids of a span, as those of a unit that it were the root of."""
    return UnitKey(int.from_bytes(span.trace_id), int.from_bytes(span.span_id))
