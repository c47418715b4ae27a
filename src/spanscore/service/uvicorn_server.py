"""A uvicorn server inside a process, which handles no signals, logs nothing, and limits the time of each client.

uvicorn (0.54) has a timeout for idle connections, but none for a head or a body that never ends, and httptools does not limit
the head. Its default of 5 s for idle connections is about the interval of most exporters, which then find the connection
closed. So a connection may be idle for long after an authenticated request; until then, it must begin one soon. Every request
has a time limit, and its head a size limit.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spanscore.config.serving import ServeSettings
from spanscore.service.plan import BearerToken, stop_s_of
from spanscore.service.requests import FIRST_BYTE_S

IDLE_S: Final = 120
"""Longest idle time of a connection after an authenticated request, in s."""
HEAD_BYTES: Final = 65_536
"""Maximum size of a request's head."""
CONNECTIONS: Final = 1_000
"""Maximum number of connections. Requests on further connections are answered 503; exporters send them again."""
UNAUTHENTICATED: Final = CONNECTIONS // 4
"""Maximum number of connections without an authenticated request; a further one closes the oldest."""


@dataclass(eq=False, repr=False, slots=True)
class _Limits:
    """Limits that all connections of a listener share."""

    token: BearerToken | None  # None = any request counts as authenticated
    read_s: float  # time limit for a whole request
    first_byte_s: float  # time limit until an unauthenticated connection starts a request
    # connections without an authenticated request so far, the oldest first
    unauthenticated: dict[_LimitedProtocol, None] = field(default_factory=dict, init=False)


class _LimitedProtocol(HttpToolsProtocol):
    """Closes a connection if its request is incomplete after the time limit, or its head is too long."""

    def __init__(self, *args: Any, limits: _Limits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._head_bytes = 0
        self._in_head = True
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self.limit_concurrency = 0  # refuses this connection's requests, and closes it after the answer
        self._close_after(self._limits.first_byte_s)
        unauthenticated = self._limits.unauthenticated
        unauthenticated[self] = None
        if len(unauthenticated) > UNAUTHENTICATED:
            oldest = next(iter(unauthenticated))
            del unauthenticated[oldest]
            oldest.close_connection()

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_after(None)
        self._limits.unauthenticated.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.close_connection()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._close_after(self._limits.read_s)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self in self._limits.unauthenticated:
            token = self._limits.token
            header = next((value for name, value in self.headers if name == b"authorization"), b"")
            if token is None or token.is_in(header.decode("latin-1")):
                del self._limits.unauthenticated[self]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._close_after(self._limits.first_byte_s if self in self._limits.unauthenticated else None)
        super().on_message_complete()

    def close_connection(self) -> None:
        """Close the connection."""
        if not self.transport.is_closing():
            self.transport.close()

    def _close_after(self, seconds: float | None) -> None:
        """Close the connection after this many seconds from now, replacing the earlier limit; None = never."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.close_connection)


class _EmbeddedServer(uvicorn.Server):
    """A server that leaves signals to the process, and reports its start by ``has_started``."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and set ``has_started`` when the server accepts requests."""
        await super().startup(sockets)
        self.has_started.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process."""
        yield


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a function that makes an event loop of uvloop."""
    factory = uvicorn.Config("", loop="uvloop").get_loop_factory()
    assert factory is not None  # only the loop "none" has no factory
    return factory


class HttpListener:
    """Serves an ASGI application on a bound socket, which is closed at the end.

    A whole request must arrive within ``read_s`` from its first byte on. If there is a token, clients must send it.
    """

    def __init__(
        self,
        application: Any,
        listening: socket.socket,
        serve: ServeSettings,
        *,
        token: BearerToken | None,
        read_s: float,
    ) -> None:
        self._listening = listening
        limits = _Limits(token, read_s, min(FIRST_BYTE_S, read_s))
        protocol: Any = partial(_LimitedProtocol, limits=limits)  # uvicorn only calls it
        config = uvicorn.Config(
            application,
            loop="uvloop",
            http=protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=stop_s_of(serve),
            ssl_certfile=None if serve.tls is None else serve.tls.cert,
            ssl_keyfile=None if serve.tls is None else serve.tls.key,
        )
        self._server = _EmbeddedServer(config)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to accept requests."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listening]))
        has_started = asyncio.create_task(self._server.has_started.wait())
        await asyncio.wait({has_started, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        has_started.cancel()
        if self._serving.done():
            await self._serving  # raises the error of the start

    async def stop(self) -> None:
        """Accept no further request, answer the received ones, and close every connection."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
