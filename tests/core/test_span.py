"""A unit's properties, and the parts that are kept for the sinks."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from spanscore import semconv
from spanscore.core.span import Attributes, SpanData, Unit
from spanscore.testing import make_span, make_unit

ROOT = make_span()


def asked(model: str | None, operation: str = semconv.CHAT, **fields: Any) -> SpanData:
    attributes = {} if model is None else {semconv.REQUEST_MODEL: model}
    return make_span(operation, parent_id=ROOT.span_id, attributes=attributes, **fields)


FOUND: dict[str, tuple[Unit, str | None]] = {
    "the root's own": (make_unit(asked("own"), asked("other")), "own"),
    "a workflow's": (make_unit(ROOT, asked("small")), "small"),
    "a completion's": (make_unit(ROOT, asked("old", semconv.TEXT_COMPLETION)), "old"),
    "generated content's": (make_unit(ROOT, asked("gem", semconv.GENERATE_CONTENT)), "gem"),
    "the last that answered": (make_unit(ROOT, asked("first", end_ns=9), asked("second", end_ns=8)), "first"),
    "not the last that failed": (make_unit(ROOT, asked("good"), asked("bad", status="error", end_ns=1 << 60)), "good"),
    "of failed ones the last": (make_unit(ROOT, asked("bad", status="error")), "bad"),
    "no retriever's": (make_unit(ROOT, asked("small"), asked("vectors", semconv.RETRIEVAL, end_ns=1 << 60)), "small"),
    "not an unnamed one": (
        make_unit(ROOT, asked("small"), asked(None, end_ns=1 << 60), asked("", end_ns=1 << 60)),
        "small",
    ),
    "no model at all": (make_unit(ROOT, asked(None)), None),
    "without its root": (Unit(make_unit(ROOT).key, (asked("small"),), complete=False), "small"),
}


@pytest.mark.parametrize("where", FOUND)
def test_the_model_of_a_unit_is(where: str) -> None:
    unit, model = FOUND[where]

    assert unit.request_model == model


@pytest.mark.parametrize("where", FOUND)
def test_the_model_outlives_the_content(where: str) -> None:
    unit, model = FOUND[where]

    kept = unit.without_content()

    assert (kept.request_model, kept.root) == (model, unit.root)
    assert len(kept.spans) <= 2


def test_nothing_is_rendered_to_find_a_model_or_to_let_content_go() -> None:
    def rendered() -> dict[str, Any]:
        raise AssertionError("rendered")

    plain = {semconv.OPERATION_NAME: semconv.CHAT, semconv.REQUEST_MODEL: "small"}
    model = SpanData(
        trace_id=1,
        span_id=2,
        parent_id=1,
        name="chat",
        start_ns=1,
        end_ns=2,
        attributes=Attributes(plain, rendered),
    )
    root = SpanData(
        trace_id=1, span_id=1, parent_id=None, name="root", start_ns=0, end_ns=3, attributes=Attributes({}, rendered)
    )

    kept = make_unit(root, model).without_content()

    assert [span.attributes for span in kept.spans] == [{}, plain]


def test_a_span_with_other_content_keeps_every_other_field() -> None:
    given = {field.name: object() for field in fields(SpanData)}
    changed = {"attributes": {"a": 1}, "metadata": {"m": 2}, "no_content": None}

    other = SpanData(**given).with_content(**changed)  # type: ignore[arg-type]

    assert {name: getattr(other, name) for name in given} == {**given, **changed, "events": ()}
