"""OtlpCarrier: copies → a ``spanscore serve``, by OTLP over HTTP, again and again until it has answered for each.

One thread sends, one request at a time: what comes meanwhile is the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final

from spanscore.config.credentials import token_in_file
from spanscore.config.durable import RemoteScoring
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.threads import start_daemon
from spanscore.errors import ConfigurationError
from spanscore.judges.score_context import suppress_tracing
from spanscore.outputs.otlp_client import BackendAnswer, OtlpClient
from spanscore.remote_scoring.carrier import Told, UnitCopy
from spanscore.remote_scoring.outgoing import Outgoing, WaitingCopy

__all__ = ["OtlpCarrier"]

_PATH: Final = "/v1/traces"
_PROTOBUF: Final = "application/x-protobuf"
_AFTER_FAULT_S: Final = 1.0
_LOOK_S: Final = 0.02


class OtlpCarrier:
    """A ``Carrier``. Its thread starts with the first copy.

    Args:
        settings: where to.
        clock: seconds.

    Raises:
        ConfigurationError: there is no token to send.
    """

    def __init__(self, settings: RemoteScoring, *, clock: Callable[[], float] = monotonic) -> None:
        if settings.endpoint is None or settings.token_file is None:
            raise ConfigurationError("remote_scoring has no endpoint and token_file: give both")
        self._endpoint, self._token_file = settings.endpoint, settings.token_file
        self._settings = settings
        self._clock = clock
        self._headers()
        self.reset()

    def reset(self) -> None:
        """Forget every copy, and the connections: in a forked child."""
        self._client = OtlpClient(self._endpoint, key="remote_scoring.endpoint", timeout_s=self._settings.timeout)
        self._lock = Lock()
        self._wake = Event()
        self._thread: Thread | None = None
        self._outgoing = Outgoing()
        self._over = False

    def send(self, copy: UnitCopy, told: Told) -> None:
        """Take a copy on. Any thread; does not block."""
        self._outgoing.put(WaitingCopy(copy, told))
        with self._lock:
            if self._thread is None and not self._over:
                self._thread = start_daemon(self._run, "spanscore-remote")
        self._wake.set()

    def arrived(self) -> bool:
        """Return True: it is the scorer that answers."""
        return True

    def state(self) -> str:
        """Return what is wrong with the way there, in few words; empty while nothing is."""
        return self._outgoing.trouble

    def close(self, timeout: float) -> None:
        """Send what waits for as long as there is time, and end."""
        until = self._clock() + timeout
        self._outgoing.hurry(self._clock())
        self._wake.set()
        while self._thread is not None and len(self._outgoing) and self._clock() < until:
            self._thread.join(_LOOK_S)
        self._over = True
        self._wake.set()

    def _run(self) -> None:
        with suppress_tracing():  # instrumentations of HTTP clients trace nothing of ours
            while not self._over:
                try:
                    self._send_due()
                except Exception as error:  # noqa: BLE001  (no other thread sends: it is tried again)
                    log_internal_error("send copies of units", error)
                    self._wake.wait(_AFTER_FAULT_S)
                due_s = self._outgoing.due_s()
                self._wake.wait(None if due_s is None else max(0.0, due_s - self._clock()))
                self._wake.clear()
        self._client.close()

    def _send_due(self) -> None:
        while not self._over and (batch := self._outgoing.batch(self._clock())):
            answer = self._posted(b"".join(waiting.copy.request for waiting in batch))
            if not answer.is_success:
                self._say(answer)
            self._outgoing.took(batch, answer, self._clock())

    def _posted(self, body: bytes) -> BackendAnswer:
        try:
            return self._client.post(_PATH, body, self._headers())
        except ConfigurationError as error:  # while the file is being replaced, or for good
            return BackendAnswer(HTTPStatus.UNAUTHORIZED, error=str(error))

    def _headers(self) -> dict[str, str]:
        token = token_in_file(self._token_file, "remote_scoring.token_file")
        return {"content-type": _PROTOBUF, "authorization": f"Bearer {token}"}

    def _say(self, answer: BackendAnswer) -> None:
        log_once(
            f"remote_scoring {answer.error}",
            f"units cannot be handed over to {self._settings.shown}: {answer.error}; they wait, and past limits.queue_size "
            "further ones are queue_full",
        )
