"""Sends the messages of a sink over HTTP: from memory, or from a spool that outlives the process."""

from __future__ import annotations

from threading import Lock
from time import monotonic, sleep
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from spanscore.core.log import log_once
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.core.threads import call_in_child
from spanscore.durable.carriers import HttpCarrier, SpooledCarrier
from spanscore.durable.outbox import Batch, Outbox, OutboxCounts, SendingRules
from spanscore.durable.rows import Carrier, UnitCopy
from spanscore.durable.spool import SpoolFile
from spanscore.outputs.http_sink import Destination, Message
from spanscore.outputs.otlp_client import BackendAnswer, OtlpClient

MOST_BYTES: Final = 16_000_000
"""Limit of the messages of one sink that wait in memory, in bytes."""
_TIMEOUT_S: Final = 10.0
_GATHER_S: Final = 0.2
_MOST_TRIES: Final = 20
"""Tries of a request that the receiver answers with an error of its own; they take about 8 minutes."""
_POLL_S: Final = 0.02


class MessageCarrier(HttpCarrier):
    """A ``Carrier`` of messages: sends them over HTTP to one destination, with retries. It follows no redirect.

    Args:
        max_bytes: limit of waiting messages, in bytes; None = no limit.
    """

    def __init__(self, destination: Destination, max_bytes: int | None) -> None:
        parts = urlsplit(destination.url)
        self._destination = destination
        self._path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        key = f"the url of the sink {destination.name}"
        client = OtlpClient(f"{parts.scheme}://{parts.netloc}", key=key, timeout_s=_TIMEOUT_S)
        rules = SendingRules(
            most=destination.most,
            gather_s=_GATHER_S if destination.most > 1 else 0.0,
            first_wait_s=0.5,
            closing_wait_s=0.1,
            is_patient=False,
            most_tries=_MOST_TRIES,
        )
        super().__init__(client, Outbox(rules, max_bytes=max_bytes), self._post, f"spanscore-{destination.name}")

    def begin(self) -> None:
        """Do nothing, because no earlier process has left messages in memory."""

    def has_arrived(self) -> bool:
        """Return whether no message waits."""
        return not self.counts().waiting

    def counts(self) -> OutboxCounts:
        """Return the numbers of messages by state."""
        return self._outbox.counts()

    def _post(self, batch: Batch) -> BackendAnswer:
        request = self._destination.request([Message.from_bytes(payload.raw) for payload in batch.payloads])
        answer = self._client.post(self._path, request.body, request.headers)
        if not answer.is_success:
            name, shown = self._destination.name, self._destination.shown
            log_once(
                f"sink {name} {shown} {answer.error}",
                f"messages of the sink {name} cannot be sent to {shown}: {answer.error}; they wait and are sent again, or "
                "are counted as dropped in status()",
            )
        return answer


class SinkOutboxState(NamedTuple):
    """The counts of one sink's messages.

    Attributes:
        name: name of the sink; a number follows if several sinks have the name.
        destination: address of the receiver, without its path.
        sent: messages that the receiver accepted from this process.
        waiting: messages that wait; with a spool, those of all processes that share it.
        dropped: messages that were refused for good, had no room, or were not sent before the end.
        trouble: latest failure in a few words; empty after a success.
        last_loss: reason of the latest drop; empty without one.
        remark: remark of the sink; empty without one.
    """

    name: str
    destination: str
    sent: int = 0
    waiting: int = 0
    dropped: int = 0
    trouble: str = ""
    last_loss: str = ""
    remark: str = ""


class SinkOutbox:
    """Implements ``MessageOutbox``. Messages wait in memory, up to ``MOST_BYTES``, or in a spool.

    A message in a spool is sent by this process, or by any process with the same spool and sink after this one has ended. It is
    deleted after its arrival, so a crash in between sends it once more, with the same id.

    Args:
        name: name of the outbox among those of a scorer, and of its rows in the spool.
        spool: file of the messages; None = they wait in memory.
    """

    def __init__(self, destination: Destination, name: str, spool: SpoolFile | None) -> None:
        self._destination = destination
        self._name = name
        self._spool = spool
        self._make_parts()
        call_in_child(self, SinkOutbox._make_parts)

    def _make_parts(self) -> None:
        """Make the parts, also in a forked child, which has no messages of its parent."""
        self._lock = Lock()
        self._unanswered = self._dropped = 0
        self._last_loss = ""
        in_memory = self._spool is None
        self._sender = MessageCarrier(self._destination, MOST_BYTES if in_memory else None)
        self._carrier: Carrier = self._sender
        if self._spool is not None:
            self._carrier = SpooledCarrier(self._spool, self._sender, kind=self._name, lost=self._on_loss)

    def begin(self) -> None:
        """Send the messages that ended processes have left in the spool."""
        self._carrier.begin()

    def put(self, message: Message) -> None:
        """Accept a message, or count it as dropped. Thread-safe; does not block, and never raises."""
        with self._lock:
            self._unanswered += 1
        self._carrier.send(UnitCopy(UnitKey(int(message.id, 16), 0), 0, message.to_bytes()), self._on_answer)

    def state(self) -> SinkOutboxState:
        """Return the counts. Thread-safe."""
        counts, destination = self._sender.counts(), self._destination
        waiting, dropped, last_loss = counts.waiting, counts.lost, counts.last_loss
        if self._spool is not None:  # messages that this process did not send stay in the file
            waiting = self._spool.state().messages.get(self._name, 0)
            dropped, last_loss = self._dropped, self._last_loss
        trouble, remark = self._carrier.state(), destination.remark()
        return SinkOutboxState(self._name, destination.shown, counts.sent, waiting, dropped, trouble, last_loss, remark)

    def flush(self, timeout_s: float) -> bool:
        """Wait until no accepted message waits; give up when a request fails. Returns whether all have arrived. Blocks."""
        until_s = monotonic() + timeout_s
        while self._unanswered or not self._carrier.has_arrived():
            if self._carrier.state() or monotonic() >= until_s:
                return False
            sleep(_POLL_S)
        return not self.state().dropped

    def close(self, timeout_s: float) -> None:
        """Send the waiting messages within the time, and end. Messages in a spool stay there; others are dropped. Blocks."""
        waits = self._spool is None or not self._carrier.state()  # while sending fails, messages wait in the spool
        self._carrier.close(timeout_s if waits else 0.0)

    def _on_answer(self, reason: str | None) -> None:
        """Note that a message was stored or sent, or the reason for its loss. Thread-safe."""
        with self._lock:
            self._unanswered -= 1
        if reason is not None:
            self._note_loss(reason)

    def _on_loss(self, copy: UnitCopy, outcome: Outcome) -> None:
        self._note_loss("older than spool.max_age" if outcome is Outcome.EXPIRED else self._sender.counts().last_loss)

    def _note_loss(self, reason: str) -> None:
        with self._lock:
            self._dropped += 1
            self._last_loss = reason
