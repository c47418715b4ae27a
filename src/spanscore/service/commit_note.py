"""CommitNote: what the metadata of a commit tell the next worker of a partition: ``spanscore 1 <configuration> <ranges>``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Final, NamedTuple, Self

from spanscore.protocols import Metric
from spanscore.service.offsets import ranges_in, ranges_of

__all__ = ["CommitNote", "fingerprint_of"]

_KIND: Final = "spanscore"
_VERSION: Final = "1"


class CommitNote(NamedTuple):
    """One note.

    Attributes:
        configuration: fingerprint of the metrics by which the partition was read; empty = not known.
        settled: offsets behind the committed one that are settled.
    """

    configuration: str
    settled: Collection[int] = ()

    def text(self, offset: int) -> str:
        """Return it as metadata of a commit of that offset; fewer than 4,096 bytes."""
        return f"{_KIND} {_VERSION} {self.configuration} {ranges_of(self.settled, offset)}"

    @classmethod
    def of(cls, text: str | None, offset: int) -> Self:
        """Return what the metadata of a commit of that offset tell; nothing where they are another's, or of another version."""
        words = (text or "").split(" ")
        if len(words) != len(cls._fields) + 2 or words[:2] != [_KIND, _VERSION]:
            return cls("")
        return cls(words[2], ranges_in(words[3], offset))


def fingerprint_of(metrics: Iterable[Metric]) -> str:
    """Return what tells configurations apart whose scores are not the same: 8 hex digits of names and versions."""
    told = sorted(f"{metric.name} {metric.version}" for metric in metrics)
    return blake2b("\n".join(told).encode(), digest_size=4).hexdigest()
