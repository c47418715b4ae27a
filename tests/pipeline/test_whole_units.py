"""RecentUnitSpans: the last units stay with their spans, in bounded memory."""

from __future__ import annotations

from spanscore.pipeline.decisions import RecentUnitSpans
from spanscore.testing import make_span, make_unit


def test_the_oldest_goes_first() -> None:
    kept = RecentUnitSpans()
    for number in range(1, 151):
        kept.keep(make_unit(make_span(span_id=number)), 100)

    assert [unit.key.span_id for unit in kept.units()] == [*range(51, 151)]


def test_content_is_bounded_and_a_unit_above_the_bound_puts_none_out() -> None:
    kept = RecentUnitSpans()
    for number in range(1, 6):
        kept.keep(make_unit(make_span(span_id=number)), 1_500_000)
    kept.keep(make_unit(make_span(span_id=6)), 5_000_000)

    assert [unit.key.span_id for unit in kept.units()] == [4, 5]
