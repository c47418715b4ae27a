"""Malformed requests: cut, bent, deep, huge or endless, in protobuf, JSON and gzip."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from spanscore.service.otlp_endpoint import GZIP, LOGS, METRICS, TRACES, ExportRequest

__all__ = ["a_bad_request"]

SCOPES = ("openinference.instrumentation.openai", "spanscore", "", "app")
INFLATED = 80_000_000
"""Bytes of a zip bomb: more than the default limit."""


def a_bad_request(rng: random.Random) -> ExportRequest:
    """Return one of them; equal seeds give equal requests."""
    if rng.random() < 0.001:
        return ExportRequest(TRACES, _bomb(), encoding=GZIP)
    make, is_json = rng.choice(KINDS)
    body, encoding = make(rng), ""
    if rng.random() < 0.2:
        body, encoding = gzip.compress(body, 1), GZIP
        if rng.random() < 0.3:
            body = _cut(rng, body)
    elif rng.random() < 0.03:
        encoding = GZIP  # an unknown encoding
    path = rng.choices((TRACES, LOGS, METRICS), (50, 1, 1))[0]
    return ExportRequest(path, body, is_json if rng.random() < 0.97 else not is_json, encoding)


def _spans(rng: random.Random) -> bytes:
    """Return spans with ids of any length, any times, cycles of parents, twice the same."""
    request = ExportTraceServiceRequest()
    for _ in range(rng.randint(0, 2)):
        scope_spans = request.resource_spans.add().scope_spans.add()
        scope_spans.scope.name = rng.choice(SCOPES)
        ids = [_id(rng, 8) for _ in range(rng.randint(1, 5))]
        for _ in range(rng.randint(0, 8)):
            span = scope_spans.spans.add(trace_id=_id(rng, 16), span_id=rng.choice(ids), parent_span_id=rng.choice(ids))
            span.start_time_unix_nano, span.end_time_unix_nano = _time(rng), _time(rng)
            span.flags = rng.choice((0, 0x100, 0x300, 2**32 - 1))
            span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
            span.attributes.add(key="x").value.CopyFrom(_deep(rng.choice((0, 3, 90))))
    return request.SerializeToString()


def _deep(levels: int) -> AnyValue:
    value = AnyValue(int_value=1)
    for _ in range(levels):
        outer = AnyValue()
        outer.array_value.values.add().CopyFrom(value)
        value = outer
    return value


def _id(rng: random.Random, length: int) -> bytes:
    return rng.choice((b"\1" * length, rng.randbytes(length), bytes(length), rng.randbytes(rng.randint(0, 40))))


def _time(rng: random.Random) -> int:
    return rng.choice((0, 1, 1_700_000_000_000_000_000, 2**63, 2**64 - 1))


def _cut(rng: random.Random, body: bytes) -> bytes:
    return body[: rng.randint(0, len(body))]


def _truncated(rng: random.Random) -> bytes:
    return _cut(rng, _spans(rng))


def _bent(rng: random.Random) -> bytes:
    body = bytearray(_spans(rng) or b"x")
    for _ in range(rng.randint(1, 8)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return bytes(body)


def _noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(0, 300))


def _endless(rng: random.Random) -> bytes:
    """Return messages in messages, and lengths that lie."""
    return rng.choice((b"\n\xff\xff\xff\xff\x0f", b"\x0a\x7f" * 5_000, b"\x0b" * 20_000, b"\x08" + b"\xff" * 50))


def _deep_json(rng: random.Random) -> bytes:
    opened = rng.choice((b"[", b'{"a":', b'{"resourceSpans":[', b'{"kvlistValue":{"values":[{"value":'))
    return opened * rng.choice((10, 1_000, 30_000))


def _json(rng: random.Random) -> bytes:
    ids: Sequence[Any] = ("01" * 8, "01" * 16, "0", "zz" * 8, 7, None, [], "é" * 16, "01" * 2_000)
    times: Sequence[Any] = ("-1", "1", 1.5, -(10**30), 10**400, "x", None, {}, "1e3")
    span = {
        "traceId": rng.choice(ids),
        "spanId": rng.choice(ids),
        "parentSpanId": rng.choice(ids),
        "startTimeUnixNano": rng.choice(times),
        "endTimeUnixNano": rng.choice(times),
        "kind": rng.choice((1, "SPAN_KIND_SERVER", 99, "x", None)),
        "attributes": rng.choice(([], None, {}, [{"key": "a", "value": {"intValue": rng.choice(times)}}], [[]])),
        "\ud800": "\udfff",
    }
    whole = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": 1}, "spans": [span] * 3}]}]}
    text = json.dumps(rng.choice((whole, [whole], {"resourceSpans": span}, {"resourceSpans": [None]}))).encode()
    return text if rng.random() < 0.7 else _cut(rng, text)


def _no_utf8(rng: random.Random) -> bytes:
    return b'{"resourceSpans": "' + rng.randbytes(30) + b'"}'


@cache
def _many_attributes() -> bytes:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"\1" * 16, span_id=b"\1" * 8)
    for number in range(100_000):
        span.attributes.add(key=f"k{number}").value.int_value = number
    return request.SerializeToString()


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(INFLATED), 1)


def _huge(rng: random.Random) -> bytes:
    return _many_attributes() if rng.random() < 0.02 else b""


KINDS: Sequence[tuple[Callable[[random.Random], bytes], bool]] = (
    (_spans, False),
    (_truncated, False),
    (_bent, False),
    (_noise, False),
    (_endless, False),
    (_huge, False),
    (_deep_json, True),
    (_json, True),
    (_no_utf8, True),
)
