"""Any received bytes are spans or are rejected: no other exception is raised, no span is lost or invented."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.core.codecs.requests import a_request, backwards, make_span, only, sent, shuffled, varint

from spanscore.core.codecs.otlp_request import (
    ParsedRequest,
    UnreadableRequest,
    from_json,
    parse_request,
    request_of,
    span_data_of,
    trace_state_of,
    with_attributes,
)
from spanscore.core.codecs.otlp_scan import RequestSkeleton, SpanHead, scan_request

IDS = st.one_of(st.binary(max_size=20), st.sampled_from([bytes(16), bytes(8), b"t" * 16, b"s" * 8, b"i" * 500]))
TIMES = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**63, 2**64 - 1]))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.one_of(
        st.builds(AnyValue),
        st.builds(AnyValue, string_value=TEXT),
        st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
        st.builds(AnyValue, double_value=st.floats(allow_nan=False)),
        st.builds(AnyValue, bytes_value=st.binary(max_size=8)),
    ),
    lambda values: st.lists(values, max_size=3).map(lambda held: AnyValue(array_value={"values": held})),
    max_leaves=4,
)
SPANS = st.builds(
    Span,
    trace_id=st.just(b"t" * 16) | IDS,
    span_id=st.just(b"s" * 8) | IDS,
    parent_span_id=st.just(b"p" * 8) | IDS,
    trace_state=TEXT,
    flags=st.sampled_from([0, 0x100, 0x101, 0x301]) | st.integers(0, 2**32 - 1),
    name=TEXT,
    kind=st.integers(-(2**31), 2**31 - 1),
    start_time_unix_nano=TIMES,
    end_time_unix_nano=TIMES,
    attributes=st.lists(st.builds(lambda key, value: {"key": key, "value": value}, TEXT, VALUES), max_size=4),
    links=st.lists(st.builds(Span.Link, trace_id=IDS, span_id=IDS, trace_state=TEXT), max_size=2),
    status=st.none() | st.builds(lambda code: {"code": code}, st.integers(-1, 4)),
)
WRITTEN = st.tuples(SPANS, st.sampled_from(["in order", "backwards"]) | st.integers(0, 2**16))


def written(span: Span, order: str | int) -> bytes:
    raw = span.SerializeToString()
    if isinstance(order, int):
        return shuffled(raw, order)
    return raw if order == "in order" else backwards(raw)


def read_whole(taken: ParsedRequest) -> int:
    """Do with spans all that is ever done with them; return how many can be decoded."""
    decoded = 0
    for span in taken.spans:
        assert (len(span.trace_id), len(span.span_id), len(span.parent_id) in {0, 8}) == (16, 8, True)
        trace_state_of(span)
        with suppress(UnreadableRequest):
            assert 0 <= (data := span_data_of(span)).start_ns <= data.end_ns
            decoded += 1
    request_of((span.origin, with_attributes(span.raw, {"spanscore.status": "scored"})) for span in taken.spans)
    return decoded


def is_valid(span: Span) -> bool:
    """The rule, as protobuf's whole decoding sees it."""
    lengths = len(span.trace_id), len(span.span_id), len(span.parent_span_id)
    return lengths in {(16, 8, 8), (16, 8, 0)} and any(span.trace_id) and any(span.span_id)


def has_remote_parent(span: Span) -> bool:
    return any(span.parent_span_id) and span.flags & 0x300 == 0x300


@given(st.lists(WRITTEN, max_size=5))
def test_every_span_of_a_request_is_taken_as_protobuf_has_it_or_rejected(
    spans: Sequence[tuple[Span, str | int]],
) -> None:
    valid = [span for span, _ in spans if is_valid(span)]

    taken = parse_request(sent(*(written(*span) for span in spans)))

    assert [
        (span.trace_id, span.span_id, int.from_bytes(span.parent_id), span.parent_is_remote) for span in taken.spans
    ] == [(span.trace_id, span.span_id, int.from_bytes(span.parent_span_id), has_remote_parent(span)) for span in valid]
    assert sum(taken.rejected.values()) == len(spans) - len(valid)
    assert [trace_state_of(span) for span in taken.spans] == [span.trace_state for span in valid]
    assert read_whole(taken) == len(valid)


@given(st.binary(max_size=200))
def test_any_bytes_are_spans_or_refused(body: bytes) -> None:
    with suppress(UnreadableRequest):
        read_whole(parse_request(body))


@given(st.lists(WRITTEN, min_size=1, max_size=3), st.data())
def test_a_request_that_was_damaged_on_its_way_is_spans_or_refused(
    spans: Sequence[tuple[Span, str | int]], data: st.DataObject
) -> None:
    body = bytearray(sent(*(written(*span) for span in spans)))
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=4)):
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))

    with suppress(UnreadableRequest):
        read_whole(parse_request(bytes(body[:cut])))


BYTES_OF_TAGS = st.lists(st.sampled_from([10, 18, 26, 8, 0, 1, 2, 3, 4, 5, 6, 127, 128, 129, 255])).map(bytes)


@given(BYTES_OF_TAGS | st.lists(WRITTEN, max_size=3).map(lambda spans: sent(*(written(*span) for span in spans))))
@example(b"")
@example(b"\n\x0c\x1a\x01a\x12\x05\x12\x01s\x1a\x00\n\x00")  # a schema's URL first, the resource last
@example(b"\n\x0a\x12\x05\x12\x00\n\x01s\n\x01r")  # as the Collector writes it: scope and resource after their content
@example(b"\n\x0a\n\x01r\x12\x05\n\x01s\x12\x00")  # as SDKs do
@example(b"\n\x0d\n\x01r\x12\x08\n\x01s\x12\x00\n\x01t")  # two scopes, which are one
@example(b"\n\x05\x12\x03\x1a\x01\xff")  # a URL that is no text
@example(b"\n\x04\x1a\x00\x1a\x00")  # two of them
def test_what_is_walked_is_what_protobuf_reads(body: bytes) -> None:
    rejected = Counter[str]()
    scopes = scan_request(body, rejected, origin_parts)
    if scopes is None:
        return

    assert [(origin, [body[span[4] : span[5]] for span in spans]) for origin, spans in scopes] == [
        (
            (b"".join(of.resource), b"".join(scope.scope), of.schema_url, scope.schema_url),
            [*filter(is_read, scope.spans)],
        )
        for of in RequestSkeleton.FromString(body).resource_spans
        for scope in of.scope_spans
    ]


def origin_parts(*parts: bytes | str) -> tuple[bytes | str, ...]:
    return parts


def is_read(raw: bytes) -> bool:
    with suppress(DecodeError):
        return bool(raw) and is_valid(SpanHead.FromString(raw))
    return False


def test_what_sdks_send_is_walked() -> None:
    body = sent(make_span().SerializeToString(), make_span().SerializeToString())

    scopes = scan_request(body, Counter(), origin_parts)

    assert scopes is not None
    assert [len(spans) for _, spans in scopes] == [2]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
HEX = st.sampled_from(["ab" * 16, "cd" * 8, "", "0" * 16, "0" * 32, "abc", "zz", "ab " * 8])
JSON_SPANS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("traceId", "spanId", "parentSpanId"), HEX | JSON),
        **dict.fromkeys(
            ("startTimeUnixNano", "endTimeUnixNano"), st.integers(-5, 2**65) | st.integers().map(str) | JSON
        ),
        **dict.fromkeys(("name", "kind", "flags", "traceState", "attributes", "events", "links", "status"), JSON),
        "attributes": st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": JSON})),
    },
)
JSON_REQUESTS = st.builds(
    lambda **scope: {"resourceSpans": [{"resource": scope.pop("resource"), "scopeSpans": [scope]}]},
    spans=st.lists(JSON_SPANS | JSON, max_size=4) | JSON,
    resource=st.just({}) | JSON,
    scope=st.just({}) | JSON,
)


@given(JSON_REQUESTS | JSON)
def test_any_json_is_spans_or_refused(request: Any) -> None:
    try:
        body = from_json(json.dumps(request).encode())
    except UnreadableRequest:
        return

    taken = parse_request(body)

    assert read_whole(taken) == len(taken.spans)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_that_are_no_json_object_are_refused(body: bytes) -> None:
    with pytest.raises(UnreadableRequest):
        from_json(b"[" + body)


@given(st.lists(SPANS.filter(is_valid), max_size=3))
def test_a_json_request_is_taken_as_the_same_request_in_protobuf(spans: Sequence[Span]) -> None:
    request = a_request(*spans)
    as_json = MessageToDict(request, use_integers_for_enums=True)
    for span, given_span in zip(spans, as_json["resourceSpans"][0]["scopeSpans"][0].get("spans", ()), strict=True):
        for own, result in zip((span, *span.links), (given_span, *given_span.get("links", ())), strict=True):
            result.update(traceId=own.trace_id.hex(), spanId=own.span_id.hex())
        given_span["parentSpanId"] = span.parent_span_id.hex()

    assert ExportTraceServiceRequest.FromString(from_json(json.dumps(as_json))) == request


def test_a_hundred_thousand_attributes_are_read() -> None:
    span = make_span(attributes={f"k{number}": "v" for number in range(100_000)})

    assert len(span_data_of(only(span.SerializeToString())).attributes) == 100_000


def test_values_that_are_nested_without_end_are_refused_when_they_are_decoded() -> None:
    value = b""
    for _ in range(500):
        value = b"\x0a" + varint(len(value)) + value  # ArrayValue.values
        value = b"\x2a" + varint(len(value)) + value  # AnyValue.array_value
    pair = b"\x12" + varint(len(value)) + value
    span = only(make_span().SerializeToString() + b"\x4a" + varint(len(pair)) + pair)

    with pytest.raises(UnreadableRequest):
        span_data_of(span)


def test_json_that_is_nested_without_end_costs_its_own_span_only() -> None:
    nested: Any = {}
    for _ in range(300):
        nested = {"arrayValue": {"values": [nested]}}
    spans = [
        {"traceId": "ab" * 16, "spanId": "cd" * 8, "attributes": [{"key": "k", "value": value}]}
        for value in ({}, nested)
    ]

    taken = parse_request(from_json(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})))

    assert (len(taken.spans), taken.rejected) == (1, {"a span that cannot be read": 1})
