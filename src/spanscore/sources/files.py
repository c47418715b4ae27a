"""OtlpFiles: files of OTLP-JSON lines, as the Collector's ``file`` exporter writes and rotates them → whole traces."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from spanscore.core.codecs.otlp_request import UnreadableRequest, from_json, logs_from_json, taken_apart
from spanscore.core.codecs.otlp_span import content_in_logs
from spanscore.errors import ConfigurationError
from spanscore.sources.gathering import GatheredTraces
from spanscore.sources.stored import StoredTrace, Unread

__all__ = ["OtlpFiles", "take_line"]

_LOGS: Final = b'"resourceLogs"'
_ENDINGS: Final = (".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".ndjson.gz")


class OtlpFiles:
    """A file, or all of a folder: a trace may be spread over them. Whatever a line has no use for is passed over and named.

    Args:
        path: of the file or folder.
        most_bytes: of spans in memory; what is more waits on the disk.

    Raises:
        ConfigurationError: there is nothing to read.
    """

    lost: Sequence[str] = ()

    def __init__(self, path: Path, *, most_bytes: int | None = None) -> None:
        self._files = _files_of(path)
        self._most_bytes = most_bytes

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Read all, then yield each trace once."""
        bound = {} if self._most_bytes is None else {"most_bytes": self._most_bytes}
        with GatheredTraces(**bound) as gathered:
            for file in self._files:
                yield from _read_into(gathered, file)
            yield from gathered.traces()


def _files_of(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        if not path.is_file():
            raise ConfigurationError(
                f"{path} is no file or folder; a source is one, or jaeger:http://host:16686?service=NAME, or "
                "tempo:http://host:3200?q={…}"
            )
        return [path]
    files = sorted(file for file in path.iterdir() if file.name.endswith(_ENDINGS) and file.is_file())
    if not files:
        raise ConfigurationError(f"{path} holds no file that ends with {', '.join(_ENDINGS)}")
    return files


def _read_into(gathered: GatheredTraces, file: Path) -> Iterator[Unread]:
    number = 0
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield from take_line(gathered, f"{file.name} line {number}", line)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield Unread(f"{file.name} after line {number}", "the compressed file is damaged or not whole")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error


def take_line(gathered: GatheredTraces, name: str, line: bytes) -> Iterator[Unread]:
    """Take in the spans, or the log records, of one line of OTLP-JSON; yield what of it cannot be read.

    Args:
        gathered: gets them.
        name: of the line, for what cannot be read.
        line: one export request.
    """
    try:
        if _LOGS in line:
            gathered.add_logs(content_in_logs(logs_from_json(line)))
            return
        taken = taken_apart(from_json(line))
    except UnreadableRequest as error:
        yield Unread(name, f"no OTLP trace request ({error.because})")
        return
    gathered.add(taken.spans)
    for because, spans in taken.rejected.items():
        yield Unread(name, f"{spans:,} spans with {because}" if spans > 1 else because)
