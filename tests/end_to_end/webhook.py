"""A webhook on loopback, which keeps Alertmanager's notifications."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """Takes Alertmanager's notifications (payload version 4).

    Attributes:
        url: for ``webhook_configs``.
        alerts: every alert of every notification, in order of arrival: ``{"status", "labels", "annotations", …}``, and ``at``,
            its time of arrival, by ``time.monotonic()``.
    """

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.alerts += [{**alert, "at": time.monotonic()} for alert in body["alerts"]]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/alerts"

    def __enter__(self) -> Webhook:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str, **labels: str) -> list[dict[str, Any]]:
        """Return the alerts of a name that carry these labels, oldest first."""
        wanted = {"alertname": name, **labels}
        return [alert for alert in list(self.alerts) if wanted.items() <= alert["labels"].items()]
