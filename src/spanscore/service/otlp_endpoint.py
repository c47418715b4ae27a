"""The handler of OTLP export requests over gRPC and HTTP, and the ASGI application for HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from http import HTTPStatus
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spanscore.capture.otlp.external_scores import LogResults, results_in_logs
from spanscore.core.codecs.otlp_request import UnreadableRequest, from_json, parse_request
from spanscore.core.log import log_internal_error
from spanscore.core.threads import DaemonPool
from spanscore.service.plan import BearerToken
from spanscore.service.requests import (
    JSON,
    LATER_S,
    NO_HEADERS,
    PROTOBUF,
    ExportResponse,
    NotCompressedError,
    TooLargeError,
    accepted,
    gunzip,
    refusal,
)

if TYPE_CHECKING:
    from spanscore.capture.otlp.spans import OtlpSpans
    from spanscore.service.proxy import Proxy

TRACES: Final = "/v1/traces"
LOGS: Final = "/v1/logs"
METRICS: Final = "/v1/metrics"
GZIP: Final = "gzip"
_MOST_INFLATING: Final = 2
"""Maximum number of bodies that threads inflate at once, because each may need twice ``max_inflated_bytes`` of memory."""
SMALL: Final = 32_000
"""Largest compressed body in bytes that is read on the event loop, without waiting for a thread."""

_INVALID_BODY: Final = (TooLargeError, NotCompressedError, UnreadableRequest)
"""Errors of a body that is refused permanently."""
_OVERLOADED: Final = {
    "bytes": "too many bytes of spans wait for their units; send again",
    "traces": "too many traces are open; send again",
    "event_queue": "spans come faster than they are read; send again",
    "forward": "spans wait for the backend; send again",
    "spool": "units wait for the disk; send again",
    "bodies": "too many requests are being read; send again",
}
"""Reason of a temporary refusal → message to the client."""


class ExportRequest(NamedTuple):
    """One export request, over gRPC or HTTP.

    Attributes:
        path: path of its signal over HTTP: ``/v1/traces``.
        body: body as received.
        is_json: whether the body is JSON; otherwise it is protobuf.
        encoding: ``gzip``, or empty.
        headers: headers or metadata, names in lower case.
    """

    path: str
    body: bytes
    is_json: bool = False
    encoding: str = ""
    headers: Mapping[str, str] = NO_HEADERS

    @property
    def content_type(self) -> str:
        """Content type of the body."""
        return JSON if self.is_json else PROTOBUF


@dataclass(eq=False, repr=False)
class ExportHandler:
    """Answers the export requests of both listeners. Thread-safe.

    A request above the load limit is refused before it is inflated or parsed, so that refusing is cheap. The receiver has a
    request's spans before the answer is sent; with ``wait_until_durable`` the units they closed are on disk. A proxy returns
    its backend's answers.

    Attributes:
        spans: receiver of the spans.
        max_inflated_bytes: largest uncompressed body in bytes; larger bodies are refused permanently.
        proxy: proxy that forwards requests; None = requests are copies, and are not forwarded.
        wait_until_durable: function that waits until the units closed by a request are on disk, and returns whether they are.
            None = no answer waits for that; in a proxy the backend has the spans.
        closed: whether all requests are refused, because the process is ending; another process may take them.
        waits_for: reason why answers wait: ``forward`` (the backend), ``spool`` (the disk), or None. It is also the reason of
            refusals while too many answers wait.
        may_block: whether answers wait, so that they must not be made on an event loop.
    """

    spans: OtlpSpans
    _: KW_ONLY
    max_inflated_bytes: int
    proxy: Proxy | None = None
    wait_until_durable: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        self._inflate_slots = BoundedSemaphore(_MOST_INFLATING)
        self._actions = {TRACES: self._traces, LOGS: self._logs, METRICS: self._metrics}
        self.closed = False
        on_disk = None if self.wait_until_durable is None else "spool"
        self.waits_for = on_disk if self.proxy is None else "forward"
        self.may_block = self.waits_for is not None

    def answer(self, request: ExportRequest) -> ExportResponse:
        """Return the answer to a request for one of the three paths. Never raises."""
        try:
            if not self.closed:
                return self._actions[request.path](request)
            message = "this process is shutting down; send again, to another one"
            status = HTTPStatus.SERVICE_UNAVAILABLE
            return self.refuse("closing", status, message, is_json=request.is_json, retry_after_s=LATER_S)
        except Exception as error:  # noqa: BLE001  (one defined answer each; a client is not to send this again)
            log_internal_error("take a request", error)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return self.refuse("internal", status, "the request failed here", is_json=request.is_json)

    def refuse(
        self, reason: str, status: int, message: str, *, is_json: bool = False, retry_after_s: int | None = None
    ) -> ExportResponse:
        """Count and return a refusal. ``reason`` is a label of a count, so it must have few values.

        The client sends the request again only with ``retry_after_s``.
        """
        self.count(reason)
        return refusal(status, message, is_json=is_json, retry_after_s=retry_after_s)

    def refuse_for_now(self, reason: str, *, is_json: bool = False) -> ExportResponse:
        """Count and return a temporary refusal, because of load: the client sends the request again."""
        message = _OVERLOADED.get(reason, "too much at the moment; send again")
        return self.refuse(reason, HTTPStatus.TOO_MANY_REQUESTS, message, is_json=is_json, retry_after_s=LATER_S)

    def count(self, reason: str) -> None:
        """Count a request that is refused, or whose client hung up."""
        self.spans.counts.count_request(0)
        self.spans.counts.refuse(reason)

    def overloaded(self) -> str | None:
        """Return the reason why requests are refused for now; None if they are accepted."""
        return self.spans.overloaded() or (None if self.proxy is None else self.proxy.overloaded())

    def _traces(self, request: ExportRequest) -> ExportResponse:
        counts, is_json = self.spans.counts, request.is_json
        overload = self.overloaded()
        if overload is not None:
            return self.refuse_for_now(overload, is_json=is_json)
        try:
            body = self._inflate(request)
            protobuf = from_json(body) if is_json else body
            parsed = parse_request(protobuf)
        except _INVALID_BODY as error:
            return self._refuse_invalid_body(error, is_json=is_json)
        counts.count_request(len(body))
        if self.proxy is not None:
            return self.proxy.forward_traces(request, protobuf, parsed)
        self.spans.accept(parsed)
        if self.wait_until_durable is not None and not self.wait_until_durable():
            return self.refuse_for_now("spool", is_json=is_json)
        return _accepted("traces", parsed.rejected, is_json=is_json)

    def _refuse_invalid_body(self, error: Exception, *, is_json: bool) -> ExportResponse:
        if isinstance(error, TooLargeError):
            return self.refuse("too_large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), is_json=is_json)
        return self.refuse("unreadable", HTTPStatus.BAD_REQUEST, str(error), is_json=is_json)

    def _inflate(self, request: ExportRequest) -> bytes:
        if request.encoding != GZIP:
            return request.body
        if not self.may_block and len(request.body) <= SMALL:
            return gunzip(request.body, self.max_inflated_bytes)
        with self._inflate_slots:
            return gunzip(request.body, self.max_inflated_bytes)

    def _logs(self, request: ExportRequest) -> ExportResponse:
        """Read external scores and content of spans. Other records are accepted, too: SDKs send all signals to one endpoint."""
        if self.proxy is not None:
            self.spans.counts.count_request(len(request.body))
            answer = self.proxy.forward_unchanged(request)
            if not answer.grpc:
                with suppress(*_INVALID_BODY):  # the backend has the unchanged request
                    self._read_logs(request)
            return answer
        try:
            size, results = self._read_logs(request)
        except _INVALID_BODY as error:
            return self._refuse_invalid_body(error, is_json=request.is_json)
        self.spans.counts.count_request(size)
        return _accepted("logs", results.rejected, is_json=request.is_json)

    def _read_logs(self, request: ExportRequest) -> tuple[int, LogResults]:
        body = self._inflate(request)
        results = results_in_logs(body, is_json=request.is_json)
        if self.spans.external is not None:
            self.spans.external.read_logs(results)
        if results.content:
            self.spans.accept_logs(results.content)
        return len(body), results

    def _metrics(self, request: ExportRequest) -> ExportResponse:
        if self.proxy is not None:
            self.spans.counts.count_request(len(request.body))
            return self.proxy.forward_unchanged(request)
        message = "metrics are not accepted here; send them to the Collector or backend"
        return self.refuse("metrics", HTTPStatus.NOT_FOUND, message, is_json=request.is_json)


def _accepted(signal: str, rejected: Mapping[str, int], *, is_json: bool) -> ExportResponse:
    if not rejected:
        return accepted(is_json=is_json)
    why = "; ".join(f"{number:,} with {reason}" for reason, number in sorted(rejected.items()))
    return accepted(signal, sum(rejected.values()), why, is_json=is_json)


_PATHS: Final = frozenset({TRACES, LOGS, METRICS})
_TYPES: Final = {PROTOBUF: False, JSON: True}
"""Content type → whether it is JSON."""
_ENCODINGS: Final = {"": "", "identity": "", GZIP: GZIP}
_MOST_BODIES: Final = 16
"""Limit of the bytes that are being read, in multiples of the largest allowed body. Above it, requests are refused for now."""
_ON_LOOP: Final = {(False, ""): 1_200_000, (False, GZIP): SMALL, (True, ""): 16_000, (True, GZIP): 2_000}
"""(is JSON, compression) → largest body in bytes that is read on the event loop, in 1 ms, or in 30 ms if the spans are tiny.

A thread would need two context switches (a twentieth of the time for 512 spans), and holds the GIL for 5 ms at a time.
"""

_Head = Mapping[bytes, bytes]
_Receive = Callable[[], Awaitable[Mapping[str, Any]]]
_Send = Callable[[Mapping[str, Any]], Awaitable[None]]


@dataclass(eq=False, repr=False)
class OtlpHttp:
    """OTLP over HTTP: an ASGI application that accepts protobuf and JSON, also gzipped, and answers in the request's format.

    It runs on an event loop; requests that would block the loop are answered on a thread.

    Attributes:
        handler: answers the requests.
        token: token that clients must send; None = no token is needed.
        max_body_bytes: largest received body.
        pool: threads for slow requests.
    """

    handler: ExportHandler
    _: KW_ONLY
    token: BearerToken | None
    max_body_bytes: int
    pool: DaemonPool
    _reading: int = field(default=0, init=False)

    async def __call__(self, scope: Mapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        head = dict[bytes, bytes](scope["headers"])  # ASGI's header names are in lower case
        kind = _is_json(head.get(b"content-type", b""))
        is_json, refusal_by_head = bool(kind), self._refusal_by_head(scope, head, kind)
        answer: ExportResponse | None
        if refusal_by_head is not None:
            answer = self.handler.refuse(*refusal_by_head, is_json=is_json)
        elif self._reading > _MOST_BODIES * self.max_body_bytes:
            answer = self.handler.refuse_for_now("bodies", is_json=is_json)
        else:
            answer = await self._read_and_answer(str(scope["path"]), head, receive, is_json=is_json)
        if answer is not None:
            await _send(send, answer)

    def _refusal_by_head(
        self, scope: Mapping[str, Any], head: _Head, is_json: bool | None
    ) -> tuple[str, HTTPStatus, str] | None:
        """Return reason, status and message of a refusal by the head of a request; None if its body must be read."""
        if scope["path"] not in _PATHS:
            return "path", HTTPStatus.NOT_FOUND, f"paths are {TRACES}, {LOGS} and {METRICS}"
        if scope["method"] != "POST":
            return "method", HTTPStatus.METHOD_NOT_ALLOWED, "use POST"
        if self.token is not None and not self.token.is_in(head.get(b"authorization", b"").decode("latin-1")):
            return "token", HTTPStatus.UNAUTHORIZED, "a bearer token is required, in the header Authorization"
        if is_json is None:
            return "type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"content types are {PROTOBUF} and {JSON}"
        if _encoding(head.get(b"content-encoding", b"")) is None:
            return "type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content encodings are gzip and identity"
        length = head.get(b"content-length", b"")
        return _too_large(self.max_body_bytes) if length.isdigit() and int(length[:20]) > self.max_body_bytes else None

    async def _read_and_answer(
        self, path: str, head: _Head, receive: _Receive, *, is_json: bool
    ) -> ExportResponse | None:
        """Return the answer; None if the client hung up before the body was complete."""
        body = await self._read(receive)
        if body is None:
            return None
        if len(body) > self.max_body_bytes:
            return self.handler.refuse(*_too_large(self.max_body_bytes), is_json=is_json)
        encoding = _encoding(head.get(b"content-encoding", b"")) or ""
        headers = NO_HEADERS
        if self.handler.may_block:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.items()}
        return await answer_request(ExportRequest(path, body, is_json, encoding, headers), self.handler, self.pool)

    async def _read(self, receive: _Receive) -> bytes | None:
        """Return the body, or its beginning if it exceeds the limit; None if the client hung up."""
        parts, size = list[bytes](), 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    self.handler.count("hung_up")
                    return None
                part = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self._reading += len(part)
                if size > self.max_body_bytes or not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self._reading -= size


async def answer_request(request: ExportRequest, handler: ExportHandler, pool: DaemonPool) -> ExportResponse:
    """Return the handler's answer, made on a thread if it takes long.

    If all threads of a proxy wait for its backend, further requests are refused: queued ones would continue long after their
    clients have given up, and have sent them again.
    """
    if not handler.may_block and len(request.body) <= _ON_LOOP[request.is_json, request.encoding]:
        return handler.answer(request)  # faster than on a thread
    if (waits_for := handler.waits_for) is not None and pool.is_busy:
        return handler.refuse_for_now(waits_for, is_json=request.is_json)
    return await asyncio.get_running_loop().run_in_executor(pool, handler.answer, request)


@lru_cache(64)  # few values, and one with every request
def _is_json(content_type: bytes) -> bool | None:
    """Return whether a body is JSON; None if it is neither JSON nor protobuf."""
    return _TYPES.get(content_type.decode("latin-1").partition(";")[0].strip().lower())


@lru_cache(64)
def _encoding(named: bytes) -> str | None:
    """Return the compression of a body, empty if uncompressed; None for an unknown one."""
    return _ENCODINGS.get(named.decode("latin-1").strip().lower())


def _too_large(max_body_bytes: int) -> tuple[str, HTTPStatus, str]:
    message = f"the body is longer than {max_body_bytes:,} bytes; send fewer at once"
    return "too_large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message


async def _send(send: _Send, answer: ExportResponse) -> None:
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
    headers += [(b"content-type", answer.content_type.encode()), (b"content-length", str(len(answer.body)).encode())]
    if answer.status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
