"""Runs the operations of a spool as transactions of one SQLite file, repairs the file, and translates SQLite's errors."""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Final, Literal, NamedTuple

from spanscore.core.files import (
    DATABASE_ENDINGS,
    ProcessLock,
    check_database,
    is_disk_full,
    make_database_file,
    make_database_private,
    number_of,
)
from spanscore.core.log import log_internal_error, log_once, type_name
from spanscore.durable.rows import PutResult, SpoolState
from spanscore.durable.spool_table import ADDED, SCHEMA, Leases, SpoolBounds, SpoolTable, boot_ns
from spanscore.errors import ConfigurationError

# --- opening: the file is created if it is missing, checked, and renamed if it is damaged ---

Sync = Literal["full", "normal"]

VERSION: Final = 1
"""Version of the database schema."""
_OURS: Final = 0x73707370
"""``spsp``, SQLite's ``application_id`` of a spool, which identifies it among databases."""
_BUSY_S: Final = 0.25
"""Seconds of one wait for a lock; longer waits consist of several."""
_LOG_PAGES: Final = 4_000
"""Size of the log at which it is merged into the file, 16 MB. With SQLite's 1,000 pages, a burst waits twice as long."""
_CHECKED_WHOLE_BYTES: Final = 128_000_000
"""Size up to which a file is checked completely: 128 MB take 0.6 s at most, 1 GB takes 0.8 s from memory, 4.5 s from disk. In
a larger file only the tables without bodies are checked (18 MB of 1 GB, 0.1 s). A damaged body is found when it is read.
"""
_MOVE_WAIT_S: Final = 10.0
"""Longest wait for another process that is renaming the damaged file, in seconds."""


def _open_file(path: Path, sync: Sync, *, check: bool) -> sqlite3.Connection:
    """Return a connection to a writable spool. ``check`` first searches for damage.

    Raises:
        ConfigurationError: the file belongs to another program or a newer version, or cannot be created.
        sqlite3.Error: the file is damaged or locked, or the disk fails.
    """
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    try:
        is_there = check_ours(connection, path)
        make_database_private(path, "spool")
        if not is_there:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={sync}")
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        make_tables(connection)
        if check:
            _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def check_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether a database is a spool, as ``check_database`` does."""
    return check_database(connection, path, "spool", application_id=_OURS, version=VERSION)


def _move_aside(path: Path, damaged: tuple[int, int] | None) -> Path | None:
    """Rename a damaged file and its companions; return the new name. None if another process has already done so.

    Args:
        damaged: identity of the file (``_file_id``), because another file may have its name by now.

    Raises:
        OSError: the folder of the file cannot be written.
    """
    turn = ProcessLock(path.with_name(f"{path.name}.lock"))
    until_s = time.monotonic() + _MOVE_WAIT_S
    while not turn.take() and time.monotonic() < until_s:
        time.sleep(_BUSY_S / 10)
    try:
        if damaged is None or _file_id(path) != damaged:
            return None
        aside = path.with_name(time.strftime(f"{path.name}.damaged-%Y%m%dT%H%M%S", time.gmtime()))
        for ending in reversed(DATABASE_ENDINGS):  # the log first, or it would count as the log of the next file
            with suppress(FileNotFoundError):
                path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
        return aside
    finally:
        turn.release()


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode, because another file may get its name; None if there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def make_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file, and the table and columns that a file of an earlier version lacks."""
    if not _lacking(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    if not number_of(connection, "SELECT count(*) FROM sqlite_master"):  # another process may have been faster
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={_OURS}")
        connection.execute(f"PRAGMA user_version={VERSION}")
    for column in _lacking(connection):
        for statement in ADDED[column]:
            connection.execute(statement)
    connection.execute("COMMIT")


def _lacking(connection: sqlite3.Connection) -> list[str]:
    names = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('rows')")}
    return [column for column in ADDED if column not in names]


def _check(connection: sqlite3.Connection) -> None:
    size = number_of(connection, "PRAGMA page_count") * number_of(connection, "PRAGMA page_size")
    for what in ("",) if size <= _CHECKED_WHOLE_BYTES else ("('owners')", "('rows')"):
        answer = connection.execute(f"PRAGMA quick_check{what}").fetchone()[0]
        if answer != "ok":
            error = sqlite3.DatabaseError("a check found damage")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error


# --- faults: errors of SQLite and the system → the result of a put, and a line for the operator that quotes no content ---


class SpoolFault(NamedTuple):
    """The reason why a transaction failed.

    Attributes:
        reason: one of a few texts.
        line: cause and remedy, for an operator.
        put: result of its puts.
    """

    reason: str
    line: str
    put: PutResult = PutResult.FAILED


LOCKED: Final = SpoolFault("spool: locked", "another program holds its lock: end it, or wait; the spool retries")
DAMAGED: Final = SpoolFault("spool: damaged", "it is damaged: it is renamed, and a new file is created")
REPLACED: Final = SpoolFault("spool: replaced", "it was removed or replaced while it was open: it is opened again")
CLOSED: Final = SpoolFault("spool: closed", "it is closed")
DISK_FULL: Final = SpoolFault(
    "spool: disk full", "its disk is full: make room; tried again every second", PutResult.FULL
)
_READ_ONLY: Final = SpoolFault("spool: read-only", "it cannot be written: the disk or the file is read-only")
_DISK: Final = SpoolFault("spool: disk error", "its disk fails, or a quota is spent; tried again every second")
_GONE: Final = SpoolFault("spool: not there", "it cannot be opened: does its folder exist, and is it writable?")
_BY_CODE: Final = {
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_PROTOCOL: LOCKED,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_FULL: DISK_FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_IOERR: _DISK,
    sqlite3.SQLITE_CANTOPEN: _GONE,
}
_BY_ERRNO: Final = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
    errno.ENOENT: _GONE,
    errno.EIO: _DISK,
}
_PRIMARY: Final = 0xFF
"""Bits of an extended code (``SQLITE_IOERR_WRITE``) that are its primary code."""


def fault_of(error: BaseException) -> SpoolFault:
    """Return the fault for an error of ``sqlite3`` or the system."""
    if isinstance(error.__cause__, OSError):  # a ConfigurationError for a file that cannot be written
        return fault_of(error.__cause__)
    code = getattr(error, "sqlite_errorcode", None)  # None = an error of the system
    fault = _BY_ERRNO.get(getattr(error, "errno", None) or 0) if code is None else _BY_CODE.get(code & _PRIMARY)
    return fault or SpoolFault("spool: failed", f"it cannot be used ({type_name(error)})")


# --- writer: operations → transactions of one open file, on the thread of the spool ---

Answer = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of ``SpoolFile``, run in a transaction with others, and answered after its commit.

    Attributes:
        do: runs within a transaction; returns the function to call after the commit, None = no function.
        fail: called after a failure, with the fault and whether this process certainly still has its rows; None = no call.
        size_bytes: bytes that it keeps in memory until its end.
        grows: whether it needs space on the disk.
        lasting: whether it is repeated until it succeeds.
        since_s: time of the call, by ``monotonic``.
    """

    do: Callable[[SpoolTable], Answer | None]
    fail: Callable[[SpoolFault, bool], None] | None = None
    size_bytes: int = 0
    grows: bool = False
    lasting: bool = False
    since_s: float = field(default_factory=monotonic)


_LOGGED_AFTER_S: Final = 2.0
"""Seconds after which a wait for the lock is logged. A shorter wait is usual: another process of spanscore writes."""
_LOCK_RETRY_S: Final = 0.02
"""Seconds between tries for locks for which SQLite does not wait by itself."""
_STATE_S: Final = 0.25
"""Minimum number of seconds between two readings of the state while operations arrive."""
_SHRINK_PAGES: Final = 8_000
"""Pages that are returned to the disk at a time, 32 MB; a file with fewer unused pages keeps them."""
_EXPECTED_ERRORS: Final = (sqlite3.Error, OSError, ConfigurationError)


class _Unwritten(Exception):
    """The failure of a transaction without an error of SQLite: the disk is full, or the file was replaced."""

    def __init__(self, fault: SpoolFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(slots=True, kw_only=True)
class SpoolWriter:
    """The spool's file, opened at the first write, and again after a fault.

    The fields without a description are arguments of ``SpoolFile``.

    Attributes:
        bounds: limits of the file, of the age of rows, and of leases.
        leases: the lease of this process, and the expiry of other leases.
        hurry_by: time by ``monotonic`` at which all waiting ends, because the spool is being closed.
        state: latest state that was read from the file.
        refusing: reason why the latest rows were refused; None if they were written.
    """

    path: Path
    sync: Sync
    bounds: SpoolBounds
    lock_wait_s: float
    tidy_s: float
    clock: Callable[[], int] = boot_ns
    wall_ns: Callable[[], int] = time.time_ns
    leases: Leases = field(init=False)
    hurry_by: float = float("inf")
    state: SpoolState = field(default_factory=SpoolState)
    refusing: SpoolFault | None = None
    _fault: SpoolFault | None = None
    _moved_line: str | None = None
    _connection: sqlite3.Connection | None = None
    _table: SpoolTable | None = None
    _opened_as: tuple[int, int] | None = None
    _was_replaced: bool = False
    _state_read_s: float = 0.0
    _truncated_s: float = field(default_factory=monotonic)
    _is_written: bool = False

    def __post_init__(self) -> None:
        self.leases = Leases(self.bounds.lease_ns, self.clock)

    def check_file(self) -> None:
        """Open the file, check it for damage, and close it. Any thread may call this: the thread of the spool opens it again.

        Raises:
            ConfigurationError: the file cannot be created, or belongs to another program or a newer version.
        """
        try:
            table = self._open(check=True)
            self._execute("BEGIN IMMEDIATE")  # shows that the file is writable
            self.state = table.state()
            self._execute("ROLLBACK")
        except sqlite3.Error as error:
            fault = self._roll_back(error)
            self._set_refusing(None if fault is LOCKED or fault is DAMAGED else fault)
        self._disconnect()

    def fault_line(self) -> str | None:
        """Return one line for an operator; None = no fault."""
        return self._moved_line if self._fault is None else f"the spool {self.path}: {self._fault.line}"

    def run(self, operations: Sequence[Operation], since_s: float) -> tuple[list[Answer], list[Operation]]:
        """Run operations in one transaction; return the functions to call, and the operations to repeat.

        Args:
            since_s: time of the first of them, by ``monotonic``.
        """
        try:
            answers = self._commit(operations, min(since_s + self.lock_wait_s, self.hurry_by))
        except Exception as error:  # noqa: BLE001  (every operation is answered, whatever happens)
            return self._handle_failure(operations, since_s, error)
        self._set_refusing(DISK_FULL if is_disk_full(self.path, self._unused_bytes) else None)
        return answers, []

    def tidy(self) -> None:
        """Truncate the log and return unused pages to the disk, if it is time to."""
        now = monotonic()
        if self._connection is None or not self._is_written or now - self._truncated_s < self.tidy_s:
            return
        self._truncated_s = now
        with suppress(sqlite3.Error):
            pages, unused = self._number("PRAGMA page_count"), self._number("PRAGMA freelist_count")
            shrinks = unused > _SHRINK_PAGES and unused >= pages / 2
            if shrinks:
                # ``execute`` releases only one page.
                self._connection.executescript(f"PRAGMA incremental_vacuum({_SHRINK_PAGES})")
            # Again next time, if the log could not be truncated, or more pages may be unused.
            self._is_written = bool(self._number("PRAGMA wal_checkpoint(TRUNCATE)")) or shrinks

    def close(self) -> None:
        """Release the rows of this process, and close the file."""
        if self._table is not None:
            with suppress(*_EXPECTED_ERRORS):
                self._begin(self.hurry_by).resign()
                self._execute("COMMIT")
        self._disconnect()

    def _commit(self, operations: Sequence[Operation], until_s: float) -> list[Answer]:
        table = self._begin(until_s)
        if any(operation.grows for operation in operations) and is_disk_full(self.path, self._unused_bytes):
            raise _Unwritten(DISK_FULL)
        holder = table.renew()
        answers = [answer for operation in operations if (answer := operation.do(table)) is not None]
        if not operations or monotonic() - self._state_read_s > _STATE_S:
            self.state, self._state_read_s = table.state(), monotonic()
        self._execute("COMMIT")
        if _file_id(self.path) != self._opened_as:
            raise _Unwritten(REPLACED)
        self.leases.holder = holder
        self._is_written |= bool(operations)
        return answers

    def _handle_failure(
        self, operations: Sequence[Operation], since_s: float, error: Exception
    ) -> tuple[list[Answer], list[Operation]]:
        fault = self._roll_back(error)
        failed, groups = _split(operations) if fault.put is PutResult.FULL else (operations, ())
        has_rows = self.leases.holds()
        answers: list[Answer] = [partial(each.fail, fault, has_rows) for each in failed if each.fail is not None]
        repeated = [each for each in failed if each.lasting]
        for group in groups:
            more_answers, more_repeated = self.run(group, since_s)
            answers, repeated = [*answers, *more_answers], [*repeated, *more_repeated]
        self._set_refusing(fault)
        return answers, repeated

    def _begin(self, until_s: float) -> SpoolTable:
        """Begin a transaction, which has the lock of the file, and return the table."""
        began_s = monotonic()
        while True:
            try:
                table = self._open()
                self._execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if fault_of(error) is not LOCKED or monotonic() > until_s:
                    raise
                if monotonic() - began_s > _LOGGED_AFTER_S:
                    self._set_fault(LOCKED)
                sleep(_LOCK_RETRY_S)
            else:
                return table

    def _open(self, *, check: bool = False) -> SpoolTable:
        if self._table is None:
            make_database_file(self.path, "spool")
            self._opened_as = _file_id(self.path)
            self._connection = _open_file(self.path, self.sync, check=check)
            self._table = SpoolTable(
                self._connection, self.leases, self.bounds, wall_ns=self.wall_ns, replaced=self._was_replaced
            )
        return self._table

    def _roll_back(self, error: Exception) -> SpoolFault:
        """Roll a transaction back, and return the fault. Unless the file is locked or its disk is full, close the file, because
        it may work after it is opened again.
        """
        with suppress(sqlite3.Error):
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        fault = error.fault if isinstance(error, _Unwritten) else fault_of(error)
        if not isinstance(error, (*_EXPECTED_ERRORS, _Unwritten)):
            log_internal_error("write the spool", error)
        if fault is LOCKED or fault.put is PutResult.FULL:
            return fault
        self._disconnect()
        if fault is DAMAGED:
            with suppress(OSError):
                if (moved := _move_aside(self.path, self._opened_as)) is not None:
                    self._moved_line = (
                        f"the spool {self.path} was damaged: it is now {moved.name}, and a new file was created"
                    )
                    log_once(f"spool {self.path} moved", self._moved_line)
        self._was_replaced |= fault in (REPLACED, DAMAGED)
        return fault

    def _disconnect(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.close()
        self._connection = self._table = None

    def _set_refusing(self, fault: SpoolFault | None) -> None:
        self.refusing = fault
        self._set_fault(fault)

    def _set_fault(self, fault: SpoolFault | None) -> None:
        self._fault = fault
        if fault is not None:
            log_once(f"spool {self.path} {fault.reason}", self.fault_line() or "")

    def _execute(self, statement: str) -> sqlite3.Cursor:
        assert self._connection is not None  # a transaction has opened it
        return self._connection.execute(statement)

    def _unused_bytes(self) -> int:
        with suppress(sqlite3.Error):
            return self._number("PRAGMA freelist_count") * self._number("PRAGMA page_size")
        return 0

    def _number(self, query: str) -> int:
        return int(self._execute(query).fetchone()[0])


def _split(operations: Sequence[Operation]) -> tuple[Sequence[Operation], Sequence[Sequence[Operation]]]:
    """Return the operations that fail on a full disk, because they need space; and groups of all other operations.

    The groups are run again, because deletions free space. A single operation has failed. Without operations that need space,
    each operation is a group of its own.
    """
    if len(operations) == 1:
        return operations, ()
    growing = [operation for operation in operations if operation.grows]
    others = [operation for operation in operations if not operation.grows]
    return growing, [others] if growing else [[operation] for operation in others]
