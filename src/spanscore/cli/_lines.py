"""A file of spans that a command was given → its spans."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from spanscore.codec.otlp import read_spans
from spanscore.errors import ConfigurationError, SampleError
from spanscore.model.span import SpanData
from spanscore.settings.printable import printable

__all__ = ["stored_spans"]


@contextmanager
def stored_spans(file: str) -> Iterator[Iterator[SpanData]]:
    """Yield the valid spans of a file of OTLP-JSON lines; at the end, standard error says how many are not, and why.

    Args:
        file: ``-`` = standard input.

    Raises:
        ConfigurationError: it cannot be read.
        SampleError: a line is not OTLP-JSON; the message names the file and the line.
    """
    left_out: Counter[str] = Counter()
    with _open_lines(file) as lines:
        yield _read(file, lines, left_out)
    if left_out:
        why = ", ".join(f"{reason} ({count:,})" for reason, count in left_out.most_common())
        message = f"{printable(file)}: {left_out.total():,} left out as not valid: {why}"
        typer.secho(message, fg=typer.colors.YELLOW, err=True)


def _read(file: str, lines: Iterable[str], left_out: Counter[str]) -> Iterator[SpanData]:
    try:
        yield from read_spans(lines, left_out)
    except SampleError as error:
        raise SampleError(f"{printable(file)}: {error}") from None


@contextmanager
def _open_lines(file: str) -> Iterator[Iterable[str]]:
    """Yield the lines of a file; what is not UTF-8 in them is replaced."""
    if file == "-":
        yield sys.stdin
        return
    try:
        with Path(file).open(encoding="utf-8", errors="replace") as opened:
            yield opened
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from None
