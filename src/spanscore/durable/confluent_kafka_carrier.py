"""Carrier of unit copies to a Kafka topic, with the partitioning that the Collector uses for the same traces."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from spanscore.core.log import log_internal_error, log_once
from spanscore.core.threads import call_in_child, start_daemon
from spanscore.durable.rows import OnDelivery, UnitCopy
from spanscore.errors import MissingExtraError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.cimpl import Producer

_DEFAULTS: Final[Mapping[str, Any]] = {
    "partitioner": "fnv1a",  # as the Collector's exporter, so that all spans of a trace are in one partition
    "message.timeout.ms": 0,  # no timeout, because the caller bounds the waiting messages
    "message.max.bytes": 1_000_000_000,  # no limit here, because the broker has a limit
    "compression.type": "lz4",
}
_POLL_S: Final = 1.0
_UNREACHABLE: Final = "no broker answers"
_FAULT_TEXTS: Final[Mapping[str, str]] = {
    "_ALL_BROKERS_DOWN": _UNREACHABLE,
    "_AUTHENTICATION": "the brokers refuse name or password",
    "_RESOLVE": "the brokers' host names cannot be resolved",
    "_SSL": "TLS failed",
    "_TRANSPORT": _UNREACHABLE,
    "_UNKNOWN_TOPIC": "there is no such topic",
    "MSG_SIZE_TOO_LARGE": "too large for the topic",
    "RECORD_LIST_TOO_LARGE": "too large for the topic",
    "TOPIC_AUTHORIZATION_FAILED": "no permission to write to the topic",
    "UNKNOWN_TOPIC_OR_PART": "there is no such topic",
}
"""Name of an error of librdkafka → text for the operator; other errors are shown by name."""


class KafkaCarrier:
    """A ``Carrier`` to a Kafka topic. A copy is one message with the trace id as key, in lower-case hex.

    The callback of a copy is called when all in-sync replicas have it, or its delivery failed. librdkafka sends and retries on
    its own threads, which start with the first copy; another thread polls for the results. While no broker answers, messages
    wait in librdkafka.

    Args:
        config: configuration of librdkafka: brokers and security.

    Raises:
        MissingExtraError: the library is not installed.
    """

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        try:
            import confluent_kafka  # noqa: F401  (only whether it is there)
        except ImportError as error:
            raise MissingExtraError("confluent-kafka", "kafka") from error
        self._config = {**_DEFAULTS, **config, "error_cb": self._record_error}
        self._topic = topic
        self._producer: Producer | None = None
        self._thread: Thread | None = None
        self._lock = Lock()
        self._fault = ""
        self._over = False
        call_in_child(self, KafkaCarrier._leak_client)

    def begin(self) -> None:
        """Do nothing: no copies of earlier processes remain, because librdkafka keeps them in memory only."""

    def _leak_client(self) -> None:
        """Keep the parent's client alive in a child for ever: its destruction would wait for threads that the child lacks."""
        if self._producer is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))

    def send(self, copy: UnitCopy, on_delivery: OnDelivery) -> None:
        """Accept a copy. The copy's callback is called on the thread that polls for results."""
        self.produce(f"{copy.key.trace_id:032x}", copy.request, on_delivery)

    def produce(self, key: str, value: bytes, on_delivery: OnDelivery, written_ms: int = 0) -> None:
        """Write a message with its time, 0 = now. Thread-safe; never blocks, never raises.

        ``on_delivery`` is called once, or never if ``close`` drops the message.
        """
        if self._over:
            on_delivery("this process ends")
            return
        try:
            self._start_producer().produce(
                self._topic, value, key, on_delivery=partial(self._on_delivered, on_delivery), timestamp=written_ms
            )
        except BufferError:
            on_delivery("too many messages wait for the brokers")
        except Exception as error:  # noqa: BLE001  (never raises: the copy is reported as lost, and counted)
            log_internal_error("hand a copy to Kafka", error)
            on_delivery("librdkafka refused it")

    def has_arrived(self) -> bool:
        """Return True: callbacks report success only when the brokers have the copy, so no reported copy is in transit."""
        return True

    def state(self) -> str:
        """Return the latest failure in a few words; empty after a success."""
        return self._fault

    def close(self, timeout_s: float) -> None:
        """Wait for the delivery of all messages within the time; the rest is dropped."""
        producer = self._producer
        if producer is None:
            return
        producer.flush(timeout_s)
        self._over = True
        producer.purge()
        # The polling thread drops the last reference. The garbage collector might destroy the client in a child of a later
        # fork, which lacks its threads: that crashes or never ends.
        self._producer = None

    def _start_producer(self) -> Producer:
        """Return the client; create it and its polling thread at the first call."""
        with self._lock:
            if self._producer is None:
                # Import from the defining module, because an instrumentation may replace the package's name, and trace these
                # messages.
                from confluent_kafka.cimpl import Producer

                self._producer = Producer(self._config)
            if self._thread is None:
                self._thread = start_daemon(self._poll, "spanscore-remote", self._producer)
            return self._producer

    def _poll(self, producer: Producer) -> None:
        while not self._over:
            producer.poll(_POLL_S)

    def _on_delivered(self, on_delivery: OnDelivery, error: KafkaError | None, _: object) -> None:
        if self._over:
            return
        self._fault = ""
        if error is not None:
            self._record_error(error)
        on_delivery(self._fault or None)

    def _record_error(self, error: KafkaError) -> None:
        self._fault = _FAULT_TEXTS.get(error.name(), error.name())
        log_once(
            f"remote_scoring kafka {self._fault}",
            f"nothing can be written to the topic {self._topic}: {self._fault}; units wait; if more than "
            "limits.queue_size wait, further units end as queue_full",
        )
