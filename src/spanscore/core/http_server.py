"""HTTP server of the standard library that prints nothing, looks up no host name, and closes connections of silent clients."""

from __future__ import annotations

import socket
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

CLIENT_TIMEOUT_S = 10.0
"""Seconds after which the connection of a silent client is closed."""


class QuietServer(ThreadingHTTPServer):
    """A server with a daemon thread for each connection, which prints nothing.

    Args:
        address: address to listen on, in the form of its family.
    """

    daemon_threads = True

    def __init__(self, address: Any, family: socket.AddressFamily, handler: type[QuietHandler]) -> None:
        self.address_family = family
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without the look-up of this machine's host name, which ``HTTPServer`` makes and which may take seconds."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing, such as the traceback of a client that hangs up."""


class QuietHandler(BaseHTTPRequestHandler):
    """A request handler that prints nothing."""

    timeout = CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because stderr belongs to the application."""

    def send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        """Send a response; a HEAD request gets its headers only."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
