"""The bare receiver for comparison: a Python OTLP server that only decodes each request with protobuf, and answers.

    python -m benchmarks.otlp_bare HTTP_PORT GRPC_PORT

It has the same servers, event loop and options as ``spanscore serve``; no span is kept or counted.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import uvicorn
import uvloop
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MOST = 64_000_000
GZIP = 31
IDLE_S = 600
ANSWER = ExportTraceServiceResponse().SerializeToString()
HEADERS = [(b"content-type", b"application/x-protobuf"), (b"content-length", str(len(ANSWER)).encode())]


async def over_http(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Answer one HTTP request."""
    parts = []
    while True:
        message = await receive()
        parts.append(message["body"])
        if not message["more_body"]:
            break
    body = b"".join(parts)
    if (b"content-encoding", b"gzip") in scope["headers"]:
        body = zlib.decompress(body, GZIP)
    ExportTraceServiceRequest.FromString(body)
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


async def over_grpc(body: bytes, _: Any) -> bytes:
    """Answer one gRPC call; gRPC itself has inflated it."""
    ExportTraceServiceRequest.FromString(body)
    return ANSWER


class OneMethod(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(over_grpc) if handler_call_details.method == EXPORT else None


async def main(http_port: int, grpc_port: int) -> None:
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", MOST)])
    server.add_generic_rpc_handlers((OneMethod(),))
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()
    config = uvicorn.Config(
        over_http,
        port=http_port,
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        date_header=False,
        server_header=False,
        timeout_keep_alive=IDLE_S,
    )
    await uvicorn.Server(config).serve()
    await server.stop(None)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
