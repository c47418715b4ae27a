"""Outbox: spans that a proxy kept → batches for its backend, each until it is taken, or refused for good.

Spans wait in lanes, one per set of headers, so that a tenant whose requests are refused holds up no other. Those that cannot be
sent wait for as long as it takes: the door refuses further requests long before the room is used up (``is_full``).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from threading import Lock
from typing import Final, NamedTuple

from spanscore.core.codecs.otlp_request import Origin
from spanscore.core.log import log_once
from spanscore.outputs.otlp_client import BackendAnswer

__all__ = ["BATCH", "BATCH_BYTES", "Batch", "Outbox", "OutboxCounts"]

_Headers = tuple[tuple[str, str], ...]

BATCH: Final = 512
"""Spans a request, as the SDK's batch processor has them."""
BATCH_BYTES: Final = 4_000_000
"""Of them, unless one is larger: what gRPC servers take where nothing is configured, and most backends over HTTP."""
GATHER_S: Final = 0.2
_FULL_FROM: Final = 1 / 8
"""Share of the room from which on the door refuses: what has come in already needs the rest when its units close."""
_FIRST_WAIT_S, _LONGEST_WAIT_S, _CLOSING_WAIT_S = 1.0, 30.0, 0.5
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

    def oldest(self) -> list[tuple[Origin, bytes]]:
        """Return as many as one request takes, one at least."""
        taken, size = list[tuple[Origin, bytes]](), 0
        for one in islice(self.spans, self.most):
            size += len(one[1])
            if taken and size > BATCH_BYTES:
                break
            taken.append(one)
        return taken


class Batch(NamedTuple):
    """The oldest spans of a lane; they stay in it until they are gone.

    Attributes:
        headers: of the request that is to carry them.
        spans: at least one, each with whose it is.
        lane: where they stand.
    """

    headers: _Headers
    spans: Sequence[tuple[Origin, bytes]]
    lane: _Lane


class Outbox:
    """Holds kept spans until the backend has them. Any thread; sends nothing itself. Times are seconds of one steady clock.

    Args:
        max_bytes: of spans that wait; past it they are lost.
        dice: [0, 1), for waits: replicas that failed together must not try again together.

    Attributes:
        closing: nothing more is waited for: what comes is due at once.
    """

    def __init__(self, *, max_bytes: int, dice: Callable[[], float] = random.random) -> None:
        self._max_bytes = max_bytes
        self._dice = dice
        self._lock = Lock()
        self._lanes: dict[_Headers, _Lane] = {}
        self._bytes = 0
        self._sent = self._lost = 0
        self._last_loss = ""
        self._over = False
        self.closing = False

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be kept until the backend takes what waits."""
        return self._bytes >= self._max_bytes * _FULL_FROM

    def counts(self) -> OutboxCounts:
        """Return what became of kept spans so far."""
        with self._lock:
            waiting = sum(len(lane.spans) for lane in self._lanes.values())
            return OutboxCounts(self._sent, waiting, self._lost, self._last_loss)

    def put(self, origin: Origin, raw: bytes, headers: Mapping[str, str], now_s: float) -> bool:
        """Take a span; return whether ``due_s`` is sooner than it was."""
        with self._lock:
            if self._over or self._bytes + len(raw) > self._max_bytes:
                self._lose(1, "shut down" if self._over else "no room")
                return False
            lane = self._lane(tuple(sorted(headers.items())), now_s)
            lane.spans.append((origin, raw))
            self._bytes += len(raw)
            is_whole = len(lane.spans) == lane.most and not lane.tries
            if is_whole:
                lane.due_s = now_s
            return is_whole or len(lane.spans) == 1

    def due_s(self) -> float | None:
        """Return when the next batch is due; None while nothing waits."""
        with self._lock:
            return min((lane.due_s for lane in self._lanes.values()), default=None)

    def batch(self, now_s: float) -> Batch | None:
        """Return the batch that is due for longest; None where none is."""
        with self._lock:
            due = min(self._lanes.items(), key=lambda one: one[1].due_s, default=None)
            return None if due is None or due[1].due_s > now_s else Batch(due[0], due[1].oldest(), due[1])

    def took(self, batch: Batch, answer: BackendAnswer, now_s: float) -> None:
        """Do with a batch what the backend says: it is gone, or is sent again, or in halves."""
        lane, spans = batch.lane, len(batch.spans)
        with self._lock:
            if self._over:  # counted as lost already
                return
            if answer.status in _MAY_BE_ONE_SPANS and spans > 1:
                lane.most = spans // 2
            elif _may_pass(answer, lane.tries):
                lane.tries += 1
                lane.due_s = now_s + self._wait_s(answer, lane.tries)
            else:
                self._settle(spans, answer)
                self._remove(batch, now_s)
                if answer.status in _MAY_BE_ONE_SPANS:  # it was this one
                    lane.most = BATCH

    def hurry(self, now_s: float) -> None:
        """Have all that waits, or is yet to come, be due at once."""
        with self._lock:
            self.closing = True
            for lane in self._lanes.values():
                lane.due_s = now_s

    def end(self) -> bool:
        """Take nothing more, and count what still waits as lost. False: something did."""
        with self._lock:
            self._over = True
            left = sum(len(lane.spans) for lane in self._lanes.values())
            if left:
                self._lose(left, "the drain ended first")
            self._lanes.clear()
            return not left

    def _lane(self, headers: _Headers, now_s: float) -> _Lane:
        if headers not in self._lanes:
            self._lanes[headers] = _Lane(now_s + (0.0 if self.closing else GATHER_S))
        return self._lanes[headers]

    def _wait_s(self, answer: BackendAnswer, tries: int) -> float:
        if self.closing:
            return _CLOSING_WAIT_S
        asked = float(answer.retry_after) if answer.retry_after.isdecimal() else 0.0
        backoff = min(_FIRST_WAIT_S * 2.0 ** min(tries - 1, 10), _LONGEST_WAIT_S)
        return max(min(asked, _LONGEST_WAIT_S), backoff * (0.5 + self._dice() / 2))

    def _settle(self, spans: int, answer: BackendAnswer) -> None:
        lost = min(answer.rejected[0], spans) if answer.is_success else spans
        self._sent += spans - lost
        if lost:
            self._lose(lost, answer.error or "the backend rejected them")

    def _remove(self, batch: Batch, now_s: float) -> None:
        lane = batch.lane
        for _, raw in batch.spans:
            lane.spans.popleft()
            self._bytes -= len(raw)
        lane.tries = 0
        if not lane.spans:
            del self._lanes[batch.headers]
        elif len(lane.spans) < lane.most and not self.closing:
            lane.due_s = now_s + GATHER_S

    def _lose(self, spans: int, why: str) -> None:
        self._lost += spans
        self._last_loss = why
        log_once(
            "forward",
            f"spans that were held for their scores are lost: {why}; the row forward of the status counts them",
        )


def _may_pass(answer: BackendAnswer, tries: int) -> bool:
    if answer.status in _SEND_LATER:
        return True
    return answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and tries + 1 < _MOST_TRIES
