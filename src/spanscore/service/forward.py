"""Forwarder: what a proxy received → its backend, as the bytes that came, and the backend's answer → the client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Final

from spanscore.config.serving import ForwardSettings
from spanscore.outputs.otlp_client import BackendAnswer, OtlpClient
from spanscore.service.answers import PROTOBUF

__all__ = ["ForwardCounts", "Forwarder"]

_CONNECTIONS: Final = 32
"""Kept open; more requests at once open more, which are closed again."""
_OWN_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "te", "transfer-encoding"}
)
"""Of one connection or one body: never passed on, whatever is listed."""


@dataclass(frozen=True, slots=True)
class ForwardCounts:
    """How sending on went so far.

    Attributes:
        sent: requests that the backend took.
        failed: requests that it did not take, or that did not reach it.
        last_error: of the latest of these, with its time; empty where there was none.
    """

    sent: int = 0
    failed: int = 0
    last_error: str = ""


class Forwarder:
    """Sends requests on to one backend. Any thread; blocks until the backend answers, or is silent for ``timeout``.

    Args:
        settings: where to, and which headers go along.
    """

    def __init__(self, settings: ForwardSettings) -> None:
        self._listed = frozenset(name.lower() for name in settings.headers) - _OWN_HEADERS
        self._client = OtlpClient(
            settings.endpoint, key="forward.endpoint", timeout_s=settings.timeout, connections=_CONNECTIONS
        )
        self._lock = Lock()
        self._counts = ForwardCounts()

    def counts(self) -> ForwardCounts:
        """Return how it went so far. Any thread."""
        return self._counts

    def passed(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return those of a request's headers that go along with it, names in lower case."""
        return {name.lower(): value for name, value in headers.items() if name.lower() in self._listed}

    def send(
        self, path: str, body: bytes, *, content_type: str = PROTOBUF, encoding: str = "", headers: Mapping[str, str]
    ) -> BackendAnswer:
        """Send a request on and return what came back. Never raises.

        Args:
            path: of the signal: ``/v1/traces``.
            body: as it came.
            content_type: likewise.
            encoding: likewise: its compression; empty where there is none.
            headers: of the request; those that are not listed stay here.
        """
        sent = {**self.passed(headers), "content-type": content_type}
        answer = self._client.post(path, body, {**sent, "content-encoding": encoding} if encoding else sent)
        self._count(answer)
        return answer

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _count(self, answer: BackendAnswer) -> None:
        with self._lock:
            before = self._counts
            if answer.is_success:
                self._counts = ForwardCounts(before.sent + 1, before.failed, before.last_error)
            else:
                when = datetime.fromtimestamp(time.time(), UTC).strftime("%H:%M:%S UTC")
                self._counts = ForwardCounts(before.sent, before.failed + 1, f"{answer.error} at {when}")
