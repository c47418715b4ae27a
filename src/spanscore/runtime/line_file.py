"""LineFile: lines → the end of a file that its owner alone may read, and that gives way when it is full.

It is opened for each line and let go: who moves it away, empties it or makes room on its disk need tell nobody. A line is one
write behind all others, under a lock of the file, so that processes may share it; one that does not fit is taken back.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from spanscore.runtime.log import log_once

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Appended", "FileIdentity", "LineFile"]

FileIdentity: TypeAlias = tuple[int, int]
"""Device and inode: a file system may give those of one that was removed to the next."""

_IS_POSIX: Final = os.name == "posix"
_MODE: Final = 0o600
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_TRAP: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Neither a link that somebody has laid there is followed, nor the reader of a pipe waited for."""
_TURNS: Final = 100
_TURN_S: Final = 0.01
"""Processes that share it wait a second for each other: a line takes far less, but one of them may be stopped."""


class Appended(NamedTuple):
    """To which file a line went.

    Attributes:
        is_first: whether nothing was in it before.
    """

    file: FileIdentity
    is_first: bool


class _Opened(NamedTuple):
    descriptor: int
    status: os.stat_result
    locked: bool

    @property
    def identity(self) -> FileIdentity:
        return self.status.st_dev, self.status.st_ino


class LineFile:
    """A file of lines and, beside it, ending in ``.1``, the one before: together they have ``max_bytes`` at most. One thread.

    Args:
        path: in a folder that is there; the file is made where it is not.

    Attributes:
        most_bytes: that a line can have.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self._older = path.with_name(f"{path.name}.1")
        self.most_bytes = max_bytes // 2

    def identities(self) -> set[FileIdentity]:
        """Return which files there are, of at most two; an empty one is as new."""
        found = (_status(path) for path in (self.path, self._older))
        return {(one.st_dev, one.st_ino) for one in found if one is not None and one.st_size}

    def append(self, line: bytes) -> Appended:
        """Append a line with its end, whole or not at all, to a file; return to which one. Blocks, as its disk does.

        Raises:
            OSError: it cannot be written: no folder, no right, no room, another user's file, or none that only its owner reads.
        """
        for _ in range(_TURNS):
            with self._opened() as file:
                if file.identity != _identity(_status(self.path)):
                    continue  # another process has just put it aside
                if file.status.st_size and file.status.st_size + len(line) > self.most_bytes:
                    self.path.replace(self._older)
                    continue
                _write(file, line)
                return Appended(file.identity, file.status.st_size == 0)
        raise OSError(errno.EAGAIN, "other processes change it all the time")

    @contextmanager
    def _opened(self) -> Iterator[_Opened]:
        descriptor = os.open(self.path, _FLAGS | _NO_TRAP, _MODE)
        try:
            _make_private(descriptor, self.path)
            locked = _lock(descriptor)
            try:
                yield _Opened(descriptor, os.fstat(descriptor), locked)
            finally:
                if locked:  # closing does not do it where a child was forked meanwhile, which has a copy
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _make_private(descriptor: int, path: Path) -> None:
    """Make sure that nobody but its owner, who is us, may read it.

    Raises:
        OSError: that cannot be.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if not _IS_POSIX:  # Windows has other rights than these
        return
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it is another user's")
    if stat.S_IMODE(status.st_mode) == _MODE:
        return
    os.fchmod(descriptor, _MODE)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != _MODE:
        raise PermissionError(errno.EPERM, "its disk has no files that only their owner may read")
    log_once(
        f"mode of {path}", f"{path} holds what users wrote and could be read by others; now by its owner alone (0600)"
    )


def _lock(descriptor: int) -> bool:
    """Wait for the lock of a file; False: its disk has none.

    Raises:
        OSError: another process does not let it go.
    """
    if not _IS_POSIX:
        return False
    for _ in range(_TURNS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_TURN_S)
        except OSError:
            return False
        else:
            return True
    raise OSError(errno.EAGAIN, "another process has locked it")


def _write(file: _Opened, line: bytes) -> None:
    """Write a line behind what is there, in one call; behind half a line, which somebody left, on the next one."""
    size = file.status.st_size
    begin = b"" if size == 0 or _last_byte(file.descriptor, size) == b"\n" else b"\n"
    written = 0
    try:
        written = os.write(file.descriptor, begin + line)
    finally:
        if written < len(begin + line) and file.locked:
            os.ftruncate(file.descriptor, size)
    if written < len(begin + line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _last_byte(descriptor: int, size: int) -> bytes:
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _identity(status: os.stat_result | None) -> FileIdentity | None:
    return None if status is None else (status.st_dev, status.st_ino)
