"""SpoolWriter: operations → transactions of one spool file: opening, repair, faults of SQLite."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Final, Literal, NamedTuple

from spanscore.core.files import ProcessLock, is_full
from spanscore.core.log import log_internal_error, log_once, type_name
from spanscore.durable.rows import PutResult, RowKey, SpoolRow, SpoolState
from spanscore.durable.spool_table import ADDED, SCHEMA, LeaseWatch, OwnLease, SpoolBounds, SpoolTable
from spanscore.errors import ConfigurationError, writing

__all__ = [
    "CLOSED",
    "DAMAGED",
    "DISK_FULL",
    "LOCKED",
    "NO_ROOM",
    "REPLACED",
    "VERSION",
    "Answer",
    "Operation",
    "SpoolFault",
    "SpoolWriter",
    "Sync",
    "begin_rows",
    "change_rows",
    "check_ours",
    "fault_of",
    "file_id",
    "keep_scores",
    "make_file",
    "make_tables",
    "move_aside",
    "opened",
    "put_row",
    "take_rows",
]

# --- opening --------------------------------------------------------------------------------------------------------

# A path → an open spool: made where there is none, checked, and moved aside where it is damaged.

Sync = Literal["full", "normal"]

VERSION: Final = 1
"""Of what is in the file."""
_OURS: Final = 0x73707370
"""``spsp``: by it SQLite's ``application_id`` tells the file from other databases."""
_BUSY_S: Final = 0.25
"""One wait for a lock; who waits for longer asks again."""
_COMPANIONS: Final = ("", "-shm", "-wal")
_LOG_PAGES: Final = 4_000
"""16 MB of log before it is worked into the file: with SQLite's 1,000 a burst waits twice as long for the disk."""
_CHECKED_WHOLE_BYTES: Final = 128_000_000
"""A file of 1 GB takes 0.8 s to check where the system has it in memory, and 4.5 s where it has not; 128 MB at most 0.6 s. Of a
larger one only what says which rows there are is checked (18 MB of 1 GB, 0.1 s). A body that is damaged shows when it is read.
"""
_OTHERS: Final = 0o077
_HAS_METRICS: Final = "SELECT count(*) FROM pragma_table_info('rows') WHERE name = 'metrics'"
_TURN_S: Final = 10.0
"""How long another process may take to move a file aside."""


def opened(path: Path, sync: Sync, *, check: bool = False) -> sqlite3.Connection:
    """Return a connection to a spool that can be written.

    Args:
        check: whether to look for damage first.

    Raises:
        ConfigurationError: it is another program's, of a newer version, or cannot be made.
        sqlite3.Error: it is damaged, locked, or its disk fails.
    """
    make_file(path)
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    try:
        _prepare(connection, path, sync)
        if check:
            _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def check_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether a database is a spool; False: it is an empty one.

    Raises:
        ConfigurationError: it is another program's, or of a newer version.
    """
    empty = not _number(connection, "SELECT count(*) FROM sqlite_master")
    if not empty and _number(connection, "PRAGMA application_id") != _OURS:
        raise ConfigurationError(f"spool: {path} is a database of another program; choose another file")
    if _number(connection, "PRAGMA user_version") > VERSION:
        raise ConfigurationError(
            f"spool: {path} is of a newer version of spanscore: upgrade this one, or choose another file"
        )
    return not empty


def move_aside(path: Path, damaged: tuple[int, int] | None) -> Path | None:
    """Rename a damaged file, and what belongs to it; return its new name. None: another process has done so before.

    Args:
        damaged: which file it is (``file_id``): by now another may have its name.

    Raises:
        OSError: its folder cannot be written.
    """
    turn = ProcessLock(path.with_name(f"{path.name}.lock"))
    until = time.monotonic() + _TURN_S
    while not turn.take() and time.monotonic() < until:
        time.sleep(_BUSY_S / 10)
    try:
        return _renamed(path) if damaged is not None and file_id(path) == damaged else None
    finally:
        turn.let_go()


def file_id(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one that has taken its name; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def make_file(path: Path) -> None:
    """Make the file, for its owner alone. One that is there is not opened: to close it would let go SQLite's locks on it.

    Raises:
        ConfigurationError: it cannot be made.
    """
    if path.exists() and not path.is_file():  # /dev/null would be closed to everybody but us
        raise ConfigurationError(f"spool: {path} cannot be written: it is no file")
    with writing(f"spool: {path}"), suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare(connection: sqlite3.Connection, path: Path, sync: Sync) -> None:
    is_there = check_ours(connection, path)
    for ending in _COMPANIONS:  # SQLite makes the others like the first; here from a time when it was not so
        _close_to_others(path.with_name(path.name + ending))
    if not is_there:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={sync}")
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
    make_tables(connection)


def _close_to_others(path: Path) -> None:
    with writing(f"spool: {path}"), suppress(FileNotFoundError):
        if path.stat().st_mode & _OTHERS:
            path.chmod(0o600)


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of a new file, and the table and column that a file of an earlier version lacks."""
    if _number(connection, _HAS_METRICS):
        return
    connection.execute("BEGIN IMMEDIATE")
    if not _number(connection, "SELECT count(*) FROM sqlite_master"):  # another process may have been faster
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={_OURS}")
        connection.execute(f"PRAGMA user_version={VERSION}")
    if not _number(connection, _HAS_METRICS):
        for statement in ADDED:
            connection.execute(statement)
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection) -> None:
    size = _number(connection, "PRAGMA page_count") * _number(connection, "PRAGMA page_size")
    for what in ("",) if size <= _CHECKED_WHOLE_BYTES else ("('owners')", "('rows')"):
        found = connection.execute(f"PRAGMA quick_check{what}").fetchone()[0]
        if found != "ok":
            raise _damaged()


def _damaged() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("a check found damage")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _renamed(path: Path) -> Path:
    aside = path.with_name(time.strftime(f"{path.name}.damaged-%Y%m%dT%H%M%S", time.gmtime()))
    for ending in reversed(_COMPANIONS):  # the log first: it would be taken for that of a file that begins meanwhile
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
    return aside


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


# --- faults ---------------------------------------------------------------------------------------------------------

# What SQLite says of a file → what became of a row, and one line for the operator. It quotes nothing that the file holds.


class SpoolFault(NamedTuple):
    """Why nothing could be written.

    Attributes:
        put: what became of rows that were put.
        reason: low-cardinality.
        line: what happened and what to do.
    """

    put: PutResult
    reason: str
    line: str


LOCKED: Final = SpoolFault(
    PutResult.FAILED, "spool: locked", "another program holds its lock: end it, or wait; it is tried again"
)
DAMAGED: Final = SpoolFault(PutResult.FAILED, "spool: damaged", "it is damaged: it is moved aside, and a new one begun")
REPLACED: Final = SpoolFault(
    PutResult.FAILED, "spool: replaced", "it was removed or replaced while it was open: opened anew"
)
CLOSED: Final = SpoolFault(PutResult.FAILED, "spool: closed", "it is closed")
DISK_FULL: Final = SpoolFault(
    PutResult.FULL, "spool: disk full", "its disk is full: make room; tried again every second"
)
_READ_ONLY: Final = SpoolFault(
    PutResult.FAILED, "spool: read-only", "it cannot be written: the disk or the file is read-only"
)
_DISK: Final = SpoolFault(
    PutResult.FAILED, "spool: disk error", "its disk fails, or a quota is spent; tried again every second"
)
_GONE: Final = SpoolFault(
    PutResult.FAILED, "spool: not there", "it cannot be opened: is its folder there, and may be written?"
)
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
"""Of an extended code (``SQLITE_IOERR_WRITE``), what its kind is."""


def fault_of(error: BaseException) -> SpoolFault:
    """Return what an error of ``sqlite3``, or of the system, means for the file."""
    if isinstance(error.__cause__, OSError):  # what a setting's error is about
        return fault_of(error.__cause__)
    code = getattr(error, "sqlite_errorcode", None)
    known = _BY_ERRNO.get(getattr(error, "errno", None) or 0) if code is None else _BY_CODE.get(code & _PRIMARY)
    return known or SpoolFault(PutResult.FAILED, "spool: failed", f"it cannot be used ({type_name(error)})")


# --- operations -----------------------------------------------------------------------------------------------------

# What is asked of a spool: done in a transaction with others, and answered after its commit, or when that cannot be.

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


def put_row(
    key: RowKey, body: bytes, told: Callable[[PutResult, str | None], None], *, own: bool, metrics: str
) -> Operation:
    """Keep a row."""

    def do(table: SpoolTable) -> Answer:
        put = table.put(key, body, own=own, metrics=metrics)
        return lambda: told(put, NO_ROOM if put is PutResult.FULL else None)

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


# --- writer ---------------------------------------------------------------------------------------------------------

# SpoolWriter: operations → transactions of one open file, and what is to be seen of it. One thread's, the spool's.

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
    lease: OwnLease
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
        given_up, parts = _parted(operations) if fault.put is PutResult.FULL else (operations, ())
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
        if fault is LOCKED or fault.put is PutResult.FULL:
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
