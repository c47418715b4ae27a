"""MetricsPage: the page that ``serve_metrics`` serves to a Prometheus, from its start to the end of the scorer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spanscore.errors import ConfigurationError
from spanscore.line.build import Line
from spanscore.line.closing import Closing

if TYPE_CHECKING:
    from spanscore.monitoring.openmetrics import ScrapeEndpoint

__all__ = ["MetricsPage"]


class MetricsPage:
    """At most one page of a scorer. Any thread.

    Attributes:
        endpoint: None while none is served.
        unready: why no work is to be sent to this process when the page begins to answer; empty = it may be sent.
    """

    def __init__(self, line: Line, closing: Closing) -> None:
        self._line = line
        self._closing = closing
        self.endpoint: ScrapeEndpoint | None = None
        self.unready = ""
        self._lock = threading.RLock()  # a signal handler that shuts down may interrupt its holder

    @property
    def url(self) -> str:
        """Where it is; empty while it is nowhere."""
        return "" if self.endpoint is None else self.endpoint.url

    def serve(self, beside: Sequence[Any], *, port: int, host: str) -> int:
        """Begin to serve the line's instruments, and those beside; return the port.

        Raises:
            ConfigurationError: nothing can listen there, it serves already, the scorer is shut down or has no instruments.
        """
        with self._lock:
            if self._line.telemetry is None:
                raise ConfigurationError("there are no metrics to serve: attach leaves out 'instruments'")
            if self._closing.begun:
                raise ConfigurationError("the scorer is shut down: serve_metrics() comes at the start")
            if self.endpoint is not None:
                raise ConfigurationError(f"the metrics are being served already, on port {self.endpoint.port}")
            from spanscore.monitoring.openmetrics import ScrapeEndpoint

            name, sums = self._line.providers.service_name, [self._line.telemetry, *beside]
            self.endpoint = ScrapeEndpoint(
                name, sums, port=port, host=host, unready=self.unready, on_scrape=self._note_scrape
            )
            return self.endpoint.port

    def _note_scrape(self) -> None:
        if where := self.url:
            self._line.providers.read_otherwise["metrics"] = lambda: f"read at {where}"

    def close(self) -> None:
        """Stop."""
        with self._lock:
            if self.endpoint is not None:
                self.endpoint.close()
                self.endpoint = None

    def reset(self) -> None:
        """Serve nothing: in a forked child, which may begin again, on a port of its own."""
        self._lock = threading.RLock()
        self._line.providers.read_otherwise.pop("metrics", None)
        if self.endpoint is not None:
            self.endpoint.close_in_child()
            self.endpoint = None
