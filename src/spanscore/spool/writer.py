"""SpoolWriter: operations → transactions of one open file, and what is to be seen of it. One thread's, the spool's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from spanscore.core.files import is_full
from spanscore.core.log import log_internal_error, log_once
from spanscore.errors import ConfigurationError
from spanscore.spool.faults import DAMAGED, DISK_FULL, LOCKED, REPLACED, SpoolFault, fault_of
from spanscore.spool.opening import Sync, file_id, make_file, move_aside, opened
from spanscore.spool.operations import Answer, Operation
from spanscore.spool.owners import LeaseOfOurs, LeaseWatch
from spanscore.spool.rows import Put, SpoolState
from spanscore.spool.table import SpoolBounds, SpoolTable

__all__ = ["SpoolWriter"]

_NOTICED_S: Final = 2.0
"""A lock that lasts for less is another process of ours that writes."""
_AGAIN_S: Final = 0.02
"""SQLite waits for most locks by itself; for some it does not."""
_LOOK_S: Final = 0.25
"""Between two looks at what there is, while operations come."""
_SHRINK_PAGES: Final = 8_000
"""So many are given back to the disk at a time, 32 MB; of a file with fewer unused ones, none are."""
_NOTHING_SEEN: Final = SpoolState()
_EXPECTED: Final = (sqlite3.Error, OSError, ConfigurationError)


class _Unwritten(Exception):
    """What SQLite does not know: a transaction that is not in the spool.

    Args:
        fault: why.
    """

    def __init__(self, fault: SpoolFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(slots=True, kw_only=True)
class SpoolWriter:
    """The file, opened when it is first written, and again after a fault.

    Attributes:
        lease: of this process.
        clock: nanoseconds by which leases run.
        wall_ns: nanoseconds since the epoch, by which rows age.
        patience_s: how long an operation waits for the lock of another program.
        tidy_s: between two times at which the log is emptied: until then what was deleted from the file can be read in it.
        hurry_by: the latest at which it stops waiting, by ``monotonic``: the end of the spool.
        state: what was last seen.
        refusing: why rows were last turned away; None = they were not: it is some use to bring more.
    """

    path: Path
    sync: Sync
    bounds: SpoolBounds
    lease: LeaseOfOurs
    clock: Callable[[], int]
    wall_ns: Callable[[], int]
    patience_s: float
    tidy_s: float
    hurry_by: float = float("inf")
    state: SpoolState = _NOTHING_SEEN
    refusing: SpoolFault | None = None
    _fault: SpoolFault | None = None
    _moved: str | None = None
    _connection: sqlite3.Connection | None = None
    _table: SpoolTable | None = None
    _opened_as: tuple[int, int] | None = None
    _is_anew: bool = False
    _looked_at: float = 0.0
    _wiped_at: float = field(default_factory=monotonic)
    _is_written: bool = False

    def look(self) -> None:
        """Open and check the file once, on whichever thread; the spool's opens it for itself.

        Raises:
            ConfigurationError: it cannot be made, is another program's, or of a newer version.
        """
        try:
            table = self._open(check=True)
            self._execute("BEGIN IMMEDIATE")  # shows that it can be written
            self.state = table.state()
            self._execute("ROLLBACK")
        except sqlite3.Error as error:
            fault = self._undone(error)
            self._note(None if fault is LOCKED or fault is DAMAGED else fault)
        self._let_go()

    def said(self) -> str | None:
        """Return what an operator must know, in one line; None = all is well."""
        return self._moved if self._fault is None else f"the spool {self.path}: {self._fault.line}"

    def do(self, operations: Sequence[Operation], since: float) -> tuple[list[Answer], list[Operation]]:
        """Do operations in one transaction; return what is to be answered, and what is to be done again.

        Args:
            since: when the first of them came, by ``monotonic``.
        """
        try:
            answers = self._transaction(operations, min(since + self.patience_s, self.hurry_by))
        except Exception as error:  # noqa: BLE001  (who waits is answered, whatever happens)
            return self._failed(operations, since, error)
        self._note(DISK_FULL if is_full(self.path, self._unused_bytes) else None)
        return answers, []

    def tidy(self) -> None:
        """Empty the log and give unused pages back to the disk, where it is time to."""
        now = monotonic()
        if self._connection is None or not self._is_written or now - self._wiped_at < self.tidy_s:
            return
        self._wiped_at = now
        with suppress(sqlite3.Error):
            shrinks = self._shrink()
            self._is_written = bool(self._number("PRAGMA wal_checkpoint(TRUNCATE)")) or shrinks

    def leave(self) -> None:
        """Give back what this process holds, and close the file."""
        if self._table is not None:
            with suppress(*_EXPECTED):
                self._begun(self.hurry_by).resign()
                self._execute("COMMIT")
        self._let_go()

    def _shrink(self) -> bool:
        """Give unused pages back to the disk, if they are half of the file; return whether there may be more."""
        pages, unused = self._number("PRAGMA page_count"), self._number("PRAGMA freelist_count")
        if self._connection is None or unused <= _SHRINK_PAGES or unused < pages / 2:
            return False
        self._connection.executescript(f"PRAGMA incremental_vacuum({_SHRINK_PAGES})")  # execute() takes one page
        return True

    def _transaction(self, operations: Sequence[Operation], until: float) -> list[Answer]:
        table = self._begun(until)
        if any(one.grows for one in operations) and is_full(self.path, self._unused_bytes):
            raise _Unwritten(DISK_FULL)
        holder = table.renew()
        answers = [one.do(table) for one in operations]
        if not operations or monotonic() - self._looked_at > _LOOK_S:
            self.state, self._looked_at = table.state(), monotonic()
        self._execute("COMMIT")
        if file_id(self.path) != self._opened_as:
            raise _Unwritten(REPLACED)
        self.lease.holder = holder
        self._is_written |= bool(operations)
        return answers

    def _failed(
        self, operations: Sequence[Operation], since: float, error: Exception
    ) -> tuple[list[Answer], list[Operation]]:
        fault = self._undone(error)
        given_up, parts = _parted(operations) if fault.put is Put.FULL else (operations, ())
        held = self.lease.holds()
        answers: list[Answer] = [partial(one.fail, fault, held) for one in given_up]
        again = [one for one in given_up if one.lasting]
        for part in parts:
            done, left = self.do(part, since)
            answers, again = [*answers, *done], [*again, *left]
        self._note(fault)
        return answers, again

    def _begun(self, until: float) -> SpoolTable:
        """Return the table, in a transaction that holds the lock of the file."""
        began = monotonic()
        while True:
            try:
                table = self._open()
                self._execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if fault_of(error) is not LOCKED or monotonic() > until:
                    raise
                if monotonic() - began > _NOTICED_S:
                    self._say(LOCKED)
                sleep(_AGAIN_S)
            else:
                return table

    def _open(self, *, check: bool = False) -> SpoolTable:
        if self._table is None:
            make_file(self.path)
            self._opened_as = file_id(self.path)
            self._connection = opened(self.path, self.sync, check=check)
            watch = LeaseWatch(self.lease.holder, self.bounds.lease_ns, self.clock)
            self._table = SpoolTable(
                self._connection, self.lease, self.bounds, watch=watch, wall_ns=self.wall_ns, anew=self._is_anew
            )
        return self._table

    def _undone(self, error: Exception) -> SpoolFault:
        """Take a transaction back. Unless it is locked, or its disk full, close the file: opened anew, it may work again."""
        with suppress(sqlite3.Error):
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        fault = error.fault if isinstance(error, _Unwritten) else fault_of(error)
        if not isinstance(error, (*_EXPECTED, _Unwritten)):
            log_internal_error("write the spool", error)
        if fault is LOCKED or fault.put is Put.FULL:
            return fault
        self._let_go()
        if fault is DAMAGED:
            self._move_aside()
        self._is_anew |= fault in (REPLACED, DAMAGED)
        return fault

    def _move_aside(self) -> None:
        with suppress(OSError):
            moved = move_aside(self.path, self._opened_as)
            if moved is not None:
                self._moved = f"the spool {self.path} was damaged: it is now {moved.name}, and a new one was begun"
                log_once(f"spool {self.path} moved", self._moved)

    def _let_go(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.close()
        self._connection = self._table = None

    def _note(self, fault: SpoolFault | None) -> None:
        self.refusing = fault
        self._say(fault)

    def _say(self, fault: SpoolFault | None) -> None:
        self._fault = fault
        if fault is not None:
            log_once(f"spool {self.path} {fault.reason}", self.said() or "")

    def _execute(self, statement: str) -> sqlite3.Cursor:
        if self._connection is None:  # never: a transaction has opened it
            raise sqlite3.ProgrammingError("the spool is closed")
        return self._connection.execute(statement)

    def _unused_bytes(self) -> int:
        with suppress(sqlite3.Error):
            return self._number("PRAGMA freelist_count") * self._number("PRAGMA page_size")
        return 0

    def _number(self, query: str) -> int:
        return int(self._execute(query).fetchone()[0])


def _parted(operations: Sequence[Operation]) -> tuple[Sequence[Operation], Sequence[Sequence[Operation]]]:
    """Return what a full disk has no room for, and how the rest is tried again: what makes room must not fail with that."""
    if len(operations) == 1:
        return operations, ()
    growing = [one for one in operations if one.grows]
    others = [one for one in operations if not one.grows]
    return growing, [others] if growing else [[one] for one in others]
