"""Requests made within seconds → spans at the times of live traffic: 100 minutes that end about now.

A demo asks as fast as it can, and how fast that is differs from run to run: a report that cut its stretches by those times
would say something else each time. Here every request has its place on the clock by its number alone; each trace is moved as a
whole, so that what is within it (order, gaps, durations) stays as it was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import Event, ReadableSpan

__all__ = ["MINUTES", "spread"]

MINUTES = 100
"""Retrieval breaks after 40 % of the requests and is mended after 65 %: at minutes 40 and 65, which are borders of the five
minutes in which a report of that many scores takes its means."""
_MINUTE_NS = 60_000_000_000
_FIVE_MINUTES_NS = 5 * _MINUTE_NS


def spread(spans: Sequence[ReadableSpan], requests: int, now_ns: int) -> list[ReadableSpan]:
    """Return the spans in their order, each trace moved to its request's time.

    Args:
        spans: of one demo, evaluation spans among them.
        requests: how many were to be made; fewer traces (it was interrupted) leave the end empty.
        now_ns: nanoseconds since the epoch. The last five minutes that are over end the 100.
    """
    begin = now_ns // _FIVE_MINUTES_NS * _FIVE_MINUTES_NS - MINUTES * _MINUTE_NS
    roots = sorted((span for span in spans if span.parent is None), key=_started)
    moved = {
        _trace_id(root): begin + number * MINUTES * _MINUTE_NS // requests - _started(root)
        for number, root in enumerate(roots)
    }
    return [_moved(span, moved.get(_trace_id(span), 0)) for span in spans]


def _started(span: ReadableSpan) -> int:
    return span.start_time or 0


def _trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return context.trace_id if context is not None else 0


def _moved(span: ReadableSpan, by_ns: int) -> ReadableSpan:
    start, end = span.start_time, span.end_time
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=[Event(one.name, one.attributes, one.timestamp + by_ns) for one in span.events],
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=None if start is None else start + by_ns,
        end_time=None if end is None else end + by_ns,
        instrumentation_scope=span.instrumentation_scope,
    )
