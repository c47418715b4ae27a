"""Row: one (sample × metric) of a data set; and the file of them, which is also the memory of what was paid for."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self, TextIO, TypeAlias

from pydantic import TypeAdapter, ValidationError

from spanscore.core.codecs.text import json_in, wire_value
from spanscore.core.files import whole_file
from spanscore.core.score import Label, Outcome, Score
from spanscore.dataset.reading import WIDEST_CELL
from spanscore.errors import ConfigurationError, writing

__all__ = ["COLUMNS", "Row", "RowFile", "read_rows", "row_key", "write_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric on one sample.

    Attributes:
        line: of the sample: its line in the file, or its place, from 1.
        id: the sample's own, where its record has one under ``id``.
        key: 32 hex digits, the same for the same sample, metric version, judge model and votes; of equal samples each has
            its own. By it a later run knows what was paid for.
        value: on the metric's own scale; None unless ``outcome`` is ``scored``.
        quality: 0…1, 1 good; None for an open scale.
        evaluator_version: metric version, judge model and votes; empty in a file of an earlier release.
        made_by: hash of the judge's address and parameters and of the user's own code, of which the evaluator version tells
            nothing; empty for a metric of ours without a judge, and in a file of an earlier release.
        reason: for every other outcome, what happened, without content.
        explanation: the judge's words or the counts behind the value; may quote the sample.
        source: ``fallback``, where another judge than the one configured was asked; None otherwise.
        cached_calls: of ``judge_calls``, those that were answered without a request: no draws of their own.
        cost_usd: None when no price is known.
    """

    line: int
    id: str | int | None = None
    key: str
    metric: str
    version: str
    evaluator_version: str = ""
    made_by: str = ""
    outcome: Outcome
    value: float | None = None
    quality: float | None = None
    label: Label | None = None
    reason: str | None = None
    explanation: str | None = None
    error_type: str | None = None
    judge_model: str | None = None
    source: str | None = None
    judge_calls: int = 0
    cached_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    duration_s: float = 0.0

    @classmethod
    def of(cls, score: Score, *, line: int, key: str, own_id: str | int | None = None, made_by: str = "") -> Self:
        """Return the row of a score."""
        usage = score.usage
        return cls(
            line=line,
            id=own_id,
            key=key,
            metric=score.metric,
            version=score.version,
            evaluator_version=score.evaluator_version,
            made_by=made_by,
            outcome=score.outcome,
            value=score.value,
            quality=score.quality,
            label=score.label,
            reason=score.reason,
            explanation=score.explanation,
            error_type=score.error_type,
            judge_model=score.judge_model,
            source=score.source,
            judge_calls=len(usage.calls),
            cached_calls=usage.cached_calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            duration_s=round(usage.duration_s, 6),
        )

    @property
    def settled(self) -> bool:
        """Whether asking again would only cost again: a failed evaluation may succeed another time, a judge be back."""
        return not self.outcome.failed and self.outcome is not Outcome.SHUTDOWN and self.source is None


COLUMNS = tuple(field.name for field in fields(Row))
_ROW = TypeAdapter(Row)


def row_key(content: str, occurrence: int, metric: str, evaluator_version: str) -> str:
    """Return the key of a row.

    Args:
        content: hash of the sample.
        occurrence: how many equal samples came before it.
        metric: its name.
        evaluator_version: metric version, judge model and votes: a score of another one is another score.
    """
    text = f"{content}/{occurrence}/{metric}/{evaluator_version}"
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


class _Lines:
    def read(self, stream: TextIO) -> Iterator[Mapping[str, Any] | None]:
        for line in stream:
            try:
                found = json_in(line)
            except ValueError:
                found = None
            yield found if isinstance(found, dict) else None

    def writer(self, stream: TextIO, *, opening: bool) -> Callable[[Row], object]:
        return lambda row: stream.write(json.dumps(asdict(row), allow_nan=False) + "\n")


class _Cells:
    def read(self, stream: TextIO) -> Iterator[Mapping[str, Any] | None]:
        csv.field_size_limit(WIDEST_CELL)
        for row in csv.DictReader(stream):
            yield {name: cell or None for name, cell in row.items() if name}

    def writer(self, stream: TextIO, *, opening: bool) -> Callable[[Row], object]:
        cells = csv.DictWriter(stream, COLUMNS)
        if opening:
            cells.writeheader()

        return lambda row: cells.writerow({name: wire_value(value) for name, value in asdict(row).items()})


_Format: TypeAlias = _Lines | _Cells


def _format(path: Path, ending: str | None = None) -> _Format:
    ending = ending or path.suffix.lower()
    if ending == ".csv":
        return _Cells()
    if ending in (".jsonl", ".ndjson"):
        return _Lines()
    raise ConfigurationError(f"{path}: results are written as .jsonl or .csv")


def write_rows(path: str | Path, rows: Iterable[Row], *, ending: str | None = None) -> None:
    """Write rows, as JSON lines or CSV, for their owner alone. Whole or not at all: a file that is there stays until then.

    Args:
        path: the file.
        rows: in their order.
        ending: ``.jsonl`` or ``.csv``; the file's own when None.

    Raises:
        ConfigurationError: another ending, or the file cannot be written.
    """
    file = Path(path)
    form = _format(file, ending)
    with writing(path), whole_file(file, mode=0o600) as stream:
        write = form.writer(stream, opening=True)
        for row in rows:
            write(row)


class RowFile:
    """The file of a run's rows, written as they come: what was paid for is on disk, also when the process is killed.

    Args:
        path: ``.jsonl`` or ``.csv``. Rows that stand in it are taken over.
        fresh: begin anew: what stands in it is lost.

    Raises:
        ConfigurationError: another ending, no rows of ours in it, or it cannot be written.
    """

    def __init__(self, path: str | Path, *, fresh: bool = False) -> None:
        self.path = Path(path)
        self._form = _format(self.path)
        self._known = {} if fresh else {row.key: row for row in _read(self.path, self._form)}
        write_rows(self.path, self._known.values())  # without a line that was cut off, and proof that it can be written
        self._stream = self.path.open("a", encoding="utf-8", newline="")
        self._write = self._form.writer(self._stream, opening=False)

    def settled(self, key: str, made_by: str) -> Row | None:
        """Return the row of an earlier run; None if there is none, if it failed, or if another judge or code made it."""
        row = self._known.get(key)
        return row if row is not None and row.settled and row.made_by == made_by else None

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows; they are in the file when this returns.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        with writing(self.path):
            for row in rows:
                self._write(row)
            self._stream.flush()

    def close(self, rows: Iterable[Row]) -> int:
        """Write the run's rows in their order, and return how many of other samples, metrics or versions stay behind them."""
        self._stream.close()
        mine = list(rows)
        keys = {row.key for row in mine}
        others = [row for key, row in self._known.items() if key not in keys]
        write_rows(self.path, [*mine, *others])
        return len(others)


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file, ``.jsonl`` or ``.csv``; of one that is not there none.

    Raises:
        ConfigurationError: another ending, or no rows of ours in it.
    """
    yield from _read(path, _format(path))


def _read(path: Path, form: _Format) -> Iterator[Row]:
    if not path.exists():
        return
    strange = read = 0
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for found in form.read(stream):
                row = None if found is None else _row(found)
                read, strange = read + (row is not None), strange + (row is None)
                if row is not None:
                    yield row
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if strange > 1 or (strange and not read):  # one may be cut off, where a run was killed
        raise ConfigurationError(f"{path} holds other lines than rows that spanscore has written; name another file")


def _row(found: Mapping[str, Any]) -> Row | None:
    """Return the row that a line or a row of cells holds, None when it holds none, or was cut off before its last column."""
    if found.get(COLUMNS[-1]) is None:
        return None
    try:
        return _ROW.validate_python({name: value for name, value in found.items() if value is not None})
    except ValidationError:
        return None
