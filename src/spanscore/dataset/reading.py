"""A file of records → samples, one after the other: JSON lines, JSON, CSV. What is not a sample is named and passed over."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from spanscore.codec.stored_sample import KNOWN, sample_of
from spanscore.errors import ConfigurationError, SampleError
from spanscore.model.sample import Sample

__all__ = ["Bad", "Read", "id_of", "none_is_a_sample", "read_samples"]

ID = "id"
_COLUMNS = KNOWN | {ID}
_NAMED = 3
"""Bad records that an error names."""
_WIDEST_CELL = 2**31 - 1
"""Characters; the csv module's own limit of 131,072 is less than a long context."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that is not a sample.

    Attributes:
        line: where, counted from 1: the line of a file of lines or cells, else the record's place.
        reason: why, without quoting it.
        id: the record's own, None if it has none or cannot be read.
    """

    line: int
    reason: str
    id: str | int | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Read(NamedTuple):
    """A record that was read.

    Attributes:
        line: where, as of a ``Bad``.
        id: the record's own, None where it has none.
    """

    line: int
    sample: Sample | Bad
    id: str | int | None = None


def id_of(record: Any) -> str | int | None:
    """Return what a record calls itself under ``id``; None where it has none, or one that is neither text nor whole number."""
    own = record.get(ID) if isinstance(record, Mapping) else None
    return own if isinstance(own, str | int) and own != "" and not isinstance(own, bool) else None


def none_is_a_sample(bad: Sequence[Bad]) -> SampleError:
    """Return the error for records of which none can be scored; it names the first few."""
    named = "\n".join(f"  {one}" for one in bad[:_NAMED])
    return SampleError(f"none of {len(bad)} records is a sample:\n{named}")


def read_samples(path: str | Path) -> Iterator[Read]:
    """Yield the samples of a file with the line each stands in and its id, in order; what cannot be read as a ``Bad``.

    JSON lines and CSV are read as they are asked for; JSON (a list of records, or one object of columns) as a whole. The
    ending tells which it is; without a known one (and for ``-``, standard input), the first character does.

    Raises:
        ConfigurationError: the file cannot be opened, or is not text, or is JSON as a whole and broken. Raised when the first
            sample is asked for.
    """
    with _opened(path) as stream:
        try:
            opening = [next(stream, "")]
            while opening[-1] and not opening[-1].strip():
                opening.append(next(stream, ""))
            lines, form = chain(opening, stream), _format_of(path, opening[-1])
            if form == "json":
                yield from _of_json("".join(lines), _called(path))
            else:
                yield from _of_cells(lines) if form == "csv" else _of_lines(lines)
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{_called(path)} is not UTF-8 text") from error


def _called(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


@contextmanager
def _opened(path: str | Path) -> Iterator[TextIO]:
    if str(path) == "-":
        yield sys.stdin
        return
    try:
        # utf-8-sig: Excel writes a mark in front. newline="": a cell may hold line breaks.
        stream = Path(path).open(encoding="utf-8-sig", newline="")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    with stream:
        yield stream


def _format_of(path: str | Path, first: str) -> str:
    ending = Path(path).suffix.lower()
    if ending in (".jsonl", ".ndjson"):
        return "lines"
    opens = first.lstrip()[:1]
    if ending == ".json":
        return "json" if opens == "[" or not _is_object(first) else "lines"  # many call their lines .json
    if ending == ".csv" or opens not in ("{", "["):
        return "csv"
    return "lines" if opens == "{" and _is_object(first) else "json"


def _is_object(line: str) -> bool:
    """Whether a line alone is a record: not the beginning of an object that goes on, nor one that holds the records."""
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and _held_by(found) is None


def _of_lines(lines: Iterator[str]) -> Iterator[Read]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                record = json.loads(line)
            except ValueError as error:
                yield Read(number, Bad(number, f"not valid JSON: {getattr(error, 'msg', 'it cannot be read')}"))
            else:
                yield _read(number, record)


def _of_cells(lines: Iterator[str]) -> Iterator[Read]:
    csv.field_size_limit(_WIDEST_CELL)
    rows = csv.DictReader(lines)
    if not KNOWN & set(rows.fieldnames or ()):
        raise ConfigurationError(
            f"the first line of the CSV names no field of a sample; known fields: {', '.join(sorted(KNOWN))}"
        )
    while True:
        number = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield Read(number, Bad(number, f"not valid CSV: {error}"))
            continue
        if row is None:
            return
        yield _read(number, {name: cell for name, cell in row.items() if name}, texts=True)


def _of_json(text: str, name: str) -> Iterator[Read]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{name} is not valid JSON: {error}") from error
    if isinstance(found, Mapping):
        held = _held_by(found)
        found = [found] if held is None else held
    for place, record in enumerate(found if isinstance(found, list) else [found], 1):
        yield _read(place, record)


def _held_by(found: Mapping[str, Any]) -> list[Any] | None:
    """Return the records of an object that holds them in columns or under one of the usual names; None where it is a record."""
    wrapped = (found[name] for name in ("samples", "data", "rows") if isinstance(found.get(name), list))
    return _columns(found) if KNOWN & found.keys() else next(wrapped, None)


def _columns(found: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the records of ``{"question": […], "answer": […]}``, as a data set's ``to_dict`` gives them; None for others."""
    columns = {name: cells for name, cells in found.items() if name in _COLUMNS}
    answers = [name for name in ("question", "answer", "response") if name in columns]
    if not answers or not all(isinstance(cells, list) for cells in columns.values()):
        return None
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ConfigurationError(f"the columns differ in length: {told}")
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _read(place: int, record: Any, *, texts: bool = False) -> Read:
    try:
        return Read(place, sample_of(record, texts=texts), id_of(record))
    except SampleError as error:
        return Read(place, Bad(place, str(error), id_of(record)), id_of(record))
