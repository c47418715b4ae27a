"""Files that a command is to write → what keeps it from that, said before it takes minutes or costs money."""

from __future__ import annotations

import os
from pathlib import Path

from spanscore.errors import ConfigurationError

__all__ = ["refuse_overwriting", "refuse_unwritable"]


def refuse_unwritable(*paths: Path | None) -> None:
    """Refuse files that cannot be written; None = none is asked for.

    Raises:
        ConfigurationError: one is a folder, its folder is not there, or it is not this user's to write.
    """
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise ConfigurationError(f"{path} cannot be written: it is a folder; name a file in it")
        if not path.parent.is_dir():
            raise ConfigurationError(f"{path} cannot be written: the folder {path.parent} does not exist")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ConfigurationError(f"{path} cannot be written by this user; name another file")


def refuse_overwriting(source: str, option: str, path: Path | None) -> None:
    """Refuse to write what a command reads: its source, or a file in the folder that is that.

    Raises:
        ConfigurationError: that is asked for.
    """
    read = Path(source)
    if path is None or not path.exists() or not read.exists():
        return
    if path.samefile(read) or (read.is_dir() and path.parent.samefile(read)):
        raise ConfigurationError(f"{option} {path} is what is read here; choose another file")
