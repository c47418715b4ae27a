"""What is told of a source of stored spans: what of it could not be read, and why there is nothing to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from spanscore.stored.traces import Unread

__all__ = ["not_read", "nothing_in"]

_NAMED: Final = 20


def not_read(first: Sequence[Unread], total: int) -> Iterator[str]:
    """Yield what could not be read.

    Args:
        first: some of it at least.
        total: how much that is.
    """
    for trace in first[:_NAMED]:
        yield f"not read: {trace.name}: {trace.because}"
    if total > _NAMED:
        yield f"not read: {total - _NAMED:,} more"


def nothing_in(source: str, traces: int, unread: Sequence[Unread], outside: int = 0) -> str:
    """Return why a source has no unit to look at.

    Args:
        traces: that were read.
        unread: what could not be.
        outside: units before or after the time that was asked for.
    """
    if unread and not traces:
        return f"{source}: nothing in it could be read; the first: {unread[0].name}: {unread[0].because}"
    if outside:
        return f"{source}: none of its {outside:,} units began between --since and --until"
    if traces:
        return f"{source} holds no units: no root of a chain, agent or model call is in {traces:,} traces"
    return f"{source} holds no spans: a file has lines of OTLP-JSON, as the Collector's 'file' exporter writes them"
