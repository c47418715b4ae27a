"""OTLP bytes → undecoded spans, and back: the result agrees with protobuf's own decoding of a request.

Any received bytes are spans or are rejected: no other exception is raised, no span is lost or invented.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.core.codecs.requests import IS_REMOTE, a_request, backwards, make_span, only, sent, shuffled, varint
from tests.core.codecs.test_otlp import below_a_parent, ended, plain

from spanscore.core.codecs.otlp_request import (
    Origin,
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
from spanscore.core.codecs.sdk import span_data


def parent_last(raw: bytes) -> bytes:
    span = Span.FromString(raw)
    parent = span.parent_span_id
    span.ClearField("parent_span_id")
    return span.SerializeToString() + Span(parent_span_id=parent).SerializeToString()


ORDERS: dict[str, Callable[[bytes], bytes]] = {
    "in order": bytes,
    "its parent last": parent_last,
    "backwards": backwards,
    **{f"shuffled {seed}": lambda raw, seed=seed: shuffled(raw, seed) for seed in range(8)},
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(
    "fields_of_it",
    [
        {},
        {"flags": 0},
        {"flags": IS_REMOTE},
        {"parent_span_id": b""},
        {"parent_span_id": bytes(8)},
        {"parent_span_id": b"", "flags": IS_REMOTE},
        {"trace_state": "ot=th:0"},
        {"trace_state": "a=" + "b" * 300, "flags": IS_REMOTE},
        {"attributes": {"text": '\x85\x01"\b and \n\x10' * 9}, "flags": 0},
        {"attributes": {}, "name": "", "kind": 0, "start_time_unix_nano": 0, "end_time_unix_nano": 0},
    ],
)
def test_a_span_is_read_as_protobuf_reads_it_in_whatever_order_its_fields_come(
    order: Callable[[bytes], bytes], fields_of_it: dict[str, Any]
) -> None:
    message = make_span(**fields_of_it)
    raw = order(message.SerializeToString())
    has_parent = message.parent_span_id not in {b"", bytes(8)}

    span = only(raw)

    assert span[:5] == (
        message.trace_id,
        message.span_id,
        message.parent_span_id if has_parent else b"",
        has_parent and message.flags == IS_REMOTE,
        raw,
    )
    assert trace_state_of(span) == message.trace_state


def test_what_the_python_sdk_sends_is_read_as_the_spans_that_it_was() -> None:
    readable = [below_a_parent(text="a", number=2**62, ranges=[0.0, 1.0]), ended(), ended({"x": True})]

    spans = parse_request(encode_spans(readable).SerializeToString()).spans

    assert [plain(span_data_of(span)) for span in spans] == [plain(span_data(one)) for one in readable]
    assert [trace_state_of(span) for span in spans] == [span_data(one).trace_state for one in readable]
    assert [span.parent_is_remote for span in spans] == [True, False, False]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"trace_id": b"t"}, "a trace id that is not 16 bytes"),
        ({"trace_id": bytes(16)}, "a trace id of zeros"),
        ({"span_id": b"s" * 500}, "a span id that is not 8 bytes"),
        ({"span_id": bytes(8)}, "a span id of zeros"),
        ({"parent_span_id": b"p"}, "a parent's id that is not 8 bytes"),
    ],
)
@pytest.mark.parametrize("order", ["in order", "backwards"])
def test_a_span_that_is_not_valid_is_rejected_alone(wrong: dict[str, bytes], reason: str, order: str) -> None:
    bad, well = (ORDERS[order](span.SerializeToString()) for span in (make_span(**wrong), make_span()))

    taken = parse_request(sent(well, bad, well))

    assert ([span.raw for span in taken.spans], taken.rejected) == ([well, well], {reason: 1})


@pytest.mark.parametrize("raw", [b"", b"\n", b"\n\x10short", b"\xff" * 12, b"\x0b" * 200])
def test_bytes_that_are_no_span_are_rejected_alone(raw: bytes) -> None:
    taken = parse_request(sent(raw, make_span().SerializeToString()))

    assert (len(taken.spans), taken.rejected) == (1, {"a span that cannot be read": 1})


@pytest.mark.parametrize("body", [b"secret", b"\n\x05secret", b"\n\xff\xff\xff\xff\x7f", b"\n\x04\n\xffab"])
def test_what_is_no_request_is_refused_and_not_quoted(body: bytes) -> None:
    with pytest.raises(UnreadableRequest, match=r"^no ExportTraceServiceRequest \(DecodeError\)$"):
        parse_request(body)


def test_what_turns_out_to_be_no_span_when_it_is_decoded_is_an_error_of_ours() -> None:
    span = only(make_span().SerializeToString()[:38] + b"*\x50secret" + b"\x85\x01" + bytes(4))

    with pytest.raises(UnreadableRequest, match=r"^no ExportTraceServiceRequest \(DecodeError\)$"):
        span_data_of(span)


def test_spans_of_one_origin_share_their_resource() -> None:
    raw = make_span().SerializeToString()

    first, second = (span_data_of(span) for span in parse_request(sent(raw, raw)).spans)

    assert first.resource is second.resource
    assert first.resource == {"service.name": "bot"}
    assert first.scope == "some.scope"


def test_a_resource_that_is_too_big_to_keep_is_read_all_the_same() -> None:
    (span,) = parse_request(sent(make_span().SerializeToString(), service="b" * 100_000)).spans

    assert span_data_of(span).resource == {"service.name": "b" * 100_000}


def test_a_resource_that_comes_in_two_pieces_is_one_as_protobuf_has_it() -> None:
    request = RequestSkeleton.FromString(a_request(make_span()).SerializeToString())
    request.resource_spans[0].resource.append(b"\n\n\n\x01k\x12\x05\n\x03abc")
    body = request.SerializeToString()

    (span,) = parse_request(body).spans

    merged = ExportTraceServiceRequest.FromString(body).resource_spans[0].resource
    assert span_data_of(span).resource == {pair.key: pair.value.string_value for pair in merged.attributes}
    assert len(merged.attributes) == 2


def test_an_end_before_its_start_is_the_start_and_is_counted() -> None:
    mended: Counter[str] = Counter()
    early, well = (only(make_span(end_time_unix_nano=end).SerializeToString()) for end in (3, 7))

    assert [span_data_of(span, mended).end_ns for span in (early, well)] == [5, 7]
    assert mended == {"an end before its start": 1}


def test_attributes_are_appended_and_the_rest_stays_as_it_came() -> None:
    raw = shuffled(make_span().SerializeToString(), 3)

    more = with_attributes(raw, {"yes": True, "n": -3, "share": 0.5, "text": "half \ud83d", "list": ["a", 1.5]})

    assert more.startswith(raw)
    assert dict(span_data_of(only(more)).attributes) == {
        "gen_ai.operation.name": "chat", "yes": True, "n": -3, "share": 0.5, "text": "half ?", "list": ["a", 1.5],
    }  # fmt: skip


def test_spans_are_sent_on_under_their_origins_in_the_order_in_which_they_came() -> None:
    first = a_request(make_span(name="1"), make_span(name="2"))
    second = a_request(make_span(name="3"), scope="other")
    third = a_request(make_span(name="4"), service="shop")
    one, two, three, four = (
        span for request in (first, second, third) for span in parse_request(request.SerializeToString()).spans
    )

    made = ExportTraceServiceRequest.FromString(
        request_of([(span.origin, span.raw) for span in (one, three, four, two)])
    )

    first.resource_spans[0].scope_spans.extend(second.resource_spans[0].scope_spans)
    first.resource_spans.extend(third.resource_spans)
    assert made == first


def test_a_json_request_is_the_same_request_as_protobuf() -> None:
    line = (
        '{"resourceSpans":[{"resource":{},"newField":1,"schemaUrl":"u","scopeSpans":[{"scope":{"name":"s"},"spans":[{"traceId":"'
        '5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","parentSpanId":null,"name":"x","kind":2,"events":null,'
        '"links":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"zz"}],"startTimeUnixNano":"1"}]}]}]}'
    )

    request = ExportTraceServiceRequest.FromString(from_json(line.encode()))

    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert (request.resource_spans[0].schema_url, request.resource_spans[0].scope_spans[0].scope.name) == ("u", "s")
    assert span == Span(
        trace_id=bytes.fromhex("5B8EFFF798038103D269B633813FC60C"), span_id=bytes.fromhex("EEE19B7EC3C1B174"), name="x", kind=2,
        links=[Span.Link(trace_id=bytes.fromhex("5B8EFFF798038103D269B633813FC60C"), span_id=b"?")], start_time_unix_nano=1,
    )  # fmt: skip


def test_half_an_emoji_in_json_costs_a_question_mark_and_not_the_span() -> None:
    body = '{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"%s","spanId":"%s","name":"cut \\ud83d"}]}]}]}'

    (span,) = parse_request(from_json((body % ("ab" * 16, "cd" * 8)).encode())).spans

    assert span_data_of(span).name == "cut ?"


def test_a_number_that_no_double_can_be_costs_only_its_span() -> None:
    bad, good = ({"traceId": "ab" * 16, "spanId": f"c{number}" * 8} for number in range(2))
    bad["attributes"] = [{"key": "x", "value": {"doubleValue": 10**400}}]

    taken = parse_request(from_json(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [bad, good]}]}]})))

    assert [span.span_id.hex() for span in taken.spans] == ["c1" * 8]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff", b"3", b'{"resourceSpans":3}', b'{"resourceSpans":[3]}', b"[" * 100_000,
     b'{"resourceSpans":[{"scopeSpans":"x"}]}', b'{"resourceSpans":[{"scopeSpans":[{"spans":"abc"}]}]}',
     b'{"resourceSpans":[{"resource":{"attributes":5}}]}', b'{"resourceSpans":' + b"9" * 5_000 + b"}"],
    ids=lambda body: body[:50].decode("latin-1"),
)  # fmt: skip
def test_json_that_is_no_request_is_refused_and_not_quoted(body: bytes) -> None:
    with pytest.raises(UnreadableRequest, match=r"^no ExportTraceServiceRequest \(\w+\)$"):
        from_json(body)


def test_the_codec_of_the_wire_loads_no_langchain_and_no_exporter() -> None:
    script = "import sys, spanscore.core.codecs.otlp_request; print(*sys.modules)"

    loaded: Sequence[str] = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout.split()

    assert [name for name in loaded if name.startswith(("langchain", "grpc", "opentelemetry.exporter"))] == []


def test_the_origin_of_a_span_is_reported_with_its_schemas() -> None:
    span = only(make_span().SerializeToString())

    resource, scope = a_request().resource_spans[0].resource, a_request().resource_spans[0].scope_spans[0].scope
    assert span.origin == Origin(
        resource.SerializeToString(), scope.SerializeToString(), "some.scope", "https://resource", "https://scope"
    )


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
