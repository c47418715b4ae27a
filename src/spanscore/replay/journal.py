"""Journal: units that were scored, with their scores, as OTLP-JSON lines: what a report shows and a resumed replay knows.

A line is written when a score is there, and before it the unit's own spans, once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from spanscore.core.codecs.otlp import json_line, read_spans, request_line
from spanscore.core.codecs.otlp_request import UnreadableRequest, WireSpan, from_json, request_of
from spanscore.core.files import ProcessLock
from spanscore.core.span import SpanData, UnitKey
from spanscore.errors import ConfigurationError, writing
from spanscore.outputs.providers import Providers
from spanscore.outputs.score_spans import EvaluationSpans

__all__ = ["Journal"]

_EXPECTED: Final = 1_000
"""Units whose spans are kept: some times as many as are scored at once."""
_BEGINNING: Final = b'{"resourceSpans":'
"""Of every line."""


class Journal(SpanExporter):
    """A file that is appended to. Its ``sink`` writes scores, on the span thread; the rest is for who replays.

    Args:
        path: of the file; made for its owner alone, as it holds prompts and answers.
        waits: whether lines wait for ``commit``: what is emitted counts when it has arrived.

    Attributes:
        path: as it was given.
        sink: to be given to the scorer.

    Raises:
        ConfigurationError: it cannot be written, another replay writes it, or it holds something else.
    """

    def __init__(self, path: Path, *, waits: bool = False) -> None:
        self.path = path
        self._waits = waits
        self._waiting: list[str] = []
        self._expected: dict[UnitKey, Sequence[WireSpan]] = {}
        self._lock = ProcessLock(path)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not self._lock.take():
                raise ConfigurationError(
                    f"{path} is being written by another replay: wait for it, or write another file"
                )
            self._file = _opened(path)
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self))
        providers = Providers(
            provider, NoOpMeterProvider(), NoOpLoggerProvider()
        )  # else by the environment, and they leave
        self.sink = EvaluationSpans(providers, content=True)

    def expect(self, key: UnitKey, spans: Sequence[WireSpan]) -> None:
        """Keep a unit's spans until its first score is there; of too many, of which no score ever came, the oldest go."""
        self._expected[key] = spans
        if len(self._expected) > _EXPECTED:
            self._expected.pop(next(iter(self._expected)), None)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write evaluation spans."""
        for span in spans:
            parent: Any = span.parent
            own = self._expected.pop(UnitKey(parent.trace_id, parent.span_id), None)
            if own:
                self._waiting.append(request_line(request_of((one.origin, one.raw) for one in own)))
            self._waiting.append(json_line([span]))
        if not self._waits:
            self.commit()
        return SpanExportResult.SUCCESS

    def commit(self) -> None:
        """Write what waits."""
        lines, self._waiting = self._waiting, []
        if not self._file.closed:
            self._file.writelines(lines)
            self._file.flush()

    def close(self) -> None:
        """Write no more."""
        self._file.close()
        self._lock.let_go()

    @staticmethod
    def spans(path: Path) -> Iterator[SpanData]:
        """Yield the spans of such a file; a last line that is not whole, as of a process that was killed, is passed over."""
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from read_spans(line for line in lines if line.endswith("\n") or _is_whole(line.encode()))


def _opened(path: Path) -> IO[str]:
    """Return the file to append to, without a last line that is not whole: the process that wrote it was killed."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end and file.seek(end - 1) is not None and file.read(1) != b"\n":
            end -= 1
        file.seek(end)
        last = file.read()
        if last and _is_whole(last):
            file.write(b"\n")
        elif _BEGINNING.startswith(last[: len(_BEGINNING)]):
            file.truncate(end)
        else:
            raise ConfigurationError(f"{path} is no file of a replay: name that of one, or a new one")
    path.chmod(0o600)  # it may have been there, and others' to read
    return path.open("a", encoding="utf-8")


def _is_whole(line: bytes) -> bool:
    try:
        from_json(line)
    except UnreadableRequest:
        return False
    return True
