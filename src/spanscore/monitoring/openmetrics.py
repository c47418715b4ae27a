"""Scrape endpoint for the instruments of one scorer: ``http://127.0.0.1:9464/metrics``, with exemplars.

``/healthz`` answers as long as the process runs, and ``/readyz`` is 503 while the process must not get work. The caller may add
further pages.

The endpoint has a meter provider of its own, because a reader is an argument of the provider, and the application creates its
own provider. So the numbers exist before the first run, and the application's provider gets them too.

The server is ours because ``prometheus_client.start_http_server`` (0.26, measured) harms the application. It prints a traceback
if a client hangs up or a collection fails, and keeps a thread for ever for a silent client. On 0.0.0.0 it queries a name server
for the host name: 10 s if no server answers. It also returns the metrics under any path and refuses HEAD.
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
"""Seconds after which the connection of a silent client is closed."""


class Sums(Protocol):
    """Sums of scores or model runs, which are exported by each registered meter."""

    def export_to(self, meter: Meter) -> None:
        """Export the sums by this meter too."""

    def abandon(self, meter: Meter) -> None:
        """Stop exporting the sums by this meter, without calling the meter."""


class ScrapeEndpoint:
    """A scrape endpoint that serves on its own thread, from construction until it is closed.

    Args:
        service_name: read at each scrape, because the application may set its provider later.
        sums: the exported sums.
        port: 0 = any free port.
        host: address to listen on.
        unready: reason why the process must not get work yet; empty = it may get work.
        on_scrape: called after each reading of the metrics; must not block.

    Raises:
        ConfigurationError: the address cannot be listened on.
        MissingExtraError: prometheus-client is not installed.

    Attributes:
        port: the port that is listened on.
        url: address of the page with metrics.
        meter: meter whose measurements are served.
        unready: reason why the process must not get work; empty = it may get work. Any thread.
        pages: first part of a path → function from the rest of the path to the page. Any thread. A ``ConfigurationError`` is
            reported to the client as its error.
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
        """Whether only this machine, or pod, can read the endpoint."""
        return ip_address(str(self._server.server_address[0]).partition("%")[0]).is_loopback

    def close(self) -> None:
        """Stop serving at once and release the address."""
        with suppress(OSError):  # some systems know no shutdown of a listening socket
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which otherwise polls twice a second
        self._server.shutdown()
        self._server.server_close()

    def close_in_child(self) -> None:
        """In a forked child: close the inherited socket, because otherwise the port stays taken after the parent's end."""
        self._server.socket.close()
        for each in self._sums:
            each.abandon(self.meter)

    def answer(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type; ``accept``: the client's ``Accept`` header."""
        with self._lock:  # a collection and the exemplars kept from it belong together
            collected = self._reader.get_metrics_data()
            common = {"service_name": self._service_name()}  # the counterpart of ``job`` in remote write
            page = self._exposition.text(collected, common, accept)
            self._on_scrape()
            return page


class _Server(ThreadingHTTPServer):
    """A server that prints nothing: the application need not see that a client hangs up."""

    daemon_threads = True

    def __init__(self, address: Any, family: socket.AddressFamily, endpoint: ScrapeEndpoint) -> None:
        self.address_family = family
        self.endpoint = endpoint
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without the look-up of the own host name that ``HTTPServer`` does."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because stderr belongs to the application."""

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
