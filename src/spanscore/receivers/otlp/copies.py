"""UnitCopies: copies of units that another process took, from requests of whom we trust → units, each once, as they came.

A copy is whole: nothing of it is waited for. What was decided on it stands, and nothing else is eligible here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from spanscore.core.codecs.job import is_copy, units_of
from spanscore.core.codecs.otlp_request import Origin, Taken, UnreadableRequest, WireSpan, kept, resource_of
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.printable import printable
from spanscore.core.sample import Samples
from spanscore.core.span import Unit
from spanscore.pipeline.trace_index import ClosedKeys

__all__ = ["CopiesTaken", "UnitCopies"]

_REMEMBERED: Final = 100_000
"""Units that were taken: whoever had no answer sends a copy again."""
_MOST: Final = 1_000
"""Resources of which it is known whether they are copies'; then all are forgotten."""
_UNTRUSTED: Final = (
    "without a token, so that the dice are thrown again: give serve.token_file, of the same token as elsewhere"
)
_NO_METRIC: Final = "which this scorer does not have: give both processes the same metrics"


class CopiesTaken(NamedTuple):
    """A request, and the copies that were in it.

    Attributes:
        taken: the request; without the copies where they are believed.
        copies: what is believed.
        private: all copies: none of them ever goes on.
    """

    taken: Taken
    copies: Sequence[WireSpan]
    private: Sequence[WireSpan]


class UnitCopies:
    """Reads copies.

    Args:
        metrics: names of all that can be scored here.

    Attributes:
        trusted: whether what a copy says was decided is believed: who may send has a token, or writes to a topic of ours.
        again: copies that had come before.
        ignored: spans of copies that were not believed.
        lost: what was wrong → copies, or metrics of copies, that cannot be scored here.
    """

    def __init__(self, metrics: Collection[str]) -> None:
        self._metrics = frozenset(metrics)
        self.trusted = False
        self.reset()

    def reset(self) -> None:
        """Forget what came: in a forked child."""
        self._known = ClosedKeys(_REMEMBERED)
        self._copies: dict[int, bool] = {}
        self.again = self.ignored = 0
        self.lost: Counter[str] = Counter()

    def sorted_out(self, taken: Taken) -> CopiesTaken:
        """Return a request without its copies, and these. Any thread."""
        are_copies = [self._is_copy(origin) for origin, _ in taken.places]
        if True not in are_copies:
            return CopiesTaken(taken, (), ())
        marked = list(zip(taken.places, are_copies, strict=True))
        private = [kept(taken.body, at, origin) for (origin, places), copy in marked if copy for at in places]
        if not self.trusted:
            self.ignored += len(private)
            log_once("untrusted copies", f"copies of units came {_UNTRUSTED}")
            return CopiesTaken(taken, (), private)
        rest = [place for place, copy in marked if not copy]
        return CopiesTaken(taken._replace(places=rest), private, private)

    def units(self, copies: Sequence[WireSpan], *, once: bool) -> Iterator[tuple[Unit, Samples | None]]:
        """Yield the units of copies, and samples where some were submitted. Span thread.

        Args:
            once: leave out those that have come before: who had no answer sends again. What is read is read again on purpose.
        """
        for unit, samples in units_of(copies, self._unreadable):
            ids = unit.key.trace_id.to_bytes(16), unit.key.span_id.to_bytes(8)
            if once and self._known.has(*ids):
                self.again += 1
                continue
            self._known.add(*ids)
            if (ours := self._for_us(unit)).eligible_metrics:
                yield ours, samples

    def _for_us(self, unit: Unit) -> Unit:
        """Return a unit that is eligible for those metrics alone that there are here."""
        eligible = unit.eligible_metrics or frozenset()
        for name in sorted(eligible - self._metrics):
            self.lost[f"the metric {printable(name)}, which this scorer does not have"] += 1
            log_once(f"copies for {name}", f"copies of units came to be scored by {printable(name)}, {_NO_METRIC}")
        return replace(unit, eligible_metrics=eligible & self._metrics)

    def _unreadable(self, error: Exception) -> None:
        self.lost["what cannot be read"] += 1
        log_internal_error("read a copy of a unit", error)

    def notes(self) -> list[str]:
        """Return what must be known of copies that were not scored, for ``status()``."""
        notes = [f"{times:,} copies of units came with {what}" for what, times in self.lost.copy().items()]
        return notes + ([f"{self.ignored:,} spans of copies came {_UNTRUSTED}"] if self.ignored else [])

    def _is_copy(self, origin: Origin) -> bool:
        resource = hash(origin.resource)  # not the bytes, which may be many
        is_copy = self._copies.get(resource)
        if is_copy is None:
            if len(self._copies) >= _MOST:
                self._copies.clear()
            is_copy = self._copies[resource] = _says_copy(origin)
        return is_copy


def _says_copy(origin: Origin) -> bool:
    try:
        return is_copy(resource_of(origin))
    except UnreadableRequest:
        return False
