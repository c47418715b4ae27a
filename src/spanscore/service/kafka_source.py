"""Reads the messages of a Kafka topic into the scorer of ``spanscore worker``, and commits settled offsets.

One thread polls the topic and runs the group's callbacks; another thread leaves the group at the end. ``kafka.logs_topic`` is
read by a separate thread. The group uses the KIP-848 protocol if the broker has it, otherwise cooperative-sticky: a rebalance
revokes only the partitions that a worker loses.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from functools import partial
from threading import Event, Thread
from time import monotonic, time_ns
from typing import Final

from spanscore import semconv
from spanscore.config.durable import confluent_config
from spanscore.config.tree import Configuration
from spanscore.core.job import TopicState
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.threads import start_daemon
from spanscore.durable.confluent_kafka_carrier import KafkaCarrier
from spanscore.errors import SourceUnavailable
from spanscore.outputs.aggregates import GaugeReading
from spanscore.scorer import OnlineScorer, pipeline_of, receivers_of
from spanscore.service.confluent_kafka_logs import LogsTopic
from spanscore.service.confluent_kafka_member import GroupMember, KafkaMessage, KafkaProblem
from spanscore.service.kafka_topic import CommitNote, PartitionEnd, Topic, fingerprint_of
from spanscore.service.rekeyed_topic import RekeyedTopic
from spanscore.service.worker_plan import is_keyed_by_conversation

_ROUND_S: Final = 1.0
"""Seconds between two requests for settled offsets, and between two measurements of the lag."""
_FLUSH_S: Final = 2.0
"""Time for the export of the scores of a revoked partition, in s."""
REVOKE_TIMEOUT_S = 5.0
"""Time for which a revoked partition waits for the units in scoring, in s."""
_JOIN_S: Final = 5.0
"""Time for the group's first answer at the start, in s; a refusal arrives within this time."""
_LEAVE_S: Final = 5.0
"""Time to leave the group, in s. A classic group in a rebalance needs its whole session timeout."""
_LOOK_S: Final = 0.05
"""Seconds between two checks whether units of a revoked partition are still in scoring."""
_ANSWER_S: Final = 60.0
"""Time for a broker to answer a commit, in s; after that the commit is repeated."""


class KafkaSource:
    """Reads a topic into a scorer.

    The main thread calls ``start``, ``pause``, and ``commit`` after the scorer has drained. ``unready`` and ``describe_topic``
    may be called at any time in between.

    Args:
        scorer: scores the units.
        settings: a configuration with the section ``kafka``.
        rekey: topic to which all messages are copied, keyed by conversation; empty = the messages are scored.

    Attributes:
        pressure: why no message is read now (``Topic.pressure``); empty = messages are read.

    Raises:
        ConfigurationError: name, password or certificate authorities cannot be read.
    """

    def __init__(self, scorer: OnlineScorer, settings: Configuration, rekey: str = "") -> None:
        assert settings.kafka is not None  # callers check it
        self._kafka = settings.kafka
        self._pipeline = pipeline_of(scorer)
        spans = receivers_of(scorer).otlp_spans(settings.units)
        spans.copies.trusted = True  # the broker authenticates the writers of the topic
        self._is_keyed = is_keyed_by_conversation(settings)
        self._rekey, self._carrier = rekey, KafkaCarrier(confluent_config(self._kafka), rekey)
        self._topic: Topic | RekeyedTopic
        if rekey:
            self._topic = RekeyedTopic(self._carrier, spans, settings)
        else:
            self._topic = Topic(
                self._pipeline,
                spans,
                most_bytes=settings.serve.limits.inflated,
                max_open_age_s=self._kafka.max_open_age,
                by_conversation=self._is_keyed,
            )
        logs_topic = None if rekey else self._kafka.logs_topic  # only a scoring worker reads it
        self._logs = LogsTopic(logs_topic, settings, spans, partial(self._topic.set_clock, what="reach_end"))
        self._member = GroupMember(self._kafka, self)
        self._thread: Thread | None = None
        self._group_answered, self._stopping = Event(), Event()
        self._next_offsets: dict[int, int | None] = {}  # assigned partition → offset to read next; None = any offset
        self._settled_beyond: dict[int, Set[int]] = {}  # partition → offsets that an earlier worker settled
        self._committed: dict[int, int] = {}  # partition → offset that a broker has confirmed
        self._committing: Mapping[int, int] = {}  # partition → offset of the commit without an answer
        self._commit_deadline_s = 0.0  # monotonic time after which that commit counts as failed
        self._lag: Mapping[int, int] = {}
        self.pressure = ""
        self._fault = ""  # why the topic is not read, for the operator; empty = it is read
        self._refusal = ""  # why the brokers refuse access; empty = they do not
        self._waiting: Set[int] = frozenset()  # partitions with messages that wait for log records
        self._stopped: Set[int] = frozenset()  # partitions with a stopped clock, because log records may be unread
        self._is_disconnected = False  # no broker answers
        self._lacks_protocol = False  # the broker has no KIP-848 protocol
        self._may_have_grown = False  # a rebalance, perhaps because the topic has more partitions
        self._skipped = 0
        self._last_failed: tuple[int, int] | None = None  # partition and offset of the last message that raised
        self._rebalanced_s: float | None = None
        self._next_round_s = 0.0
        self._settled_request: Future[Mapping[int, int]] | None = None
        spans.topic = self.state
        self._pipeline.source_points = self.points
        if self._pipeline.telemetry is not None:
            self._pipeline.telemetry.gauges[semconv.WORKER_DROPPED] = lambda: self._topic.dropped
            self._pipeline.telemetry.gauges[semconv.WORKER_SKIPPED] = lambda: self._skipped

    # --- the main thread ---------------------------------------------------------------------------

    def start(self, wait_s: float) -> None:
        """Start to read. Blocks until the group answers, or for 5 s; without an answer, ``unready`` returns the reason.

        Before these 5 s it waits for a broker, ``wait_s`` at most.

        Raises:
            SourceUnavailable: no broker answers in that time, access is refused, or no thread can be started.
        """
        self._pipeline.accounts.share(0.0)
        self._member.join(wait_s)
        self._logs.start()
        self._thread = start_daemon(self._run, "spanscore-kafka")
        if self._thread is None:
            raise SourceUnavailable("kafka: no thread can be started to read: is the limit of processes reached?")
        self._group_answered.wait(_JOIN_S)
        if self._refusal:
            raise SourceUnavailable(f"kafka: {self._refusal}")

    def pause(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self._logs.stop()

    def commit(self) -> None:
        """Commit the offsets that were settled at the end of the scorer, and leave the group.

        If the polling thread hangs, no offset is committed: the next worker reads the messages again.
        """
        if self._thread is None:
            return
        self._thread.join(REVOKE_TIMEOUT_S + _FLUSH_S)
        if not self._thread.is_alive():
            ends = self._topic.final_ends()
            self._commit_ends({partition: ends[partition] for partition in self._next_offsets.keys() & ends.keys()})
            self._next_offsets = {}
            if (leaving := start_daemon(self._member.close, "spanscore-kafka-leave")) is not None:
                leaving.join(_LEAVE_S)

    def unready(self) -> str:
        """Return the reason for which the topic is not read; empty = it is read."""
        wrong = self._fault or self._logs.fault or self._carrier.state()
        return wrong or ("" if self._group_answered.is_set() else "the group has not answered yet")

    def describe_topic(self) -> Iterator[str]:
        """Yield lines with the topic and the group."""
        kafka = self._kafka
        group = f"group {kafka.group} ({self._member.protocol} protocol)"
        logs = f", logs of {self._logs.name}" if self._logs.name else ""
        rekeyed = f"; written to {self._rekey}, keyed by conversation, and not scored" if self._rekey else ""
        yield f"kafka: topic {kafka.topic} of {', '.join(kafka.brokers)}, {group}{logs}{rekeyed}"

    # --- any thread ----------------------------------------------------------------------------------------------

    def state(self) -> TopicState:
        """Return the state of the topic, for ``status()``."""
        oldest_ns, rebalanced_s = min(self._oldest().values(), default=None), self._rebalanced_s
        return TopicState(
            name=self._kafka.topic,
            partitions=sorted(self._next_offsets.copy()),
            all=self._member.partitions_total,
            lag=sum(self._lag.values()),
            oldest_s=None if oldest_ns is None else max(0.0, (time_ns() - oldest_ns) / 1e9),
            rebalanced_s=None if rebalanced_s is None else monotonic() - rebalanced_s,
            dropped=self._topic.dropped,
            skipped=self._skipped,
            wrong=self._fault,
            held=len(self._waiting),
        )

    def points(self) -> Mapping[Hashable, GaugeReading]:
        """Return the lag of each partition in messages and seconds.

        Seconds are known while a read message is unsettled, and 0 without a lag.
        """
        oldest, now_ns = self._oldest(), time_ns()
        points: dict[Hashable, GaugeReading] = {}
        for partition, behind in self._lag.items():
            values: dict[str, float] = {semconv.WORKER_LAG: behind}
            if partition in oldest or not behind:
                values[semconv.WORKER_TIME_LAG] = max(0, now_ns - oldest.get(partition, now_ns)) / 1e9
            points[self._kafka.topic, partition] = GaugeReading(((semconv.PARTITION, str(partition)),), values)
        return points

    def _oldest(self) -> Mapping[int, int]:
        times = {partition: offsets.oldest_ns for partition, offsets in [*self._topic.offsets.items()]}
        return {partition: time for partition, time in times.items() if time is not None}

    # --- the polling thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._poll_once()
            except Exception as error:  # noqa: BLE001  (the next poll may succeed; unread messages are read again)
                log_internal_error("read a topic", error)
                self._stopping.wait(_ROUND_S)

    def _poll_once(self) -> None:
        self._update_pauses()
        messages = self._logs.yield_ready(self._member.messages(), self.pressure)
        for message in messages:
            try:
                self._read(message)
            except Exception:
                self._fetch_again([message, *messages])  # the client's position is already after the batch
                raise
        self._topic.hand_over()
        if self._lacks_protocol:
            self._lacks_protocol = False
            self._member.go_classic()
        if self._settled_request is not None and self._settled_request.done():
            settled, self._settled_request = self._settled_request.result(), None
            self._commit(settled)
        if monotonic() >= self._next_round_s:
            self._next_round_s = monotonic() + _ROUND_S
            self._run_round()

    def _fetch_again(self, unread: Sequence[KafkaMessage]) -> None:
        """Fetch messages again. The first one has raised an error; if it did so before, it is skipped and counted."""
        first = unread[0]
        failed_before, self._last_failed = self._last_failed, (first.partition, first.offset)
        if failed_before == self._last_failed:
            self._skipped += 1
            log_once("kafka unreadable", _RAISES.format(first.offset, self._kafka.topic, first.partition))
            self._next_offsets[first.partition] = first.offset + 1
            unread = unread[1:]
        offsets: dict[int, int] = {}
        for message in unread:
            offsets[message.partition] = min(message.offset, offsets.get(message.partition, message.offset))
        self._logs.forget(offsets, fetched_again=True)
        for partition in offsets.keys() & self._next_offsets.keys():
            self._next_offsets[partition] = offsets[partition]
            self._member.seek(partition, offsets[partition])

    def _read(self, message: KafkaMessage) -> None:
        """Pass a message of an assigned partition to the topic, once; note a gap or a reset of the offsets before it."""
        partition, offset, written_ns, has_key, value = message
        if partition not in self._next_offsets:
            return  # another worker has the partition by now
        expected = self._next_offsets[partition]
        if expected is not None and offset < expected:
            end = self._member.end_offset(partition, cached=True)
            if end is None or end >= expected:
                return  # it was read before
            self._restart_partition(partition, expected, offset)
        elif expected is not None and offset > expected:
            deleted = min(self._member.oldest_offset(partition), offset) - expected
            if deleted > 0:  # other missing offsets were never in the log
                self._skipped += deleted
                log_once("kafka skipped", _GONE.format(deleted, self._kafka.topic, partition))
        self._next_offsets[partition] = offset + 1
        if not has_key:
            log_once("kafka key", _NO_KEY.format(self._kafka.topic))
        is_settled = offset in self._settled_beyond.get(partition, ())
        self._topic.take(partition, offset, written_ns, None if is_settled else value)

    def _update_pauses(self) -> None:
        """Pause all partitions under pressure, otherwise those with messages that wait for log records; resume the others."""
        pressure = self._topic.pressure()
        stopped, waiting = self._logs.request_records(pressure), {*self._logs.waiting}
        if (pressure, waiting, stopped) == (self.pressure, self._waiting, self._stopped):
            return
        paused_before = self._next_offsets.keys() if self.pressure else self._waiting & self._next_offsets.keys()
        paused = self._next_offsets.keys() if pressure else waiting
        self._member.resume(paused_before - paused)
        self._member.pause(paused - paused_before)
        self.pressure, self._waiting, self._stopped = pressure, waiting, stopped
        self._set_clocks(self._next_offsets)

    def _set_clocks(self, partitions: Collection[int]) -> None:
        """Stop the clocks of partitions with unread messages, so that their open units do not age; start the other clocks."""
        for partition in partitions:
            is_stopped = self.pressure == "queue" or self._is_disconnected or partition in self._stopped
            # Under any other pressure open units must close; otherwise reading would never resume.
            self._topic.set_clock(partition, "stop" if is_stopped else "reach_end" if self.pressure else "go")

    def _run_round(self) -> None:
        if self._committing and monotonic() > self._commit_deadline_s:
            self._topic.commit_failed(self._committing)
            self._committing = {}
        # one at a time, because commits may reach a broker in any order
        if self._settled_request is None and not self._committing:
            self._settled_request = self._topic.settled_offsets()
        if self._is_disconnected and self._member.look_for_topic():
            self._is_disconnected, self._fault = False, ""
            self._set_clocks(self._next_offsets)
        elif self._may_have_grown and self._member.look_for_topic():
            self._may_have_grown = False
            self._update_share()
        self._lag = self._compute_lags()

    def _compute_lags(self) -> dict[int, int]:
        """Return partition → number of messages after the committed offset; a partition with an unknown end is left out.

        Before the first commit the messages from the next offset on are counted.
        """
        # paused partitions fetch no new ends, so a broker is asked
        use_cached = self._is_disconnected or not self.pressure
        lags = dict[int, int]()
        for partition, offset in self._next_offsets.items():
            end = self._member.end_offset(partition, cached=use_cached)
            done = self._committed.get(partition, offset)
            if end is not None and done is not None:
                lags[partition] = max(0, end - done)
        return lags

    def _restart_partition(self, partition: int, expected: int, offset: int) -> None:
        """Read a partition from the broker's oldest message, because its log ends before the next offset.

        The topic was restored or created again, so offsets of the earlier log are not valid any more.
        """
        log_once(f"kafka cut {partition}", _CUT.format(self._kafka.topic, partition, expected, offset))
        self._topic.leave([partition])
        self._committed.pop(partition, None)
        self._settled_beyond.pop(partition, None)
        self._topic.begin(partition)
        self._set_clocks([partition])

    @property
    def _configuration(self) -> str:
        return fingerprint_of(self._pipeline.metrics.values())

    def _commit(self, settled: Mapping[int, int]) -> None:
        note, changed = CommitNote(self._configuration), settled.items() - self._committed.items()
        notes = {partition: (offset, note) for partition, offset in changed if partition in self._next_offsets}
        if self._is_disconnected or not notes:
            self._topic.commit_failed(settled)
            return
        self._committing, self._commit_deadline_s = settled, monotonic() + _ANSWER_S
        self._member.commit(notes)

    # --- the group, called back while messages are asked for -------------------------------------------------------

    def on_committed(self, offsets: Mapping[int, int], is_done: bool) -> None:
        """Record the answer to a commit.

        After a failure the offsets are committed again in the next round. The next worker of a lost partition reads its
        uncommitted messages again.
        """
        if is_done:
            self._committed.update((place, offset) for place, offset in offsets.items() if place in self._next_offsets)
        else:
            self._topic.commit_failed(offsets)
        self._committing = {}

    def on_assigned(self, begun: Mapping[int, tuple[int | None, CommitNote]]) -> None:
        """Record the partitions with their committed offsets; None = the group has no offset for them."""
        for partition, (offset, note) in begun.items():
            if note.configuration not in {"", self._configuration}:
                log_once("kafka configuration", _OTHERWISE.format(self._kafka.topic, self._kafka.group))
            may_be_taken_over = offset is not None or (self._is_keyed and self._rebalanced_s is not None)
            self._topic.begin(partition, is_taken_over=may_be_taken_over)
            self._next_offsets[partition], self._settled_beyond[partition] = offset, frozenset(note.settled)
        if self.pressure:
            self._member.pause(begun)
        self._set_clocks([*begun] if self.pressure or self._is_disconnected else [])
        self._finish_rebalance()

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Leave partitions that another worker gets after this call returns."""
        for partition in partitions:
            self._topic.set_clock(partition, "stop")
        until = monotonic() + REVOKE_TIMEOUT_S
        while self._topic.is_busy(partitions) and monotonic() < until and not self._stopping.wait(_LOOK_S):
            pass
        ends = self._topic.leave(partitions)
        flushed = self._pipeline.providers.start_flush_of_spans()
        try:
            if flushed.result(_FLUSH_S):
                self._commit_ends(ends)
        except NotYet:
            pass  # the messages are read again
        self._forget(partitions)

    def on_lost(self, partitions: Sequence[int]) -> None:
        """Leave partitions that another worker may already have, so that no offset of them may be committed."""
        self._topic.leave(partitions)
        self._forget(partitions)

    def _forget(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._next_offsets.pop(partition, None)
            self._committed.pop(partition, None)
        self._logs.forget(partitions)
        self._finish_rebalance()

    def _finish_rebalance(self) -> None:
        """Record that the assignment has changed, for the lag, the share of the accounts and the status."""
        self._rebalanced_s, self._fault = monotonic(), ""
        self._lag = {partition: lag for partition, lag in self._lag.items() if partition in self._next_offsets}
        self._may_have_grown = True
        self._update_share()
        self._group_answered.set()

    def _update_share(self) -> None:
        """Give the judges' accounts this worker's share of the partitions, and mark conversations that other workers share."""
        own, total, pipeline = len(self._next_offsets), self._member.partitions_total, self._pipeline
        pipeline.accounts.share(own / max(total, own, 1))
        may_be_cut = pipeline.of_sessions and not self._is_keyed and pipeline.settings.sessions.replicas != "any"
        if may_be_cut and isinstance(self._topic, Topic):
            is_shared = own < total
            self._topic.set_shared(_SHARED.format(self._kafka.group, self._kafka.topic) if is_shared else "")

    def _commit_ends(self, ends: Mapping[int, PartitionEnd]) -> None:
        notes = {
            partition: (offset, CommitNote(self._configuration, beyond))
            for partition, (offset, beyond) in ends.items()
            if offset is not None
        }
        self._member.commit(notes)

    def on_problem(self, problem: KafkaProblem) -> None:
        """Note an error of the client."""
        kind, text, partition = problem
        if kind == "end":
            if partition is not None and partition in self._next_offsets:
                self._logs.note_end(partition)
        elif kind == "unsupported":
            self._lacks_protocol = True
        elif kind != "transient":
            self._fault = text
            log_once(f"kafka {kind}", text)
            self._is_disconnected = self._is_disconnected or kind == "unreachable"
            self._refusal = text if kind == "refused" else self._refusal
            if kind == "unreachable":
                self._set_clocks(self._next_offsets)
            else:
                self._group_answered.set()


_NO_KEY: Final = (
    "messages of {} have no key, so that the spans of one trace may be in several partitions and are scored separately: set "
    "partition_traces_by_id in the Collector's kafka exporter"
)
_GONE: Final = (
    "{:,} messages of {} were deleted before they were read (partition {}): its retention is shorter than the lag"
)
_CUT: Final = (
    "the log of {}, partition {}, ends before the next offset, {}: the topic was created again or restored; it is read "
    "from {} on"
)
_SHARED: Final = (
    "other workers of the group {} read turns of the same conversations, as the topic {} is keyed by trace; key it by "
    "conversation, and set kafka.key: conversation"
)
_RAISES: Final = "message {} of {}, partition {}, cannot be read here: it raised twice; it is skipped and counted"
_OTHERWISE: Final = (
    "partitions of {} were read by the group {} with other metrics, or other versions of them: all its workers need the same "
    "configuration; this is expected once after a change of it"
)
