"""Listeners: the two ways to one door, on one event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from math import ceil
from typing import Final

from spanscore.config.serving import ListenAddress, ServeSettings
from spanscore.core.threads import DaemonPool
from spanscore.errors import ConfigurationError
from spanscore.service.auth import certificate, token_of
from spanscore.service.grpc import GrpcListener
from spanscore.service.otlp_endpoint import ExportHandler, OtlpHttp
from spanscore.service.plan import addresses
from spanscore.service.requests import READ_S, STOP_S
from spanscore.service.uvicorn_server import HttpListener, loop_factory

__all__ = ["Listeners", "stop_s_of"]

_THREADS: Final = 32
"""For bodies that take long, and for a proxy's requests, each of which waits for the backend."""
_BACKLOG: Final = 1_024


class Listeners:
    """What listens for one door. The port of HTTP is taken at once, that of gRPC by ``start``.

    Args:
        door: what answers.
        serve: where, and for whom.
        read_s: seconds in which a request must be there.

    Raises:
        ConfigurationError: the port is taken, or no such address is here; or a token or certificate is none.

    Attributes:
        loop_factory: of the event loop on which they are to be started.
    """

    def __init__(self, door: ExportHandler, serve: ServeSettings, *, read_s: float = READ_S) -> None:
        self._door = door
        self._where = addresses(serve)
        stop_s = stop_s_of(serve)
        pool, token = DaemonPool(_THREADS, "spanscore-door"), token_of(serve)
        self.loop_factory: Callable[[], asyncio.AbstractEventLoop] = loop_factory()
        self._grpc = self._http = None
        if "http" in self._where:
            application = OtlpHttp(door, token=token, most=serve.limits.request, pool=pool)
            self._socket = _listening(self._where["http"])
            self._http = HttpListener(
                application, self._socket, tls=serve.tls, token=token, read_s=read_s, stop_s=stop_s
            )
            self._where["http"] = self._where["http"]._replace(port=self._socket.getsockname()[1])
        if "grpc" in self._where:
            pem = None if serve.tls is None else certificate(serve.tls)
            address = str(self._where["grpc"])
            self._grpc = GrpcListener(
                door,
                address,
                token=token,
                certificate=pem,
                most=serve.limits.request,
                pool=pool,
                read_s=read_s,
                stop_s=stop_s,
            )

    @property
    def where(self) -> dict[str, ListenAddress]:
        """``grpc`` and ``http`` → where they listen, with the port that was free where any was asked for."""
        return dict(self._where)

    async def start(self) -> None:
        """Begin to accept.

        Raises:
            ConfigurationError: gRPC cannot listen there.
        """
        if self._grpc is not None:
            try:
                await self._grpc.start()
            except ConfigurationError:
                self.close()
                raise
            self._where["grpc"] = self._where["grpc"]._replace(port=self._grpc.port)
        if self._http is not None:
            await self._http.start()

    async def stop(self) -> None:
        """Refuse what is new, answer what has come, and close every connection; some seconds at most."""
        self._door.closed = True
        await asyncio.gather(*(one.stop() for one in (self._grpc, self._http) if one is not None))

    def close(self) -> None:
        """Let go of what is taken, before the start."""
        if self._http is not None:
            self._socket.close()


def stop_s_of(serve: ServeSettings) -> int:
    """Return the seconds in which what has come is to be answered at the end: as long as a proxy's backend may take for it.

    A request that is cut off comes again, and what the backend took meanwhile would be there twice.
    """
    waits_s = serve.forward.timeout + 1 if serve.mode == "proxy" and serve.forward is not None else 0
    return ceil(max(STOP_S, min(waits_s, serve.drain)))


def _listening(address: ListenAddress) -> socket.socket:
    try:
        family, *_, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"serve.http: nothing can listen on {address} ({_reason(error)}): is another process listening there? "
            "Give another port"
        ) from None


def _reason(error: OSError) -> str:
    """Return the system's words; Python's own name the address once more."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or "no such address"
