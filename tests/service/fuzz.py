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


def a_bad_request(dice: random.Random) -> ExportRequest:
    """Return one of them; the same dice throw the same."""
    if dice.random() < 0.001:
        return ExportRequest(TRACES, _bomb(), encoding=GZIP)
    make, is_json = dice.choice(KINDS)
    body, encoding = make(dice), ""
    if dice.random() < 0.2:
        body, encoding = gzip.compress(body, 1), GZIP
        if dice.random() < 0.3:
            body = _cut(dice, body)
    elif dice.random() < 0.03:
        encoding = GZIP  # an unknown encoding
    path = dice.choices((TRACES, LOGS, METRICS), (50, 1, 1))[0]
    return ExportRequest(path, body, is_json if dice.random() < 0.97 else not is_json, encoding)


def _spans(dice: random.Random) -> bytes:
    """Return spans with ids of any length, any times, cycles of parents, twice the same."""
    request = ExportTraceServiceRequest()
    for _ in range(dice.randint(0, 2)):
        scope_spans = request.resource_spans.add().scope_spans.add()
        scope_spans.scope.name = dice.choice(SCOPES)
        ids = [_id(dice, 8) for _ in range(dice.randint(1, 5))]
        for _ in range(dice.randint(0, 8)):
            span = scope_spans.spans.add(
                trace_id=_id(dice, 16), span_id=dice.choice(ids), parent_span_id=dice.choice(ids)
            )
            span.start_time_unix_nano, span.end_time_unix_nano = _time(dice), _time(dice)
            span.flags = dice.choice((0, 0x100, 0x300, 2**32 - 1))
            span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
            span.attributes.add(key="x").value.CopyFrom(_deep(dice.choice((0, 3, 90))))
    return request.SerializeToString()


def _deep(levels: int) -> AnyValue:
    value = AnyValue(int_value=1)
    for _ in range(levels):
        outer = AnyValue()
        outer.array_value.values.add().CopyFrom(value)
        value = outer
    return value


def _id(dice: random.Random, length: int) -> bytes:
    return dice.choice((b"\1" * length, dice.randbytes(length), bytes(length), dice.randbytes(dice.randint(0, 40))))


def _time(dice: random.Random) -> int:
    return dice.choice((0, 1, 1_700_000_000_000_000_000, 2**63, 2**64 - 1))


def _cut(dice: random.Random, body: bytes) -> bytes:
    return body[: dice.randint(0, len(body))]


def _truncated(dice: random.Random) -> bytes:
    return _cut(dice, _spans(dice))


def _bent(dice: random.Random) -> bytes:
    body = bytearray(_spans(dice) or b"x")
    for _ in range(dice.randint(1, 8)):
        body[dice.randrange(len(body))] = dice.randrange(256)
    return bytes(body)


def _noise(dice: random.Random) -> bytes:
    return dice.randbytes(dice.randint(0, 300))


def _endless(dice: random.Random) -> bytes:
    """Return messages in messages, and lengths that lie."""
    return dice.choice((b"\n\xff\xff\xff\xff\x0f", b"\x0a\x7f" * 5_000, b"\x0b" * 20_000, b"\x08" + b"\xff" * 50))


def _deep_json(dice: random.Random) -> bytes:
    opened = dice.choice((b"[", b'{"a":', b'{"resourceSpans":[', b'{"kvlistValue":{"values":[{"value":'))
    return opened * dice.choice((10, 1_000, 30_000))


def _json(dice: random.Random) -> bytes:
    ids: Sequence[Any] = ("01" * 8, "01" * 16, "0", "zz" * 8, 7, None, [], "é" * 16, "01" * 2_000)
    times: Sequence[Any] = ("-1", "1", 1.5, -(10**30), 10**400, "x", None, {}, "1e3")
    span = {
        "traceId": dice.choice(ids),
        "spanId": dice.choice(ids),
        "parentSpanId": dice.choice(ids),
        "startTimeUnixNano": dice.choice(times),
        "endTimeUnixNano": dice.choice(times),
        "kind": dice.choice((1, "SPAN_KIND_SERVER", 99, "x", None)),
        "attributes": dice.choice(([], None, {}, [{"key": "a", "value": {"intValue": dice.choice(times)}}], [[]])),
        "\ud800": "\udfff",
    }
    whole = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": 1}, "spans": [span] * 3}]}]}
    text = json.dumps(dice.choice((whole, [whole], {"resourceSpans": span}, {"resourceSpans": [None]}))).encode()
    return text if dice.random() < 0.7 else _cut(dice, text)


def _no_utf8(dice: random.Random) -> bytes:
    return b'{"resourceSpans": "' + dice.randbytes(30) + b'"}'


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


def _huge(dice: random.Random) -> bytes:
    return _many_attributes() if dice.random() < 0.02 else b""


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
