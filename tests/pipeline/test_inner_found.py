"""Which spans of a unit are inner units, and which spans each has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spanscore import semconv
from spanscore.core.span import InnerGroup, Unit
from spanscore.pipeline.queues import AccountQuotas
from spanscore.pipeline.tracker import find_inner_units
from spanscore.testing import make_span, make_unit

RETRIEVER, TOOL, SEARCH = InnerGroup("retriever"), InnerGroup("tool"), InnerGroup("tool", "search")


def rag_unit() -> Unit:
    """An agent with a tool that retrieves, another tool, and a model call."""
    root = make_span(semconv.INVOKE_AGENT)
    ids = {"trace_id": root.trace_id, "parent_id": root.span_id}
    search = make_span("execute_tool", attributes={semconv.TOOL_NAME: "search"}, **ids)
    retrieval = make_span("retrieval", trace_id=root.trace_id, parent_id=search.span_id, name="retrieval docs")
    return make_unit(
        root,
        search,
        retrieval,
        make_span("execute_tool", attributes={semconv.TOOL_NAME: "tide"}, **ids),
        make_span("chat", **ids),
    )


def names(units: list[Unit]) -> list[list[str | None]]:
    return [[span.operation for span in unit.spans] for unit in units]


def test_an_inner_unit_is_its_span_with_all_spans_below_it():
    units = find_inner_units(rag_unit(), {TOOL: ["m"], RETRIEVER: ["m"]})

    assert names(units) == [["execute_tool", "retrieval"], ["retrieval"], ["execute_tool"]]
    assert [unit.inner for unit in units] == [TOOL, RETRIEVER, TOOL]
    assert [unit.root for unit in units] == [unit.spans[0] for unit in units]


def test_the_first_entry_that_matches_holds():
    units = find_inner_units(rag_unit(), {SEARCH: ["m"], TOOL: ["m", "other"]})

    assert [(unit.inner, unit.eligible_metrics) for unit in units] == [
        (SEARCH, frozenset({"m"})),
        (TOOL, frozenset({"m", "other"})),
    ]


@pytest.mark.parametrize(
    ("group", "number"),
    [
        (InnerGroup("agent"), 0),  # the root is no inner unit
        (InnerGroup("chat"), 1),
        (InnerGroup("retriever", "docs"), 1),
        (InnerGroup("retriever", "doc"), 0),
        (InnerGroup("tool", "tide"), 1),
    ],
)
def test_a_name_is_exact(group: InnerGroup, number: int):
    assert len(find_inner_units(rag_unit(), {group: ["m"]})) == number


def test_metrics_of_another_scorer_are_left_to_it():
    (unit,) = find_inner_units(replace(rag_unit(), shared=frozenset({"m"})), {RETRIEVER: ["m", "other"]})

    assert unit.eligible_metrics == {"other"}


def test_parents_in_a_loop_end():
    root = make_span()
    first = make_span("retrieval", trace_id=root.trace_id, span_id=901, parent_id=902)
    second = make_span("retrieval", trace_id=root.trace_id, span_id=902, parent_id=901)

    units = find_inner_units(make_unit(root, first, second), {RETRIEVER: ["m"]})

    assert names(units) == [["retrieval", "retrieval"]] * 2


def test_a_unit_without_its_root_has_none():
    unit = rag_unit()

    assert find_inner_units(replace(unit, spans=unit.spans[1:]), {TOOL: ["m"]}) == []


def test_room_is_left_for_the_inner_units_of_the_next_units():
    quotas = AccountQuotas({"m": None}, capacity=lambda: 320)
    before = quotas.room()

    quotas.record_inner(9)

    assert (before, quotas.room()) == (20, 2)
    for _ in range(100):
        quotas.record_inner(0)
    assert quotas.room() == 20


def test_a_unit_with_more_inner_units_than_places_is_let_in_alone():
    quotas = AccountQuotas({"m": None}, capacity=lambda: 10)

    quotas.record_inner(100)

    assert quotas.room() == 1
