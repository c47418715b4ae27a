"""File access: append lines, replace whole files, lock between processes, and check the disk of a file."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO, TypeAlias

from spanscore.core.codecs.text import json_in
from spanscore.core.log import log_once
from spanscore.errors import ConfigurationError, writing

if TYPE_CHECKING:
    import sqlite3

# --- process lock ---------------------------------------------------------------------------------------------------

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@dataclass(slots=True, eq=False)
class ProcessLock:
    """A lock that one process holds at a time, until the process releases it or ends. Never blocks, never raises.

    On Windows, in a read-only folder and on some network file systems there is no such lock: every process then holds it.

    Args:
        path: empty file that represents the lock; created if it is missing, and never removed.
    """

    _path: Path
    _file: int | None = field(default=None, init=False)

    def take(self) -> bool:
        """Take the lock if no other process holds it; return whether this process holds the lock."""
        if self._file is None and fcntl is not None:
            with suppress(OSError):
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._file is None:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        except OSError:  # a file system without locks
            return True
        return True

    def release(self) -> None:
        """Release the lock. In a forked child this only closes the child's copy, and the parent keeps the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


# --- whole file -----------------------------------------------------------------------------------------------------


@contextmanager
def whole_file(path: Path, *, mode: int = 0o666, errors: str = "strict") -> Iterator[TextIO]:
    """Open a temporary file for UTF-8 text with unchanged line breaks. At the end of the block it replaces ``path``.

    So readers of ``path`` see the old or the new content, never a part of it.

    Args:
        path: replaced if it exists.
        mode: permissions as in ``os.open``, before the umask.
        errors: encoding errors as in ``open``.

    Raises:
        OSError: the file cannot be written; the old content stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.unlink(missing_ok=True)  # of a killed process with the same id
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors=errors, newline="") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# --- database file --------------------------------------------------------------------------------------------------

DATABASE_ENDINGS: Final = ("", "-shm", "-wal")
"""Endings of the names of an SQLite file and its companions."""
_OTHER_USERS: Final = 0o077


def make_database_file(path: Path, key: str) -> None:
    """Create an SQLite file for its owner only. An existing file is not opened: closing it would release SQLite's locks.

    Args:
        key: key of the setting, for messages.

    Raises:
        ConfigurationError: the file cannot be created, or the path is not one of a regular file, such as ``/dev/null``.
    """
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"{key}: {path} cannot be written: it is no file")
    with writing(f"{key}: {path}"), suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def make_database_private(path: Path, key: str) -> None:
    """Let only the owner read an SQLite file and its companions, to which SQLite gives the file's mode when it creates them.

    Raises:
        ConfigurationError: the mode of a file cannot be changed.
    """
    for ending in DATABASE_ENDINGS:
        file = path.with_name(path.name + ending)
        with writing(f"{key}: {file}"), suppress(FileNotFoundError):
            if file.stat().st_mode & _OTHER_USERS:
                file.chmod(0o600)


def number_of(connection: sqlite3.Connection, query: str, *values: int) -> int:
    """Return the number that is the only result of a query."""
    return int(connection.execute(query, values).fetchone()[0])


def check_database(connection: sqlite3.Connection, path: Path, key: str, *, application_id: int, version: int) -> bool:
    """Return whether an SQLite database has tables of this program; False if it is empty.

    Args:
        key: key of the setting, for messages.
        application_id: SQLite's ``application_id`` of such files, which identifies them among databases.
        version: newest readable version of the schema.

    Raises:
        ConfigurationError: the file belongs to another program, or to a newer version.
    """
    is_empty = not number_of(connection, "SELECT count(*) FROM sqlite_master")
    if not is_empty and number_of(connection, "PRAGMA application_id") != application_id:
        raise ConfigurationError(f"{key}: {path} is a database of another program; choose another file")
    if number_of(connection, "PRAGMA user_version") > version:
        raise ConfigurationError(
            f"{key}: {path} is of a newer version of spanscore: upgrade this one, or choose another file"
        )
    return not is_empty


# --- line file ------------------------------------------------------------------------------------------------------

# ``LineFile`` appends lines to a file that only its owner may read, and rotates the file when it is full.
#
# The file is opened for each line and closed again, so an operator may move, empty or delete it at any time. A line is one
# write at the end of the file, under a lock of the file, so several processes may share it. A partial write is truncated.

FileIdentity: TypeAlias = tuple[int, int]
"""Device and inode. A file system may reuse the numbers of a removed file."""

_IS_POSIX: Final = os.name == "posix"
_MODE: Final = 0o600
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_SAFETY_FLAGS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags against planted files: a symbolic link is not followed, and a pipe is not waited for."""
_ATTEMPTS: Final = 100
_PAUSE_S: Final = 0.01
"""Processes that share the file wait up to a second for each other: a line takes far less, but a process may be stopped."""


class Appended(NamedTuple):
    """The file that received a line.

    Attributes:
        is_first: whether the file was empty before.
    """

    file: FileIdentity
    is_first: bool


class _Opened(NamedTuple):
    descriptor: int
    status: os.stat_result
    locked: bool


class LineFile:
    """A file of lines, and the previous file with the suffix ``.1``: together ``max_bytes`` at most. Use it from one thread.

    Args:
        path: file in an existing folder; created if it is missing.
        max_bytes: maximum size of both files together; None = no maximum, so there is no previous file.
        durable: whether a line is on the disk when ``append`` returns. ``append`` then also removes an unfinished line: a last
            line without a line break that is not JSON, left by a killed process.

    Attributes:
        most_bytes: maximum size of a line.
    """

    def __init__(self, path: Path, max_bytes: int | None, *, durable: bool = False) -> None:
        self.path = path
        self._older = path.with_name(f"{path.name}.1")
        self._durable = durable
        self.most_bytes = sys.maxsize if max_bytes is None else max_bytes // 2

    def identities(self) -> set[FileIdentity]:
        """Return the identities of the existing files, two at most; an empty file counts as new."""
        existing = (_status(path) for path in (self.path, self._older))
        return {(status.st_dev, status.st_ino) for status in existing if status is not None and status.st_size}

    def append(self, line: bytes) -> Appended:
        """Append a line with its line break, whole or not at all; return the file that has it. Blocks while the disk blocks.

        Raises:
            OSError: the line cannot be written: no folder, no permission, no room, another user's file, or no private file on
                this disk.
        """
        for _ in range(_ATTEMPTS):
            with self._open() as file:
                present, identity = _status(self.path), (file.status.st_dev, file.status.st_ino)
                if present is None or (present.st_dev, present.st_ino) != identity:
                    continue  # another process has just rotated it
                if file.status.st_size and file.status.st_size + len(line) > self.most_bytes:
                    self.path.replace(self._older)
                    continue
                _write(_remove_unfinished_line(file) if self._durable else file, line)
                if self._durable:
                    os.fsync(file.descriptor)
                return Appended(identity, file.status.st_size == 0)
        raise OSError(errno.EAGAIN, "other processes change it constantly")

    def remove_unfinished_line(self) -> None:
        """Remove an unfinished line, as a durable ``append`` does; a missing file is created.

        Raises:
            OSError: as ``append``.
        """
        with self._open() as file:
            _remove_unfinished_line(file)

    @contextmanager
    def _open(self) -> Iterator[_Opened]:
        descriptor = os.open(self.path, _FLAGS | _SAFETY_FLAGS, _MODE)
        try:
            _make_private(descriptor, self.path)
            locked = _lock(descriptor)
            try:
                yield _Opened(descriptor, os.fstat(descriptor), locked)
            finally:
                if locked:  # closing is not enough: a child that was forked meanwhile has a copy of the descriptor
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _make_private(descriptor: int, path: Path) -> None:
    """Make sure that the file belongs to this user and that no other user may read it, or raise OSError."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if not _IS_POSIX:  # Windows has other permissions
        return
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it is another user's")
    if stat.S_IMODE(status.st_mode) == _MODE:
        return
    os.fchmod(descriptor, _MODE)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != _MODE:
        raise PermissionError(errno.EPERM, "its disk does not support files that only their owner may read")
    log_once(f"mode of {path}", f"{path} has texts of users and was readable by others; now only by its owner (0600)")


def _lock(descriptor: int) -> bool:
    """Wait for the lock of a file; return False if its disk has no locks. Raises OSError if another process keeps it."""
    if not _IS_POSIX:
        return False
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            return False
        else:
            return True
    raise OSError(errno.EAGAIN, "another process has locked it")


def _write(file: _Opened, line: bytes) -> None:
    """Append a line in one write; after a partial line of another writer, begin on a new line."""
    added = line if _ends_a_line(file) else b"\n" + line
    written = 0
    try:
        written = os.write(file.descriptor, added)
    finally:
        if written < len(added) and file.locked:
            os.ftruncate(file.descriptor, file.status.st_size)
    if written < len(added):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _remove_unfinished_line(file: _Opened) -> _Opened:
    """Remove a last line that has no line break and is not JSON; return the file with its present size."""
    if not file.locked or _ends_a_line(file):
        return file
    os.lseek(file.descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file.descriptor), "rb") as stream:
        content = stream.read()
    start = content.rfind(b"\n") + 1
    try:
        json_in(content[start:].decode("utf-8", "replace"))
    except ValueError:
        os.ftruncate(file.descriptor, start)
        return file._replace(status=os.fstat(file.descriptor))
    return file


def _ends_a_line(file: _Opened) -> bool:
    """Whether a file is empty or ends with a line break."""
    size = file.status.st_size
    if size:
        os.lseek(file.descriptor, size - 1, os.SEEK_SET)
    return size == 0 or os.read(file.descriptor, 1) == b"\n"


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


# --- disk -----------------------------------------------------------------------------------------------------------

# A spool is a SQLite file: on a disk that other machines also write, SQLite's locks and shared memory are unreliable.

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs"),
        *("beegfs", "ceph", "davfs", "glusterfs", "gpfs", "lustre", "pvfs2"),
    }
)
_REMOTE_FUSE: Final = ("glusterfs", "ceph", "sshfs", "s3fs", "mount-s3", "gcsfuse", "goofys", "juicefs", "rclone")
"""File systems in the form ``fuse.sshfs``."""
_SPARE_BYTES: Final = 32_000_000
"""Bytes that stay free. Deleting a row first writes to SQLite's log, so on a full disk no finished row could be deleted."""


def is_disk_full(path: Path, unused: Callable[[], int]) -> bool:
    """Whether the disk of a SQLite file has no room for more rows; False if that is unknown.

    Args:
        unused: returns the unused bytes inside the file; called only if the disk alone has too little room.
    """
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        return False
    return free < _SPARE_BYTES and free + unused() < _SPARE_BYTES


def check_disk(path: Path, mounts: str | None = None) -> None:
    """Make sure that a spool is on a disk of this machine, as far as that can be detected.

    Args:
        path: path of the spool.
        mounts: text in the form of ``/proc/self/mountinfo``; None = that file. If it cannot be read, every disk is accepted.

    Raises:
        ConfigurationError: the file is on a network disk.
    """
    kind = disk_kind(path, _mounts() if mounts is None else mounts)
    if kind in _NETWORK or kind.removeprefix("fuse.") in _REMOTE_FUSE:
        raise ConfigurationError(
            f"spool: {path} is on a network disk ({kind}), which can damage a spool: choose a disk of this machine, or "
            "allow_network_disk: true if only this machine ever opens it"
        )


def disk_kind(path: Path, mounts: str) -> str:
    """Return the kind of file system of a path; empty if the mounts do not include it."""
    whole = os.path.realpath(path)
    longest, kind = "", ""
    for line in mounts.splitlines():
        fields, _, kind_and_source = line.partition(" - ")
        mount = _unescape(fields.split(" ")[4])
        is_above = mount in ("/", whole) or whole.startswith(f"{mount}/")
        if is_above and len(mount) >= len(longest):  # a later mount at the same place hides the earlier one
            longest, kind = mount, kind_and_source.split(" ")[0]
    return kind


def _unescape(mount: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount = mount.replace(code, character)
    return mount


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return ""
