"""Real listeners on loopback, in this process, in front of a receiver that keeps its requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanscore.capture.otlp.external_scores import ExternalScores
from spanscore.capture.otlp.requests import EndpointCounts
from spanscore.config.serving import ServeSettings
from spanscore.core.codecs.otlp_request import ParsedRequest, WireSpan
from spanscore.core.threads import start_daemon
from spanscore.service.otlp_endpoint import ExportHandler
from spanscore.service.run import Listeners

ANYWHERE = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"}
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


class RecordingReceiver:
    """Keeps its spans; full on request."""

    def __init__(self, full_of: str | None = None) -> None:
        self.counts = EndpointCounts()
        self.external: ExternalScores | None = None
        self.spans: list[WireSpan] = []
        self.full_of = full_of

    def overloaded(self) -> str | None:
        return self.full_of

    def accept(self, taken: ParsedRequest, exit: Any = None) -> Sequence[WireSpan]:
        self.spans += taken.spans
        return taken.spans


class Running:
    """Listeners that run, and how to reach them."""

    def __init__(self, receiver: RecordingReceiver, handler: ExportHandler, listeners: Listeners) -> None:
        self.receiver, self.handler, self._listeners = receiver, handler, listeners
        self._loop: asyncio.AbstractEventLoop | None = None
        self._up, self._stop = threading.Event(), asyncio.Event()
        self._fault: BaseException | None = None
        self._thread = start_daemon(self._run, "test-listeners")
        assert self._up.wait(30)
        if self._fault is not None:
            raise self._fault
        where = listeners.where
        self.grpc, self.http = (str(where[name]) if name in where else "" for name in ("grpc", "http"))

    def post(self, body: bytes, headers: Mapping[str, str] = PROTOBUF, path: str = "/v1/traces") -> HTTPResponse:
        return self.ask("POST", path, body, headers)

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = PROTOBUF) -> HTTPResponse:
        connection = HTTPConnection(self.http, timeout=30)
        connection.request(method, path, body, dict(headers))
        return connection.getresponse()

    def stop(self) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)
            assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._listeners.loop_factory) as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve())

    async def _serve(self) -> None:
        try:
            await self._listeners.start()
        except Exception as error:
            self._fault = error
            return
        finally:
            self._up.set()
        await self._stop.wait()
        await self._listeners.stop()


@contextmanager
def listening(
    receiver: RecordingReceiver | None = None, proxy: Any = None, read_s: float = 30.0, **settings: Any
) -> Iterator[Running]:
    """Yield listeners that are up."""
    serve = ServeSettings.model_validate({**ANYWHERE, **settings})
    receiver = receiver or RecordingReceiver()
    handler = ExportHandler(receiver, max_inflated_bytes=serve.limits.inflated, proxy=proxy)
    running = Running(receiver, handler, Listeners(handler, serve, read_s=read_s))
    try:
        yield running
    finally:
        running.stop()


def a_request(*names: str, **span: Any) -> bytes:
    """Return an export request with a span per name."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for position, name in enumerate(names):
        ids = {"trace_id": bytes(15) + b"\x01", "span_id": (position + 1).to_bytes(8, "big")}
        spans.add(name=name, **{**ids, "start_time_unix_nano": 1, "end_time_unix_nano": 2, **span})
    return request.SerializeToString()
