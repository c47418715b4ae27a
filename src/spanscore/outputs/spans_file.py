"""Appends the spans that a scorer exports to a file of OTLP-JSON lines, which several commands can read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from spanscore.core.files import LineFile
from spanscore.core.log import log_once, type_name
from spanscore.core.printable import format_count
from spanscore.core.threads import SerialThread, call_in_child

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MAX_BYTES: Final = 100_000_000
"""Limit in bytes of the file and its predecessor, which ends in ``.1``, together."""
MOST_WAITING: Final = 4_096
"""Highest number of spans that wait; further spans are lost."""
_BATCH: Final = 512
"""Highest number of spans in a line."""


@dataclass(frozen=True, slots=True)
class SpansFileState:
    """Counts of a spans file.

    Attributes:
        written: number of spans that this process wrote.
        lost: number of spans that were not written.
        fault: reason of the latest failed write, or why no span can reach the file; empty after a write that succeeded. Spans
            that are lost because too many wait set no reason.
    """

    path: Path
    written: int
    lost: int
    fault: str

    def __str__(self) -> str:
        lost = f"; {self.lost:,} lost" if self.lost else ""
        fault = f" ({self.fault})" if self.fault else ""
        return f"spans_to: {format_count(self.written, 'span')} written to {self.path}{lost}{fault}"


class SpansFile:
    """Appends ended spans to a file, on a separate thread. Thread-safe; never raises; only ``flush`` and ``finish`` block.

    At most 4,096 spans wait. Further spans, and spans that cannot be written, count as lost.

    Args:
        path: created if it does not exist, in an existing folder. Only its owner may read it; processes may share it.
        as_line: makes a line, with its line break, from some ended spans.
        max_bytes: limit of the file and its predecessor together.
    """

    def __init__(
        self, path: Path, as_line: Callable[[Sequence[ReadableSpan]], str], *, max_bytes: int = MAX_BYTES
    ) -> None:
        self._file = LineFile(path, max_bytes)
        self._as_line = as_line
        self._thread = SerialThread("spanscore-spans-file")
        self._fault = ""
        self._make_parts()
        call_in_child(self, SpansFile._make_parts)

    def _make_parts(self) -> None:
        """Make lock, queue and counts, also in a forked child: its parent writes the spans that wait at the fork."""
        self._lock = Lock()
        self._waiting: deque[ReadableSpan] = deque()
        self._written = self._lost = 0
        self._had_spans = self._finished = False

    def attach_to(self, tracer: Any) -> Any:
        """Return a copy of a tracer that also writes its spans to the file; a tracer of another kind is returned as it is."""
        if not hasattr(tracer, "span_processor"):
            self._fault = "the tracer provider is not the SDK's, or OTEL_SDK_DISABLED is set"
            return tracer
        own = copy(tracer)  # every user of the scope shares the tracer itself
        own.span_processor = _WritingProcessor(tracer.span_processor, self)
        return own

    def on_end(self, span: ReadableSpan) -> None:
        """Accept an ended span, like a processor. A span that is recorded but not sampled is not written."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        with self._lock:
            if self._finished or len(self._waiting) >= MOST_WAITING:
                self._lost += 1
                return
            self._waiting.append(span)
            self._had_spans = True
        self._thread.do(self._write_waiting)

    def state(self) -> SpansFileState:
        """Return the counts."""
        with self._lock:
            return SpansFileState(self._file.path, self._written, self._lost, self._fault)

    def readable_place(self, *, metrics: bool = False) -> str:
        """Return a clause for ``describe()``: spans, or with ``metrics`` scores, are in this file; empty after a fault."""
        if self._fault:
            return ""
        path = self._file.path
        return f"the scores are in {path}; alerts need an endpoint" if metrics else f"written to {path}"

    def flush(self, timeout_s: float) -> None:
        """Wait until the ended spans are written or lost. Blocks for at most ``timeout_s``."""
        if self._had_spans:
            wait([self._thread.do(self._write_waiting)], timeout_s)

    def finish(self, timeout_s: float) -> None:
        """Write the waiting spans, for at most ``timeout_s``. The rest and all later spans count as lost."""
        self.flush(timeout_s)
        self._thread.stop()
        with self._lock:
            self._finished = True
            self._lost += len(self._waiting)
            self._waiting.clear()

    def _write_waiting(self) -> bool:
        """Write the waiting spans, a batch per line. Always returns True."""
        while True:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            if not batch:
                return True
            self._write(batch)

    def _write(self, batch: Sequence[ReadableSpan]) -> None:
        try:
            line = self._as_line(batch).encode("utf-8", "replace")
            if len(line) > self._file.most_bytes:
                half = len(batch) // 2
                if half:
                    self._write(batch[:half])
                    self._write(batch[half:])
                else:
                    self._lose(batch, f"a span is larger than {self._file.most_bytes:,} bytes, half of the limit")
                return
            self._file.append(line)
        except Exception as error:  # noqa: BLE001  (counted; the next batch is tried again)
            self._lose(batch, getattr(error, "strerror", None) or type_name(error))
        else:
            with self._lock:
                self._written, self._fault = self._written + len(batch), ""

    def _lose(self, batch: Sequence[ReadableSpan], why: str) -> None:
        with self._lock:
            self._lost, self._fault = self._lost + len(batch), why
        text = f"spans cannot be written to {self._file.path}: {why}; scorer.status() has the number of lost spans"
        log_once(f"spans of {self._file.path}", text)


@dataclass(eq=False)
class _WritingProcessor:
    """A span processor that also writes each ended span to a file; all other calls go to the inner processor."""

    _inner: Any
    _file: SpansFile

    def on_end(self, span: ReadableSpan) -> None:
        self._file.on_end(span)
        self._inner.on_end(span)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
