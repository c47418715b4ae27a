"""Outbox: bytes that wait for a backend, each until it is taken or refused for good, and the thread that sends them.

Copies of units and the spans that a proxy held wait here. Parcels wait in lanes, one per set of headers, so that a tenant whose
requests are refused holds up no other.
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
from spanscore.durable.rows import Told
from spanscore.judges.score_context import suppress_tracing
from spanscore.outputs.otlp_client import BackendAnswer

_Headers = tuple[tuple[str, str], ...]

BATCH_BYTES: Final = 4_000_000
"""Bytes of one request, unless one parcel is larger: gRPC servers take that much by default, and most backends over HTTP."""
_FULL_FROM: Final = 1 / 8
"""Share of the room from which on a proxy refuses requests: spans that it holds need the rest when their units close."""
_LONGEST_WAIT_S: Final = 30.0
_NO_ROOM: Final = "no room"
_AFTER_FAULT_S: Final = 1.0
_MOST_TRIES: Final = 5
"""Requests for a batch that the backend fails on, unless the rules are patient."""
_SEND_LATER: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Retryable by OTLP 1.x, "OTLP/HTTP Response": also what stands for no answer."""
_FAULT_OF_A_PARCEL: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
"""One parcel may be at fault, or all of them together: they are sent again in halves."""


class SendingRules(NamedTuple):
    """How the parcels of one outbox are sent.

    Attributes:
        most: parcels of one request.
        gather_s: how long the first parcel of a lane waits for others, seconds.
        first_wait_s: pause after the first failure, seconds; it doubles with each further one, up to 30 s.
        closing_wait_s: pause after a failure at the end, seconds.
        is_patient: whether a parcel is given up only if it alone is at fault, as when its request is taken and its spans are
            rejected. Else a refusal for good, and the fifth failure of the backend, give up the whole request.
    """

    most: int
    gather_s: float
    first_wait_s: float
    closing_wait_s: float
    is_patient: bool


COPIES: Final = SendingRules(most=64, gather_s=0.0, first_wait_s=0.5, closing_wait_s=0.1, is_patient=True)
"""Copies of units: a ``serve`` takes requests of four times ``BATCH_BYTES`` by default."""
HELD_SPANS: Final = SendingRules(most=512, gather_s=0.2, first_wait_s=1.0, closing_wait_s=0.5, is_patient=False)
"""Spans that a proxy held: as many in a request as in one of the SDK's batch processor."""


class Parcel(NamedTuple):
    """Bytes that are sent together with others.

    Attributes:
        raw: the bytes.
        told: called once, on any thread, when the parcel is taken or given up; never after the end of the outbox, so that a
            copy on a disk stays there.
        origin: resource and scope of a span; None = the bytes are a whole request.
    """

    raw: bytes
    told: Told
    origin: Origin | None = None


class OutboxCounts(NamedTuple):
    """Parcels by what became of them.

    Attributes:
        sent: parcels that the backend took.
        waiting: parcels that are still in the outbox.
        lost: parcels that were refused, or for which there was no room or no time.
        last_loss: reason of the latest loss; empty without one.
    """

    sent: int = 0
    waiting: int = 0
    lost: int = 0
    last_loss: str = ""


@dataclass(slots=True)
class _Lane:
    """Parcels with one set of headers.

    Attributes:
        due_s: time of the next request, by the clock.
        most: parcels of that request; fewer after the backend refused one as unreadable or too large.
        tries: failures of the parcels at its head.
    """

    due_s: float
    most: int
    tries: int = 0
    parcels: deque[Parcel] = field(default_factory=deque)


class Batch(NamedTuple):
    """The oldest parcels of a lane, at least one; they stay in it until they are answered for."""

    headers: _Headers
    parcels: Sequence[Parcel]
    lane: _Lane


class Outbox:
    """Holds parcels until the backend has them. Any thread; sends nothing itself. Times are seconds of one steady clock.

    Args:
        rules: how parcels are sent.
        max_bytes: bytes of waiting parcels; further ones are lost. None = no limit.
        dice: [0, 1), for waits: replicas that failed together must not try again together.

    Attributes:
        closing: whether everything is due at once, as there is little time left.
        trouble: the latest failure in few words; empty since the latest success.
    """

    def __init__(
        self, rules: SendingRules, *, max_bytes: int | None = None, dice: Callable[[], float] = random.random
    ) -> None:
        self._rules = rules
        self._max_bytes = float("inf") if max_bytes is None else max_bytes
        self._dice = dice
        self._lock = Lock()
        self._lanes: dict[_Headers, _Lane] = {}
        self._bytes = self._sent = self._lost = 0
        self._last_loss = ""
        self._over = False
        self.closing = False
        self.trouble = ""

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be held until the backend takes what waits."""
        return self._bytes >= self._max_bytes * _FULL_FROM

    def counts(self) -> OutboxCounts:
        """Return what became of the parcels so far."""
        with self._lock:
            waiting = sum(len(lane.parcels) for lane in self._lanes.values())
            return OutboxCounts(self._sent, waiting, self._lost, self._last_loss)

    def put(self, parcel: Parcel, headers: Mapping[str, str], now_s: float) -> bool:
        """Take a parcel; return whether ``due_s`` is sooner than it was."""
        with self._lock:
            if self._over:
                self._lose(1, "shut down")
                return False
            if self._bytes + len(parcel.raw) <= self._max_bytes:
                return self._add(parcel, tuple(sorted(headers.items())), now_s)
            self._lose(1, _NO_ROOM)
        parcel.told(_NO_ROOM)
        return False

    def due_s(self) -> float | None:
        """Return when the next batch is due; None while nothing waits."""
        with self._lock:
            return min((lane.due_s for lane in self._lanes.values()), default=None)

    def batch(self, now_s: float) -> Batch | None:
        """Return the batch that is due for longest; None if none is due."""
        with self._lock:
            headers, lane = min(self._lanes.items(), key=lambda item: item[1].due_s, default=((), None))
            if lane is None or lane.due_s > now_s:
                return None
            parcels, size = list[Parcel](), 0
            for parcel in islice(lane.parcels, lane.most):
                size += len(parcel.raw)
                if parcels and size > BATCH_BYTES:
                    break
                parcels.append(parcel)
            return Batch(headers, parcels, lane)

    def took(self, batch: Batch, answer: BackendAnswer, now_s: float) -> None:
        """Settle a batch by the backend's answer: its parcels leave, are sent again, or are sent again in halves."""
        number, rejected = len(batch.parcels), answer.rejected[0]
        is_fault_of_a_parcel = answer.status in _FAULT_OF_A_PARCEL or bool(rejected and self._rules.is_patient)
        with self._lock:
            if self._over:  # its parcels are counted as lost already
                return
            reason = self.trouble = answer.error or ("the backend rejected them" if rejected else "")
            if self._retry(batch, answer, now_s, is_fault_of_a_parcel=is_fault_of_a_parcel):
                return
            lost = min(rejected, number) if answer.is_success else number
            self._sent += number - lost
            if lost:
                self._lose(lost, reason)
            self._remove(batch, now_s)
            if is_fault_of_a_parcel:  # it is found, and requests are as large as before
                batch.lane.most = self._rules.most
        for index, parcel in enumerate(batch.parcels):
            parcel.told(reason if index < lost else None)

    def hurry(self, now_s: float) -> None:
        """Make everything that waits, and every later parcel, due at once."""
        with self._lock:
            self.closing = True
            for lane in self._lanes.values():
                lane.due_s = now_s

    def end(self) -> bool:
        """Take nothing more, and count the parcels that still wait as lost. False: there were some."""
        with self._lock:
            self._over = True
            left = sum(len(lane.parcels) for lane in self._lanes.values())
            if left:
                self._lose(left, "the drain ended first")
            self._lanes.clear()
            return not left

    def _add(self, parcel: Parcel, headers: _Headers, now_s: float) -> bool:
        if (lane := self._lanes.get(headers)) is None:
            gather_s = 0.0 if self.closing else self._rules.gather_s
            lane = self._lanes[headers] = _Lane(now_s + gather_s, self._rules.most)
        lane.parcels.append(parcel)
        self._bytes += len(parcel.raw)
        is_whole = len(lane.parcels) == lane.most and not lane.tries
        if is_whole:
            lane.due_s = now_s
        return is_whole or len(lane.parcels) == 1

    def _retry(self, batch: Batch, answer: BackendAnswer, now_s: float, *, is_fault_of_a_parcel: bool) -> bool:
        """Make a batch due again, or its halves; False: the answer settles its parcels."""
        lane = batch.lane
        if is_fault_of_a_parcel:
            if len(batch.parcels) == 1:
                return False
            lane.most = len(batch.parcels) // 2
            lane.due_s = now_s
            return True
        if answer.is_success:
            return False
        fails_now = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and lane.tries + 1 < _MOST_TRIES
        if not (self._rules.is_patient or answer.status in _SEND_LATER or fails_now):
            return False
        lane.tries += 1
        lane.due_s = now_s + self._wait_s(answer, lane.tries)
        return True

    def _wait_s(self, answer: BackendAnswer, tries: int) -> float:
        if self.closing:
            return self._rules.closing_wait_s
        asked_s = retry_after_s(answer.retry_after) or 0.0
        backoff_s = min(self._rules.first_wait_s * 2.0 ** min(tries - 1, 10), _LONGEST_WAIT_S)
        return max(min(asked_s, _LONGEST_WAIT_S), backoff_s * (0.5 + self._dice() / 2))

    def _remove(self, batch: Batch, now_s: float) -> None:
        lane = batch.lane
        for parcel in batch.parcels:
            lane.parcels.popleft()
            self._bytes -= len(parcel.raw)
        lane.tries = 0
        if not lane.parcels:
            del self._lanes[batch.headers]
        elif len(lane.parcels) < lane.most and not self.closing:
            lane.due_s = now_s + self._rules.gather_s

    def _lose(self, parcels: int, reason: str) -> None:
        self._lost += parcels
        self._last_loss = reason


class OutboxSender:
    """Sends the batches of an outbox that are due, one at a time, on a thread that starts with the first parcel.

    Args:
        outbox: holds the parcels.
        post: sends one batch and returns the backend's answer. Blocks.
        thread_name: name of the thread.
        clock: seconds.
    """

    def __init__(
        self,
        outbox: Outbox,
        post: Callable[[Batch], BackendAnswer],
        thread_name: str,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._outbox = outbox
        self._post = post
        self._thread_name = thread_name
        self._clock = clock
        self._lock = Lock()
        self._wake = Event()
        self._thread: Thread | None = None
        self._over = False

    def put(self, parcel: Parcel, headers: Mapping[str, str]) -> None:
        """Take a parcel to be sent with these headers. Any thread; never raises, does not block."""
        is_sooner = self._outbox.put(parcel, headers, self._clock())
        if not is_sooner and self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._over:
                self._thread = start_daemon(self._run, self._thread_name)
        self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Send what waits as long as there is time, and end. False: the rest was not sent; it is counted as lost."""
        self._outbox.hurry(self._clock())
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._over = True
        self._wake.set()
        return self._outbox.end()

    def _run(self) -> None:
        with suppress_tracing():  # instrumentations of HTTP clients trace nothing of ours
            while not self._over:
                try:
                    due_s = self._send_due()
                except Exception as error:  # noqa: BLE001  (no other thread sends: the batch is tried again)
                    log_internal_error("send what waits for a backend", error)
                    due_s = self._clock() + _AFTER_FAULT_S
                if due_s is None and self._outbox.closing:
                    return
                self._wake.wait(None if due_s is None else max(0.0, due_s - self._clock()))
                self._wake.clear()

    def _send_due(self) -> float | None:
        """Send every batch that is due; return when the next one is."""
        while not self._over and (batch := self._outbox.batch(self._clock())) is not None:
            self._outbox.took(batch, self._post(batch), self._clock())
        return self._outbox.due_s()
