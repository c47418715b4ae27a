"""The outbox: payloads (bytes) for a backend wait in it until they are accepted or refused for good; and its sending thread.

Copies of units and the held spans of a proxy wait here. Payloads wait in one queue per set of headers, so that a tenant with
refused requests does not delay other tenants.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final, NamedTuple

from spanscore.core.codecs.otlp_request import Origin
from spanscore.core.codecs.text import retry_after_s
from spanscore.core.log import log_internal_error
from spanscore.core.threads import start_daemon
from spanscore.durable.rows import OnDelivery
from spanscore.judges.score_context import suppress_tracing
from spanscore.outputs.otlp_client import BackendAnswer

_Headers = tuple[tuple[str, str], ...]

BATCH_BYTES: Final = 4_000_000
"""Bytes of one request, unless one payload is larger: the default limit of gRPC servers, and of most backends over HTTP."""
_FULL_SHARE: Final = 1 / 8
"""Filled share of the outbox above which a proxy refuses requests. The rest is for held spans of units that are closed."""
_LONGEST_WAIT_S: Final = 30.0
_NO_ROOM: Final = "no room"
_FAULT_WAIT_S: Final = 1.0
_RETRYABLE: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Retryable statuses by OTLP 1.x, "OTLP/HTTP Response". ``OtlpClient`` returns one of them for a missing answer, too."""
_PAYLOAD_FAULTS: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""Statuses whose cause may be one payload, or the size of the batch: the batch is sent again in halves."""


class SendingRules(NamedTuple):
    """Rules for sending the payloads of one outbox.

    Attributes:
        most: highest number of payloads in one request.
        gather_s: time for which the first payload of a queue waits for further payloads, in s.
        first_wait_s: pause after the first failure, in s; doubled after each further failure, up to 30 s.
        closing_wait_s: pause after a failure while closing, in s.
        is_patient: whether a payload is dropped only if it alone is at fault, for example if its request is accepted and its
            spans are rejected. Otherwise a request is dropped after a refusal for good, and after ``most_tries`` failures.
        most_tries: highest number of tries of a request that the backend answers with an error of its own, unless
            ``is_patient``. An overloaded or unreachable backend is tried without a limit.
    """

    most: int
    gather_s: float
    first_wait_s: float
    closing_wait_s: float
    is_patient: bool
    most_tries: int = 5


COPIES: Final = SendingRules(most=64, gather_s=0.0, first_wait_s=0.5, closing_wait_s=0.1, is_patient=True)
"""Rules for copies of units. ``spanscore serve`` accepts requests of four times ``BATCH_BYTES`` by default."""
HELD_SPANS: Final = SendingRules(most=512, gather_s=0.2, first_wait_s=1.0, closing_wait_s=0.5, is_patient=False)
"""Rules for held spans of a proxy. A request has as many spans as a request of the SDK's batch processor."""


class Payload(NamedTuple):
    """Bytes that are sent together with other payloads.

    Attributes:
        on_delivery: called once, on any thread, when the payload is accepted or dropped; never after the end of the outbox, so
            that a copy on a disk stays there.
        origin: resource and scope of a span; None = the bytes are a whole request.
    """

    raw: bytes
    on_delivery: OnDelivery
    origin: Origin | None = None


class OutboxCounts(NamedTuple):
    """Numbers of payloads by their state.

    Attributes:
        sent: payloads that the backend accepted.
        waiting: payloads that are still in the outbox.
        lost: payloads that were refused, exceeded the limit, or were not sent in time.
        last_loss: reason of the latest loss; empty without a loss.
    """

    sent: int = 0
    waiting: int = 0
    lost: int = 0
    last_loss: str = ""


@dataclass(slots=True)
class _Queue:
    """Payloads with one set of headers."""

    due_s: float  # time of the next request, by the clock
    most: int  # payloads in that request; halved after the backend refused one as unreadable or too large
    tries: int = 0  # failures of that request
    payloads: deque[Payload] = field(default_factory=deque)


class Batch(NamedTuple):
    """The oldest payloads of a queue, at least one. Payloads stay in the queue until the backend answers."""

    headers: _Headers
    payloads: Sequence[Payload]
    queue: _Queue


class Outbox:
    """Keeps payloads until the backend accepts them. Thread-safe; sends nothing itself. Times are seconds of one steady clock.

    Args:
        max_bytes: limit of waiting payloads, in bytes; further payloads are lost. None = no limit.
        jitter: random number in [0, 1) for pauses, so that replicas that failed together do not retry together.

    Attributes:
        closing: whether everything is due at once, because little time is left.
        trouble: latest failure in a few words; empty after a success.
    """

    def __init__(
        self, rules: SendingRules, *, max_bytes: int | None = None, jitter: Callable[[], float] = random.random
    ) -> None:
        self._rules = rules
        self._max_bytes = float("inf") if max_bytes is None else max_bytes
        self._jitter = jitter
        self._lock = Lock()
        self._queues: dict[_Headers, _Queue] = {}
        self._bytes = self._sent = self._lost = 0
        self._last_loss = ""
        self._over = False
        self.closing = False
        self.trouble = ""

    @property
    def is_full(self) -> bool:
        """Whether a proxy refuses requests until the backend has accepted waiting spans."""
        return self._bytes >= self._max_bytes * _FULL_SHARE

    def counts(self) -> OutboxCounts:
        """Return the numbers of payloads by state."""
        with self._lock:
            waiting = sum(len(queue.payloads) for queue in self._queues.values())
            return OutboxCounts(self._sent, waiting, self._lost, self._last_loss)

    def put(self, payload: Payload, headers: Mapping[str, str], now_s: float) -> bool:
        """Accept a payload; return whether it makes a request due earlier than before."""
        with self._lock:
            if self._over:
                self._lose(1, "shut down")
                return False
            if self._bytes + len(payload.raw) <= self._max_bytes:
                return self._add(payload, tuple(sorted(headers.items())), now_s)
            self._lose(1, _NO_ROOM)
        payload.on_delivery(_NO_ROOM)
        return False

    def due_s(self) -> float | None:
        """Return the time at which the next batch is due; None if no payload waits."""
        with self._lock:
            return min((queue.due_s for queue in self._queues.values()), default=None)

    def batch(self, now_s: float) -> Batch | None:
        """Return the batch that has been due for longest; None if no batch is due."""
        with self._lock:
            headers, queue = min(self._queues.items(), key=lambda item: item[1].due_s, default=((), None))
            if queue is None or queue.due_s > now_s:
                return None
            payloads, size = list[Payload](), 0
            for payload in islice(queue.payloads, queue.most):
                size += len(payload.raw)
                if payloads and size > BATCH_BYTES:
                    break
                payloads.append(payload)
            return Batch(headers, payloads, queue)

    def settle(self, batch: Batch, answer: BackendAnswer, now_s: float) -> None:
        """Settle a batch by the backend's answer: its payloads are removed, or sent again, together or in halves."""
        number, rejected = len(batch.payloads), answer.rejected[0]
        is_payload_fault = answer.status in _PAYLOAD_FAULTS or bool(rejected and self._rules.is_patient)
        with self._lock:
            if self._over:  # its payloads are already counted as lost
                return
            reason = self.trouble = answer.error or ("the backend rejected them" if rejected else "")
            if self._retry(batch, answer, now_s, is_payload_fault=is_payload_fault):
                return
            lost = min(rejected, number) if answer.is_success else number
            self._sent += number - lost
            if lost:
                self._lose(lost, reason)
            self._remove(batch, now_s)
            if is_payload_fault:  # the payload at fault is removed, so requests become as large as before
                batch.queue.most = self._rules.most
        for index, payload in enumerate(batch.payloads):
            payload.on_delivery(reason if index < lost else None)

    def hurry(self, now_s: float) -> None:
        """Make all waiting and later payloads due immediately."""
        with self._lock:
            self.closing = True
            for queue in self._queues.values():
                queue.due_s = now_s

    def end(self) -> bool:
        """Accept no further payload, and count the waiting payloads as lost. Returns False if any were waiting."""
        with self._lock:
            self._over = True
            left = sum(len(queue.payloads) for queue in self._queues.values())
            if left:
                self._lose(left, "the drain ended first")
            self._queues.clear()
            return not left

    def _add(self, payload: Payload, headers: _Headers, now_s: float) -> bool:
        if (queue := self._queues.get(headers)) is None:
            gather_s = 0.0 if self.closing else self._rules.gather_s
            queue = self._queues[headers] = _Queue(now_s + gather_s, self._rules.most)
        queue.payloads.append(payload)
        self._bytes += len(payload.raw)
        fills_request = len(queue.payloads) == queue.most and not queue.tries
        if fills_request:
            queue.due_s = now_s
        return fills_request or len(queue.payloads) == 1

    def _retry(self, batch: Batch, answer: BackendAnswer, now_s: float, *, is_payload_fault: bool) -> bool:
        """Make a batch or its halves due again; returns False if the answer settles its payloads."""
        queue = batch.queue
        if is_payload_fault:
            if len(batch.payloads) == 1:
                return False
            queue.most = len(batch.payloads) // 2
            queue.due_s = now_s
            return True
        if answer.is_success:
            return False
        has_tries = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and queue.tries + 1 < self._rules.most_tries
        if not (self._rules.is_patient or answer.status in _RETRYABLE or has_tries):
            return False
        queue.tries += 1
        queue.due_s = now_s + self._wait_s(answer, queue.tries)
        return True

    def _wait_s(self, answer: BackendAnswer, tries: int) -> float:
        if self.closing:
            return self._rules.closing_wait_s
        requested_s = retry_after_s(answer.retry_after) or 0.0
        backoff_s = min(self._rules.first_wait_s * 2.0 ** min(tries - 1, 10), _LONGEST_WAIT_S)
        return max(min(requested_s, _LONGEST_WAIT_S), backoff_s * (0.5 + self._jitter() / 2))

    def _remove(self, batch: Batch, now_s: float) -> None:
        queue = batch.queue
        for payload in batch.payloads:
            queue.payloads.popleft()
            self._bytes -= len(payload.raw)
        queue.tries = 0
        if not queue.payloads:
            del self._queues[batch.headers]
        elif len(queue.payloads) < queue.most and not self.closing:
            queue.due_s = now_s + self._rules.gather_s

    def _lose(self, payloads: int, reason: str) -> None:
        self._lost += payloads
        self._last_loss = reason


@dataclass(slots=True)
class OutboxSender:
    """Sends the due batches of an outbox, one at a time, on a thread that starts with the first payload.

    Attributes:
        outbox: the outbox; it is closed with the sender.
        post: sends one batch and returns the backend's answer. Blocks.
    """

    outbox: Outbox
    post: Callable[[Batch], BackendAnswer]
    thread_name: str
    _lock: Lock = field(default_factory=Lock, init=False)
    _wake: Event = field(default_factory=Event, init=False)
    _thread: Thread | None = field(default=None, init=False)
    _over: bool = field(default=False, init=False)

    def put(self, payload: Payload, headers: Mapping[str, str]) -> None:
        """Accept a payload to be sent with these headers. Thread-safe; never raises, does not block."""
        is_sooner = self.outbox.put(payload, headers, monotonic())
        if not is_sooner and self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._over:
                self._thread = start_daemon(self._run, self.thread_name)
        self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Send the waiting payloads within the time, and end. Returns False if some were not sent: these count as lost."""
        self.outbox.hurry(monotonic())
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._over = True
        self._wake.set()
        return self.outbox.end()

    def _run(self) -> None:
        with suppress_tracing():  # no spans of instrumented HTTP clients for spanscore's own requests
            while not self._over:
                try:
                    while not self._over and (batch := self.outbox.batch(monotonic())) is not None:
                        self.outbox.settle(batch, self.post(batch), monotonic())
                    due_s = self.outbox.due_s()
                except Exception as error:  # noqa: BLE001  (this is the only sending thread: the batch is retried)
                    log_internal_error("send the waiting data to a backend", error)
                    due_s = monotonic() + _FAULT_WAIT_S
                if due_s is None and self.outbox.closing:
                    return
                self._wake.wait(None if due_s is None else max(0.0, due_s - monotonic()))
                self._wake.clear()
