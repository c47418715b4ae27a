"""What SQLite says of a file → what became of a row, and one line for the operator. It quotes nothing that the file holds."""

from __future__ import annotations

import errno
import sqlite3
from typing import Final, NamedTuple

from spanscore.core.log import type_name
from spanscore.spool.rows import Put

__all__ = ["CLOSED", "DAMAGED", "DISK_FULL", "LOCKED", "REPLACED", "SpoolFault", "fault_of"]


class SpoolFault(NamedTuple):
    """Why nothing could be written.

    Attributes:
        put: what became of rows that were put.
        reason: low-cardinality.
        line: what happened and what to do.
    """

    put: Put
    reason: str
    line: str


LOCKED: Final = SpoolFault(
    Put.FAILED, "spool: locked", "another program holds its lock: end it, or wait; it is tried again"
)
DAMAGED: Final = SpoolFault(Put.FAILED, "spool: damaged", "it is damaged: it is moved aside, and a new one begun")
REPLACED: Final = SpoolFault(Put.FAILED, "spool: replaced", "it was removed or replaced while it was open: opened anew")
CLOSED: Final = SpoolFault(Put.FAILED, "spool: closed", "it is closed")
DISK_FULL: Final = SpoolFault(Put.FULL, "spool: disk full", "its disk is full: make room; tried again every second")
_READ_ONLY: Final = SpoolFault(
    Put.FAILED, "spool: read-only", "it cannot be written: the disk or the file is read-only"
)
_DISK: Final = SpoolFault(
    Put.FAILED, "spool: disk error", "its disk fails, or a quota is spent; tried again every second"
)
_GONE: Final = SpoolFault(
    Put.FAILED, "spool: not there", "it cannot be opened: is its folder there, and may be written?"
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
    return known or SpoolFault(Put.FAILED, "spool: failed", f"it cannot be used ({type_name(error)})")
