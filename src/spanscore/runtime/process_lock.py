"""ProcessLock: what one process of a machine does for all that share a file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["ProcessLock"]


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
        """Let another process have it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def reset(self) -> None:
        """In a forked child: it is the parent's, which keeps it when the child closes its copy."""
        self.let_go()
