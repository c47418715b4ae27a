"""Attributes are read from their bytes as protobuf reads them, whatever is in them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore.core.codecs.otlp_span import SpanOfPairs, attributes_in
from spanscore.core.codecs.otlp_span import attributes_of_pairs as attributes_of
from spanscore.core.codecs.sdk import AttributeCache

SIZES = (0, 1, 90, 127, 128, 129, 200, 16_380, 16_381, 16_384, 20_000)
"""Lengths of texts around those at which the length of a field takes a byte more."""


def _text(key: str, text: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=text))


def _read(pairs: Sequence[KeyValue]) -> dict[str, object]:
    raw = Span(attributes=pairs).SerializeToString()
    return attributes_in(SpanOfPairs.FromString(raw).attributes)


@pytest.mark.parametrize("key", ["k", "gen_ai.input.messages", "é" * 60, "x" * 127, "x" * 128, "x" * 300, ""])
def test_a_text_of_any_size_is_read_as_protobuf_reads_it(key: str) -> None:
    for size in SIZES:
        for text in ("a" * size, "é" * (size // 2)):
            pairs = [_text(key, text), _text("other", "b")]
            assert _read(pairs) == attributes_of(pairs), size


def test_values_of_every_kind_are_read_as_protobuf_reads_them() -> None:
    long = ArrayValue(values=[AnyValue(string_value="a" * 150), AnyValue(int_value=3)])
    pairs = [
        KeyValue(key="none"),
        KeyValue(key="bool", value=AnyValue(bool_value=False)),
        KeyValue(key="int", value=AnyValue(int_value=-1)),
        KeyValue(key="float", value=AnyValue(double_value=0.0)),
        KeyValue(key="bytes", value=AnyValue(bytes_value=b"\xff" * 150)),
        KeyValue(key="list", value=AnyValue(array_value=long)),
        KeyValue(key="map", value=AnyValue(kvlist_value=KeyValueList(values=[_text("in", "a" * 150)]))),
    ]
    assert _read(pairs) == attributes_of(pairs)
    assert [type(value) for value in _read(pairs).values()] == [type(value) for value in attributes_of(pairs).values()]


def test_of_a_key_that_comes_twice_the_last_value_counts() -> None:
    assert _read([_text("a", "x" * 200), _text("b", "1"), _text("a", "y" * 200)]) == {"a": "y" * 200, "b": "1"}


def test_a_pair_that_is_written_otherwise_is_read_all_the_same() -> None:
    value = AnyValue(string_value="a" * 200).SerializeToString()
    turned = b"\x12\xcb\x01" + value + b"\x0a\x01k"  # the value first
    doubled = _text("k", "b" * 200).SerializeToString() + _text("k", "c" * 200).SerializeToString()  # they are merged
    more = _text("m", "a" * 200).SerializeToString() + b"\x18\x01"  # an unknown field follows
    assert attributes_in([turned]) == {"k": "a" * 200}
    assert attributes_in([doubled]) == {"k": "c" * 200}
    assert attributes_in([more]) == {"m": "a" * 200}


def test_bytes_that_are_no_pair_are_refused() -> None:
    whole = _text("k", "a" * 200).SerializeToString()
    for broken in (whole[:-1], whole[:2], b"\x0a\xff" + whole, b"\xff" * 300):
        with pytest.raises(DecodeError):
            attributes_in([broken])
    for broken in (whole[:-1] + b"\xff", whole.replace(b"k", b"\xff")):
        with pytest.raises((DecodeError, UnicodeDecodeError)):
            attributes_in([broken])


def test_what_follows_from_names_is_found_once_and_only_so_much_is_remembered() -> None:
    asked: list[tuple[str, ...]] = []

    def count(names: tuple[str, ...]) -> int:
        asked.append(names)
        return len(names)

    known = AttributeCache(count)
    assert [known["a", "b"], known["a", "b"], known["b", "a"]] == [2, 2, 2]
    assert asked == [("a", "b"), ("b", "a")]
    for number in range(2_000):
        assert known[str(number),] == 1
    assert known["long" * 1_000,] == 1
    assert len(known) <= 512
    assert ("long" * 1_000,) not in known
