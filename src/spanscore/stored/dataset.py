"""Reads samples from JSON lines, JSON, CSV, parquet and data frames. A bad record is yielded, and reading goes on."""

from __future__ import annotations

import codecs
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TextIO, cast

from spanscore.core.codecs.annotation_file import LABEL_KEYS
from spanscore.core.codecs.stored_sample import ID, KNOWN, columns_of, sample_of, without_arrays
from spanscore.core.codecs.text import json_in
from spanscore.core.printable import did_you_mean
from spanscore.core.sample import Sample
from spanscore.errors import ConfigurationError, SampleError

_OURS = {*LABEL_KEYS, "times", "turns"}
"""Columns that commands of spanscore write, and that are no fields of a sample."""
_SEPARATORS = ",;\t|"
_BOM = "\ufeff"
_NAMED = 3
"""Most bad records that an error lists."""
WIDEST_CELL = 2**31 - 1
"""Longest cell in characters, because the csv module's default of 131,072 is too short for some contexts."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that is not a sample.

    Attributes:
        line: line in a file of lines or cells, otherwise place of the record, from 1.
        reason: the reason, without a quotation.
        id: id of the record; None if it has no id, or cannot be read.
    """

    line: int
    reason: str
    id: str | int | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class ReadRecord(NamedTuple):
    """A record that was read.

    Attributes:
        line: line or place, as in ``BadRecord``.
        sample: the sample, or the bad record.
        id: id of the record; None if it has no id.
        unread: names of its columns without a field of a sample.
        record: the record itself; None if it cannot be read.
    """

    line: int
    sample: Sample | BadRecord
    id: str | int | None = None
    unread: Sequence[Any] = ()
    record: Any = None


def read_record(place: int, record: Any, *, texts: bool = False) -> ReadRecord:
    """Return a record as a sample or a bad record.

    ``place`` is its line in a file, or its place, from 1. ``texts``: its values are cells of text, as in ``sample_of``.
    """
    columns = columns_of(tuple(record)) if isinstance(record, Mapping) else None
    unread = () if columns is None else tuple(name for name in columns.unread if name not in _OURS)
    own_id = None if columns is None or ID not in columns.read else _id(record[columns.read[ID]])
    try:
        return ReadRecord(place, sample_of(record, texts=texts), own_id, unread, record)
    except SampleError as error:
        return ReadRecord(place, BadRecord(place, str(error), own_id), own_id, unread, record)


def _id(value: Any) -> str | int | None:
    """Return an id that is a text or a whole number; None for any other value."""
    convert = getattr(value, "tolist", None)  # a NumPy scalar
    value = convert() if callable(convert) else value
    return value if isinstance(value, str | int) and value != "" and not isinstance(value, bool) else None


def records_of(samples: Any) -> Iterable[Any]:
    """Return the records of a data frame (pandas, polars), an Arrow table or a dict of columns; otherwise a value's items.

    Raises:
        ConfigurationError: the value is a dict of several data sets, such as the splits of a ``DatasetDict``, or of columns
            that differ in length.
    """
    if isinstance(samples, Mapping):
        splits = [name for name, value in samples.items() if callable(getattr(value, "to_pandas", None))]
        if len(splits) > 1:
            raise ConfigurationError(
                f"these are {len(splits)} data sets: {', '.join(map(str, splits))}; give one of them"
            )
        return records_of(samples[splits[0]]) if splits else _records_in(samples)
    if callable(getattr(samples, "itertuples", None)):
        names = [*getattr(samples, "columns", ())]
        return (dict(zip(names, row, strict=True)) for row in samples.itertuples(index=False, name=None))
    if callable(iter_rows := getattr(samples, "iter_rows", None)):
        return cast(Iterable[Any], iter_rows(named=True))
    to_list = getattr(samples, "to_pylist", None)
    return cast(Iterable[Any], to_list() if callable(to_list) else samples)


def none_is_a_sample(bad: Sequence[BadRecord]) -> SampleError:
    """Return the error for a file with bad records only, which lists the first few."""
    first = "\n".join(f"  {record}" for record in bad[:_NAMED])
    return SampleError(f"none of {len(bad)} records is a sample:\n{first}")


def read_samples(path: str | Path, *, only_lines: bool = False) -> Iterator[ReadRecord]:
    """Yield the records of a file in order; ``only_lines``: it has JSON lines, whatever its ending.

    JSON lines and CSV are read line by line, parquet (which needs pyarrow) in batches. JSON (a list of records, or one object
    with records or columns) is read as a whole. The format follows from the file's ending. A ``.json`` file is JSON lines if
    its first line with text is a whole record. Without a known ending, and for ``-`` (standard input), that line decides: a
    whole record means JSON lines, any other ``{`` or ``[`` JSON, other text CSV. The CSV separator is the one that gives most
    known columns in that line.

    Raises:
        ConfigurationError: the file cannot be opened, is not text, or is invalid JSON or parquet; pyarrow is missing; the CSV
            header has no known field; columns differ in length. Raised when the faulty place is reached.
    """
    if Path(path).suffix.lower() == ".parquet" and not only_lines:
        yield from (read_record(place, record) for place, record in enumerate(_read_parquet(Path(path)), 1))
        return
    with _open(path) as stream:
        try:
            opening = [next(stream, "").removeprefix(_BOM)]
            while opening[-1] and not opening[-1].strip():
                opening.append(next(stream, ""))
            lines = chain(opening, stream)
            form = "lines" if only_lines else _format_of(path, opening[-1])
            if form == "json":
                yield from _read_json("".join(lines), _display_name(path))
            else:
                yield from _read_csv(lines) if form == "csv" else _read_lines(lines)
        except UnicodeError as error:
            raise ConfigurationError(f"{_display_name(path)} is not {stream.encoding.upper()} text: {error}") from error


def _display_name(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


@contextmanager
def _open(path: str | Path) -> Iterator[TextIO]:
    if str(path) == "-":
        yield sys.stdin
        return
    try:
        stream = Path(path).open("rb")  # noqa: SIM115  (closed below)
        start = stream.peek(2)[:2]  # a pipe can be opened only once
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    # UTF-16 has a mark, for example in Excel's "Unicode text"
    encoding = "UTF-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "UTF-8"
    with TextIOWrapper(stream, encoding=encoding, newline="") as text:  # a cell may hold line breaks
        yield text


def _read_parquet(path: Path) -> Iterator[Any]:
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigurationError(
            f"{path} is parquet, which pyarrow reads: pip install pyarrow; or give JSON lines"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            yield from (row for batch in file.iter_batches() for row in batch.to_pylist())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # ArrowInvalid
        raise ConfigurationError(f"{path} is not valid parquet: {' '.join(str(error).split())}") from error


def _format_of(path: str | Path, first: str) -> str:
    """Return the format of a file, ``lines``, ``json`` or ``csv``, from its ending and its first line with text."""
    ending = Path(path).suffix.lower()
    if ending in (".jsonl", ".ndjson"):
        return "lines"
    opens = first.lstrip()[:1]
    if ending == ".json":
        return "json" if opens == "[" or not _is_object(first) else "lines"  # files of JSON lines often end in .json
    if ending in (".csv", ".tsv") or opens not in ("{", "["):
        return "csv"
    return "lines" if opens == "{" and _is_object(first) else "json"


def _is_object(line: str) -> bool:
    """Return whether one line is a record: not the start of an object, and not an object that contains the records."""
    try:
        record = json_in(line)
    except ValueError:
        return False
    return isinstance(record, dict) and _read_records(record) is None


def _read_lines(lines: Iterator[str]) -> Iterator[ReadRecord]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                record = json_in(line)
            except json.JSONDecodeError as error:
                yield ReadRecord(number, BadRecord(number, f"not valid JSON: {error.msg}"))
            else:
                yield read_record(number, record)


def _read_csv(lines: Iterator[str]) -> Iterator[ReadRecord]:
    csv.field_size_limit(WIDEST_CELL)
    skipped, opening = next(((number, line) for number, line in enumerate(lines) if line.strip()), (0, ""))
    header = {separator: next(csv.reader([opening], delimiter=separator), []) for separator in _SEPARATORS}
    separator = max(header, key=lambda each: len(_find_known_fields(header[each])))  # if equal, the first: the comma
    rows = csv.reader(chain([opening], lines), delimiter=separator)
    names = next(rows, [])
    if not _find_known_fields(names):
        raise _unknown_header(max(header.values(), key=len))
    while True:
        number = skipped + rows.line_num + 1
        try:
            cells = next(rows, None)
        except csv.Error as error:
            yield ReadRecord(number, BadRecord(number, f"not valid CSV: {error}"))
            continue
        if cells is None:
            return
        if cells:
            yield read_record(number, {name: cell for name, cell in zip_longest(names, cells) if name}, texts=True)


def _unknown_header(names: Sequence[str]) -> ConfigurationError:
    near = [hint for name in names if (hint := did_you_mean(name, KNOWN))]
    return ConfigurationError(
        f"the first line of the CSV, {len(names)} columns, names no field of a sample; {' '.join([*near[:1], ''])}"
        f"known fields: {', '.join(sorted(KNOWN))}"
    )


def _find_known_fields(names: Iterable[Any]) -> frozenset[str]:
    return KNOWN.intersection(columns_of(tuple(names)).read)


def _read_json(text: str, name: str) -> Iterator[ReadRecord]:
    try:
        document = json_in(text)
    except ValueError as error:
        raise ConfigurationError(f"{name} is not valid JSON: {error}") from error
    records = _records_in(document) if isinstance(document, Mapping) else document
    for place, record in enumerate(records if isinstance(records, list) else [records], 1):
        yield read_record(place, record)


def _records_in(document: Mapping[str, Any]) -> list[Any]:
    """Return the records that an object contains; the object itself if it is a record."""
    records = _read_records(document)
    return [document] if records is None else records


def _read_records(document: Mapping[str, Any]) -> list[Any] | None:
    """Return the records of an object with columns, with an index, or with a usual name for them; None for a record."""
    if _find_known_fields(document):
        return _records_of_columns(document)
    names = (name for name in ("samples", "data", "rows") if isinstance(document.get(name), list))
    if (name := next(names, None)) is not None:
        return _join_names(document.get("columns"), document[name])
    by_index = bool(document) and all(isinstance(row, Mapping) and _find_known_fields(row) for row in document.values())
    return [*document.values()] if by_index else None  # pandas, orient="index"


def _join_names(names: Any, rows: list[Any]) -> list[Any]:
    """Return rows of cells as records (pandas, orient="split"); rows that are records are unchanged."""
    are_cells = isinstance(names, list) and all(isinstance(row, list) and len(row) == len(names) for row in rows)
    return [dict(zip(names, row, strict=True)) for row in rows] if are_cells else rows


def _records_of_columns(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the records of ``{"question": […], "answer": […]}``, the form of ``to_dict`` and ``to_json``; None otherwise."""
    read = columns_of(tuple(document)).read
    columns = {name: _cells(document[column]) for name, column in read.items()}
    answers = [name for name in ("question", "answer", "response") if name in columns]
    if not answers or not all(isinstance(cells, list) for cells in columns.values()):
        return None
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ConfigurationError(f"the columns differ in length: {listed}")
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _cells(column: Any) -> Any:
    """Return the cells of a column. pandas writes a column as an object, place → cell."""
    has_places = isinstance(column, Mapping) and all(str(place).isdecimal() for place in column)
    return [*column.values()] if has_places else without_arrays(column)
