"""Outgoing: copies that wait for an answer → the next request, and what an answer means for each. No thread, no network."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus
from itertools import islice
from threading import Lock
from typing import Final, NamedTuple

from spanscore.core.codecs.text import retry_after_s
from spanscore.outputs.otlp_client import BackendAnswer
from spanscore.remote_scoring.carrier import Told, UnitCopy

__all__ = ["Outgoing", "WaitingCopy"]

_MOST: Final = 64
_MOST_BYTES: Final = 4_000_000
"""Of copies in one request, unless one is larger: a ``serve`` takes four times as much where nothing is configured."""
_FIRST_WAIT_S, _LONGEST_WAIT_S, _CLOSING_WAIT_S = 0.5, 30.0, 0.1
_OF_THE_COPY: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
"""The fault is a copy, or all of them together: they are sent again in halves. Any other is the way's, and may be mended."""


class WaitingCopy(NamedTuple):
    """A copy, and who is told what becomes of it."""

    copy: UnitCopy
    told: Told


class Outgoing:
    """Holds copies until they are answered for, in order. Any thread; times are seconds of one steady clock.

    Args:
        dice: [0, 1), for waits: replicas that failed together must not try again together.

    Attributes:
        trouble: what went wrong last, in few words; empty since the latest success.
        closing: no long wait any more: there is little time.
    """

    def __init__(self, *, dice: Callable[[], float] = random.random) -> None:
        self._dice = dice
        self._lock = Lock()
        self._copies: deque[WaitingCopy] = deque()
        self._most = _MOST
        self._tries = 0
        self._due_s = float("-inf")
        self.trouble = ""
        self.closing = False

    def __len__(self) -> int:
        return len(self._copies)

    def put(self, waiting: WaitingCopy) -> None:
        """Take a copy."""
        with self._lock:
            self._copies.append(waiting)

    def due_s(self) -> float | None:
        """Return when the next request is due, None while nothing waits."""
        return self._due_s if self._copies else None

    def batch(self, now_s: float) -> Sequence[WaitingCopy]:
        """Return the copies of the request that is due; none where none is. They stay until they are answered for."""
        if now_s < self._due_s:
            return []
        taken, size = list[WaitingCopy](), 0
        with self._lock:
            for waiting in islice(self._copies, self._most):
                size += len(waiting.copy.request)
                if taken and size > _MOST_BYTES:
                    break
                taken.append(waiting)
        return taken

    def took(self, batch: Sequence[WaitingCopy], answer: BackendAnswer, now_s: float) -> None:
        """Do with a batch what its answer says: tell of each, or have it sent again."""
        rejected, _ = answer.rejected
        self._due_s = now_s
        if answer.is_success and not rejected:
            self._tries, self._most, self.trouble = 0, _MOST, ""
            self._tell(batch, None)
        elif rejected or answer.status in _OF_THE_COPY:
            self.trouble = answer.error or "spans were rejected"
            self._most = max(1, len(batch) // 2)
            if len(batch) == 1:
                self._tell(batch, self.trouble)
        else:
            self.trouble = answer.error
            self._tries += 1
            self._due_s = now_s + self._wait_s(answer)

    def hurry(self, now_s: float) -> None:
        """Have what waits be due at once."""
        self.closing, self._due_s = True, now_s

    def _tell(self, batch: Sequence[WaitingCopy], reason: str | None) -> None:
        with self._lock:
            for _ in batch:
                self._copies.popleft()
        for waiting in batch:
            waiting.told(reason)

    def _wait_s(self, answer: BackendAnswer) -> float:
        if self.closing:
            return _CLOSING_WAIT_S
        asked = retry_after_s(answer.retry_after) or 0.0
        backoff = min(_FIRST_WAIT_S * 2.0 ** min(self._tries - 1, 10), _LONGEST_WAIT_S)
        return max(min(asked, _LONGEST_WAIT_S), backoff * (0.5 + self._dice() / 2))
