"""A scrape endpoint for the instruments of one scorer: ``http://127.0.0.1:9464/metrics``, with exemplars.

Beside it ``/healthz`` answers while the process does, and ``/readyz`` is 503 if no work is to be sent to the process. The
caller may add further pages.

The endpoint has a meter provider of its own: a reader is an argument of the provider, and the application makes its own
provider. So the numbers are there before the first run, and the application's provider gets them too.

The server is ours, as ``prometheus_client.start_http_server`` (0.26, measured) prints a traceback in the application when a
client hangs up and when a collection fails, keeps a thread for ever for a client that says nothing, and on 0.0.0.0 asks a name
server who we are: 10 s where none answers. It also gives the metrics under any path and refuses HEAD.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socketserver import TCPServer
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from spanscore.core.log import log_internal_error
from spanscore.core.threads import start_daemon
from spanscore.errors import ConfigurationError
from spanscore.monitoring.prometheus_client import Exposition
from spanscore.outputs.scope import scope

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

PATH = "/metrics"
HEALTH, READINESS = "/healthz", "/readyz"
CLIENT_TIMEOUT_S = 10.0
"""A client that says nothing for this long is let go."""


class Sums(Protocol):
    """Sums of scores or model runs, exported by every meter that they are given."""

    def export_to(self, meter: Meter) -> None:
        """Export the sums by this meter, too."""

    def abandon(self, meter: Meter) -> None:
        """Export the sums by this meter no more, without touching the meter."""


class ScrapeEndpoint:
    """Serves from its construction on, on a thread of its own, until it is closed.

    Args:
        service_name: read at each scrape, as the application may set its provider after this began.
        sums: what is served.
        port: 0 = any free one.
        host: the address to listen on.
        unready: why no work is to be sent to this process at first; empty = it may be sent.
        on_scrape: called after each reading of the metrics; must not block.

    Raises:
        ConfigurationError: nothing can listen there.
        MissingExtraError: prometheus-client is not installed.

    Attributes:
        port: the one that is listened on.
        url: of the page.
        meter: what is recorded on it, is served.
        unready: why no work is to be sent to this process; empty where it may. Any thread.
        pages: first part of a path → what stands there, of the rest of the path. Any thread; a ``ConfigurationError`` is the
            client's fault, and told.
    """

    def __init__(
        self,
        service_name: Callable[[], str],
        sums: Sequence[Sums] = (),
        *,
        port: int,
        host: str,
        unready: str = "",
        on_scrape: Callable[[], object] = object,
    ) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.resources import Resource

        self._on_scrape = on_scrape
        self.unready: Callable[[], str] = lambda: unready
        self.pages: Mapping[str, Callable[[str], str]] = {}
        self._exposition = Exposition()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self._server = _Server(found[0][-1], found[0][0], self)
        except OSError as error:
            raise ConfigurationError(
                f"metrics cannot be served on {host}:{port} ({error.strerror or error}). Is another worker of the application "
                "serving there? Give another port, 0 for any free one, or export over OTLP"
            ) from error
        self.port = int(self._server.server_address[1])
        self.url = f"http://{host}:{self.port}{PATH}"
        self._service_name = service_name
        self._reader = InMemoryMetricReader()
        self._lock = Lock()
        self.meter: Meter = MeterProvider([self._reader], Resource({}), shutdown_on_exit=False).get_meter(*scope())
        self._sums = sums
        for each in sums:
            each.export_to(self.meter)
        if start_daemon(self._server.serve_forever, "spanscore-metrics") is None:
            self._server.server_close()
            raise ConfigurationError(
                "serve_metrics: no thread can be started for the page: is the limit of processes reached?"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine, or pod, can read it."""
        return ip_address(str(self._server.server_address[0]).partition("%")[0]).is_loopback

    def close(self) -> None:
        """Stop serving, at once; another may listen there."""
        with suppress(OSError):  # some systems know no shutdown of a listening socket
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which else looks twice a second
        self._server.shutdown()
        self._server.server_close()

    def close_in_child(self) -> None:
        """In a forked child: let go of the inherited socket, else the port stays taken when the parent has gone."""
        self._server.socket.close()
        for each in self._sums:
            each.abandon(self.meter)

    def answer(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type; ``accept`` is what the client takes."""
        with self._lock:  # a collection and what is kept of it belong together
            collected = self._reader.get_metrics_data()
            common = {"service_name": self._service_name()}  # what remote write tells as ``job``
            page = self._exposition.text(collected, common, accept)
            self._on_scrape()
            return page


class _Server(ThreadingHTTPServer):
    """Quiet: a client that hangs up is no news to the application."""

    daemon_threads = True

    def __init__(self, address: Any, family: socket.AddressFamily, endpoint: ScrapeEndpoint) -> None:
        self.address_family = family
        self.endpoint = endpoint
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server who we are, as ``HTTPServer`` does."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: it would go to the application's stderr."""

    def do_GET(self) -> None:
        status, body, content_type = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self) -> tuple[HTTPStatus, bytes, str]:
        plain, path = "text/plain; charset=utf-8", self.path.partition("?")[0]
        if path == HEALTH:
            return HTTPStatus.OK, b"ok\n", plain
        try:
            if path == PATH:
                return HTTPStatus.OK, *self.server.endpoint.answer(self.headers.get("Accept", ""))
            if path == READINESS:
                why = self.server.endpoint.unready()
                status, text = (HTTPStatus.SERVICE_UNAVAILABLE, why) if why else (HTTPStatus.OK, "ready")
            else:
                status, text = self._page(path)
            return status, f"{text}\n".encode(), plain
        except Exception as error:  # noqa: BLE001  (a scrape must not break anything but itself)
            log_internal_error("serve its metrics", error)
            return HTTPStatus.INTERNAL_SERVER_ERROR, b"The metrics could not be read\n", plain

    def _page(self, path: str) -> tuple[HTTPStatus, str]:
        name, _, rest = path.removeprefix("/").partition("/")
        page = self.server.endpoint.pages.get(name)
        if page is None:
            return HTTPStatus.NOT_FOUND, f"The metrics are at {PATH}"
        try:
            return HTTPStatus.OK, page(rest).rstrip("\n")
        except ConfigurationError as error:
            return HTTPStatus.BAD_REQUEST, str(error)
