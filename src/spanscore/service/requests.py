"""Limits of size and time for the requests of ``serve``, and its answers over gRPC and HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

from spanscore.service.zlib_ng import InflateError, inflater

READ_S: Final = 30.0
"""Seconds for a whole request, from its first byte on, because exporters give up after 10 s."""
FIRST_BYTE_S: Final = 5.0
"""Seconds until the first byte on a connection without an authenticated request so far; exporters send immediately."""
GZIP_MAGIC: Final = b"\x1f\x8b"
_MOST_MEMBERS: Final = 16
"""Maximum number of members of a gzip body: each costs a copy of the rest, so 16 MB of empty members would take minutes."""


class TooLargeError(ValueError):
    """A body inflates to more than the limit."""


class NotCompressedError(ValueError):
    """A body that should be gzip is not, is cut short, or has too many members."""


def gunzip(body: bytes, most: int) -> bytes:
    """Return an inflated body; no more than ``most`` bytes of it are ever in memory.

    Raises:
        TooLargeError: the body would be larger.
        NotCompressedError: the body is not gzip, or has too many members.
    """
    parts, left = list[bytes](), most
    while body:  # RFC 1952: members, one after another
        if len(parts) == _MOST_MEMBERS:
            raise NotCompressedError(f"the body has more than {_MOST_MEMBERS} gzip members")
        inflating = inflater()
        size = int.from_bytes(body[-4:], "little")  # the size that gzip states, so that zlib allocates no more
        try:
            part = inflating.decompress(body, min(left, size) + 1)
            if inflating.unconsumed_tail and len(part) <= left:  # longer than stated
                part += inflating.decompress(inflating.unconsumed_tail, left + 1 - len(part))
        except InflateError as error:
            raise NotCompressedError("the body is not gzip") from error
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
# A request that may be sent again gets 429 or 503 with ``Retry-After``, and over gRPC ``UNAVAILABLE`` or
# ``RESOURCE_EXHAUSTED`` with a ``RetryInfo`` in its details, without which exporters drop it. Clients do not repeat any other
# request.

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
LATER_S: Final = 1
"""Seconds after which a client should send again. Some units will have closed by then."""

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
    """An answer over gRPC or HTTP.

    Attributes:
        status: HTTP status.
        body: HTTP body; the gRPC message if ``grpc`` is 0.
        content_type: content type of ``body``.
        headers: HTTP headers, in addition to those of the body.
        grpc: gRPC status code; 0 = OK.
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
    """Return the answer to an accepted request for ``traces``, ``logs`` or ``metrics``.

    ``rejected`` is the number of its spans, records or points that were rejected, and ``why`` names their invalid fields.
    """
    if not rejected:
        return _ACCEPTED_IN_JSON if is_json else _ACCEPTED
    if is_json:
        # In JSON an int64 is a string.
        partly = {"partialSuccess": {_REJECTED[signal]: str(rejected), "errorMessage": why}}
        return ExportResponse(HTTPStatus.OK, json.dumps(partly).encode(), JSON)
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    # The field numbers are the same for the three signals.
    part = ExportTracePartialSuccess(rejected_spans=rejected, error_message=why)
    return ExportResponse(HTTPStatus.OK, ExportTraceServiceResponse(partial_success=part).SerializeToString())


_ACCEPTED: Final = ExportResponse(HTTPStatus.OK, b"")
_ACCEPTED_IN_JSON: Final = ExportResponse(HTTPStatus.OK, b"{}", JSON)


@lru_cache(maxsize=64)  # few different refusals, but thousands under overload
def refusal(status: int, message: str, *, is_json: bool = False, retry_after_s: int | None = None) -> ExportResponse:
    """Return the answer to a refused request.

    Args:
        status: HTTP status; the gRPC code follows from it.
        message: the error and the remedy, one of a fixed list, without content of the request.
        is_json: whether the request, and so the answer, is in JSON.
        retry_after_s: seconds after which the client may send again; None = never.
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
