"""Requests of ``serve``: limits of size and time, and the answer for both wires."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from spanscore.service.zlib_ng import InflateError, inflater

__all__ = [
    "FIRST_BYTE_S",
    "GZIP_MAGIC",
    "JSON",
    "LATER_S",
    "PROTOBUF",
    "READ_S",
    "STOP_S",
    "ExportResponse",
    "NotCompressedError",
    "ReadDeadline",
    "TaskDeadline",
    "TooLargeError",
    "accepted",
    "gunzipped",
    "later",
    "refusal",
]

# --- limits ---------------------------------------------------------------------------------------------------------

# Limits of a request: how long it may take to come, and bytes that its body inflates to, counted while it does.

READ_S: Final = 30.0
"""For a whole request, from its first byte on: exporters themselves give up after 10 s."""
FIRST_BYTE_S: Final = 5.0
"""For the first byte of a connection on which no request with the token has come: exporters send at once."""
STOP_S: Final = 5
"""For what has come to be answered, when nothing new is accepted any more."""
GZIP_MAGIC: Final = b"\x1f\x8b"
_MOST_PARTS: Final = 16
"""Of a gzip body: each costs a copy of what follows, so 16 MB of empty ones would take minutes. Exporters write one."""


class TooLargeError(ValueError):
    """A body inflates to more than is taken."""


class NotCompressedError(ValueError):
    """A body is said to be gzip and is none, is cut short, or is of too many parts."""


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
        try:
            part = inflating.decompress(body, min(left, _said(body)) + 1)
            if inflating.unconsumed_tail and len(part) <= left:  # it is more than was said
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


def _said(body: bytes) -> int:
    """Return the size that a gzip says of itself, in its last four bytes (RFC 1952): zlib takes no more memory then."""
    return int.from_bytes(body[-4:], "little")


# --- read deadline --------------------------------------------------------------------------------------------------

# ReadDeadline: how long what is read may take, by one timer for all that is being read, not by one for each.

_Reader = TypeVar("_Reader", bound=Hashable)
_Read = TypeVar("_Read")


class ReadDeadline(Generic[_Reader]):
    """Of one event loop. All have the same time, so that who began first is due first.

    Args:
        wait_s: for each.
        late: told of a reader whose time is over, once.
    """

    def __init__(self, wait_s: float, late: Callable[[_Reader], None]) -> None:
        self._wait_s = wait_s
        self._late = late
        self._due: dict[_Reader, float] = {}  # in the order in which they began
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, reader: _Reader) -> None:
        """Give a reader its time; one that has not ended goes on with what it has."""
        if reader in self._due:
            return
        loop = asyncio.get_running_loop()
        self._due[reader] = due = loop.time() + self._wait_s
        if self._timer is None:
            self._timer = loop.call_at(due, self._let_go, loop)

    def end(self, reader: _Reader) -> None:
        """Wait no longer for a reader."""
        self._due.pop(reader, None)

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell who is late, and wait for the next; nothing waits while nothing is read."""
        self._timer, now = None, loop.time()
        for reader, due in [*self._due.items()]:
            if due > now:
                self._timer = loop.call_at(due, self._let_go, loop)
                return
            del self._due[reader]
            self._late(reader)


class TaskDeadline:
    """Of what tasks wait for.

    Args:
        wait_s: for each.
    """

    def __init__(self, wait_s: float) -> None:
        self._deadline = ReadDeadline[asyncio.Task[Any]](wait_s, self._let_go)
        self._late: set[asyncio.Task[Any]] = set()

    async def within(self, reading: Awaitable[_Read]) -> _Read | None:
        """Return what is read; None where it does not come in time. The running task reads one thing at a time."""
        task = asyncio.current_task()
        assert task is not None  # a coroutine is always some task's
        self._deadline.begin(task)
        try:
            return await reading
        except asyncio.CancelledError:
            if task in self._late and not task.uncancel():  # else its client has hung up, too
                return None
            raise
        finally:
            self._deadline.end(task)
            self._late.discard(task)

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        self._late.add(task)
        task.cancel()


# --- answers --------------------------------------------------------------------------------------------------------

# Answers: what a request comes to, told once for both wires: HTTP in protobuf or JSON, and gRPC.
#
# OTLP 1.x, "OTLP/gRPC Response" and "OTLP/HTTP Response": what may be sent again is 429 or 503 with ``Retry-After``, and in
# gRPC ``UNAVAILABLE`` or ``RESOURCE_EXHAUSTED`` with a ``RetryInfo`` in its details, without which exporters drop what they
# sent. Anything else is sent once.

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


class ExportResponse(NamedTuple):
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


def accepted(signal: str = "traces", rejected: int = 0, why: str = "", *, is_json: bool = False) -> ExportResponse:
    """Return that a request was taken, but for ``rejected`` spans; why tells which field of them was wrong.

    Args:
        signal: ``traces``, ``logs`` or ``metrics``: its response's own word for what was rejected.
    """
    if not rejected:
        return _ALL_IN_JSON if is_json else _ALL
    if is_json:
        told = {"partialSuccess": {_REJECTED[signal]: str(rejected), "errorMessage": why}}  # int64 is a string in JSON
        return ExportResponse(HTTPStatus.OK, json.dumps(told).encode(), JSON)
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
    return ExportResponse(int(status), body, JSON if is_json else PROTOBUF, headers, code, details, message)


def later(message: str, *, is_json: bool = False, after_s: int = LATER_S) -> ExportResponse:
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
