"""For any spans and any time, the memory of a table is bounded."""

import gc
import tracemalloc
from itertools import count

import pytest
from tests.pipeline.wire_spans import wire_span

from spanscore.pipeline.trace_index import Bounds
from spanscore.pipeline.traces import TraceTable

MS = 1_000_000
MB = 1_000_000
BOUNDS = {"quiet_ns": 10 * MS, "traces": 200, "bytes": 2 * MB, "max_bytes": MB}
STEPS = 5_000
AMBIENT = 5


def span(trace, span_id, parent=None, *, size=500):
    return wire_span(span_id, parent, trace=trace, size=size)


def whole_traces():
    for n in count(1):
        yield [(span(n, 3, 2), True), (span(n, 2, 1), True), (span(n, 1), True)]


def orphans_of_a_trace_each():
    for n in count(1):
        yield [(span(n, 3, 2), True)]


def traces_that_are_not_claimed():
    for n in count(1):
        yield [(span(n, below, below - 1 or None), False) for below in range(1, 11)]


def traces_that_go_on_in_which_nothing_is_claimed():
    for n in count(1):
        yield [(span(n % 100, n * 10 + below, AMBIENT), False) for below in range(10)]


def units_below_a_span_that_never_comes():
    for n in count(100, 10):
        yield [(span(1, n + 2, n + 1), True), (span(1, n + 3, n + 1), False), (span(1, n + 1, AMBIENT), True)]


def units_below_a_span_that_is_there():
    yield [(span(1, AMBIENT), False)]
    yield from units_below_a_span_that_never_comes()


def spans_that_are_not_claimed_below_one_that_never_comes():
    for n in count(100, 10):
        yield [(span(1, n + below, AMBIENT), False) for below in range(10)]


def spans_that_are_not_claimed_below_an_open_unit():
    yield [(span(1, AMBIENT), True)]
    yield from spans_that_are_not_claimed_below_one_that_never_comes()


def children_of_a_root_that_never_comes():
    for n in count(100):
        yield [(span(1, n, AMBIENT), True)]


def late_spans():
    yield [(span(1, AMBIENT), True)]
    yield from ([] for _ in range(20))
    yield from children_of_a_root_that_never_comes()


def a_chain_whose_top_never_comes():
    for n in count(100):
        yield [(span(1, n, n - 1), True)]


def circles():
    for n in count(100, 2):
        yield [(span(1, n, n + 1), True), (span(1, n + 1, n), True)]


STREAMS = [
    whole_traces,
    orphans_of_a_trace_each,
    traces_that_are_not_claimed,
    traces_that_go_on_in_which_nothing_is_claimed,
    units_below_a_span_that_never_comes,
    units_below_a_span_that_is_there,
    spans_that_are_not_claimed_below_one_that_never_comes,
    spans_that_are_not_claimed_below_an_open_unit,
    children_of_a_root_that_never_comes,
    late_spans,
    a_chain_whose_top_never_comes,
    circles,
]


@pytest.mark.parametrize(("followed", "late"), [(True, "rescore"), (False, "count")])
@pytest.mark.parametrize("stream", STREAMS)
def test_memory_is_bounded(stream, followed, late):
    table = TraceTable(Bounds(**BOUNDS, late=late), follows=lambda root: followed, is_unit_root=lambda top: False)
    gc.disable()  # forgotten objects are freed immediately
    tracemalloc.start()
    try:
        feed(table, stream())
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()

    assert held < 5 * MB


def feed(table, stream):
    """Feed spans like a receiver: spans beyond the limits are refused."""
    for step, spans in zip(range(STEPS), stream, strict=False):
        for one, claimed in spans:
            if table.open < BOUNDS["traces"] and table.bytes < BOUNDS["bytes"]:
                table.add(one, claimed=claimed, now_ns=step * MS)
        table.due(step * MS)
