"""Which spans of a tree are the roots of units."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore import semconv
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import RootRole, role_of_operation, split

Tree = dict[str, tuple[str | None, str | None]]
"""Name → operation, and the name of the parent."""


def make_unit(tree: Tree, **times: tuple[int, int]) -> Unit:
    ids = {name: number for number, name in enumerate(tree, 1)}
    spans = tuple(make_span(name, ids, *tree[name], times.get(name, (0, 100))) for name in tree)
    return Unit(UnitKey(1, 1), spans)


def make_span(
    name: str, ids: dict[str, int], operation: str | None, parent: str | None, times: tuple[int, int]
) -> SpanData:
    attributes = {} if operation is None else {semconv.OPERATION_NAME: operation}
    parent_id = None if parent is None else ids[parent]
    return SpanData(
        1, ids[name], parent_id, name, start_ns=times[0], end_ns=times[1], scope="some.library", attributes=attributes
    )


def members(units: list[Unit]) -> list[list[str]]:
    """Return the names of the spans of each unit, its root first."""
    return [
        [span.name for span in sorted(unit.spans, key=lambda span: span.span_id != unit.key.span_id)] for unit in units
    ]


@pytest.mark.parametrize("above", ["create_agent", "embeddings", "evaluation", "rerank", "retrieval", "execute_tool"])
def test_a_span_that_cannot_hold_an_answer_hides_no_root_below_it(above: str) -> None:
    unit = make_unit({"top": (above, None), "agent": ("invoke_agent", "top"), "chat": ("chat", "agent")})

    [found] = split(unit)

    assert members([found]) == [["agent", "chat"]]
    assert found.key == UnitKey(1, 2)
    assert found.top is not None
    assert found.top.name == "top"


def test_a_root_below_another_span_is_a_turn_of_the_conversation_that_this_one_began_in() -> None:
    unit = make_unit({"tool": ("execute_tool", None), "agent": ("invoke_agent", "tool")})
    tool, agent = unit.spans

    [found] = split(replace(unit, spans=(replace(tool, conversation_id="42"), agent)))

    assert found.facts().conversation_id == "42"


@pytest.mark.parametrize(("ids", "conversation_id"), [(["7", "7"], "7"), (["7", "8"], ""), ([None, "7"], "7")])
def test_a_root_without_a_conversation_has_the_only_one_below_it(ids: list[str | None], conversation_id: str) -> None:
    # The root of the Agent Development Kit has no attributes.
    unit = make_unit(
        {"invocation": ("invoke_workflow", None), "agent": ("invoke_agent", "invocation"), "chat": ("chat", "agent")}
    )
    below = [
        replace(span, attributes={**span.attributes, **({} if value is None else {semconv.CONVERSATION_ID: value})})
        for span, value in zip(unit.spans[1:], ids, strict=True)
    ]

    [found] = split(replace(unit, spans=(unit.spans[0], *below)))

    assert found.facts().conversation_id == conversation_id


@pytest.mark.parametrize("step", ["retrieval", "execute_tool"])
def test_a_retrieval_or_a_tool_call_alone_is_a_unit(step: str) -> None:
    unit = make_unit({"step": (step, None), "inner": (step, "step"), "embedding": ("embeddings", "step")})

    assert split(unit) == [unit]


@pytest.mark.parametrize("operation", ["create_agent", "embeddings", "evaluation", "rerank"])
def test_a_span_that_cannot_hold_an_answer_alone_is_no_unit(operation: str) -> None:
    assert split(make_unit({"top": (operation, None)})) == []


def test_each_of_several_roots_below_such_a_span_is_a_unit() -> None:
    unit = make_unit(
        {"top": ("execute_tool", None), "one": ("chat", "top"), "two": ("chat", "top"), "find": ("retrieval", "one")}
    )

    assert members(split(unit)) == [["one", "find"], ["two"]]


def test_a_root_without_an_operation_is_a_workflow_if_a_step_or_a_root_is_below_it() -> None:
    [unit] = split(make_unit({"main": (None, None), "agent": ("invoke_agent", "main")}))

    assert unit.root is not None
    assert dict(unit.root.attributes) == {
        semconv.OPERATION_NAME: semconv.INVOKE_WORKFLOW,
        semconv.WORKFLOW_NAME: "main",
    }
    assert members([unit]) == [["main", "agent"]]


def test_a_root_without_an_operation_and_nothing_below_it_is_no_unit() -> None:
    assert split(make_unit({"speech": (None, None), "post": (None, "speech")})) == []


def test_work_that_begins_when_its_parent_and_the_root_have_ended_is_a_unit_of_its_own() -> None:
    tree: Tree = {
        "first": ("invoke_workflow", None),
        "chat": ("chat", "first"),
        "next": ("chat", "chat"),
        "find": ("retrieval", "next"),
    }
    unit = make_unit(tree, first=(0, 100), chat=(0, 90), next=(101, 200), find=(102, 150))

    assert members(split(unit)) == [["first", "chat"], ["next", "find"]]


def test_a_stream_that_goes_on_after_its_root_is_part_of_it() -> None:
    tree: Tree = {"first": ("invoke_workflow", None), "chat": ("chat", "first"), "tool": ("execute_tool", "chat")}
    unit = make_unit(tree, first=(0, 100), chat=(50, 300), tool=(200, 250))

    assert split(unit) == [unit]


def test_spans_of_our_own_capture_are_as_the_process_had_them() -> None:
    span = make_span("tool", {"tool": 1}, "execute_tool", None, (0, 1))
    below = make_span("chat", {"chat": 2, "tool": 1}, "chat", "tool", (0, 1))
    unit = Unit(UnitKey(1, 1), tuple(replace(one, scope=semconv.CAPTURE_SCOPE) for one in (span, below)))

    assert split(unit) == [unit]


OPERATIONS = [None, "chat", "invoke_agent", "execute_tool", "retrieval", "embeddings", "create_agent"]


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 20)), min_size=1, max_size=12))
def test_no_root_is_lost_and_no_span_is_in_two_units(drawn: list[tuple[str | None, int]]) -> None:
    tree: Tree = {
        str(n): (operation, None if n == 0 else str(parent % n)) for n, (operation, parent) in enumerate(drawn)
    }
    units = split(make_unit(tree))

    ids = [span.span_id for unit in units for span in unit.spans]
    assert len(ids) == len(set(ids))
    holders = {n for n, (operation, _) in enumerate(drawn, 1) if role_of_operation(operation) is RootRole.ROOT}
    assert holders <= set(ids)
    assert all(unit.root is not None and unit.root.operation is not None for unit in units)
