"""Courier: the thread that takes a proxy's kept spans to its backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final

from spanscore.core.codecs.otlp_request import WireSpan, request_of, with_attributes
from spanscore.core.log import log_internal_error
from spanscore.core.threads import start_daemon
from spanscore.durable.outbox import Outbox
from spanscore.outputs.otlp_client import BackendAnswer

__all__ = ["Courier"]

_AFTER_FAULT_S: Final = 1.0


class Courier:
    """Sends what the outbox says is due. Starts with the first span.

    Args:
        send: one request to the backend: body and headers → its answer. Blocks; never raises.
        outbox: where spans wait.
        clock: seconds.
    """

    def __init__(
        self,
        send: Callable[[bytes, Mapping[str, str]], BackendAnswer],
        outbox: Outbox,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._send = send
        self._outbox = outbox
        self._clock = clock
        self._lock = Lock()
        self._wake = Event()
        self._thread: Thread | None = None
        self._over = False

    def take(self, span: WireSpan, attributes: Mapping[str, Any] | None, headers: Mapping[str, str]) -> None:
        """Take a span to be sent with these attributes and headers. Any thread; never raises, does not block."""
        raw = _with(attributes, span.raw) if attributes else span.raw
        if self._outbox.put(span.origin, raw, headers, self._clock()):
            self._start()
            self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Send what waits, without waiting for more, and end. False: not all of it was sent in time; it is counted lost."""
        self._outbox.hurry(self._clock())
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._over = True
        self._wake.set()
        return self._outbox.end()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = start_daemon(self._run, "spanscore-forward")

    def _run(self) -> None:
        while not self._over:
            try:
                due_s = self._send_due()
            except Exception as error:  # noqa: BLE001  (no other thread sends: the batch is tried again)
                log_internal_error("send kept spans on", error)
                due_s = self._clock() + _AFTER_FAULT_S
            if due_s is None and self._outbox.closing:
                return
            self._wake.wait(None if due_s is None else max(0.0, due_s - self._clock()))
            self._wake.clear()

    def _send_due(self) -> float | None:
        """Send every batch that is due; return when the next one is."""
        while (batch := self._outbox.batch(self._clock())) is not None and not self._over:
            answer = self._send(request_of(batch.spans), dict(batch.headers))
            self._outbox.took(batch, answer, self._clock())
        return self._outbox.due_s()


def _with(attributes: Mapping[str, Any], raw: bytes) -> bytes:
    try:
        return with_attributes(raw, attributes)
    except Exception as error:  # noqa: BLE001  (the span is worth more than what we say of it)
        log_internal_error("put scores onto a span", error)
        return raw
