"""OTLP over HTTP: a bare ASGI application, protobuf and JSON, gzip in, answers in the request's format."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from spanscore.core.threads import DaemonPool
from spanscore.service.answers import JSON, PROTOBUF, Answer
from spanscore.service.door import GZIP, LOGS, METRICS, NO_HEADERS, SMALL, TRACES, Door, ExportRequest
from spanscore.service.guard import BearerToken

__all__ = ["OtlpHttp", "answered"]

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

    def __init__(self, door: Door, *, token: BearerToken | None, most: int, pool: DaemonPool) -> None:
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

    def _refused(self, scope: Mapping[str, Any], head: _Head, *, is_json: bool | None) -> Answer | None:
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

    async def _read_and_answered(self, path: str, head: _Head, receive: _Receive, *, is_json: bool) -> Answer | None:
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


async def answered(request: ExportRequest, door: Door, pool: DaemonPool) -> Answer:
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


async def _send(send: _Send, answer: Answer) -> None:
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
    headers += [(b"content-type", answer.content_type.encode()), (b"content-length", str(len(answer.body)).encode())]
    if answer.status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
