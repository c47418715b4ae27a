"""The listeners of ``serve``: OTLP over gRPC and over HTTP, on one event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

from spanscore.config.serving import ListenAddress, ServeSettings
from spanscore.core.threads import DaemonPool
from spanscore.errors import ConfigurationError
from spanscore.service.grpc import GrpcListener
from spanscore.service.otlp_endpoint import ExportHandler, OtlpHttp
from spanscore.service.plan import addresses, token_of
from spanscore.service.requests import READ_S
from spanscore.service.uvicorn_server import HttpListener, loop_factory

_THREADS: Final = 32
"""Threads for slow bodies, and for a proxy's requests, each of which waits for the backend."""
_BACKLOG: Final = 1_024


class Listeners:
    """The listeners of one export handler. The constructor binds the HTTP port, ``start`` the gRPC port.

    A request must arrive within ``read_s``.

    Raises:
        ConfigurationError: the port is taken, this machine lacks the address, or token or certificate cannot be read.

    Attributes:
        loop_factory: makes the event loop on which the listeners must be started.
        where: ``grpc`` and ``http`` → address; port 0 is replaced by the chosen port.
    """

    def __init__(self, handler: ExportHandler, serve: ServeSettings, *, read_s: float = READ_S) -> None:
        self._handler = handler
        self.where = addresses(serve)
        pool, token = DaemonPool(_THREADS, "spanscore-requests"), token_of(serve)
        self.loop_factory: Callable[[], asyncio.AbstractEventLoop] = loop_factory()
        self._grpc = self._http = None
        if "http" in self.where:
            application = OtlpHttp(handler, token=token, max_body_bytes=serve.limits.request, pool=pool)
            self._socket = _listening(self.where["http"])
            self._http = HttpListener(application, self._socket, serve, token=token, read_s=read_s)
            self.where["http"] = self.where["http"]._replace(port=self._socket.getsockname()[1])
        if "grpc" in self.where:
            address = str(self.where["grpc"])
            self._grpc = GrpcListener(handler, address, serve, token=token, pool=pool, read_s=read_s)

    async def start(self) -> None:
        """Start to accept requests.

        Raises:
            ConfigurationError: the gRPC address cannot be listened on.
        """
        if self._grpc is not None:
            try:
                await self._grpc.start()
            except ConfigurationError:
                self.close()
                raise
            self.where["grpc"] = self.where["grpc"]._replace(port=self._grpc.port)
        if self._http is not None:
            await self._http.start()

    async def stop(self) -> None:
        """Refuse new requests, answer received ones, and close every connection; takes some seconds at most."""
        self._handler.closed = True
        await asyncio.gather(*(listener.stop() for listener in (self._grpc, self._http) if listener is not None))

    def close(self) -> None:
        """Close the bound socket, before ``start``."""
        if self._http is not None:
            self._socket.close()


def _listening(address: ListenAddress) -> socket.socket:
    try:
        family, *_, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    except OSError as error:  # the system's message, because Python's repeats the address
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or "no such address"
        raise ConfigurationError(
            f"serve.http: nothing can listen on {address} ({reason}): is another process listening there? Give another port"
        ) from None
