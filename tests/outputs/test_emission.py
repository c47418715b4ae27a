"""Values shared by the sinks of one unit."""

from __future__ import annotations

from opentelemetry.trace import get_current_span
from tests.outputs.builders import SPAN_ID, TRACE_ID, unit

from spanscore.outputs.score_spans import context_of


def test_every_sink_of_a_unit_has_the_same_context_and_no_other_unit_has_it() -> None:
    sampled, unsampled = unit().spans[0], unit(flags=0).spans[0]
    first, again, other = context_of(sampled), context_of(sampled), context_of(unsampled)
    rows = [get_current_span(context).get_span_context() for context in (first, other, context_of(sampled))]

    assert first is again
    assert [(ids.trace_id, ids.span_id, int(ids.trace_flags)) for ids in rows] == [
        (TRACE_ID, SPAN_ID, flags) for flags in (1, 0, 1)
    ]
