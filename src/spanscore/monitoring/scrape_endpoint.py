"""An HTTP server that Prometheus scrapes for the metrics of one scorer: ``http://127.0.0.1:9464/metrics``, with exemplars.

``/healthz`` answers as long as the process runs. ``/readyz`` has status 503 while the process must not get work. The caller may
add further pages.

The endpoint has a meter provider of its own, because the SDK adds a reader only to a new provider. So the metrics are served
before the first run, and the application's provider gets them, too.

``prometheus_client.start_http_server`` is not used (0.26, measured), because it harms the application:

- It prints a traceback if a client hangs up or a collection fails.
- It keeps a thread for ever for a silent client.
- On 0.0.0.0 it queries a name server for the host name: 10 s if no server answers.
- It returns the metrics under any path, and refuses HEAD.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from spanscore.core.http_server import QuietHandler, QuietServer
from spanscore.core.log import log_internal_error
from spanscore.core.threads import start_daemon
from spanscore.errors import ConfigurationError
from spanscore.monitoring.prometheus_client_text import Exposition
from spanscore.outputs.scope import scope

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

PATH = "/metrics"
HEALTH, READINESS = "/healthz", "/readyz"


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
        port: 0 = any free port.
        unready: reason why the process must not get work yet; empty = it may get work.
        on_scrape: called after each reading of the metrics; must not block.

    Raises:
        ConfigurationError: the address cannot be listened on.
        MissingExtraError: prometheus-client is not installed.

    Attributes:
        port: the port that is listened on.
        url: address of the page with metrics.
        meter: meter whose measurements are served.
        unready: reason why the process must not get work; empty = it may get work. Called on any thread.
        pages: first part of a path → function from the rest of the path to the page. Called on any thread. A
            ``ConfigurationError`` is reported to the client as its error.
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
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self._server = _Server(addresses[0][-1], addresses[0][0], self)
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
        for own in sums:
            own.export_to(self.meter)
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
        """Stop serving immediately, and release the address."""
        with suppress(OSError):  # some systems cannot shut down a listening socket
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which otherwise polls twice a second
        self._server.shutdown()
        self._server.server_close()

    def close_in_child(self) -> None:
        """Close the inherited socket in a forked child. Otherwise the port stays taken after the parent's end."""
        self._server.socket.close()
        for own in self._sums:
            own.abandon(self.meter)

    def answer(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type; ``accept``: the client's ``Accept`` header."""
        with self._lock:  # the exposition keeps exemplars of each collection, and is not thread-safe
            collected = self._reader.get_metrics_data()
            common = {"service_name": self._service_name()}  # remote write has the label ``job`` instead
            page = self._exposition.text(collected, common, accept)
            self._on_scrape()
            return page


class _Server(QuietServer):
    def __init__(self, address: Any, family: socket.AddressFamily, endpoint: ScrapeEndpoint) -> None:
        self.endpoint = endpoint
        super().__init__(address, family, _Handler)


class _Handler(QuietHandler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802  (called by the server)
        status, body, content_type = self._answer()
        self.send(status, body, {"Content-Type": content_type})

    def do_HEAD(self) -> None:  # noqa: N802  (called by the server)
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
        except Exception as error:  # noqa: BLE001  (an error must end only this scrape)
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
