"""Stretches of time → the ids of all traces in them, of a store that lists so many at most and cannot turn pages.

A stretch for which as many are listed as may be is halved, as there may be more, and one that cannot be halved is asked
about again with a higher limit; after one that is nearly empty the next is twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from spanscore.errors import ConfigurationError
from spanscore.sources.asking import Unanswered
from spanscore.sources.stored import Unread

__all__ = ["LIMIT", "listed"]

LIMIT: Final = 200
"""Traces that are listed for one stretch: Jaeger sends all their spans with them."""
_WIDTH_S: Final = 3_600.0
_FEW: Final = 4
_HIGHER: Final = 4
_HIGHEST: Final = 64
"""So many times as many are listed of a stretch that cannot be shorter."""


def listed(
    start_s: float,
    end_s: float,
    ask: Callable[[float, float, int], Sequence[bytes]],
    *,
    least_s: float = 1.0,
    limit: int = LIMIT,
    where: str = "there",
) -> Iterator[bytes | Unread]:
    """Yield trace ids, each once, roughly in the order of time.

    Args:
        start_s: since the epoch; likewise ``end_s``, which is not part of it.
        ask: lists the ids of a stretch, so many at most.
        least_s: the shortest stretch that the store can be asked about.
        limit: how many it lists at most where the stretch can be shorter.
        where: names the store in the error: ``at http://localhost:16686``.

    Raises:
        ConfigurationError: of the first stretch nothing could be had: nobody is there.
    """
    seen, width_s, at_s = set[bytes](), _WIDTH_S, start_s
    answered = False
    while at_s < end_s:
        until_s = min(end_s, at_s + width_s)
        try:
            found = ask(at_s, until_s, limit)
        except Unanswered as error:
            if not answered:
                raise ConfigurationError(f"no store lists its traces {where}: {error}") from None
            yield Unread(f"the traces {_stretch(at_s, until_s)}", str(error))
            at_s = until_s
            continue
        answered = True
        if len(found) >= limit and until_s - at_s > least_s:
            width_s = max(least_s, (until_s - at_s) / 2)
            continue
        if len(found) >= limit:
            found, because = _higher(partial(ask, at_s, until_s), found, limit)
            if because:
                yield Unread(f"more traces {_stretch(at_s, until_s)}", because)
        yield from (trace_id for trace_id in dict.fromkeys(found) if trace_id not in seen)
        seen.update(found)
        at_s = until_s
        if len(found) < limit // _FEW:
            width_s *= 2


def _higher(ask: Callable[[int], Sequence[bytes]], found: Sequence[bytes], limit: int) -> tuple[Sequence[bytes], str]:
    """Return what a full stretch holds, asked with ever higher limits, and why that may not be all."""
    highest = _HIGHEST * limit
    while len(found) >= limit:
        if limit >= highest:
            return found, f"{limit} are listed at most"
        limit *= _HIGHER
        try:
            found = ask(limit)
        except (Unanswered, ConfigurationError) as error:
            return found, str(error)
    return found, ""


def _stretch(start_s: float, end_s: float) -> str:
    began, ended = (datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for time_s in (start_s, end_s))
    return f"from {began} to {ended}"
