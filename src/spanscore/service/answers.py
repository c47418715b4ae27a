"""Answers: what a request comes to, told once for both wires: HTTP in protobuf or JSON, and gRPC.

OTLP 1.x, "OTLP/gRPC Response" and "OTLP/HTTP Response": what may be sent again is 429 or 503 with ``Retry-After``, and in gRPC
``UNAVAILABLE`` or ``RESOURCE_EXHAUSTED`` with a ``RetryInfo`` in its details, without which exporters drop what they sent.
Anything else is sent once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["JSON", "LATER_S", "PROTOBUF", "Answer", "accepted", "later", "refusal"]

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
LATER_S: Final = 1
"""Seconds after which a client is asked to send again: some units will have closed."""

_GRPC: Final[Mapping[int, int]] = {
    HTTPStatus.OK: 0,
    HTTPStatus.BAD_REQUEST: 3,  # INVALID_ARGUMENT
    HTTPStatus.UNAUTHORIZED: 16,  # UNAUTHENTICATED
    HTTPStatus.FORBIDDEN: 7,  # PERMISSION_DENIED
    HTTPStatus.NOT_FOUND: 12,  # UNIMPLEMENTED
    HTTPStatus.METHOD_NOT_ALLOWED: 12,
    HTTPStatus.REQUEST_TIMEOUT: 4,  # DEADLINE_EXCEEDED
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 8,  # RESOURCE_EXHAUSTED
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: 12,
    HTTPStatus.TOO_MANY_REQUESTS: 8,
    HTTPStatus.INTERNAL_SERVER_ERROR: 13,  # INTERNAL
    HTTPStatus.BAD_GATEWAY: 14,  # UNAVAILABLE
    HTTPStatus.SERVICE_UNAVAILABLE: 14,
    HTTPStatus.GATEWAY_TIMEOUT: 14,
}
_RETRY_INFO: Final = "type.googleapis.com/google.rpc.RetryInfo"
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_REJECTED: Final = {"traces": "rejectedSpans", "logs": "rejectedLogRecords", "metrics": "rejectedDataPoints"}


class Answer(NamedTuple):
    """What is answered, on either wire.

    Attributes:
        status: of HTTP.
        body: of HTTP, in ``content_type``; of gRPC the message, where ``grpc`` is 0 and it is protobuf.
        content_type: of ``body``.
        headers: of HTTP, beside those of the body.
        grpc: the status code; 0 = OK.
        details: a serialized ``google.rpc.Status``, of a refusal; empty where it is none.
        message: of the status, which quotes nothing of the request.
    """

    status: int
    body: bytes
    content_type: str = PROTOBUF
    headers: Mapping[str, str] = _NO_HEADERS
    grpc: int = 0
    details: bytes = b""
    message: str = ""


def accepted(signal: str = "traces", rejected: int = 0, why: str = "", *, is_json: bool = False) -> Answer:
    """Return that a request was taken, but for ``rejected`` spans; why tells which field of them was wrong.

    Args:
        signal: ``traces``, ``logs`` or ``metrics``: its response's own word for what was rejected.
    """
    if not rejected:
        return _ALL_IN_JSON if is_json else _ALL
    if is_json:
        told = {"partialSuccess": {_REJECTED[signal]: str(rejected), "errorMessage": why}}  # int64 is a string in JSON
        return Answer(HTTPStatus.OK, json.dumps(told).encode(), JSON)
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    # The three signals have them under the same field numbers.
    part = ExportTracePartialSuccess(rejected_spans=rejected, error_message=why)
    return Answer(HTTPStatus.OK, ExportTraceServiceResponse(partial_success=part).SerializeToString())


_ALL: Final = Answer(HTTPStatus.OK, b"")
_ALL_IN_JSON: Final = Answer(HTTPStatus.OK, b"{}", JSON)


@lru_cache(maxsize=64)  # refusals are few, and under overload come by the thousand
def refusal(status: int, message: str, *, is_json: bool = False, retry_after_s: int | None = None) -> Answer:
    """Return that a request was not taken.

    Args:
        status: of HTTP; the code of gRPC goes with it.
        message: what is wrong and what to do, of a closed list: it quotes nothing.
        is_json: whether the client speaks it.
        retry_after_s: when it may be sent again; None = never.
    """
    code = _GRPC.get(status, 2)  # UNKNOWN
    headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
    details = _details(code, message, retry_after_s)
    body = _in_json(code, message, retry_after_s) if is_json else details
    return Answer(int(status), body, JSON if is_json else PROTOBUF, headers, code, details, message)


def later(message: str, *, is_json: bool = False, after_s: int = LATER_S) -> Answer:
    """Return that there is too much at the moment: what was sent may be sent again."""
    return refusal(HTTPStatus.TOO_MANY_REQUESTS, message, is_json=is_json, retry_after_s=after_s)


def _details(code: int, message: str, retry_after_s: int | None) -> bytes:
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    told = Status(code=code, message=message)
    if retry_after_s is not None:
        info = RetryInfo()
        info.retry_delay.seconds = retry_after_s
        told.details.add().Pack(info)
    return bytes(told.SerializeToString())


def _in_json(code: int, message: str, retry_after_s: int | None) -> bytes:
    details = [] if retry_after_s is None else [{"@type": _RETRY_INFO, "retryDelay": f"{retry_after_s}s"}]
    return json.dumps({"code": code, "message": message, **({"details": details} if details else {})}).encode()
