"""A queue of bytes for a backend, each kept until it is accepted or refused for good, and the thread that sends them.

Copies of units and the held spans of a proxy wait here. Parcels wait in lanes, one per set of headers, so that a tenant with
refused requests does not delay the others.
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
"""Bytes of one request, unless one parcel is larger: the default limit of gRPC servers, and of most backends over HTTP."""
_FULL_FROM: Final = 1 / 8
"""Filled share of the room above which a proxy refuses requests; the rest is for held spans of units that close."""
_LONGEST_WAIT_S: Final = 30.0
_NO_ROOM: Final = "no room"
_AFTER_FAULT_S: Final = 1.0
_MOST_TRIES: Final = 5
"""Tries of a batch on which the backend fails, unless the rules are patient."""
_SEND_LATER: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Retryable statuses by OTLP 1.x, "OTLP/HTTP Response", including replacements for a missing answer."""
_FAULT_OF_A_PARCEL: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
"""Statuses for which one parcel may be at fault, or all together: the batch is sent again in halves."""


class SendingRules(NamedTuple):
    """Rules for sending the parcels of one outbox.

    Attributes:
        most: highest number of parcels in one request.
        gather_s: time for which the first parcel of a lane waits for others, in s.
        first_wait_s: pause after the first failure, in s; doubled after each further one, up to 30 s.
        closing_wait_s: pause after a failure while closing, in s.
        is_patient: whether a parcel is dropped only if it alone is at fault, for example if its request is accepted and its
            spans are rejected. Otherwise a refusal for good, and the fifth failure of the backend, drop the whole request.
    """

    most: int
    gather_s: float
    first_wait_s: float
    closing_wait_s: float
    is_patient: bool


COPIES: Final = SendingRules(most=64, gather_s=0.0, first_wait_s=0.5, closing_wait_s=0.1, is_patient=True)
"""Rules for copies of units: a ``serve`` accepts requests of four times ``BATCH_BYTES`` by default."""
HELD_SPANS: Final = SendingRules(most=512, gather_s=0.2, first_wait_s=1.0, closing_wait_s=0.5, is_patient=False)
"""Rules for held spans of a proxy: as many in a request as in one of the SDK's batch processor."""


class Parcel(NamedTuple):
    """Bytes that are sent together with other parcels.

    Attributes:
        raw: the bytes.
        told: called once, on any thread, when the parcel is accepted or dropped; never after the end of the outbox, so that a
            copy on a disk stays there.
        origin: resource and scope of a span; None = the bytes are a whole request.
    """

    raw: bytes
    told: Told
    origin: Origin | None = None


class OutboxCounts(NamedTuple):
    """Numbers of parcels by their state.

    Attributes:
        sent: parcels that the backend accepted.
        waiting: parcels that are still in the outbox.
        lost: parcels that were refused, or for which room or time was missing.
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
        most: highest number of parcels in that request; halved after the backend refused one as unreadable or too large.
        tries: failures of the parcels at its head.
    """

    due_s: float
    most: int
    tries: int = 0
    parcels: deque[Parcel] = field(default_factory=deque)


class Batch(NamedTuple):
    """The oldest parcels of a lane, at least one; they stay in the lane until they are answered."""

    headers: _Headers
    parcels: Sequence[Parcel]
    lane: _Lane


class Outbox:
    """Keeps parcels until the backend accepts them. Any thread; sends nothing itself. Times are seconds of one steady clock.

    Args:
        rules: rules for sending.
        max_bytes: limit of waiting parcels, in bytes; further ones are lost. None = no limit.
        dice: random number in [0, 1) for pauses, so that replicas that failed together do not retry together.

    Attributes:
        closing: whether everything is due at once, because little time is left.
        trouble: latest failure in a few words; empty after a success.
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
        """Whether no further spans should be held until the backend has accepted waiting ones."""
        return self._bytes >= self._max_bytes * _FULL_FROM

    def counts(self) -> OutboxCounts:
        """Return the numbers of parcels by state."""
        with self._lock:
            waiting = sum(len(lane.parcels) for lane in self._lanes.values())
            return OutboxCounts(self._sent, waiting, self._lost, self._last_loss)

    def put(self, parcel: Parcel, headers: Mapping[str, str], now_s: float) -> bool:
        """Accept a parcel; return whether ``due_s`` is earlier than before."""
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
        """Return the time at which the next batch is due; None if no parcel waits."""
        with self._lock:
            return min((lane.due_s for lane in self._lanes.values()), default=None)

    def batch(self, now_s: float) -> Batch | None:
        """Return the batch that has been due for longest; None if no batch is due."""
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
        """Settle a batch by the backend's answer: its parcels are removed, or retried, whole or in halves."""
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
            if is_fault_of_a_parcel:  # the parcel is found, so requests become as large as before
                batch.lane.most = self._rules.most
        for index, parcel in enumerate(batch.parcels):
            parcel.told(reason if index < lost else None)

    def hurry(self, now_s: float) -> None:
        """Make all waiting and later parcels due at once."""
        with self._lock:
            self.closing = True
            for lane in self._lanes.values():
                lane.due_s = now_s

    def end(self) -> bool:
        """Accept no further parcel, and count the waiting ones as lost. False: there were some."""
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
        """Make a batch or its halves due again; False: the answer settles its parcels."""
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
    """Sends the due batches of an outbox, one at a time, on a thread that starts with the first parcel.

    Args:
        outbox: has the parcels.
        post: sends one batch and returns the backend's answer. Blocks.
        thread_name: name of the thread.
        clock: steady clock, in s.
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
        """Accept a parcel to be sent with these headers. Any thread; never raises, does not block."""
        is_sooner = self._outbox.put(parcel, headers, self._clock())
        if not is_sooner and self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._over:
                self._thread = start_daemon(self._run, self._thread_name)
        self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Send the waiting parcels within the time, and end. False: the rest was not sent, and counts as lost."""
        self._outbox.hurry(self._clock())
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._over = True
        self._wake.set()
        return self._outbox.end()

    def _run(self) -> None:
        with suppress_tracing():  # no spans of instrumented HTTP clients for our own requests
            while not self._over:
                try:
                    due_s = self._send_due()
                except Exception as error:  # noqa: BLE001  (this is the only sending thread: the batch is retried)
                    log_internal_error("send the waiting data to a backend", error)
                    due_s = self._clock() + _AFTER_FAULT_S
                if due_s is None and self._outbox.closing:
                    return
                self._wake.wait(None if due_s is None else max(0.0, due_s - self._clock()))
                self._wake.clear()

    def _send_due(self) -> float | None:
        """Send every due batch; return the time of the next one."""
        while not self._over and (batch := self._outbox.batch(self._clock())) is not None:
            self._outbox.took(batch, self._post(batch), self._clock())
        return self._outbox.due_s()
