"""GatheredTraces: spans in any order → whole traces, in bounded memory.

What is more than the bound goes to files of a temporary folder, by a hash of its trace: each of these is small enough to be
read as a whole. They hold what the spans hold, for their owner alone, and are removed at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore.core.codecs.otlp_request import Origin, WireSpan, request_of, taken_apart
from spanscore.core.codecs.otlp_span import ContentRecord, event_bytes
from spanscore.sources.stored import StoredTrace

__all__ = ["GatheredTraces"]

_MOST_BYTES: Final = 64_000_000
"""Of spans in memory; with what Python takes beside them some 100 MB."""
_PARTS: Final = 256
_SPAN_BYTES: Final = 400
"""What a span takes beside its own bytes."""
_LENGTH: Final = Struct(">Q")
_LOG_RECORD: Final = "spanscore.log_record"
_FRAGMENT: Final = Origin(b"", InstrumentationScope(name=_LOG_RECORD).SerializeToString(), _LOG_RECORD)


class GatheredTraces:
    """Spans by trace. A context manager: at its end nothing is left on the disk.

    Args:
        most_bytes: of spans that are kept in memory.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._spans: dict[bytes, list[WireSpan]] = {}
        self._folder: TemporaryDirectory[str] | None = None

    def __enter__(self) -> GatheredTraces:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what is on the disk."""
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, spans: Iterable[WireSpan]) -> None:
        """Take spans in."""
        for span in spans:
            self._spans.setdefault(span.trace_id, []).append(span)
            self._bytes += len(span.raw) + _SPAN_BYTES
        if self._bytes > self._most_bytes:
            self._put_away()

    def add_logs(self, records: Iterable[ContentRecord]) -> None:
        """Take content in that stands in log records, for spans that came, or will."""
        self.add([_fragment(record) for record in records])

    def traces(self) -> Iterator[StoredTrace]:
        """Yield each trace once, in the order of their first spans; where some are on the disk, of those of one file."""
        if self._folder is None:
            yield from _each(self._spans)
            return
        self._put_away()
        for file in sorted(Path(self._folder.name).iterdir()):
            spans: dict[bytes, list[WireSpan]] = {}
            for span in _read(file):
                spans.setdefault(span.trace_id, []).append(span)
            file.unlink()
            yield from _each(spans)

    def _put_away(self) -> None:
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


def _each(spans: dict[bytes, list[WireSpan]]) -> Iterator[StoredTrace]:
    for trace_id in [*spans]:
        if whole := _joined(spans.pop(trace_id)):
            yield StoredTrace(trace_id, whole)


def _fragment(record: ContentRecord) -> WireSpan:
    """Return a record as a span that has its ids and its event alone, so that it is gathered, and put away, as spans are."""
    trace_id, span_id = record.ids[0].to_bytes(16), record.ids[1].to_bytes(8)
    ids = Span(trace_id=trace_id, span_id=span_id, name=_LOG_RECORD, start_time_unix_nano=1, end_time_unix_nano=1)
    return WireSpan(trace_id, span_id, b"", False, ids.SerializeToString() + event_bytes(record.event), _FRAGMENT)


def _joined(spans: list[WireSpan]) -> list[WireSpan]:
    """Return the spans of a trace, each with the events that came in log records."""
    records = [span for span in spans if span.origin.scope_name == _LOG_RECORD]
    if not records:
        return spans
    events: dict[bytes, bytes] = defaultdict(bytes)
    for record in records:
        events[record.span_id] += Span(events=Span.FromString(record.raw).events).SerializeToString()
    whole = [span for span in spans if span.origin.scope_name != _LOG_RECORD]
    return [span._replace(raw=span.raw + events[span.span_id]) if span.span_id in events else span for span in whole]


def _read(file: Path) -> Iterator[WireSpan]:
    with file.open("rb") as opened:
        while length := opened.read(_LENGTH.size):
            yield from taken_apart(opened.read(_LENGTH.unpack(length)[0])).spans
