"""OTLP over gRPC, with generic handlers on bytes, so that messages are decoded only once, by the export handler.

Calls are read as streams of one message, because only a stream can be given up if its message never arrives; on the wire there
is no difference. gRPC does not inflate here, because gRPC has one limit for the compressed and the inflated size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import grpc

from spanscore.config.serving import ServeSettings
from spanscore.core.threads import DaemonPool
from spanscore.errors import ConfigurationError
from spanscore.service.otlp_endpoint import (
    GZIP,
    LOGS,
    METRICS,
    TRACES,
    ExportHandler,
    ExportRequest,
    answer_request,
)
from spanscore.service.plan import BearerToken, certificate, stop_s_of
from spanscore.service.requests import GZIP_MAGIC, NO_HEADERS

CALLS: Final = 4_096
"""Highest number of concurrent calls; calls of one connection wait for each other long before."""
_DETAILS: Final = "grpc-status-details-bin"
_COLLECTOR: Final = "/opentelemetry.proto.collector"
_PATHS: Final = {
    f"{_COLLECTOR}.trace.v1.TraceService/Export": TRACES,
    f"{_COLLECTOR}.logs.v1.LogsService/Export": LOGS,
    f"{_COLLECTOR}.metrics.v1.MetricsService/Export": METRICS,
}
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_IDENTITY_AND_GZIP: Final = 0b101
"""Bit set of ``grpc_compression_algorithm``: the enabled algorithms, identity and gzip."""


@dataclass(eq=False, repr=False)
class GrpcListener(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Serves OTLP over gRPC on the running event loop.

    Attributes:
        handler: answers the requests.
        address: ``host:port``.
        serve: certificate and limits.
        token: token that clients must send; None = no token is needed.
        pool: threads for slow requests.
        read_s: time limit for a call's message, in s.
        port: port that is listened on, after ``start``.

    Raises:
        ConfigurationError: the certificate cannot be read.
    """

    handler: ExportHandler
    address: str
    serve: ServeSettings
    _: KW_ONLY
    token: BearerToken | None
    pool: DaemonPool
    read_s: float
    port: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._most, self._stop_s = self.serve.limits.request, stop_s_of(self.serve)
        self._certificate = None if self.serve.tls is None else certificate(self.serve.tls)
        self._handlers = {
            method: grpc.stream_unary_rpc_method_handler(partial(self._answer, path)) for method, path in _PATHS.items()
        }
        self._server: Any = None

    async def start(self) -> None:
        """Start to accept calls.

        Raises:
            ConfigurationError: the address cannot be listened on.
        """
        options = [
            ("grpc.max_receive_message_length", self._most),
            ("grpc.max_concurrent_streams", 100),
            ("grpc.per_message_decompression", 0),
            ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_AND_GZIP),
            ("grpc.so_reuseport", 0),
            ("grpc.max_connection_idle_ms", 600_000),
        ]
        server: Any = grpc.aio.server(options=options, maximum_concurrent_rpcs=CALLS)
        server.add_generic_rpc_handlers((self,))
        try:
            if self._certificate is None:
                self.port = int(server.add_insecure_port(self.address))
            else:
                credentials = grpc.ssl_server_credentials([self._certificate])
                self.port = int(server.add_secure_port(self.address, credentials))
        except RuntimeError:
            raise ConfigurationError(
                f"serve.grpc: nothing can listen on {self.address}: is another process listening there? Give another port"
            ) from None
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Accept no further call, and answer the received requests."""
        if self._server is not None:
            await self._server.stop(self._stop_s)

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a method; None for an unknown method, which is answered UNIMPLEMENTED. Called by grpc."""
        return self._handlers.get(handler_call_details.method)

    async def _answer(self, path: str, _: Any, context: Any) -> bytes:
        token, handler = self.token, self.handler
        headers = (
            NO_HEADERS if token is None and not handler.may_block else _headers(context.invocation_metadata() or ())
        )
        if token is not None and not token.is_in(headers.get("authorization", "")):
            message = "a bearer token is required, as authorization"
            answer = handler.refuse("token", HTTPStatus.UNAUTHORIZED, message)
        elif (body := await self._read(context)) is None:
            message = f"the message did not arrive within {self.read_s:g} s"
            answer = handler.refuse("slow", HTTPStatus.REQUEST_TIMEOUT, message)
        elif body is grpc.aio.EOF:
            answer = handler.refuse("unreadable", HTTPStatus.BAD_REQUEST, "the call has no message")
        else:
            # 0x1f, field 3 with a wire type that does not exist, cannot start an OTLP request.
            encoding = GZIP if body.startswith(GZIP_MAGIC) else ""
            answer = await answer_request(ExportRequest(path, body, False, encoding, headers), handler, self.pool)
        if answer.grpc:
            trailing = ((_DETAILS, answer.details),) if answer.details else ()
            await context.abort(_CODES[answer.grpc], answer.message, trailing)
        return answer.body

    async def _read(self, context: Any) -> Any:
        """Return the message of a call; None if it does not arrive in time."""
        try:
            async with asyncio.timeout(self.read_s):
                return await context.read()
        except TimeoutError:
            return None


def _headers(metadata: Sequence[tuple[str, str | bytes]]) -> dict[str, str]:
    return {name: value for name, value in metadata if isinstance(value, str)}
