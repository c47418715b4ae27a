"""A backend that keeps requests unchanged, bytes and headers, with scripted responses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self


class Arrived(NamedTuple):
    """One request; names of headers in lower case."""

    path: str
    body: bytes
    headers: Mapping[str, str]


class Reply(NamedTuple):
    """Its response; ``hangs`` = no response until it is set again, and then a failure."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {"Content-Type": "application/x-protobuf"}
    hangs: bool = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64


class RawBackend:
    """Listens on 127.0.0.1. Requests with a successful response are in ``taken``, all requests in ``arrived``.

    ``connections`` is the number of accepted connections.

    Args:
        port: 0 = any free one.
    """

    def __init__(self, port: int = 0) -> None:
        self._changed = threading.Condition()
        self._reply: Callable[[Arrived], Reply] = lambda _: Reply()
        self.arrived: list[Arrived] = []
        self.connections = 0
        self.taken: list[Arrived] = []
        self._server = _Server(("127.0.0.1", port), self._handler())
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        serve = {"poll_interval": 0.02}
        threading.Thread(target=self._server.serve_forever, kwargs=serve, name="raw-backend", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.reply(Reply(503))  # whoever hangs may go
        self._server.shutdown()
        self._server.server_close()

    def reply(self, with_: Reply | Callable[[Arrived], Reply]) -> None:
        """Answer so from now on, also whoever hangs."""
        with self._changed:
            self._reply = (lambda _: with_) if isinstance(with_, Reply) else with_
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 20.0) -> bool:
        """Wait until the condition holds, looked at after each request."""
        with self._changed:
            return bool(self._changed.wait_for(condition, timeout_s))

    def answer(self, request: Arrived) -> Reply:
        with self._changed:
            self.arrived.append(request)
            self._changed.notify_all()
            reply = self._reply(request)
            if reply.hangs:
                self._changed.wait_for(lambda: not self._reply(request).hangs)
                return Reply(503)
            if reply.status < 300:
                self.taken.append(request)
                self._changed.notify_all()
            return reply

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                backend.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                reply = backend.answer(Arrived(self.path, body, headers))
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                with suppress(BrokenPipeError, ConnectionResetError):  # it did not wait for that
                    self.end_headers()
                    self.wfile.write(reply.body)

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        return Handler
