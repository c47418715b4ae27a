"""Stretches of time → the ids of all traces in them, of a store that lists so many at most and cannot turn pages.

A stretch for which as many are listed as may be is halved, as there may be more; after one that is nearly empty the next is
twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from spanscore.errors import ConfigurationError
from spanscore.sources.asking import Unanswered
from spanscore.sources.stored import Unread

__all__ = ["LIMIT", "listed"]

LIMIT: Final = 200
"""Traces that are listed for one stretch: Jaeger sends all their spans with them."""
_WIDTH_S: Final = 3_600.0
_LEAST_S: Final = 1.0
"""Tempo's own resolution."""
_FEW: Final = 4


def listed(
    start_s: float, end_s: float, ask: Callable[[float, float], Sequence[bytes]], *, limit: int = LIMIT
) -> Iterator[bytes | Unread]:
    """Yield trace ids, each once, roughly in the order of time.

    Args:
        start_s: since the epoch; likewise ``end_s``, which is not part of it.
        ask: lists the ids of a stretch.
        limit: how many it lists at most.

    Raises:
        ConfigurationError: of the first stretch nothing could be had: nobody is there.
    """
    seen, width_s, at_s = set[bytes](), _WIDTH_S, start_s
    answered = False
    while at_s < end_s:
        until_s = min(end_s, at_s + width_s)
        try:
            found = ask(at_s, until_s)
        except Unanswered as error:
            if not answered:
                raise ConfigurationError(f"no store lists its traces there: {error}") from None
            yield Unread(f"the traces {_stretch(at_s, until_s)}", str(error))
            at_s = until_s
            continue
        answered = True
        if len(found) >= limit and until_s - at_s > _LEAST_S:
            width_s = max(_LEAST_S, (until_s - at_s) / 2)
            continue
        if len(found) >= limit:
            yield Unread(f"more traces {_stretch(at_s, until_s)}", f"it lists {limit} at most")
        yield from (trace_id for trace_id in dict.fromkeys(found) if trace_id not in seen)
        seen.update(found)
        at_s = until_s
        if len(found) < limit // _FEW:
            width_s *= 2


def _stretch(start_s: float, end_s: float) -> str:
    began, ended = (datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for time_s in (start_s, end_s))
    return f"from {began} to {ended}"
