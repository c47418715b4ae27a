"""SpoolState → the rows that ``status()`` has of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from spanscore.core.printable import format_count
from spanscore.durable.rows import SpoolState

__all__ = ["spool_rows"]

_STEPS: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_AGES: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def spool_rows(state: SpoolState, since_s: float) -> Iterator[str]:
    """Yield what is in a spool, and what is wrong with it; ``since_s``: when the counts of this process began at zero."""
    parts = [f"spool: {format_count(state.depth, 'unit')} on the disk, {_size(state.bytes)}"]
    parts += [f"oldest {_age(state.oldest_s)}"] if state.depth else []
    parts += [f"{state.owners:,} process{'' if state.owners == 1 else 'es'}"]
    parts += (
        [f"{state.dead_letters:,} put aside as dead letters: spanscore spool FILE tells more"]
        if state.dead_letters
        else []
    )
    parts += [f"{state.expired:,} older than max_age"] if state.expired else []
    yield "; ".join(parts)
    began = datetime.fromtimestamp(since_s, UTC)
    yield f"process.start {began:%Y-%m-%d %H:%M:%S} UTC: what came before is in no count of this process"
    if state.fault is not None:
        yield state.fault


def _size(number: int) -> str:
    return next((f"{number / step:,.1f} {name}" for step, name in _STEPS if number >= step), f"{number} bytes")


def _age(seconds: float) -> str:
    return next((f"{seconds / step:.0f} {name}" for step, name in _AGES if seconds >= 2 * step), f"{seconds:.0f} s")
