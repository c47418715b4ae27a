"""The disk that a file lies on: of which kind it is, and whether it is full.

On one that other machines write, too, SQLite's locks and shared memory do not hold.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spanscore.errors import ConfigurationError

__all__ = ["check_disk", "disk_kind", "is_full"]

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
