"""Any value → JSON-able → one string on the wire → the same value."""

from __future__ import annotations

import json
from collections import deque, namedtuple
from datetime import datetime, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from tests.core.codecs.payloads import payloads

from spanscore.core.codecs import text
from spanscore.core.codecs.text import as_text, from_wire, jsonable, safe_text, to_wire


class Level(IntEnum):
    HIGH = 3


class Shape(Enum):
    ROUND = ("round", 1)


class Broken(tzinfo):
    def utcoffset(self, moment: object) -> Any:
        raise RuntimeError


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError


Pair = namedtuple("Pair", "left right")

FORMS: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (1, 1),
    (1.5, 1.5),
    ("é", "é"),
    (float("nan"), "NaN"),
    (float("inf"), "Infinity"),
    (float("-inf"), "-Infinity"),
    ("\ud800x", "?x"),
    ({"\udfff": "\ud800"}, {"?": "?"}),
    ({("a", 1): "x"}, {'{"type":"tuple"}': "x"}),
    ((1, "a"), [1, "a"]),
    (Pair(1, 2), [1, 2]),
    ({1}, [1]),
    (frozenset({"a"}), ["a"]),
    (deque([1, 2]), [1, 2]),
    (b"bytes", {"type": "bytes", "size": 5}),
    (object(), {"type": "object"}),
    (Fraction(1, 2), {"type": "Fraction"}),
    (lambda: 0, {"type": "function"}),
    (Level.HIGH, 3),
    (Shape.ROUND, ["round", 1]),
    (Loud("said"), "said"),
    (Decimal("1.10"), "1.10"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (datetime(2026, 1, 2, tzinfo=timezone.utc), "2026-01-02 00:00:00+00:00"),  # noqa: UP017
    ([datetime(2026, 1, 2, tzinfo=Broken()), "kept"], [{"type": "datetime"}, "kept"]),
    (10**5000, {"type": "int"}),
]


@pytest.mark.parametrize(("value", "form"), FORMS, ids=range(len(FORMS)))
def test_any_value_has_a_json_form(value: Any, form: Any) -> None:
    assert jsonable(value) == form
    assert json.loads(json.dumps(form, allow_nan=False)) == form


def test_keys_become_text() -> None:
    assert jsonable({1: "a", None: "b", 1.5: "d", False: "e"}) == {"1": "a", "null": "b", "1.5": "d", "false": "e"}


def test_a_list_that_contains_itself_ends() -> None:
    loop: list[Any] = ["x"]
    loop += [loop, loop]

    assert len(as_text(jsonable(loop))) < 5_000_000


def test_what_is_too_deep_is_a_marker() -> None:
    value: Any = "bottom"
    for _ in range(1_000):
        value = [value]

    assert "bottom" not in as_text(jsonable(value))


def test_what_is_too_much_is_left_out() -> None:
    assert len(jsonable(list(range(text.MAX_NODES * 2)))) < text.MAX_NODES
    assert sum(map(len, jsonable(["x" * text.MAX_CHARS] * 3))) == text.MAX_CHARS


@given(payloads())
def test_a_json_able_value_is_carried_exactly_by_json(value: object) -> None:
    form = jsonable(value)

    assert json.loads(json.dumps(form, allow_nan=False).encode()) == form
    assert jsonable(form) == form


@given(payloads())
def test_what_goes_on_the_wire_comes_back(value: object) -> None:
    form = jsonable(value)

    wire = to_wire(form)

    assert isinstance(wire, str)
    assert wire.encode().decode() == wire
    if isinstance(form, (str, list, dict)):
        assert from_wire(wire) == form
    else:  # a number alone comes back as its text
        assert from_wire(wire) == as_text(form)


@pytest.mark.parametrize("said", ['{"a":1}', "[1]", '"quoted"', '"', "{", "", "42", "true", 'she said "no"'])
def test_text_that_looks_like_json_stays_text(said: str) -> None:
    assert from_wire(to_wire(said)) == said


@pytest.mark.parametrize("said", ["Paris.", "", "{braces} but no JSON", "é"])
def test_ordinary_text_is_shown_as_it_was_said(said: str) -> None:
    assert to_wire(said) == said


@pytest.mark.parametrize("cut", ['{"a": [1, 2', '[{"role": "us', '"abc', "[" * 100_000])
def test_json_that_was_cut_stays_text(cut: str) -> None:
    assert from_wire(cut) == cut


def test_structures_are_compact_and_readable() -> None:
    assert to_wire({"a": "é", "b": [1]}) == '{"a":"é","b":[1]}'


def test_plain_text_is_returned_untouched() -> None:
    said = "x" * 10

    assert safe_text(said) is said
