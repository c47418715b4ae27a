"""Load generator for OTLP: traces of an agent with ten spans of 2 kB each, children before their root, and the clients.

Every span has new ids, because a server may recognise copies. A request is a template into which fresh ids are written.
"""

from __future__ import annotations

import http.client
import os
import random
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.otlp_bare import EXPORT, GZIP, MOST
from spanscore import semconv

__all__ = ["SCOPE", "SPANS_PER_TRACE", "Client", "GrpcClient", "HttpClient", "Requests"]

SPANS_PER_TRACE = 10
SPAN_BYTES = 2_000
SCOPE = "a.library.that.nobody.knows"
"""An unknown scope, so that a span is recognised by its attributes, which is more work."""
BEGIN_NS = 1_795_255_200_000_000_000
TIMEOUT_S = 30
SPEED = 1
"""Compression level of gzip: the client's own time is not measured."""
WORDS = [
    "the",
    "harbour",
    "ferry",
    "leaves",
    "from",
    "pier",
    "on",
    "weekdays",
    "every",
    "twenty",
    "minutes",
    "until",
    "noon",
]


class Requests:
    """Makes requests with spans that are always new; a trace may begin in one request and end in the next.

    Args:
        spans: number of spans per request.
        is_gzip: whether requests are compressed.
    """

    def __init__(self, spans: int, *, is_gzip: bool) -> None:
        self.spans = spans
        self._is_gzip = is_gzip
        self._templates: dict[int, _Template] = {}
        self._sent = 0
        self._trace_id = self._root_id = b""

    def __iter__(self) -> Iterator[bytes]:
        """Yield requests without end."""
        while True:
            body = bytes(self._next())
            yield zlib.compress(body, SPEED, GZIP) if self._is_gzip else body

    def _next(self) -> bytearray:
        first = self._sent % SPANS_PER_TRACE
        template = self._templates.get(first) or self._templates.setdefault(first, _Template.of(first, self.spans))
        self._sent += self.spans
        body, fresh = bytearray(template.body), os.urandom(8 * self.spans)
        for number, at in enumerate(template.places):
            if (first + number) % SPANS_PER_TRACE == 0:
                self._trace_id, self._root_id = os.urandom(16), os.urandom(8)
            is_root = _is_root(first + number)
            body[at + 2 : at + 18] = self._trace_id
            body[at + 20 : at + 28] = self._root_id if is_root else fresh[8 * number : 8 * number + 8]
            if not is_root:
                body[at + 30 : at + 38] = self._root_id
        return body


class Client(Protocol):
    """Sends requests to one server over one connection."""

    def send(self, body: bytes) -> bool:
        """Send a request and wait for its answer; return whether it was accepted, otherwise it must be sent again.

        Raises:
            RuntimeError: the server rejected it for good.
        """


class HttpClient:
    """Client over HTTP/1.1, with a persistent connection."""

    def __init__(self, port: int, *, is_gzip: bool) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._headers = {"content-type": "application/x-protobuf", **({"content-encoding": "gzip"} if is_gzip else {})}

    def send(self, body: bytes) -> bool:
        self._connection.request("POST", "/v1/traces", body, self._headers)
        answer = self._connection.getresponse()
        result = answer.read()
        if answer.status == http.client.TOO_MANY_REQUESTS:
            return False
        if answer.status != http.client.OK or result:
            raise RuntimeError(f"{answer.status} {result[:200]!r}")
        return True


class GrpcClient:
    """Client over gRPC, on one channel; gRPC itself compresses."""

    def __init__(self, port: int, *, is_gzip: bool) -> None:
        compression = grpc.Compression.Gzip if is_gzip else grpc.Compression.NoCompression
        options = [("grpc.max_send_message_length", MOST)]
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options, compression=compression)
        self._call: Any = channel.unary_unary(EXPORT)

    def send(self, body: bytes) -> bool:
        try:
            result = self._call(body, timeout=TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                return False
            raise RuntimeError(str(error)) from None
        if result:
            raise RuntimeError(repr(result[:200]))
        return True


class _Template(NamedTuple):
    """A request to copy.

    Attributes:
        body: bytes of the request.
        places: offset of each span.
    """

    body: bytes
    places: Sequence[int]

    @classmethod
    def of(cls, first: int, spans: int) -> _Template:
        """Return a template; ``first``: position of its first span within a trace."""
        rng = random.Random(1)
        request = ExportTraceServiceRequest()
        resource_spans = request.resource_spans.add()
        for key, value in {semconv.SERVICE_NAME: "bench", "service.instance.id": "1"}.items():
            resource_spans.resource.attributes.add(key=key).value.string_value = value
        scope_spans = resource_spans.scope_spans.add()
        scope_spans.scope.name = SCOPE
        scope_spans.spans.extend(_span(rng, first + number) for number in range(spans))
        body = request.SerializeToString()
        return cls(body, [body.index(span.SerializeToString()) for span in scope_spans.spans])


def _is_root(number: int) -> bool:
    return number % SPANS_PER_TRACE == SPANS_PER_TRACE - 1


def _span(rng: random.Random, number: int) -> Span:
    """Return a span as an SDK would make it, the root last; its ids will be overwritten."""
    is_root = _is_root(number)
    span = Span(
        trace_id=number.to_bytes(16),
        span_id=b"s" * 8,
        parent_span_id=b"" if is_root else b"p" * 8,
        flags=0x101,
        name="invoke_agent guide" if is_root else "chat small",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=BEGIN_NS,
        end_time_unix_nano=BEGIN_NS + 10**9,
    )
    attributes: dict[str, str | int] = {
        semconv.OPERATION_NAME: semconv.INVOKE_AGENT if is_root else "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        semconv.INPUT_MESSAGES: _message("user", _words(rng, 700)),
        semconv.OUTPUT_MESSAGES: _message("assistant", _words(rng, 700)),
        "server.address": "api.example.com",
        "gen_ai.usage.input_tokens": 211,
        "gen_ai.usage.output_tokens": 187,
    }
    for key, value in attributes.items():
        into = span.attributes.add(key=key).value
        if isinstance(value, str):
            into.string_value = value
        else:
            into.int_value = value
    span.attributes.add(key="app.note").value.string_value = _words(rng, SPAN_BYTES - span.ByteSize() - 20)
    span.status.SetInParent()
    return span


def _message(role: str, text: str) -> str:
    return f'[{{"role":"{role}","parts":[{{"type":"text","content":"{text}"}}]}}]'


def _words(rng: random.Random, size: int) -> str:
    return " ".join(rng.choices(WORDS, k=size // 4))[:size]
