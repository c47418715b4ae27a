"""A path → an open spool: made where there is none, checked, and moved aside where it is damaged."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from spanscore.core.files import ProcessLock
from spanscore.errors import ConfigurationError, writing
from spanscore.spool.table import ADDED, SCHEMA

__all__ = ["VERSION", "Sync", "check_ours", "file_id", "make_file", "make_tables", "move_aside", "opened"]

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
