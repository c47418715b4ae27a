"""What is asked of a spool: done in a transaction with others, and answered after its commit, or when that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spanscore.spool.faults import SpoolFault
from spanscore.spool.rows import Put, RowKey, SpoolRow
from spanscore.spool.table import SpoolTable

__all__ = [
    "NO_ROOM",
    "Answer",
    "Operation",
    "begin_rows",
    "change_rows",
    "keep_scores",
    "put_row",
    "take_rows",
]

NO_ROOM = "spool: max_bytes"

Answer = Callable[[], None]


def _nothing() -> None: ...


def _to_nobody(fault: SpoolFault, held: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of ``SpoolFile``.

    Attributes:
        do: within a transaction; returns the answer, to be given after the commit.
        fail: answers that it could not be done, why, and whether nobody else can have the rows that this process holds.
        size_bytes: what it keeps in memory until then.
        grows: it needs room on the disk.
        lasting: it is done again and again until it is.
    """

    do: Callable[[SpoolTable], Answer]
    fail: Callable[[SpoolFault, bool], None] = _to_nobody
    size_bytes: int = 0
    grows: bool = False
    lasting: bool = False


def put_row(key: RowKey, body: bytes, told: Callable[[Put, str | None], None], *, own: bool, metrics: str) -> Operation:
    """Keep a row."""

    def do(table: SpoolTable) -> Answer:
        put = table.put(key, body, own=own, metrics=metrics)
        return lambda: told(put, NO_ROOM if put is Put.FULL else None)

    return Operation(do, lambda fault, _: told(fault.put, fault.reason), size_bytes=len(body), grows=True)


def take_rows(
    most: int, kind: str, told: Callable[[list[SpoolRow]], None], *, ended: bool, has: Callable[[str], bool]
) -> Operation:
    """Lease rows."""

    def do(table: SpoolTable) -> Answer:
        rows = table.take(most, kind, ended=ended, has=has)
        return lambda: told(rows)

    return Operation(do, lambda *_: told([]))


def begin_rows(keys: Sequence[RowKey], told: Answer) -> Operation:
    """Say that rows are in work."""

    def do(table: SpoolTable) -> Answer:
        table.begin(keys)
        return told

    return Operation(do, lambda *_: told())


def keep_scores(key: RowKey, scores: bytes, told: Callable[[bool], None]) -> Operation:
    """Keep what a row was given. The disk must not cost what the judge was paid for: where it fails, a row that nobody else can
    have is answered with True. After a crash then, the judge is asked again, under the same ids.
    """

    def do(table: SpoolTable) -> Answer:
        kept = table.keep_scores(key, scores)
        return lambda: told(kept)

    return Operation(do, lambda _, held: told(held), size_bytes=len(scores))


def change_rows(change: Callable[[SpoolTable, Sequence[RowKey]], None], keys: Sequence[RowKey]) -> Operation:
    """Have rows deleted, put aside or given back."""

    def do(table: SpoolTable) -> Answer:
        change(table, keys)
        return _nothing

    return Operation(do, lasting=True)
