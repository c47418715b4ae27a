"""Files: appended by line, replaced as a whole, locked between processes; and whether their disk is full."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TextIO, TypeAlias

from spanscore.core.log import log_once
from spanscore.errors import ConfigurationError

# --- process lock ---------------------------------------------------------------------------------------------------

# ProcessLock: what one process of a machine does for all that share a file.

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class ProcessLock:
    """A lock that one process at a time has, until it lets it go or ends, however it ends. Never blocks, never raises.

    Where there is no such lock (Windows, a folder that cannot be written, some network file systems) every process has it.

    Args:
        path: of an empty file that stands for it; made where it is not there, and left there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> bool:
        """Return whether this process has it, now or already."""
        if self._file is None and fcntl is not None:
            with suppress(OSError):
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._file is None:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.let_go()
            return False
        except OSError:  # a file system without locks
            return True
        return True

    def let_go(self) -> None:
        """Let another process have it; in a forked child: close the copy of it, as the parent keeps it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


# --- whole file -----------------------------------------------------------------------------------------------------

# A file that is written whole or not at all: until then what was there stays, and nobody reads a half.


@contextmanager
def whole_file(path: Path, *, mode: int = 0o666, errors: str = "strict") -> Iterator[TextIO]:
    """Open a file beside it, to be written as UTF-8 with line breaks as they are given, which takes its place at the end.

    Args:
        path: replaced where it exists.
        mode: as of ``os.open``: less what the umask takes away.
        errors: as of ``open``.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    unfinished.unlink(missing_ok=True)  # of a process that was killed
    try:
        descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors=errors, newline="") as file:
            yield file
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


# --- line file ------------------------------------------------------------------------------------------------------

# LineFile: lines → the end of a file that its owner alone may read, and that gives way when it is full.
#
# It is opened for each line and let go: who moves it away, empties it or makes room on its disk need tell nobody. A line is
# one write behind all others, under a lock of the file, so that processes may share it; one that does not fit is taken
# back.

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


# --- disk -----------------------------------------------------------------------------------------------------------

# The disk that a file lies on: of which kind it is, and whether it is full.
#
# On one that other machines write, too, SQLite's locks and shared memory do not hold.

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "davfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "pvfs2",
    )
)
_REMOTE_FUSE: Final = ("glusterfs", "ceph", "sshfs", "s3fs", "mount-s3", "gcsfuse", "goofys", "juicefs", "rclone")
"""As in ``fuse.sshfs``."""


_SPARE_BYTES: Final = 32_000_000
"""To delete a row is to write, into the log first: a disk that was filled to the last byte would stay full of what is done."""


def is_full(path: Path, unused: Callable[[], int]) -> bool:
    """Whether the disk has no room for more rows; False where that cannot be told.

    Args:
        unused: bytes of the file that hold nothing; asked where the disk has not enough without them.
    """
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        return False
    return free < _SPARE_BYTES and free + unused() < _SPARE_BYTES


def check_disk(path: Path, mounts: str | None = None) -> None:
    """Make sure that a file lies on a disk of this machine, as far as that can be told.

    Args:
        mounts: as ``/proc/self/mountinfo`` has them; None = that. Where there is none, every disk is as good.

    Raises:
        ConfigurationError: other machines have it, too.
    """
    kind = disk_kind(path, _mounts() if mounts is None else mounts)
    if kind in _NETWORK or kind.removeprefix("fuse.") in _REMOTE_FUSE:
        raise ConfigurationError(
            f"spool: {path} lies on a network disk ({kind}), where a spool can be damaged: choose a disk of this machine, or "
            "allow_network_disk: true if only this one ever opens it"
        )


def disk_kind(path: Path, mounts: str) -> str:
    """Return the kind of file system that holds a path; empty where the mounts do not say."""
    whole = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        fields, _, behind = line.partition(" - ")
        at = _unescaped(fields.split(" ")[4])
        if len(at) >= len(best) and _holds(at, whole):  # of two on one place the later one hides the other
            best, kind = at, behind.split(" ")[0]
    return kind


def _holds(at: str, path: str) -> bool:
    return at in ("/", path) or path.startswith(f"{at}/")


def _unescaped(at: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        at = at.replace(code, sign)
    return at


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return ""
