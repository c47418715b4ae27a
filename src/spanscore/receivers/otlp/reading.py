"""A closed unit, still the bytes that came → its units in GenAI names: mostly one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from spanscore.core.codecs.otlp_request import span_data_of
from spanscore.core.log import log_internal_error
from spanscore.core.span import SpanData, Unit
from spanscore.pipeline.assembly import split
from spanscore.pipeline.trace_index import ClosedUnit
from spanscore.receivers.log_content import LogContent
from spanscore.samples.normalizers.registry import Translator

__all__ = ["units_of"]


def units_of(
    closed: ClosedUnit, translator: Translator, mended: Counter[str], logs: LogContent | None = None
) -> list[Unit]:
    """Return the units of a topmost span and all below it; empty if they make none.

    If spans are missing, only the topmost one is read: its facts give the probability that the unit was chosen.

    Args:
        closed: the spans that came.
        translator: counts the spans it reads.
        mended: counts spans by what was wrong with them.
        logs: content that came in log records; None: none is read.
    """
    complete = closed.outcome is None
    spans: list[SpanData] = []
    for span in closed.spans if complete else (closed.root,):
        try:
            data = span_data_of(span, mended)
            translated = translator.translate(data) if logs is None else logs.translated(data, translator)
        except Exception as error:  # noqa: BLE001  (its bytes are no span, or a user's translation raises)
            log_internal_error("read a span", error)
            complete = False
            continue
        read = replace(data, attributes={}, events=()) if translated is None else translated
        spans.append(replace(read, unread=_numbers(closed.unread)) if closed.unread and span is closed.root else read)
    ordered = tuple(sorted(spans, key=lambda span: span.start_ns))
    return split(Unit(closed.key, ordered, complete, closed.revision))


def _numbers(ids: Mapping[bytes, bytes]) -> dict[int, int]:
    return {int.from_bytes(span_id): int.from_bytes(parent_id) for span_id, parent_id in ids.items()}
