"""Carriers of unit copies to the process that scores them: OTLP over HTTP with retries, and a spool in front of a carrier."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Final

from spanscore.config.credentials import token_in_file
from spanscore.config.durable import RemoteScoring
from spanscore.core.log import log_once
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.durable.outbox import COPIES, Batch, Outbox, OutboxSender, Payload
from spanscore.durable.rows import COPY, Carrier, OnDelivery, PutResult, RowKey, SpoolRow, UnitCopy
from spanscore.durable.spool import SpoolFile
from spanscore.errors import ConfigurationError
from spanscore.outputs.otlp_client import BackendAnswer, OtlpClient

_PATH: Final = "/v1/traces"
_PROTOBUF: Final = "application/x-protobuf"
_MOST_IN_MEMORY: Final = 64
"""Maximum number of copies in memory: the number that fits into one request."""


class HttpCarrier:
    """Base of carriers over HTTP: an outbox, and a thread that posts its batches.

    Args:
        client: connection to the receiver; closed with the carrier.
        outbox: keeps the waiting copies, and decides on retries.
        post: posts a batch, and returns the answer. Called on the carrier's thread.
        thread: name of that thread.
    """

    def __init__(self, client: OtlpClient, outbox: Outbox, post: Callable[[Batch], BackendAnswer], thread: str) -> None:
        self._client, self._outbox = client, outbox
        self._sender = OutboxSender(outbox, post, thread)

    def send(self, copy: UnitCopy, on_delivery: OnDelivery) -> None:
        """Accept a copy. Thread-safe; does not block."""
        self._sender.put(Payload(copy.request, on_delivery), {})

    def state(self) -> str:
        """Return the latest failure in a few words; empty after a success."""
        return self._outbox.trouble

    def close(self, timeout_s: float) -> None:
        """Send the waiting copies within the time, and end."""
        self._sender.close(timeout_s)
        self._client.close()


class OtlpCarrier(HttpCarrier):
    """A ``Carrier`` to a ``spanscore serve``, by OTLP over HTTP; every copy is sent again until it has an answer.

    Raises:
        ConfigurationError: the settings have no endpoint or no token file.
    """

    def __init__(self, settings: RemoteScoring) -> None:
        if settings.endpoint is None or settings.token_file is None:
            raise ConfigurationError("remote_scoring has no endpoint and token_file: give both")
        self._token_file, self._shown = settings.token_file, settings.shown
        client = OtlpClient(settings.endpoint, key="remote_scoring.endpoint", timeout_s=settings.timeout)
        super().__init__(client, Outbox(COPIES), self._post, "spanscore-remote")

    def begin(self) -> None:
        """Check that there is a token to send.

        Raises:
            ConfigurationError: the file of the token is missing or empty.
        """
        self._headers()

    def has_arrived(self) -> bool:
        """Return True: a copy is answered only when the scoring process has received it, so no answered copy is in transit."""
        return True

    def _post(self, batch: Batch) -> BackendAnswer:
        try:
            answer = self._client.post(_PATH, b"".join(payload.raw for payload in batch.payloads), self._headers())
        except ConfigurationError as error:  # the token's file is missing: during its replacement, or permanently
            answer = BackendAnswer(HTTPStatus.UNAUTHORIZED, error=str(error))
        if not answer.is_success:
            log_once(
                f"remote_scoring {answer.error}",
                f"units cannot be handed over to {self._shown}: {answer.error}; units wait; if "
                "more than limits.queue_size wait, further units end as queue_full",
            )
        return answer

    def _headers(self) -> dict[str, str]:
        token = token_in_file(self._token_file, "remote_scoring.token_file")
        return {"content-type": _PROTOBUF, "authorization": f"Bearer {token}"}


class SpooledCarrier:
    """A ``Carrier`` that stores copies in a spool, and sends them from there by another carrier.

    A copy is answered after its commit to the disk, and deleted after its arrival. If a process has ended, any other process
    with a carrier of the same ``kind`` and the same spool sends its copies.

    Args:
        spool: stores the copies; other processes may share it. Not closed with the carrier.
        inner: sends the copies; closed with the carrier.
        kind: kind of the rows in the spool that this carrier stores and sends.
        lost: called with a copy that was lost after its answer, and the outcome. Called on any thread.
    """

    def __init__(
        self, spool: SpoolFile, inner: Carrier, *, kind: str = COPY, lost: Callable[[UnitCopy, Outcome], None]
    ) -> None:
        self._spool = spool
        self._inner = inner
        self._kind = kind
        self._lost = lost
        self._lock = Lock()
        self._sending: set[RowKey] = set()
        self._is_querying = False
        self._query_again = False  # whether a further query follows the running one
        self._closed = False

    def begin(self) -> None:
        """Send the copies of processes that have ended."""
        self._inner.begin()
        self._query_rows()

    def send(self, copy: UnitCopy, on_delivery: OnDelivery) -> None:
        """Store a copy; ``on_delivery`` is called after the commit."""
        key = RowKey(*copy.key, copy.revision, self._kind)
        self._spool.put(key, copy.request, lambda put, why: self._on_put(on_delivery, put, why), own=False)

    def has_arrived(self) -> bool:
        """Return whether the spool has no copies that this process could send."""
        return not (self._sending or self._is_querying or self._query_again)

    def state(self) -> str:
        """Return the fault of the disk, or the latest failure to send, in a few words; empty without either."""
        return self._spool.state().fault or self._inner.state()

    def close(self, timeout_s: float) -> None:
        """Send the copies in memory within the time; other copies stay in the spool, which is not closed."""
        self._closed = True
        self._inner.close(timeout_s)
        with self._lock:
            left = [*self._sending]
        self._spool.give_back(left)

    def _on_put(self, on_delivery: OnDelivery, put: PutResult, why: str | None) -> None:
        if put in (PutResult.KEPT, PutResult.KNOWN):
            self._query_rows()
            on_delivery(None)
        else:
            on_delivery(why or str(put))

    def _query_rows(self) -> None:
        """Lease rows up to the maximum in memory, with one query at a time; and rows that are too old, to count them."""
        if self._spool.state().expired:
            self._spool.take(_MOST_IN_MEMORY, self._kind, self._count_expired, ended_only=True)
        with self._lock:
            self._query_again = True
            if self._is_querying or self._closed or len(self._sending) >= _MOST_IN_MEMORY:
                return
            self._is_querying, self._query_again = True, False
            room = _MOST_IN_MEMORY - len(self._sending)
        self._spool.take(room, self._kind, self._send_rows)

    def _send_rows(self, rows: list[SpoolRow]) -> None:
        with self._lock:
            self._is_querying = False
            self._sending |= {row.key for row in rows}
            more = bool(rows) or self._query_again
        for row in rows:
            copy = _copy(row)
            self._inner.send(copy, partial(self._on_answer, row.key, copy))
        if more:
            self._query_rows()

    def _count_expired(self, rows: list[SpoolRow]) -> None:
        for row in rows:
            self._lost(_copy(row), Outcome.EXPIRED)
        self._spool.done([row.key for row in rows])

    def _on_answer(self, key: RowKey, copy: UnitCopy, reason: str | None) -> None:
        if reason is not None:
            self._lost(copy, Outcome.QUEUE_FULL)
        self._spool.done([key])
        with self._lock:
            self._sending.discard(key)
        self._query_rows()


def _copy(row: SpoolRow) -> UnitCopy:
    trace_id, span_id, revision, _ = row.key
    return UnitCopy(UnitKey(trace_id, span_id), revision, row.body)
