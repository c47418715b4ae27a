"""Gathers stored spans into whole traces in bounded memory, and reads files of OTLP-JSON lines, one kind of trace store."""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, Protocol

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore.core.codecs.otlp_request import (
    Origin,
    UnreadableRequest,
    WireSpan,
    from_json,
    logs_from_json,
    parse_request,
    request_of,
)
from spanscore.core.codecs.otlp_span import ContentRecord, content_in_logs, event_bytes
from spanscore.errors import ConfigurationError


class StoredTrace(NamedTuple):
    """All spans that a store has of one trace.

    Attributes:
        trace_id: 16 bytes.
        spans: valid spans in any order; a store may have a span twice.
    """

    trace_id: bytes
    spans: Sequence[WireSpan]


class Unread(NamedTuple):
    """A part of a store that could not be read and was skipped.

    Attributes:
        name: name of the part: a trace's id, a line of a file, a window of time.
        because: the reason, without content.
    """

    name: str
    because: str


class TraceStore(Protocol):
    """Reads a store once, from the beginning. Blocks; one thread.

    Attributes:
        lost: facts about a span that the store does not keep, with their effects, a sentence each; empty until known.
    """

    lost: Sequence[str]

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Yield each trace once, whole.

        Raises:
            ConfigurationError: the store does not exist, or refuses. Raised at the first trace.
        """


# --- gathered spans --------------------------------------------------------------------------------------------------

_MOST_BYTES: Final = 64_000_000
"""Bytes of spans in memory; with Python's objects some 100 MB."""
_PARTS: Final = 256
"""Number of files in the temporary folder."""
_SPAN_BYTES: Final = 400
"""Memory of a span in bytes, in addition to its own bytes."""
_LENGTH: Final = Struct(">Q")
_LOG_RECORD: Final = "spanscore.log_record"
_RECORD_ORIGIN: Final = Origin(b"", InstrumentationScope(name=_LOG_RECORD).SerializeToString(), _LOG_RECORD)


class GatheredTraces:
    """Collects spans by trace, in bounded memory. A context manager, which removes its files at the end.

    Spans above the bound are written to files in a temporary folder, which only its owner may read, because spans have content.
    A hash of the trace id chooses the file, so that each file has whole traces, and is small enough to be read as a whole.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._spans: dict[bytes, list[WireSpan]] = {}
        self._folder: TemporaryDirectory[str] | None = None

    def __enter__(self) -> GatheredTraces:
        """Return the collection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, spans: Iterable[WireSpan]) -> None:
        """Add spans."""
        for span in spans:
            self._spans.setdefault(span.trace_id, []).append(span)
            self._bytes += len(span.raw) + _SPAN_BYTES
        if self._bytes > self._most_bytes:
            self._move_to_disk()

    def traces(self) -> Iterator[StoredTrace]:
        """Yield each trace once, in the order of the first spans; if some spans are on the disk, in another order."""
        if self._folder is None:
            yield from _yield_traces(self._spans)
            return
        self._move_to_disk()
        for file in sorted(Path(self._folder.name).iterdir()):
            spans: dict[bytes, list[WireSpan]] = {}
            for span in _read_part(file):
                spans.setdefault(span.trace_id, []).append(span)
            file.unlink()
            yield from _yield_traces(spans)

    def _move_to_disk(self) -> None:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="spanscore-replay-")  # of mode 0700
        parts: dict[int, list[WireSpan]] = defaultdict(list)
        for trace_id, spans in self._spans.items():
            parts[hash(trace_id) % _PARTS] += spans
        for part, spans in parts.items():
            request = request_of((span.origin, span.raw) for span in spans)
            with (Path(self._folder.name) / f"{part:03}").open("ab") as file:
                file.write(_LENGTH.pack(len(request)) + request)
        self._spans, self._bytes = {}, 0


def _yield_traces(spans: dict[bytes, list[WireSpan]]) -> Iterator[StoredTrace]:
    for trace_id in [*spans]:  # each is removed, to free its memory
        if whole := _join_records(spans.pop(trace_id)):
            yield StoredTrace(trace_id, whole)


def _span_of_record(record: ContentRecord) -> WireSpan:
    """Return a log record as a span with only its ids and its event, so that it can be stored like a span."""
    trace_id, span_id = record.ids[0].to_bytes(16), record.ids[1].to_bytes(8)
    ids = Span(trace_id=trace_id, span_id=span_id, name=_LOG_RECORD, start_time_unix_nano=1, end_time_unix_nano=1)
    return WireSpan(trace_id, span_id, b"", False, ids.SerializeToString() + event_bytes(record.event), _RECORD_ORIGIN)


def _join_records(spans: list[WireSpan]) -> list[WireSpan]:
    records = [span for span in spans if span.origin.scope_name == _LOG_RECORD]
    if not records:
        return spans
    events: dict[bytes, bytes] = defaultdict(bytes)
    for record in records:
        events[record.span_id] += Span(events=Span.FromString(record.raw).events).SerializeToString()
    whole = [span for span in spans if span.origin.scope_name != _LOG_RECORD]
    return [span._replace(raw=span.raw + events[span.span_id]) if span.span_id in events else span for span in whole]


def _read_part(file: Path) -> Iterator[WireSpan]:
    with file.open("rb") as opened:
        while length := opened.read(_LENGTH.size):
            yield from parse_request(opened.read(_LENGTH.unpack(length)[0])).spans


# --- files -----------------------------------------------------------------------------------------------------------

_LOGS: Final = b'"resourceLogs"'
_ENDINGS: Final = (".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".ndjson.gz")


class OtlpFiles:
    """Traces in OTLP-JSON lines, in the form in which the Collector's ``file`` exporter writes and rotates them.

    A trace may be spread over the files of a folder. Lines and spans that cannot be read are skipped and reported. Spans above
    ``most_bytes`` go to the disk.

    Raises:
        ConfigurationError: there is no file to read.
    """

    lost: Sequence[str] = ()

    def __init__(self, path: Path, *, most_bytes: int = _MOST_BYTES) -> None:
        self._files = [path]
        self._most_bytes = most_bytes
        if path.is_dir():
            self._files = sorted(file for file in path.iterdir() if file.name.endswith(_ENDINGS) and file.is_file())
            if not self._files:
                raise ConfigurationError(f"{path} holds no file that ends with {', '.join(_ENDINGS)}")
        elif not path.is_file():
            raise ConfigurationError(
                f"{path} is not a file or folder; a source is one, or jaeger:http://host:16686?service=NAME, or "
                "tempo:http://host:3200?q={…}"
            )

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Read all files, then yield each trace once."""
        with GatheredTraces(self._most_bytes) as gathered:
            for file in self._files:
                yield from _read_into(gathered, file)
            yield from gathered.traces()


def _read_into(gathered: GatheredTraces, file: Path) -> Iterator[Unread]:
    number = 0
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield from add_line(gathered, f"{file.name} line {number}", line)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield Unread(f"{file.name} after line {number}", "the compressed file is damaged or incomplete")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error


def add_line(gathered: GatheredTraces, name: str, line: bytes) -> Iterator[Unread]:
    """Add the spans or log records of one line, an export request in OTLP-JSON; yield the parts that cannot be read.

    ``name`` is the name of the line in messages.
    """
    try:
        if _LOGS in line:
            gathered.add([_span_of_record(record) for record in content_in_logs(logs_from_json(line))])
            return
        parsed = parse_request(from_json(line))
    except UnreadableRequest as error:
        yield Unread(name, f"not an OTLP trace request ({error.because})")
        return
    gathered.add(parsed.spans)
    for because, spans in parsed.rejected.items():
        yield Unread(name, f"{spans:,} spans with {because}" if spans > 1 else because)
