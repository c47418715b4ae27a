"""A file that a command was given → its lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spanscore.errors import ConfigurationError

__all__ = ["opened_lines"]


@contextmanager
def opened_lines(file: str) -> Iterator[Iterable[str]]:
    """Yield the lines of a file, or of standard input for ``-``; what is not UTF-8 in them is replaced.

    Raises:
        ConfigurationError: it cannot be read.
    """
    if file == "-":
        yield sys.stdin
        return
    try:
        with Path(file).open(encoding="utf-8", errors="replace") as opened:
            yield opened
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from None
