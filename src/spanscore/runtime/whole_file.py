"""A file that is written whole or not at all: until then what was there stays, and nobody reads a half."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

__all__ = ["whole_file"]


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
