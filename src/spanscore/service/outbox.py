"""Outbox: spans that a proxy kept → requests to its backend, sent by a thread of its own, and again where that may pass.

Spans wait in lanes, one per set of headers, so that a tenant whose requests are refused holds up no other. Those that cannot be
sent wait here, for as long as it takes: the door refuses further requests long before the room is used up (``is_full``).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final

from spanscore.codec.wire import Origin, WireSpan, request_of, with_attributes
from spanscore.otel.partial_success import rejected_in
from spanscore.runtime.log import log_internal_error, log_once
from spanscore.runtime.threads import start_daemon
from spanscore.service.answers import PROTOBUF
from spanscore.service.forward import BackendAnswer

__all__ = ["Outbox", "OutboxCounts"]

Send = Callable[[bytes, Mapping[str, str]], BackendAnswer]
_Headers = tuple[tuple[str, str], ...]

BATCH: Final = 512
"""Spans a request, as the SDK's batch processor has them."""
BATCH_BYTES: Final = 4_000_000
"""Of them, unless one is larger: what gRPC servers take where nothing is configured, and most backends over HTTP."""
GATHER_S: Final = 0.2
_FULL_FROM: Final = 1 / 8
"""Share of the room from which on the door refuses: what has come in already needs the rest when its units close."""
_FIRST_WAIT_S, _LONGEST_WAIT_S, _DRAINING_WAIT_S = 1.0, 30.0, 0.5
_MOST_TRIES: Final = 5
"""Of a batch that the backend fails on; one that it asks to send later, or that did not reach it, is sent until it passes."""
_SEND_LATER: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Retryable by OTLP 1.x, "OTLP/HTTP Response": also what stands for no answer."""

_MAY_BE_ONE_SPANS: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
"""The fault may be one span's, or that of them all together: it is sent again in halves."""


@dataclass(frozen=True, slots=True)
class OutboxCounts:
    """Spans that were kept, by what became of them.

    Attributes:
        sent: that the backend took.
        waiting: still here.
        lost: that it took not, or for which there was no room or no time.
        last_loss: why, the latest; empty where none was.
    """

    sent: int = 0
    waiting: int = 0
    lost: int = 0
    last_loss: str = ""


@dataclass(slots=True)
class _Lane:
    """What goes out with one set of headers.

    Attributes:
        due_s: when its next request is; by the clock.
        most: spans of it; fewer after the backend refused one as unreadable or too large.
        tries: of the spans at its head.
    """

    due_s: float
    most: int = BATCH
    tries: int = 0
    spans: deque[tuple[Origin, bytes]] = field(default_factory=deque)

    def batch(self) -> list[tuple[Origin, bytes]]:
        """Return the oldest, one at least; they stay until they are gone."""
        taken, size = list[tuple[Origin, bytes]](), 0
        for one in islice(self.spans, self.most):
            size += len(one[1])
            if taken and size > BATCH_BYTES:
                break
            taken.append(one)
        return taken


class Outbox:
    """Holds kept spans until the backend has them. ``put`` is any thread's; its own thread sends.

    Args:
        send: one request to the backend: body and headers → its answer. Blocks; never raises.
        max_bytes: of spans that wait; past it they are lost.
        clock: seconds.
        dice: [0, 1), for waits: replicas that failed together must not try again together.
        start: begins its thread; a test that calls ``send_due`` itself needs none.
    """

    def __init__(
        self,
        send: Send,
        *,
        max_bytes: int,
        clock: Callable[[], float] = monotonic,
        dice: Callable[[], float] = random.random,
        start: Callable[[Callable[[], None], str], Thread | None] = start_daemon,
    ) -> None:
        self._send = send
        self._max_bytes = max_bytes
        self._clock = clock
        self._dice = dice
        self._start = start
        self._lock = Lock()
        self._wake = Event()
        self._thread: Thread | None = None
        self._closing = False
        self._over = False
        self._lanes: dict[_Headers, _Lane] = {}
        self._bytes = 0
        self._sent = self._lost = 0
        self._last_loss = ""

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be kept until the backend takes what waits."""
        return self._bytes >= self._max_bytes * _FULL_FROM

    def counts(self) -> OutboxCounts:
        """Return what became of kept spans so far. Any thread."""
        with self._lock:
            waiting = sum(len(lane.spans) for lane in self._lanes.values())
            return OutboxCounts(self._sent, waiting, self._lost, self._last_loss)

    def put(self, span: WireSpan, attributes: Mapping[str, Any] | None, headers: Mapping[str, str]) -> None:
        """Take a span to be sent with these attributes and headers. Any thread; never raises, does not block."""
        raw = _with(attributes, span.raw) if attributes else span.raw
        with self._lock:
            if self._over or self._bytes + len(raw) > self._max_bytes:
                self._lose(1, "shut down" if self._over else "no room")
                return
            lane = self._lane(tuple(sorted(headers.items())))
            lane.spans.append((span.origin, raw))
            self._bytes += len(raw)
            is_batch = len(lane.spans) in (1, lane.most)
            if len(lane.spans) == lane.most and not lane.tries:
                lane.due_s = self._clock()
        if is_batch:
            self._ensure()
            self._wake.set()

    def send_due(self) -> float | None:
        """Send every batch that is due; return when the next one is, by the clock, None while nothing waits. Its own thread."""
        while (due := self._next()) is not None and due[1].due_s <= self._clock():
            headers, lane = due
            with self._lock:
                batch = lane.batch()
            self._took(headers, lane, batch, self._send(request_of(batch), dict(headers)))
        return None if due is None else due[1].due_s

    def close(self, timeout_s: float) -> bool:
        """Send what waits, without waiting for more, and end. False: not all of it was sent in time; it is counted lost."""
        with self._lock:
            self._closing = True
            for lane in self._lanes.values():
                lane.due_s = self._clock()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._lock:
            self._over = True
            left = sum(len(lane.spans) for lane in self._lanes.values())
            if left:
                self._lose(left, "the drain ended first")
            self._lanes.clear()
        return not left

    def _ensure(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = self._start(self._run, "spanscore-forward")

    def _run(self) -> None:
        while not self._over:
            due_s = self._attempt()
            if due_s is None and self._closing:
                return
            self._wake.wait(None if due_s is None else max(0.0, due_s - self._clock()))
            self._wake.clear()

    def _attempt(self) -> float | None:
        try:
            return self.send_due()
        except Exception as error:  # noqa: BLE001  (the thread is the only one that sends: the batch is tried again)
            log_internal_error("send kept spans on", error)
            return self._clock() + _FIRST_WAIT_S

    def _next(self) -> tuple[_Headers, _Lane] | None:
        with self._lock:
            return min(self._lanes.items(), key=lambda one: one[1].due_s, default=None)

    def _lane(self, headers: _Headers) -> _Lane:
        if headers not in self._lanes:
            self._lanes[headers] = _Lane(self._clock() + (0.0 if self._closing else GATHER_S))
        return self._lanes[headers]

    def _took(self, headers: _Headers, lane: _Lane, batch: list[tuple[Origin, bytes]], answer: BackendAnswer) -> None:
        """Do with a batch what its answer says."""
        with self._lock:
            if self._over:  # counted as lost already
                return
            if answer.status in _MAY_BE_ONE_SPANS and len(batch) > 1:
                lane.most = len(batch) // 2
            elif self._may_pass(answer, lane.tries):
                lane.tries += 1
                lane.due_s = self._clock() + self._wait_s(answer, lane.tries)
            else:
                self._settle(len(batch), answer)
                self._remove(headers, lane, batch)

    def _may_pass(self, answer: BackendAnswer, tries: int) -> bool:
        if answer.status in _SEND_LATER:
            return True
        return answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and tries + 1 < _MOST_TRIES

    def _wait_s(self, answer: BackendAnswer, tries: int) -> float:
        if self._closing:
            return _DRAINING_WAIT_S
        asked = float(answer.retry_after) if answer.retry_after.isdecimal() else 0.0
        backoff = min(_FIRST_WAIT_S * 2.0 ** min(tries - 1, 10), _LONGEST_WAIT_S)
        return max(min(asked, _LONGEST_WAIT_S), backoff * (0.5 + self._dice() / 2))

    def _settle(self, spans: int, answer: BackendAnswer) -> None:
        rejected, _ = rejected_in(answer.body) if answer.is_success and answer.content_type == PROTOBUF else (0, "")
        lost = min(rejected, spans) if answer.is_success else spans
        self._sent += spans - lost
        if lost:
            self._lose(lost, "the backend rejected them" if answer.is_success else answer.error)

    def _remove(self, headers: _Headers, lane: _Lane, batch: list[tuple[Origin, bytes]]) -> None:
        for _, raw in batch:
            lane.spans.popleft()
            self._bytes -= len(raw)
        lane.tries = 0
        if not lane.spans:
            del self._lanes[headers]
        elif len(lane.spans) < lane.most and not self._closing:
            lane.due_s = self._clock() + GATHER_S

    def _lose(self, spans: int, why: str) -> None:
        self._lost += spans
        self._last_loss = why
        log_once(
            "forward",
            f"{spans} spans that were held for their scores are lost: {why}. The row forward of the status tells",
        )


def _with(attributes: Mapping[str, Any], raw: bytes) -> bytes:
    try:
        return with_attributes(raw, attributes)
    except Exception as error:  # noqa: BLE001  (the span is worth more than what we say of it)
        log_internal_error("put scores onto a span", error)
        return raw
