"""Spans that no metric will score lose their bytes on arrival, without any other change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest
from tests.capture.otlp.builders import a_wire_span, taken

from spanscore.capture.otlp.claims import RequestPartition, UnsampledUnit, add_unsampled
from spanscore.core.codecs.otlp_request import Origin, WireSpan, copy_span
from spanscore.core.codecs.otlp_scan import SpanPlace
from spanscore.pipeline.trace_index import Bounds
from spanscore.pipeline.traces import TraceTable

Spans = list[tuple[WireSpan, bool]]
SECOND_NS = 1_000_000_000


def never(_: WireSpan) -> bool:
    return False


def split_units(spans: Spans, may: Callable[[WireSpan], bool] = never) -> tuple[list[list[bytes]], list[WireSpan]]:
    """Return the spans of each unsampled unit, root first, and the others."""
    unsampled, others = sorted_out(spans[::-1], may)
    return [[*ids] for _, ids in unsampled], [span for span, _ in others[::-1]]


def dropped_unless(may: Callable[[WireSpan], bool]) -> Callable[[bytes, SpanPlace, Origin], WireSpan | None]:
    def dropped(body: bytes, place: SpanPlace, origin: Origin) -> WireSpan | None:
        root = copy_span(body, place, origin)
        return None if may(root) else root

    return dropped


def sorted_out(spans: Spans, may: Callable[[WireSpan], bool]) -> tuple[list[UnsampledUnit], Spans]:
    """Return the unsampled units of a request, and its other spans."""
    request = taken(span for span, _ in spans)
    partition = RequestPartition(request, dropped_unless(may))
    for (origin, places), (_, claimed) in zip(request.places[::-1], spans[::-1], strict=True):
        partition.read(origin, places, None if claimed else lambda *_: None)
    return partition.unsampled, partition.other_spans[::-1]


def test_below_an_unsampled_root_no_claimed_span_keeps_its_bytes() -> None:
    root = a_wire_span()
    tool = a_wire_span("execute_tool", parent=root)
    step = a_wire_span(None, parent=tool)
    chat = a_wire_span("chat", parent=step)

    units, others = split_units([(root, True), (tool, True), (step, False), (chat, True)])

    assert units == [[root.span_id, tool.span_id, chat.span_id]]
    assert others == [step]


def test_below_a_root_that_may_be_scored_and_without_a_root_they_stay() -> None:
    root, other = a_wire_span(trace=1), a_wire_span(trace=2)
    spans = [(root, True), (a_wire_span("chat", parent=root), True), (a_wire_span("chat", trace=2, parent=other), True)]

    assert split_units(spans, lambda span: span == root) == ([], [span for span, _ in spans])


def test_what_waits_of_a_request_is_counted_by_traces_and_bytes() -> None:
    root, chosen, lost = a_wire_span(trace=1), a_wire_span(trace=2), a_wire_span("chat", trace=3, parent=a_wire_span())
    request = taken([root, chosen, lost, a_wire_span(None, trace=4)])
    partition = RequestPartition(request, dropped_unless(lambda span: span == chosen))
    for number, (origin, places) in enumerate(request.places):
        partition.read(origin, places, None if number < 3 else lambda *_: None)

    assert partition.traces == {span.trace_id for span in (root, chosen, lost)}
    assert partition.other_traces == {(4).to_bytes(16)}
    assert partition.size == len(chosen.raw) + len(lost.raw)


def test_a_unit_below_a_request_of_the_web_is_sampled_by_its_own_id() -> None:
    request = a_wire_span(None)
    chosen, left = a_wire_span(parent=request), a_wire_span(parent=request)
    below = [a_wire_span("chat", parent=top) for top in (chosen, left)]

    units, others = split_units(
        [(one, one is not request) for one in (request, chosen, left, *below)], lambda one: one == chosen
    )

    assert units == [[left.span_id, below[1].span_id]]
    assert others == [request, chosen, below[0]]


def test_a_unit_of_another_process_below_an_unsampled_one_keeps_its_own() -> None:
    root = a_wire_span()
    theirs = a_wire_span(parent=root, remote=True)
    spans = [(root, True), (theirs, True), (a_wire_span("chat", parent=theirs), True)]

    units, others = split_units(spans, lambda span: span == theirs)

    assert units == [[root.span_id]]
    assert others == [span for span, _ in spans[1:]]


@pytest.mark.parametrize("seed", range(40))
def test_the_units_are_the_same_with_and_without_however_they_are_sent(seed: int) -> None:
    rng = Random(seed)
    requests = requests_of([a_tree(rng, number) for number in range(1, 30)], rng)

    def may(root: WireSpan) -> bool:
        return Random(root.span_id).random() < 0.3

    apart = [sorted_out(request, may) for request in requests]
    assert sum(len(unsampled) for unsampled, _ in apart) > 0
    assert closed_of(apart, may) == closed_of([([], request) for request in requests], may)


def a_tree(rng: Random, trace: int) -> Spans:
    """Return the spans of a trace as they end, children first."""
    spans: Spans = []
    for _ in range(rng.randint(1, 12)):
        claimed = rng.random() < 0.7
        parent = rng.choice(spans)[0] if spans else None
        remote = parent is not None and rng.random() < 0.1
        spans.append((a_wire_span("chat" if claimed else None, trace=trace, parent=parent, remote=remote), claimed))
    return spans[::-1]


def requests_of(trees: Sequence[Spans], rng: Random) -> list[Spans]:
    """Return all spans in requests of some, each trace in its order or not, some sent twice, some lost."""
    spans = [span for tree in trees for span in (tree if rng.random() < 0.7 else rng.sample(tree, len(tree)))]
    spans = [span for span in spans if rng.random() > 0.05]
    spans += rng.sample(spans, len(spans) // 10)
    return [spans[at : at + 20] for at in range(0, len(spans), 20)]


def closed_of(
    requests: Sequence[tuple[list[UnsampledUnit], Spans]], may: Callable[[WireSpan], bool]
) -> dict[object, object]:
    """Return unit → its outcome and spans, and the other counts."""
    table = TraceTable(Bounds(), follows=may, is_unit_root=lambda span: bool(span.raw))
    now_ns, units = 0, []
    for unsampled, others in requests:
        now_ns += SECOND_NS // 10
        add_unsampled(table, unsampled, now_ns)
        for span, claimed in others:
            table.add(span, claimed=claimed, now_ns=now_ns)
        units += table.due(now_ns)
    units += (
        table.due(now_ns + 3 * SECOND_NS) + table.due(now_ns + 100 * SECOND_NS) + table.due(now_ns + 200 * SECOND_NS)
    )
    values: dict[object, object] = {
        (unit.key, unit.revision): (unit.outcome, sorted(span.span_id for span in unit.spans)) for unit in units
    }
    return values | {"late": table.late, "orphans": table.orphans, "duplicates": table.duplicates}
