"""Requests of ``serve``: limits of size and time, and the answer for both wires."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

from spanscore.service.zlib_ng import InflateError, inflater

READ_S: Final = 30.0
"""Time for a whole request, from its first byte on: exporters themselves give up after 10 s."""
FIRST_BYTE_S: Final = 5.0
"""Time for the first byte of a connection without a request with the token so far: exporters send at once."""
GZIP_MAGIC: Final = b"\x1f\x8b"
_MOST_PARTS: Final = 16
"""Members of a gzip body: each costs a copy of the rest, so 16 MB of empty ones would take minutes. Exporters write one."""


class TooLargeError(ValueError):
    """A body inflates to more than is allowed."""


class NotCompressedError(ValueError):
    """A body that should be gzip is not, is cut short, or has too many members."""


def gunzipped(body: bytes, most: int) -> bytes:
    """Return a body without its compression; no more than ``most`` bytes of it are ever in memory.

    Raises:
        TooLargeError: it would be longer.
        NotCompressedError: it is no gzip, or of too many parts.
    """
    parts, left = list[bytes](), most
    while body:  # RFC 1952: members, one after another
        if len(parts) == _MOST_PARTS:
            raise NotCompressedError(f"the body is of more than {_MOST_PARTS} parts")
        inflating = inflater()
        size = int.from_bytes(body[-4:], "little")  # as a gzip states it itself: zlib takes no more memory then
        try:
            part = inflating.decompress(body, min(left, size) + 1)
            if inflating.unconsumed_tail and len(part) <= left:  # longer than stated
                part += inflating.decompress(inflating.unconsumed_tail, left + 1 - len(part))
        except InflateError as error:
            raise NotCompressedError("the body is no gzip") from error
        left -= len(part)
        if left < 0:
            raise TooLargeError(f"the body inflates to more than {most:,} bytes")
        if not inflating.eof:
            raise NotCompressedError("the body is cut short")
        parts.append(part)
        body = inflating.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


# --- answers: OTLP 1.x, "OTLP/gRPC Response" and "OTLP/HTTP Response" ---
#
# A request that may be sent again gets 429 or 503 with ``Retry-After``, and over gRPC ``UNAVAILABLE`` or ``RESOURCE_EXHAUSTED``
# with a ``RetryInfo`` in its details, without which exporters drop it. Any other request is sent once.

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
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_REJECTED: Final = {"traces": "rejectedSpans", "logs": "rejectedLogRecords", "metrics": "rejectedDataPoints"}


class ExportResponse(NamedTuple):
    """An answer, for either wire.

    Attributes:
        status: status of HTTP.
        body: body of HTTP; the message of gRPC if ``grpc`` is 0.
        content_type: content type of ``body``.
        headers: headers of HTTP, beside those of the body.
        grpc: status code of gRPC; 0 = OK.
        details: serialized ``google.rpc.Status`` of a refusal; empty for a success.
        message: message of the status, without content of the request.
    """

    status: int
    body: bytes
    content_type: str = PROTOBUF
    headers: Mapping[str, str] = NO_HEADERS
    grpc: int = 0
    details: bytes = b""
    message: str = ""


def accepted(signal: str = "traces", rejected: int = 0, why: str = "", *, is_json: bool = False) -> ExportResponse:
    """Return the answer to a request that was taken.

    Args:
        signal: ``traces``, ``logs`` or ``metrics``; only a partial success depends on it.
        rejected: spans, records or points of it that were not taken.
        why: the fields of these that were wrong.
        is_json: whether the request is in JSON.
    """
    if not rejected:
        return _ALL_IN_JSON if is_json else _ALL
    if is_json:
        partly = {
            "partialSuccess": {_REJECTED[signal]: str(rejected), "errorMessage": why}
        }  # int64 is a string in JSON
        return ExportResponse(HTTPStatus.OK, json.dumps(partly).encode(), JSON)
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    # The three signals have them under the same field numbers.
    part = ExportTracePartialSuccess(rejected_spans=rejected, error_message=why)
    return ExportResponse(HTTPStatus.OK, ExportTraceServiceResponse(partial_success=part).SerializeToString())


_ALL: Final = ExportResponse(HTTPStatus.OK, b"")
_ALL_IN_JSON: Final = ExportResponse(HTTPStatus.OK, b"{}", JSON)


@lru_cache(maxsize=64)  # refusals are few, and under overload come by the thousand
def refusal(status: int, message: str, *, is_json: bool = False, retry_after_s: int | None = None) -> ExportResponse:
    """Return the answer to a request that was not taken.

    Args:
        status: status of HTTP; the code of gRPC follows from it.
        message: what is wrong and what to do, from a closed list: it quotes nothing.
        is_json: whether the request is in JSON.
        retry_after_s: seconds after which it may be sent again; None = never.
    """
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    code = _GRPC.get(status, 2)  # UNKNOWN
    details, in_json, headers = Status(code=code, message=message), {"code": code, "message": message}, dict[str, str]()
    if retry_after_s is not None:
        retry = RetryInfo()
        retry.retry_delay.seconds = retry_after_s
        details.details.add().Pack(retry)
        in_json["details"] = [{"@type": _RETRY_INFO, "retryDelay": f"{retry_after_s}s"}]
        headers["retry-after"] = str(retry_after_s)
    serialized = bytes(details.SerializeToString())
    body = json.dumps(in_json).encode() if is_json else serialized
    return ExportResponse(int(status), body, JSON if is_json else PROTOBUF, headers, code, serialized, message)
