"""A closed unit, still the bytes that came → the unit in GenAI names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from spanscore import semconv
from spanscore.codec.wire import WireSpan, span_data_of
from spanscore.dialects.translations.registry import Translator
from spanscore.model.span import SpanData, Unit
from spanscore.runtime.log import log_internal_error
from spanscore.units.traces import ClosedUnit

__all__ = ["stands_alone", "unit_of"]


def unit_of(closed: ClosedUnit, translator: Translator, mended: Counter[str]) -> Unit | None:
    """Return the unit, None where nothing in it means anything.

    Of one that is lost only its root is read, which tells how probable it was.

    Args:
        closed: what came.
        translator: counts what it reads.
        mended: counts what was not as it should be.
    """
    complete = closed.outcome is None
    spans: list[SpanData] = []
    means = False
    for span in closed.spans if complete else (closed.root,):
        try:
            data = span_data_of(span, mended)
            translated = translator.translate(data)
        except Exception as error:  # noqa: BLE001  (its bytes are no span, or a user's translation raises)
            log_internal_error("read a span", error)
            complete, means = False, True
            continue
        means = means or translated is not None
        spans.append(replace(data, attributes={}, events=()) if translated is None else translated)
    told = tuple(sorted(spans, key=lambda span: span.start_ns))
    return Unit(closed.key, told, complete, closed.revision) if means else None


def stands_alone(span: WireSpan, translator: Translator) -> bool:
    """Whether a span whose parent never came is a unit: an agent, workflow or chain with content."""
    try:
        read = translator.translate(span_data_of(span), count=False)
    except Exception as error:  # noqa: BLE001  (its bytes are no span, or a user's translation raises)
        log_internal_error("read a span", error)
        return False
    return read is not None and read.operation in semconv.WHOLE_OPERATIONS and read.no_content is None
