"""A spool seen from outside: what waits, who holds it, what was put aside; no content. For the command line."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time_ns
from typing import Final, NamedTuple, TypeVar

from spanscore.errors import ConfigurationError
from spanscore.spool.faults import DAMAGED, fault_of
from spanscore.spool.opening import check_ours, make_tables
from spanscore.spool.owners import LeaseHolder, LeaseOfOurs, LeaseWatch, boot_ns, has_ended
from spanscore.spool.rows import RowKey, SpoolState, metrics_of
from spanscore.spool.table import SpoolBounds, SpoolTable

__all__ = ["DeadLetter", "HeldRows", "SpoolInspection", "WaitingUnits", "drop_older", "inspected", "retry_dead_letters"]

_WAITS_S: Final = 30.0
_DAY_NS: Final = 86_400 * 1_000_000_000
_ANY: Final = SpoolBounds(max_bytes=2**62, max_age_ns=36_500 * _DAY_NS, lease_ns=60_000_000_000)
"""What a spool is bounded by is in the configuration, not in the file."""

T = TypeVar("T")


class HeldRows(NamedTuple):
    """What one process holds.

    Attributes:
        rows: that it holds.
        in_work: of these.
        lease_s: seconds that its lease holds for, below 0: it is late. None = it counts from another boot: nobody can tell.
        has_ended: whether its process is known to be gone.
    """

    pid: int
    rows: int
    in_work: int
    lease_s: float | None
    has_ended: bool


class DeadLetter(NamedTuple):
    """A row that was put aside: after three crashes; with fewer, as it could not be read."""

    key: RowKey
    attempts: int
    age_s: float


class WaitingUnits(NamedTuple):
    """The units that nobody holds and that one metric is still to score.

    Attributes:
        metric: its name.
        units: their number.
        oldest_s: age of the oldest one, seconds.
    """

    metric: str
    units: int
    oldest_s: float


class SpoolInspection(NamedTuple):
    """What is in a spool.

    Attributes:
        held: by process, the one with most rows first.
        dead_letters: the oldest first.
        waiting: by metric, the one with the oldest unit first.
    """

    state: SpoolState
    held: list[HeldRows]
    dead_letters: list[DeadLetter]
    waiting: list[WaitingUnits]


def inspected(path: Path) -> SpoolInspection:
    """Return what is in a spool.

    Raises:
        ConfigurationError: there is none, or it cannot be read.
    """
    return _asked(path, _inspection)


def retry_dead_letters(path: Path) -> int:
    """Let rows that were put aside be taken again, as if they had never crashed; return how many.

    Raises:
        ConfigurationError: as ``inspected``.
    """
    return _asked(path, lambda connection: _table(connection).retry_dead_letters())


def drop_older(path: Path, age_s: float) -> int:
    """Delete rows that are older, dead letters too; not what a process that runs holds. Return how many.

    Raises:
        ConfigurationError: as ``inspected``.
    """
    before_ns = time_ns() - int(age_s * 1e9)
    return _asked(path, lambda connection: _table(connection).drop_before(before_ns))


def _asked(path: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
    try:
        with _spool(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            answer = ask(connection)
            connection.execute("COMMIT")
            return answer
    except sqlite3.Error as error:
        fault = fault_of(error)
        why = "it is no spool, or it is damaged" if fault is DAMAGED else fault.line
        raise ConfigurationError(f"{path} cannot be read: {why}") from error


@contextmanager
def _spool(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise ConfigurationError(f"{path} is no spool: there is no such file")
    where = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(where, uri=True, timeout=_WAITS_S, isolation_level=None)
    try:
        if not check_ours(connection, path):
            raise ConfigurationError(f"{path} is no spool: it is empty")
        make_tables(connection)
        connection.execute("PRAGMA secure_delete=ON")
        yield connection
    finally:
        connection.close()


def _table(connection: sqlite3.Connection) -> SpoolTable:
    lease = LeaseOfOurs(_ANY.lease_ns)
    return SpoolTable(connection, lease, _ANY, watch=LeaseWatch(lease.holder, _ANY.lease_ns), wall_ns=time_ns)


def _inspection(connection: sqlite3.Connection) -> SpoolInspection:
    table, now = _table(connection), time_ns()
    me = LeaseOfOurs(_ANY.lease_ns).holder
    held = [_held(holder, me, table.held_by(holder.id)) for holder in table.holders()]
    dead_letters = [
        DeadLetter(key, attempts, max(0, now - put_ns) / 1e9) for key, attempts, put_ns in table.dead_letters()
    ]
    return SpoolInspection(table.state(), sorted(held, key=lambda one: -one.rows), dead_letters, _waiting(table, now))


def _waiting(table: SpoolTable, now_ns: int) -> list[WaitingUnits]:
    units: Counter[str] = Counter()
    oldest_ns: dict[str, int] = {}
    for metrics, number, put_ns in table.waiting():
        for name in metrics_of(metrics):
            units[name] += number
            oldest_ns[name] = min(put_ns, oldest_ns.get(name, put_ns))
    return [
        WaitingUnits(name, units[name], max(0, now_ns - put_ns) / 1e9)
        for name, put_ns in sorted(oldest_ns.items(), key=lambda item: item[1])
    ]


def _held(holder: LeaseHolder, me: LeaseHolder, counts: tuple[int, int]) -> HeldRows:
    left_s = (holder.until_ns - boot_ns()) / 1e9 if holder.boot == me.boot else None
    return HeldRows(holder.pid, *counts, left_s, has_ended(holder, me))
