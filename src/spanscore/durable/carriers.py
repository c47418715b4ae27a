"""Carriers of unit copies: OTLP over HTTP with retries, and a spool before another carrier."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus
from itertools import islice
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final, NamedTuple

from spanscore.config.credentials import token_in_file
from spanscore.config.durable import RemoteScoring
from spanscore.core.codecs.text import retry_after_s
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.core.threads import start_daemon
from spanscore.durable.rows import Carrier, PutResult, RowKey, SpoolRow, Told, UnitCopy
from spanscore.durable.spool import SpoolFile
from spanscore.errors import ConfigurationError
from spanscore.judges.score_context import suppress_tracing
from spanscore.outputs.otlp_client import BackendAnswer, OtlpClient

__all__ = ["OtlpCarrier", "RetryQueue", "SpooledCarrier", "WaitingCopy"]

# --- outgoing -------------------------------------------------------------------------------------------------------

# RetryQueue: copies that wait for an answer → the next request, and what an answer means for each. No thread, no network.

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


class RetryQueue:
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


# --- otlp carrier ---------------------------------------------------------------------------------------------------

# OtlpCarrier: copies → a ``spanscore serve``, by OTLP over HTTP, again and again until it has answered for each.
#
# One thread sends, one request at a time: what comes meanwhile is the next one.

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
        self._outgoing = RetryQueue()
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


# --- spooled carrier ------------------------------------------------------------------------------------------------

# SpooledCarrier: copies → a spool, and from there by another carrier: what waits outlives the process, and fills no memory.
#
# A copy is answered for when it is on the disk. What has arrived there is deleted; what a process left that has ended, any
# other one with the same spool and the same scorer takes there.

_KIND: Final = "copy"
_IN_MEMORY: Final = 64
"""Copies that are being sent: as many as stand in one request."""


class SpooledCarrier:
    """A ``Carrier``.

    Args:
        spool: where copies wait; others may share it.
        inner: takes them on.
        lost: told of a copy that was answered for, and of which nothing will come, and how it ends. Any thread.
    """

    def __init__(self, spool: SpoolFile, inner: Carrier, *, lost: Callable[[UnitCopy, Outcome], None]) -> None:
        self._spool = spool
        self._inner = inner
        self._lost = lost
        self._forget()
        self._take_more()  # what a process left that has ended

    def reset(self) -> None:
        """Be as new, in a forked child; the spool sees to itself."""
        self._inner.reset()
        self._forget()

    def send(self, copy: UnitCopy, told: Told) -> None:
        """Keep a copy; it is told when it is on the disk."""
        key = RowKey(*copy.key, copy.revision, _KIND)
        self._spool.put(key, copy.request, lambda put, why: self._kept(told, put, why), own=False)

    def arrived(self) -> bool:
        """Whether nothing waits in the spool that this process could take there."""
        return not (self._sending or self._asking or self._again)

    def state(self) -> str:
        """Return what is wrong with the disk or the way there, in few words; empty while nothing is."""
        return self._spool.state().fault or self._inner.state()

    def close(self, timeout_s: float) -> None:
        """Send what is being sent for as long as there is time; the rest stays in the spool, which is not closed."""
        self._closed = True
        self._inner.close(timeout_s)
        with self._lock:
            left = [*self._sending]
        self._spool.give_back(left)

    def _forget(self) -> None:
        self._lock = Lock()
        self._sending: set[RowKey] = set()
        self._asking = self._again = self._closed = False

    def _kept(self, told: Told, put: PutResult, why: str | None) -> None:
        if put in (PutResult.KEPT, PutResult.KNOWN):
            self._take_more()
            told(None)
        else:
            told(why or str(put))

    def _take_more(self) -> None:
        """Ask for copies that nobody has, where there is room for some; one question at a time. Those too old are counted."""
        if self._spool.state().expired:
            self._spool.take(_IN_MEMORY, _KIND, self._took_expired, ended_only=True)
        with self._lock:
            self._again = True
            if self._asking or self._closed or len(self._sending) >= _IN_MEMORY:
                return
            self._asking, self._again = True, False
            room = _IN_MEMORY - len(self._sending)
        self._spool.take(room, _KIND, self._took)

    def _took(self, rows: list[SpoolRow]) -> None:
        with self._lock:
            self._asking = False
            self._sending |= {row.key for row in rows}
            more = bool(rows) or self._again
        for row in rows:
            self._send(row)
        if more:
            self._take_more()

    def _took_expired(self, rows: list[SpoolRow]) -> None:
        for row in rows:
            self._lost(_copy(row), Outcome.EXPIRED)
        self._spool.done([row.key for row in rows])

    def _send(self, row: SpoolRow) -> None:
        copy = _copy(row)
        self._inner.send(copy, lambda reason: self._answered(row.key, copy, reason))

    def _answered(self, key: RowKey, copy: UnitCopy, reason: str | None) -> None:
        if reason is not None:
            self._lost(copy, Outcome.QUEUE_FULL)
        self._done(key)

    def _done(self, key: RowKey) -> None:
        self._spool.done([key])
        with self._lock:
            self._sending.discard(key)
        self._take_more()


def _copy(row: SpoolRow) -> UnitCopy:
    trace_id, span_id, revision, _ = row.key
    return UnitCopy(UnitKey(trace_id, span_id), revision, row.body)
