"""ExportHandler: an OTLP request over gRPC or HTTP → its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from spanscore.capture.otlp.external_scores import ExternalScores, LogResults, results_in_logs
from spanscore.capture.otlp.requests import EndpointCounts
from spanscore.core.codecs.otlp_request import ParsedRequest, UnreadableRequest, WireSpan, from_json, taken_apart
from spanscore.core.codecs.otlp_span import ContentRecord
from spanscore.core.log import log_internal_error
from spanscore.core.threads import DaemonPool
from spanscore.service.auth import BearerToken
from spanscore.service.requests import (
    JSON,
    LATER_S,
    PROTOBUF,
    ExportResponse,
    NotCompressedError,
    TooLargeError,
    accepted,
    gunzipped,
    later,
    refusal,
)

__all__ = [
    "GZIP",
    "LOGS",
    "METRICS",
    "NO_HEADERS",
    "SMALL",
    "TRACES",
    "ExportHandler",
    "ExportRequest",
    "ForwardHandler",
    "OtlpHttp",
    "SpanConsumer",
    "answered",
]

# --- door -----------------------------------------------------------------------------------------------------------

# ExportHandler: an export request as it came → its answer; what both listeners call.
#
# Overload is told before anything is inflated or parsed, so that refusing is cheap. What is taken is in the table when the
# answer leaves. In a proxy the answer is the backend's.

TRACES: Final = "/v1/traces"
LOGS: Final = "/v1/logs"
METRICS: Final = "/v1/metrics"
GZIP: Final = "gzip"
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_INFLATING: Final = 2
"""Bodies at once, of those that are read on threads: each may take ``inflated`` twice while it grows."""
SMALL: Final = 32_000
"""Bytes of a compressed body that may be read on the event loop, which must not wait for a thread."""

_UNFIT: Final = (TooLargeError, NotCompressedError, UnreadableRequest)
"""What is wrong with a body for good."""
_OVERLOADED: Final = {
    "bytes": "too many bytes of spans wait for their units; send again",
    "traces": "too many traces are open; send again",
    "event_queue": "spans come faster than they are read; send again",
    "forward": "spans wait for the backend; send again",
    "spool": "units wait for the disk; send again",
    "bodies": "too many requests are being read; send again",
}
"""Why nothing more is taken at the moment → what the client is told."""


class ExportRequest(NamedTuple):
    """One request, over either wire.

    Attributes:
        path: of its signal over HTTP: ``/v1/traces``.
        body: as it came.
        is_json: else it is protobuf.
        encoding: ``gzip``, or empty.
        headers: of HTTP or gRPC, names in lower case.
    """

    path: str
    body: bytes
    is_json: bool = False
    encoding: str = ""
    headers: Mapping[str, str] = NO_HEADERS

    @property
    def content_type(self) -> str:
        """Of the body."""
        return JSON if self.is_json else PROTOBUF


class SpanConsumer(Protocol):
    """Where spans go: ``OtlpSpans``."""

    @property
    def counts(self) -> EndpointCounts:
        """Where requests are counted."""

    @property
    def external(self) -> ExternalScores | None:
        """Where the scores of others are; None where they are not read."""

    def overloaded(self) -> str | None:
        """Return what there is too much of; None where there is room. Any thread."""

    def take_logs(self, records: Sequence[ContentRecord]) -> None:
        """Keep content that came in log records for its spans. Any thread."""

    def take(self, taken: ParsedRequest) -> Sequence[WireSpan]:
        """Take the spans of a request. Any thread."""


class ForwardHandler(Protocol):
    """What a proxy does with what it received: its backend's answer is the client's. Blocks; never raises."""

    def overloaded(self) -> str | None:
        """Return what there is too much of on the way to the backend; None where there is room."""

    def spans(self, request: ExportRequest, body: bytes, taken: ParsedRequest) -> ExportResponse:
        """Keep some spans of a request and send the rest on.

        Args:
            request: as it came.
            body: in protobuf, without compression.
            taken: it taken apart.
        """

    def signal(self, request: ExportRequest) -> ExportResponse:
        """Send a request of logs or metrics on as it came."""


class ExportHandler:
    """Answers requests. Any thread.

    Args:
        spans: takes what was received.
        inflated: bytes of a body without compression; more are refused for good.
        onward: of a proxy; None = a copy arrives here, and nothing is sent on.
        safe: waits until the units that closed with a request outlive the process, and says whether they do; None = no answer
            waits for that. A proxy's never does: its backend has the spans.

    Attributes:
        closed: whether nothing more is taken: the process is ending, and another one may take it.
        waits_for: for whose answer an answer waits, as a refusal names it; None: for nobody's.
        waits: whether it waits: it must not be asked for on an event loop then.
    """

    def __init__(
        self,
        spans: SpanConsumer,
        *,
        inflated: int,
        onward: ForwardHandler | None = None,
        safe: Callable[[], bool] | None = None,
    ) -> None:
        self._spans = spans
        self._safe = safe
        self._inflated = inflated
        self._onward = onward
        self._inflating = BoundedSemaphore(_INFLATING)
        self._act = {TRACES: self._traces, LOGS: self._logs, METRICS: self._metrics}
        self.closed = False
        self.waits_for = "forward" if onward is not None else "spool" if safe is not None else None
        self.waits = self.waits_for is not None

    def answer(self, request: ExportRequest) -> ExportResponse:
        """Return the answer to a request to one of the three paths. Never raises."""
        try:
            return self._refuse_closing(request) if self.closed else self._act[request.path](request)
        except Exception as error:  # noqa: BLE001  (one defined answer each; a client is not to send this again)
            log_internal_error("take a request", error)
            return self.refuse("internal", HTTPStatus.INTERNAL_SERVER_ERROR, "it failed here", is_json=request.is_json)

    def traces(
        self, body: bytes, *, is_json: bool = False, encoding: str = "", headers: Mapping[str, str] = NO_HEADERS
    ) -> ExportResponse:
        """Return the answer to spans."""
        return self.answer(ExportRequest(TRACES, body, is_json, encoding, headers))

    def refuse(self, reason: str, status: int, message: str, *, is_json: bool = False) -> ExportResponse:
        """Count and return a refusal for good; ``reason`` is one of few."""
        self._count(reason)
        return refusal(status, message, is_json=is_json)

    def refuse_for_now(self, reason: str, *, is_json: bool = False) -> ExportResponse:
        """Count and return a refusal of what may be sent again."""
        self._count(reason)
        return later(_OVERLOADED.get(reason, "too much at the moment; send again"), is_json=is_json)

    def hung_up(self) -> None:
        """Count a request whose client did not stay to its end."""
        self._count("hung_up")

    def overloaded(self) -> str | None:
        """Return what there is too much of; None where there is room."""
        return self._spans.overloaded() or (None if self._onward is None else self._onward.overloaded())

    def _refuse_closing(self, request: ExportRequest) -> ExportResponse:
        message = "it is being shut down; send again, to another one"
        self._count("closing")
        return refusal(HTTPStatus.SERVICE_UNAVAILABLE, message, is_json=request.is_json, retry_after_s=LATER_S)

    def _traces(self, request: ExportRequest) -> ExportResponse:
        counts, is_json = self._spans.counts, request.is_json
        full = self.overloaded()
        if full is not None:
            return self.refuse_for_now(full, is_json=is_json)
        try:
            body = self._inflated_body(request.body) if request.encoding == GZIP else request.body
            protobuf = from_json(body) if is_json else body
            taken = taken_apart(protobuf)
        except _UNFIT as error:
            return self._refuse_unfit(error, is_json=is_json)
        counts.came(len(body))
        if self._onward is not None:
            return self._onward.spans(request, protobuf, taken)
        self._spans.take(taken)
        if self._safe is not None and not self._safe():
            return self.refuse_for_now("spool", is_json=is_json)
        return _accepted("traces", taken.rejected, is_json=is_json)

    def _refuse_unfit(self, error: Exception, *, is_json: bool) -> ExportResponse:
        if isinstance(error, TooLargeError):
            return self.refuse("too_large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), is_json=is_json)
        return self.refuse("unreadable", HTTPStatus.BAD_REQUEST, str(error), is_json=is_json)

    def _inflated_body(self, body: bytes) -> bytes:
        if not self.waits and len(body) <= SMALL:
            return gunzipped(body, self._inflated)
        with self._inflating:
            return gunzipped(body, self._inflated)

    def _logs(self, request: ExportRequest) -> ExportResponse:
        """Read scores of others and content of spans. Other records are accepted: an SDK sends all signals to one endpoint."""
        if self._onward is not None:
            self._spans.counts.came(len(request.body))
            answer = self._onward.signal(request)
            if not answer.grpc:
                with suppress(*_UNFIT):  # its backend has it, as it is
                    self._read_logs(request)
            return answer
        try:
            size, found = self._read_logs(request)
        except _UNFIT as error:
            return self._refuse_unfit(error, is_json=request.is_json)
        self._spans.counts.came(size)
        return _accepted("logs", found.rejected, is_json=request.is_json)

    def _read_logs(self, request: ExportRequest) -> tuple[int, LogResults]:
        """Take what is read of a request of logs; return its bytes without compression, and what was found."""
        size, found = self._results_in(request)
        if self._spans.external is not None:
            self._spans.external.read_logs(found)
        if found.content:
            self._spans.take_logs(found.content)
        return size, found

    def _results_in(self, request: ExportRequest) -> tuple[int, LogResults]:
        """Return the bytes of a request of logs without compression, and what is told in it."""
        body = self._inflated_body(request.body) if request.encoding == GZIP else request.body
        return len(body), results_in_logs(body, is_json=request.is_json)

    def _metrics(self, request: ExportRequest) -> ExportResponse:
        if self._onward is not None:
            self._spans.counts.came(len(request.body))
            return self._onward.signal(request)
        message = "no metrics are taken here; send them to the Collector or backend"
        return self.refuse("metrics", HTTPStatus.NOT_FOUND, message, is_json=request.is_json)

    def _count(self, reason: str) -> None:
        self._spans.counts.came(0)
        self._spans.counts.refuse(reason)


def _accepted(signal: str, rejected: Mapping[str, int], *, is_json: bool) -> ExportResponse:
    if not rejected:
        return accepted(is_json=is_json)
    why = "; ".join(f"{number:,} with {reason}" for reason, number in sorted(rejected.items()))
    return accepted(signal, sum(rejected.values()), why, is_json=is_json)


# --- http -----------------------------------------------------------------------------------------------------------

# OTLP over HTTP: a bare ASGI application, protobuf and JSON, gzip in, answers in the request's format.

_PATHS: Final = frozenset({TRACES, LOGS, METRICS})
_TYPES: Final = {PROTOBUF: False, JSON: True}
"""Content type → whether it is JSON."""
_ENCODINGS: Final = {"": "", "identity": "", GZIP: GZIP}
_BODIES: Final = 16
"""Times the largest request: bytes of bodies that are being read at once, over all clients; more are to send again."""
_LIGHT: Final = {(False, ""): 1_200_000, (False, GZIP): SMALL, (True, ""): 16_000, (True, GZIP): 2_000}
"""Bytes that are read on the event loop, by whether they are JSON and how they are compressed: in 1 ms, 30 of tiny spans.

A thread costs a switch each way, a twentieth of what a batch of 512 spans takes, and holds the interpreter for 5 ms at a time.
"""

_Head = Mapping[bytes, bytes]
_Receive = Callable[[], Awaitable[Mapping[str, Any]]]
_Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class OtlpHttp:
    """Answers requests on an event loop; what would block that is done on a thread.

    Args:
        door: what answers.
        token: that clients must send; None = none.
        most: bytes of a body as it comes.
        pool: threads for what takes long.
    """

    def __init__(self, door: ExportHandler, *, token: BearerToken | None, most: int, pool: DaemonPool) -> None:
        self._door = door
        self._token = token
        self._most = most
        self._pool = pool
        self._reading = 0

    async def __call__(self, scope: Mapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        head = dict[bytes, bytes](scope["headers"])  # ASGI gives names in lower case
        is_json = _is_json(head.get(b"content-type", b""))
        answer = self._refused(scope, head, is_json=is_json)
        if answer is None:
            answer = await self._read_and_answered(str(scope["path"]), head, receive, is_json=bool(is_json))
        if answer is not None:
            await _send(send, answer)

    def _refused(self, scope: Mapping[str, Any], head: _Head, *, is_json: bool | None) -> ExportResponse | None:
        """Return what a request is told of which no more than its head is read."""
        wrong = self._wrong(scope, head, is_json)
        if wrong is not None:
            reason, status, message = wrong
            return self._door.refuse(reason, status, message, is_json=bool(is_json))
        if self._reading > _BODIES * self._most:
            return self._door.refuse_for_now("bodies", is_json=bool(is_json))
        return None

    def _wrong(self, scope: Mapping[str, Any], head: _Head, is_json: bool | None) -> tuple[str, HTTPStatus, str] | None:
        if scope["path"] not in _PATHS:
            return "path", HTTPStatus.NOT_FOUND, f"there are {TRACES}, {LOGS} and {METRICS}"
        if scope["method"] != "POST":
            return "method", HTTPStatus.METHOD_NOT_ALLOWED, "there is POST"
        if self._token is not None and not self._token.is_in(head.get(b"authorization", b"").decode("latin-1")):
            return "token", HTTPStatus.UNAUTHORIZED, "a bearer token is asked for, in the header Authorization"
        if is_json is None:
            return "type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"content types are {PROTOBUF} and {JSON}"
        if _encoding(head.get(b"content-encoding", b"")) is None:
            return "type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content encodings are gzip and identity"
        length = head.get(b"content-length", b"")
        return _too_large(self._most) if length.isdigit() and int(length[:20]) > self._most else None

    async def _read_and_answered(
        self, path: str, head: _Head, receive: _Receive, *, is_json: bool
    ) -> ExportResponse | None:
        """Return the answer; None where the client has hung up before all of it was there."""
        body = await self._read(receive)
        if body is None:
            return None
        if len(body) > self._most:
            return self._door.refuse(*_too_large(self._most), is_json=is_json)
        encoding = _encoding(head.get(b"content-encoding", b"")) or ""
        request = ExportRequest(path, body, is_json, encoding, _text(head) if self._door.waits else NO_HEADERS)
        return await answered(request, self._door, self._pool)

    async def _read(self, receive: _Receive) -> bytes | None:
        """Return a body, of one that is too large a little more than is taken; None where the client has hung up."""
        parts, size = list[bytes](), 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    self._door.hung_up()
                    return None
                part = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self._reading += len(part)
                if size > self._most or not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self._reading -= size


async def answered(request: ExportRequest, door: ExportHandler, pool: DaemonPool) -> ExportResponse:
    """Return the door's answer, found on a thread where it takes long.

    A proxy whose threads all wait for its backend takes nothing more: what waited behind them would go on when its client has
    long given up, and has sent it again.
    """
    if not door.waits and is_light(request):
        return door.answer(request)
    if (waits_for := door.waits_for) is not None and pool.is_busy:
        return door.refuse_for_now(waits_for, is_json=request.is_json)
    return await asyncio.get_running_loop().run_in_executor(pool, door.answer, request)


def is_light(request: ExportRequest) -> bool:
    """Whether a request is read sooner than a thread is asked to."""
    return len(request.body) <= _LIGHT[request.is_json, request.encoding]


@lru_cache(64)  # there are few, and they come with every request
def _is_json(content_type: bytes) -> bool | None:
    """Whether a body is JSON; None where it is neither that nor protobuf."""
    return _TYPES.get(content_type.decode("latin-1").partition(";")[0].strip().lower())


@lru_cache(64)
def _encoding(named: bytes) -> str | None:
    """Return how a body is compressed, empty where it is not; None for what is not taken."""
    return _ENCODINGS.get(named.decode("latin-1").strip().lower())


def _text(head: _Head) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in head.items()}


def _too_large(most: int) -> tuple[str, HTTPStatus, str]:
    return (
        "too_large",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is longer than {most:,} bytes; send fewer at once",
    )


async def _send(send: _Send, answer: ExportResponse) -> None:
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
    headers += [(b"content-type", answer.content_type.encode()), (b"content-length", str(len(answer.body)).encode())]
    if answer.status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
