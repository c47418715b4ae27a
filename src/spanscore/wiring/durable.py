"""Makes the queue of a scorer, its spool, and the dispatcher that sends units to another process, from the options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from spanscore.config.durable import Spool, confluent_config
from spanscore.config.tree import ScorerSettings
from spanscore.core.job import JobResult
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.printable import format_age, format_bytes, format_count
from spanscore.core.score import Outcome
from spanscore.durable.rows import REMOTE_SCORING, Carrier, SpoolState, UnitCopy
from spanscore.errors import ConfigurationError
from spanscore.outputs.aggregates import checked_dimensions
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.providers import Providers
from spanscore.pipeline.jobs import JobBuilder
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.queues import QUEUES, MemoryQueue
from spanscore.protocols import DurableQueue, Queue
from spanscore.wiring.outputs import ExportConfirmation

if TYPE_CHECKING:
    from spanscore.durable.dispatcher import Dispatcher
    from spanscore.durable.spool import SpoolFile


def spool_rows(state: SpoolState, since_s: float) -> Iterator[str]:
    """Yield the lines about a spool; ``since_s``: time at which the counts of this process began at zero, since the epoch."""
    parts = [f"spool: {format_count(state.depth, 'unit')} on the disk, {format_bytes(state.bytes)}"]
    parts += [f"oldest {format_age(state.oldest_s)}"] if state.depth else []
    parts += [f"{state.owners:,} process{'' if state.owners == 1 else 'es'}"]
    parts += [f"{state.dead_letters:,} dead letters: spanscore spool FILE shows them"] if state.dead_letters else []
    parts += [f"{state.expired:,} older than max_age"] if state.expired else []
    yield "; ".join(parts)
    began = datetime.fromtimestamp(since_s, UTC)
    yield f"counts of this process began at {began:%Y-%m-%d %H:%M:%S} UTC, without earlier units"
    if state.fault is not None:
        yield state.fault


def refuse_two_queues(settings: ScorerSettings) -> None:
    """Raise ConfigurationError if units would wait in a spool and in another queue."""
    if settings.spool is not None and settings.limits.job_queue != "memory":
        raise ConfigurationError(
            "spool and limits.job_queue are both given, but units wait in one place only; remove one of them"
        )


def queue_of(
    settings: ScorerSettings,
    unreadable: Callable[[], None],
    resource: Callable[[], Mapping[str, Any]],
    metrics: Collection[str],
) -> Queue:
    """Return the queue in which units wait for their scores by ``metrics``.

    ``unreadable`` is called for each row of a spool that cannot be decoded.

    Raises:
        ConfigurationError: a spool is combined with another queue, or cannot be opened.
    """
    if settings.remote_scoring is not None:
        return CopyQueue(settings, None if settings.spool is None else open_spool_file(settings.spool))
    if settings.spool is None:
        made: Queue = QUEUES.one(
            settings.limits.job_queue, capacity=settings.limits.queue_size, max_bytes=settings.limits.queue_bytes
        )
        return made
    refuse_two_queues(settings)
    from spanscore.pipeline.spool_queue import SpoolQueue

    file = open_spool_file(settings.spool)

    def report(because: str) -> None:
        log_once(f"spool row {because}", f"a row of the spool {file.path} became a dead letter: {because}")
        unreadable()

    return SpoolQueue(
        file,
        in_memory=settings.limits.queue_size,
        max_bytes=settings.limits.queue_bytes,
        scores_here=settings.spool.score_here,
        unreadable=report,
        resource=resource,
        metrics=metrics,
    )


def set_metrics(queue: Queue, metrics: Collection[str], *, add: bool) -> None:
    """Have a queue with a spool take jobs for these metrics; with ``add`` also for its present metrics. No effect on others."""
    if spool_of(queue) is not None:
        from spanscore.pipeline.spool_queue import SpoolQueue  # imports SQLite

        if isinstance(queue, SpoolQueue):
            queue.metrics = {*metrics, *(queue.metrics or () if add else ())}


class CopyQueue(MemoryQueue):
    """The queue of a process that does not score. Its bounds limit the units on their way to the scoring process.

    Attributes:
        spool: file in which copies of the units wait; None = they wait in memory.
    """

    def __init__(self, settings: ScorerSettings, spool: SpoolFile | None) -> None:
        super().__init__(settings.limits.queue_size, settings.limits.queue_bytes)
        self.spool = spool


def spool_of(queue: Queue) -> SpoolFile | None:
    """Return the spool's file of a queue; None if it has no spool."""
    if not hasattr(queue, "spool"):
        return None
    from spanscore.durable.spool import SpoolFile

    return queue.spool if isinstance(queue.spool, SpoolFile) else None  # a user's queue may have such an attribute


def confirmation_of(queue: Queue, providers: Providers, telemetry: Telemetry | None) -> ExportConfirmation | None:
    """Return the object that removes a job from a durable queue once its results are exported; None for a queue in memory."""
    if not isinstance(queue, DurableQueue):
        return None
    from spanscore.pipeline.spool_queue import SpoolQueue

    # Without exported metrics, and for a user's queue, only the export of spans counts.
    if telemetry is None or not isinstance(queue, SpoolQueue):
        return ExportConfirmation(queue, providers)
    confirmation = ExportConfirmation(queue, providers, spool=queue)
    telemetry.on_collection = confirmation.begin_collection
    providers.on_metrics_exported = confirmation.confirm_collection
    return confirmation


def close_spool(queue: Queue, confirmation: ExportConfirmation | None, timeout_s: float) -> None:
    """Delete exported jobs, return the other jobs to the spool, and close its file."""
    if confirmation is not None:
        confirmation.finish(timeout_s)
    if (file := spool_of(queue)) is not None:
        file.close(timeout_s)


def open_spool_file(settings: Spool) -> SpoolFile:
    """Return the opened file of a spool.

    Raises:
        ConfigurationError: the spool cannot be opened.
    """
    from spanscore.durable.spool import SpoolFile

    return SpoolFile(
        settings.path,
        sync=settings.sync,
        max_bytes=settings.max_bytes,
        max_age_s=settings.max_age,
        lease_s=settings.lease,
        allow_network_disk=settings.allow_network_disk,
    )


# --- remote scoring --------------------------------------------------------------------------------------------------


def without_local_scoring(settings: ScorerSettings) -> ScorerSettings:
    """Return the settings without options of judges, if another process scores the units; otherwise unchanged.

    Raises:
        ConfigurationError: an option needs scores or samples in this process.
    """
    if settings.remote_scoring is not None:
        for what, is_set, needs in _local_options(settings):
            if is_set:
                raise ConfigurationError(f"{what} cannot be combined with remote_scoring: {needs}")
    elif settings.spool is None or settings.spool.score_here:
        return settings
    elif settings.sampling.feedback:
        raise ConfigurationError(
            "sampling.feedback cannot be combined with spool.score_here: false: human labels arrive here, but this process "
            "does not judge"
        )
    judge = settings.judge.model_copy(update={"shadows": (), "budget": (), "shadow_budget": None})
    return settings.model_copy(update={"judge": judge, "judge_check": None, "collect": None})


def dispatcher_of(
    settings: ScorerSettings,
    builder: JobBuilder,
    queue: Queue,
    providers: Providers,
    ledger: Ledger,
    post: Callable[[JobResult], None],
) -> Dispatcher | None:
    """Return the dispatcher of a scorer; None if units are scored in this process.

    ``ledger`` counts the units whose copies expire in a spool, and ``post`` posts the end of a unit to the span thread.
    """
    if (remote_scoring := settings.remote_scoring) is None:
        return None
    from spanscore.durable.carriers import OtlpCarrier, SpooledCarrier  # imports OTLP, SQLite and an HTTP client
    from spanscore.durable.dispatcher import Dispatcher, UnitEncoder

    hooks = builder.hooks
    encoder = UnitEncoder(
        redactor=hooks.redactor,
        samples=lambda sampled: builder.job(sampled).samples,
        filters=hooks.keep is not None,
        dimensions=checked_dimensions(settings.monitoring.dimensions),
        images=builder.images.max_bytes > 0,
        box=builder.box,
        resource=providers.resource,
    )
    if remote_scoring.kafka is None:
        carrier: Carrier = OtlpCarrier(remote_scoring)
    else:
        from spanscore.durable.confluent_kafka_carrier import KafkaCarrier

        brokers = confluent_config(remote_scoring.kafka, "remote_scoring.kafka")
        carrier = KafkaCarrier(brokers, remote_scoring.kafka.topic)
    if (spool := spool_of(queue)) is not None:
        carrier = SpooledCarrier(spool, carrier, lost=partial(_count_lost, ledger))
    return Dispatcher(encoder, carrier, queue=queue, post=post, where=remote_scoring.shown)


def _count_lost(ledger: Ledger, copy: UnitCopy, outcome: Outcome) -> None:
    """Count a unit whose copy is lost. It was counted before as ``delegated``, perhaps by an earlier process."""
    from spanscore.core.codecs.job import units_of
    from spanscore.core.codecs.otlp_request import parse_request

    for unit, _ in units_of(parse_request(copy.request).spans, lambda error: log_internal_error("read a copy", error)):
        ledger.enter(unit.key, unit.eligible_metrics)
        ledger.settle_all(unit.key, outcome)


def rejection_reason_of(queue: Queue, settings: ScorerSettings) -> Callable[[], str | None]:
    """Return a function that returns why the queue rejects units; None = no reason to add."""
    if settings.remote_scoring is not None:
        return lambda: REMOTE_SCORING
    return queue.rejection_reason if isinstance(queue, DurableQueue) else lambda: None


def _local_options(settings: ScorerSettings) -> Iterator[tuple[str, bool, str]]:
    """Yield each option that needs samples or scores in this process, whether it is set, and the reason."""
    labels = "human labels arrive in this process, but the samples that they belong to are in the scoring process"
    inner = "a unit is sent without its inner units; score in this process, or with a spool and a worker"
    spool = "score_here: false leaves units to a worker, remote_scoring sends them to a server; choose one"
    turns = "a conversation is scored by all its turns, and only sampled turns are sent to the scoring process"
    yield "sessions.metrics", bool(settings.sessions.metrics), turns
    yield "sampling.feedback", settings.sampling.feedback is not None, labels
    yield "units.also", bool(settings.units.also), inner
    yield "spool.score_here: false", settings.spool is not None and not settings.spool.score_here, spool
    is_other = settings.limits.job_queue != "memory"
    yield "limits.job_queue", is_other, "units wait in memory or in a spool until they are sent"
    for rule in settings.sampling.rules:
        if rule.when.score is not None:
            yield "sampling.rules", True, f"{rule.name} reads a score, which only the other process has"
