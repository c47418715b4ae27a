"""Duration and usage of a unit, from its spans."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore import SingleTurnSample, semconv
from spanscore.core.sample import MultiTurnSample, Samples, TokenUsage
from spanscore.core.span import SpanData
from spanscore.samples.extraction import add_measures, usage_of
from spanscore.testing import make_span, make_unit

ROOT = make_span(trace_id=1, span_id=1, start_ns=0, end_ns=1_500_000_000)


def model(span_id: int, parent: int = 1, read: Any = None, written: Any = None, **fields: Any) -> SpanData:
    counts = {semconv.USAGE_INPUT_TOKENS: read, semconv.USAGE_OUTPUT_TOKENS: written}
    attributes = {name: count for name, count in counts.items() if count is not None}
    return make_span(semconv.CHAT, attributes=attributes, trace_id=1, span_id=span_id, parent_id=parent, **fields)


@pytest.mark.parametrize(
    ("spans", "usage", "why"),
    [
        ([model(2, read=3, written=4)], (3, 4), "one call"),
        ([model(2, read=3, written=4), model(3, read=5, written=6)], (8, 10), "two calls"),
        ([model(2, read=3, written=4), model(3, 2, read=3, written=4)], (3, 4), "one call, written by two libraries"),
        ([model(2), model(3, 2, read=3, written=4)], None, "the outer span of the call carries none"),
        ([model(2, read=3, written=4), model(3)], None, "a call without usage: the sum is not known"),
        ([model(2, read=3, written=4), model(3, status="error")], (3, 4), "a failed call used nothing that is known"),
        ([model(2, read=3), model(3, read=5, written=6)], (8, None), "half of the output is not the output"),
        ([model(2, read="3", written=-1)], None, "counts that are none"),
        ([], None, "no model was called"),
        ([model(2, 3, read=1, written=1), model(3, 2)], None, "spans that are each other's parents"),
    ],
)
def test_usage_is_the_sum_over_the_outermost_model_calls(
    spans: list[SpanData], usage: tuple[int | None, int | None] | None, why: str
) -> None:
    expected = None if usage is None else TokenUsage(input_tokens=usage[0], output_tokens=usage[1])

    assert usage_of(make_unit(ROOT, *spans)) == expected, why


def test_the_sum_of_the_root_counts_if_no_call_carries_usage() -> None:
    attributes = {semconv.USAGE_INPUT_TOKENS: 7, semconv.USAGE_OUTPUT_TOKENS: 8}
    root = make_span(semconv.INVOKE_AGENT, attributes=attributes, trace_id=1, span_id=1)

    assert usage_of(make_unit(root, model(2), model(3))) == TokenUsage(input_tokens=7, output_tokens=8)


def test_the_duration_is_that_of_the_root_span_and_a_value_that_is_there_stays() -> None:
    unit = make_unit(ROOT, model(2, read=3, written=4))
    empty, own = SingleTurnSample(response="x"), SingleTurnSample(response="x", duration_s=9.0)

    assert add_measures(Samples(single_turn=empty), unit).single_turn == SingleTurnSample(
        response="x", duration_s=1.5, usage=TokenUsage(input_tokens=3, output_tokens=4)
    )
    assert add_measures(Samples(single_turn=own), unit).single_turn.duration_s == 9.0


def test_a_conversation_alone_gets_no_measures() -> None:
    samples = Samples(multi_turn=MultiTurnSample(user_input=[]))

    assert add_measures(samples, make_unit(ROOT)) is samples
